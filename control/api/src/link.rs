//! What the config document says of the link of a port: speed, negotiation, FEC of the link, and pause frames towards
//! hosts. Who carries it out: the data plane for devices that are its own, the control process for kernel interfaces.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::json;

use crate::read::{Code, Issue, Issues, Node, Table};
use crate::segment::{Device, Empty, Segment};

/// Speeds of Ethernet, Mbit/s.
const SPEEDS: [u32; 13] = [
    10, 100, 1_000, 2_500, 5_000, 10_000, 20_000, 25_000, 40_000, 50_000, 100_000, 200_000, 400_000,
];
/// Quanta of 512 bit times that a pause lasts.
const PAUSE_QUANTA: u16 = u16::MAX;
/// Marks of the receive buffer.
const HIGH_WATER_KIB: u32 = 80;
const LOW_WATER_KIB: u32 = 40;
const MAX_WATER_KIB: u32 = 1 << 20;

/// FEC of a link (IEEE 802.3 clauses 74, 91 and 108), which has nothing to do with CREM's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum LinkFec {
    /// As both ends agree.
    Auto,
    /// None.
    None,
    /// Base-R, also called FireCode.
    BaseR,
    /// Reed-Solomon.
    Rs,
}

/// What the link of a port should be; what is left out stays as the device has it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LinkSettings {
    /// Whether the speed is negotiated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autonegotiation: Option<bool>,
    /// The speed, Mbit/s: the only one that is offered, or without negotiation the one that is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_mbit: Option<u32>,
    /// FEC of the link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fec: Option<LinkFec>,
    /// Pause frames by priority (IEEE 802.1Qbb) towards the hosts when receive buffers fill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
}

/// Pause frames that the port sends.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Pause {
    /// Priorities that hosts are asked to pause, 0 to 7.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, Empty>))]
    pub priorities: BTreeMap<u8, Empty>,
    /// From this much in the device's receive buffer on, KiB.
    pub high_water_kib: u32,
    /// Until so little is left, KiB.
    pub low_water_kib: u32,
    /// How long a pause lasts unless it is renewed, in 512 bit times.
    pub pause_quanta: u16,
}

impl LinkSettings {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn read(node: &Node<'_>) -> Option<Self> {
        let mut t = node.table()?;
        let autonegotiation = t.optional("autonegotiation", Node::flag);
        let speed_mbit = t.optional("speed_mbit", |n| {
            n.describe(|| json!({"enum": SPEEDS}));
            let speed = n.integer(10..=400_000)?;
            if SPEEDS.contains(&speed) {
                return Some(speed);
            }
            let all: Vec<String> = SPEEDS.iter().map(u32::to_string).collect();
            n.fail(format!("one of {}", all.join(", ")))
        });
        let words = [
            ("auto", LinkFec::Auto),
            ("none", LinkFec::None),
            ("base_r", LinkFec::BaseR),
            ("rs", LinkFec::Rs),
        ];
        let fec = t.optional("fec", |n| n.choice(&words));
        let pause = t.optional("pause", |n| n.table().and_then(Pause::read));
        t.finish();
        Some(Self {
            autonegotiation: autonegotiation?,
            speed_mbit: speed_mbit?,
            fec: fec?,
            pause: pause?,
        })
    }
}

impl Pause {
    fn read(mut t: Table<'_>) -> Option<Self> {
        let priorities = t.required("priorities", |n| {
            let priority = |text: &str| {
                text.parse::<u8>()
                    .ok()
                    .filter(|p| *p < 8 && text.len() == 1)
            };
            let read = |n: &Node<'_>| n.table().map(Table::finish).map(|()| Empty {});
            n.map("a priority, 0 to 7", priority, read)
        });
        let high = t.or_told("high_water_kib", HIGH_WATER_KIB, |n| {
            n.integer(1..=MAX_WATER_KIB)
        });
        let low = t.or_told("low_water_kib", LOW_WATER_KIB, |n| {
            n.integer(1..=MAX_WATER_KIB)
        });
        let quanta = t.or_told("pause_quanta", PAUSE_QUANTA, |n| n.integer(1..=u16::MAX));
        t.finish();
        Some(Self {
            priorities: priorities?,
            high_water_kib: high?,
            low_water_kib: low?,
            pause_quanta: quanta?,
        })
    }
}

