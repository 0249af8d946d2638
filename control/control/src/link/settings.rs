//! What a driver is told so that a link becomes what the document says, and what of that is otherwise. No socket.

use crem_api::rest::PortLink;
use crem_api::{LinkFec, LinkSettings};

/// One request to a driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Speed and negotiation; what is `None` stays.
    Modes {
        /// Whether the speed is negotiated.
        autonegotiation: Option<bool>,
        /// The speed, Mbit/s.
        speed_mbit: Option<u32>,
    },
    /// FEC of the link.
    Fec(LinkFec),
}

/// What has to be asked for; nothing of a link that is as it should be, since asking takes it down for a moment.
pub fn steps(link: &PortLink, wanted: &LinkSettings) -> Vec<Step> {
    let mut steps = Vec::new();
    if !modes_differ(link, wanted).is_empty() {
        steps.push(Step::Modes {
            autonegotiation: wanted.autonegotiation,
            speed_mbit: wanted.speed_mbit,
        });
    }
    if let Some(fec) = wanted.fec.filter(|fec| !has_fec(link, *fec)) {
        steps.push(Step::Fec(fec));
    }
    steps
}

/// What is otherwise, in words.
pub fn different(link: &PortLink, wanted: &LinkSettings) -> Vec<String> {
    let mut found = modes_differ(link, wanted);
    if let Some(fec) = wanted.fec.filter(|fec| !has_fec(link, *fec)) {
        let has = link.fec.as_ref().map(|f| f.configured.join(" "));
        let has = has.unwrap_or_else(|| "nothing told".to_owned());
        found.push(format!("fec: {} wanted, {has}", fec_name(fec)));
    }
    if wanted.pause.is_some() {
        let reason =
            "pause: frames of a kernel interface wait in the kernel, which sends none for them";
        found.push(reason.to_owned());
    }
    found
}

fn modes_differ(link: &PortLink, wanted: &LinkSettings) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(on) = wanted.autonegotiation
        && link.autonegotiation != Some(on)
    {
        found.push(format!("autonegotiation: {on} wanted"));
    }
    if let Some(speed) = wanted.speed_mbit {
        let negotiated = wanted.autonegotiation.or(link.autonegotiation) == Some(true);
        let of_speed = |mode: &String| mode.starts_with(&format!("{speed}base"));
        // What is offered besides modes, such as pause and FEC, is no speed.
        let mut offered = link
            .advertised
            .iter()
            .filter(|mode| mode.contains("base"))
            .peekable();
        let as_wanted = if negotiated {
            offered.peek().is_some() && offered.all(of_speed)
        } else {
            link.speed_mbit == Some(speed)
        };
        if !as_wanted {
            let has = link.speed_mbit.map(|s| s.to_string());
            let has = has.unwrap_or_else(|| "none told".to_owned());
            found.push(format!("speed_mbit: {speed} wanted, {has}"));
        }
    }
    found
}

fn has_fec(link: &PortLink, wanted: LinkFec) -> bool {
    let Some(fec) = &link.fec else { return false };
    match wanted {
        LinkFec::Auto => fec.automatic,
        other => !fec.automatic && fec.configured == [fec_name(other)],
    }
}

/// A request in words.
pub fn told(step: Step) -> String {
    match step {
        Step::Modes {
            autonegotiation,
            speed_mbit,
        } => {
            let speed = speed_mbit.map(|speed| format!("{speed} Mbit/s"));
            let negotiated = autonegotiation.map(|on| format!("autonegotiation {on}"));
            let both: Vec<String> = speed.into_iter().chain(negotiated).collect();
            both.join(", ")
        }
        Step::Fec(fec) => format!("fec {}", fec_name(fec)),
    }
}

/// The kernel's name of a kind of FEC.
pub fn fec_name(fec: LinkFec) -> &'static str {
    match fec {
        LinkFec::Auto => "auto",
        LinkFec::None => "None",
        LinkFec::BaseR => "BASER",
        LinkFec::Rs => "RS",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crem_api::rest::FecState;

    fn link(speed: u32, negotiated: bool, modes: &[&str], fec: &[&str]) -> PortLink {
        PortLink {
            speed_mbit: Some(speed),
            autonegotiation: Some(negotiated),
            advertised: modes.iter().map(|m| (*m).to_owned()).collect(),
            fec: Some(FecState {
                configured: fec.iter().map(|f| (*f).to_owned()).collect(),
                automatic: false,
                active: None,
            }),
            ..PortLink::default()
        }
    }

    fn wanted(
        autonegotiation: Option<bool>,
        speed_mbit: Option<u32>,
        fec: Option<LinkFec>,
    ) -> LinkSettings {
        LinkSettings {
            autonegotiation,
            speed_mbit,
            fec,
            pause: None,
        }
    }

    #[test]
    fn a_link_that_is_as_it_should_be_is_left_alone() {
        let fixed = link(100_000, false, &[], &["RS"]);
        let offers = link(25_000, true, &["25000baseCR/Full", "Pause"], &["RS"]);
        for (link, wanted) in [
            (&fixed, wanted(None, None, None)),
            (
                &fixed,
                wanted(Some(false), Some(100_000), Some(LinkFec::Rs)),
            ),
            (&fixed, wanted(None, Some(100_000), None)),
            (&offers, wanted(Some(true), Some(25_000), None)),
        ] {
            assert_eq!(steps(link, &wanted), [], "{wanted:?}");
            assert!(different(link, &wanted).is_empty());
        }
    }

    #[test]
    fn what_differs_is_asked_for_and_told() {
        let offers = link(
            25_000,
            true,
            &["25000baseCR/Full", "10000baseCR/Full"],
            &["RS"],
        );
        let wanted = wanted(None, Some(25_000), Some(LinkFec::None));
        assert_eq!(
            steps(&offers, &wanted),
            [
                Step::Modes {
                    autonegotiation: None,
                    speed_mbit: Some(25_000)
                },
                Step::Fec(LinkFec::None)
            ]
        );
        assert_eq!(
            different(&offers, &wanted),
            ["speed_mbit: 25000 wanted, 25000", "fec: None wanted, RS"]
        );
    }
}