/// Notes what the settings of a segment's ports do not fulfil together.
pub(crate) fn check(id: &str, segment: &Segment, issues: &Issues) {
    for (key, device, link) in [
        ("lan_link", &segment.lan, &segment.lan_link),
        ("wan_link", &segment.wan, &segment.wan_link),
    ] {
        let say = |place: &str, found: &str, expected: &str, code| {
            let pointer = format!("/segments/{id}/{key}{place}");
            issues.push(Issue::new(pointer, found, expected).of(code));
        };
        if matches!(device, Device::Vdev(_)) && !link.is_empty() {
            let expected = "nothing, since a virtual device has no link of its own";
            say("", "settings", expected, Code::Conflict);
        }
        if link.autonegotiation == Some(false) && link.speed_mbit.is_none() {
            let expected = "a speed, since none is negotiated";
            say("/speed_mbit", "nothing", expected, Code::Missing);
        }
        let Some(pause) = &link.pause else { continue };
        if key == "wan_link" {
            let expected = "nothing: pause frames are for hosts, towards the LAN";
            say("/pause", "settings", expected, Code::Conflict);
        }
        if pause.low_water_kib >= pause.high_water_kib {
            let (low, expected) = (pause.low_water_kib.to_string(), "less than high_water_kib");
            say("/pause/low_water_kib", &low, expected, Code::Conflict);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Document, Syntax, parse};

    fn document(lines: &str) -> Result<Document, String> {
        let text = format!(
            "version = 1\n[segments.a]\nmode = \"passthrough\"\ncrem_port = 4801\npath_mtu = 1500\n\
             lan = {{ pci = \"0000:3b:00.0\" }}\nwan = {{ interface = \"wan0\" }}\n{lines}"
        );
        parse(&text, Syntax::Toml).map_err(|e| e.to_string())
    }

    #[test]
    fn a_link_is_as_it_is_said_and_otherwise_as_the_device_has_it() {
        let document = document(
            "lan_link = { speed_mbit = 100000, fec = \"rs\", pause = { priorities = { \"3\" = {} } } }",
        )
        .unwrap();
        let segment = document.segments.values().next().unwrap();
        let link = &segment.lan_link;
        assert_eq!(
            (link.speed_mbit, link.autonegotiation),
            (Some(100_000), None)
        );
        assert_eq!(link.fec, Some(LinkFec::Rs));
        let pause = link.pause.as_ref().unwrap();
        assert!(pause.priorities.contains_key(&3) && pause.low_water_kib < pause.high_water_kib);
        assert!(segment.wan_link.is_empty());
    }

    #[test]
    fn what_no_link_can_be_is_refused_with_its_place() {
        for (lines, place) in [
            (
                "lan_link = { speed_mbit = 12345 }",
                "/segments/a/lan_link/speed_mbit",
            ),
            (
                "lan_link = { autonegotiation = false }",
                "/segments/a/lan_link/speed_mbit",
            ),
            ("wan_link = { fec = \"best\" }", "/segments/a/wan_link/fec"),
            (
                "wan_link = { pause = { priorities = { \"3\" = {} } } }",
                "/segments/a/wan_link/pause",
            ),
            (
                "lan_link = { pause = { priorities = { \"8\" = {} } } }",
                "/segments/a/lan_link/pause/priorities/8",
            ),
            (
                "lan_link = { pause = { priorities = {}, low_water_kib = 80 } }",
                "/segments/a/lan_link/pause/low_water_kib",
            ),
        ] {
            let said = document(lines).unwrap_err();
            assert!(said.contains(place), "{lines}: {said}");
        }
        let vdev = "version = 1\n[segments.a]\nmode = \"passthrough\"\ncrem_port = 4801\npath_mtu = 1500\n\
             lan = { vdev = \"net_null0\" }\nwan = { vdev = \"net_null1\" }\nlan_link = { speed_mbit = 10 }";
        let said = parse(vdev, Syntax::Toml).unwrap_err().to_string();
        assert!(said.contains("/segments/a/lan_link"), "{said}");
    }
}
