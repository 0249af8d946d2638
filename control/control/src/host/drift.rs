//! What the kernel has other than the document, and the steps that would mend it. No socket, no clock.

use std::net::IpAddr;

use crem_api::rest::{Drift, DriftKind, InterfaceList, InterfaceState, RouteList, RouteState};
use crem_api::{Addressing, Management, ManagementInterface, ManagementRoute, Prefix};

use super::Machine;

/// The number that the kernel keeps with routes of ours, as who made them: one that is not assigned.
pub const PROTOCOL: u8 = 196;

/// One change of the kernel's state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Switch an interface on, with an MTU if the document has one.
    Enable {
        /// Number of the interface.
        index: u32,
        /// Its name.
        name: String,
        /// MTU.
        mtu: Option<u32>,
    },
    /// Add an address.
    AddAddress {
        /// Number of the interface.
        index: u32,
        /// Its name.
        name: String,
        /// The address.
        address: Prefix,
    },
    /// Remove one.
    RemoveAddress {
        /// Number of the interface.
        index: u32,
        /// Its name.
        name: String,
        /// The address.
        address: Prefix,
    },
    /// Add a route, or put it in the place of another one of ours.
    SetRoute {
        /// Where it leads.
        destination: Prefix,
        /// Next router.
        gateway: Option<IpAddr>,
        /// Number of the interface.
        index: Option<u32>,
        /// Metric.
        metric: Option<u32>,
    },
    /// Remove a route of ours.
    RemoveRoute(RouteState),
}

impl Step {
    /// The step in words.
    pub fn told(&self) -> String {
        match self {
            Self::Enable { name, mtu, .. } => match mtu {
                Some(mtu) => format!("{name} is set up, MTU {mtu}."),
                None => format!("{name} is set up."),
            },
            Self::AddAddress { name, address, .. } => format!("{name} gets {address}."),
            Self::RemoveAddress { name, address, .. } => format!("{name} loses {address}."),
            Self::SetRoute { destination, .. } => format!("A route to {destination} is set."),
            Self::RemoveRoute(route) => format!("The route to {} is removed.", route.destination),
        }
    }
}

/// Notes which addresses and routes the document has.
pub fn mark(wanted: Option<&Management>, interfaces: &mut InterfaceList, routes: &mut RouteList) {
    let Some(wanted) = wanted else { return };
    for (name, interface) in &mut interfaces.interfaces {
        let Some(configured) = wanted.interfaces.get(name) else {
            continue;
        };
        for (address, state) in &mut interface.addresses {
            state.configured = configured.addresses.contains_key(address);
        }
    }
    for route in &mut routes.routes {
        let configured = wanted.routes.get(&route.destination);
        route.configured = configured.is_some_and(|c| is(c, route));
    }
}

/// Whether a route is the one that the document has for its destination.
fn is(configured: &ManagementRoute, route: &RouteState) -> bool {
    configured.gateway == route.gateway
        && configured.metric.is_none_or(|m| m == route.metric)
        && (configured.interface.is_none() || configured.interface == route.interface)
}

/// Every difference.
pub fn drift(wanted: Option<&Management>, machine: &Machine) -> Vec<Drift> {
    let Some(wanted) = wanted else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (name, configured) in &wanted.interfaces {
        let pointer = format!("/management/interfaces/{}", escaped(name));
        match machine.interfaces.interfaces.get(name) {
            None => found.push(Drift {
                pointer,
                kind: DriftKind::InterfaceMissing,
                configured: Some(name.clone()),
                operational: None,
            }),
            Some(interface) => of_interface(&pointer, configured, interface, &mut found),
        }
    }
    for (destination, configured) in &wanted.routes {
        let mut routes = machine.routes.routes.iter();
        if !routes.any(|r| r.destination == *destination && is(configured, r)) {
            found.push(Drift {
                pointer: route_pointer(destination),
                kind: DriftKind::RouteMissing,
                configured: Some(destination.to_string()),
                operational: None,
            });
        }
    }
    let ours = |r: &&RouteState| r.protocol == PROTOCOL && !r.configured;
    found.extend(
        machine
            .routes
            .routes
            .iter()
            .filter(ours)
            .map(|route| Drift {
                pointer: route_pointer(&route.destination),
                kind: DriftKind::RouteExtra,
                configured: None,
                operational: Some(route.destination.to_string()),
            }),
    );
    found
}

fn of_interface(
    pointer: &str,
    configured: &ManagementInterface,
    interface: &InterfaceState,
    found: &mut Vec<Drift>,
) {
    let mut say = |place: String, kind, configured: Option<String>, operational: Option<String>| {
        found.push(Drift {
            pointer: format!("{pointer}{place}"),
            kind,
            configured,
            operational,
        });
    };
    if !interface.enabled {
        say(String::new(), DriftKind::InterfaceDisabled, None, None);
    }
    if let Some(mtu) = configured.mtu.filter(|mtu| *mtu != interface.mtu) {
        let (mtu, is) = (mtu.to_string(), interface.mtu.to_string());
        say("/mtu".to_owned(), DriftKind::Mtu, Some(mtu), Some(is));
    }
    for address in configured.addresses.keys() {
        if !interface.addresses.contains_key(address) {
            let place = format!("/addresses/{}", escaped(&address.to_string()));
            say(
                place,
                DriftKind::AddressMissing,
                Some(address.to_string()),
                None,
            );
        }
    }
    for address in extra(interface) {
        let place = format!("/addresses/{}", escaped(&address.to_string()));
        say(
            place,
            DriftKind::AddressExtra,
            None,
            Some(address.to_string()),
        );
    }
}

/// Addresses that the document does not have, of those that stay and are for more than the link.
fn extra(interface: &InterfaceState) -> impl Iterator<Item = Prefix> {
    let stays = |(address, state): (&Prefix, &crem_api::rest::AddressState)| {
        let counts = !state.configured && state.permanent && state.scope == "universe";
        counts.then_some(*address)
    };
    interface.addresses.iter().filter_map(stays)
}

/// What brings the kernel to the document: first what is added, then what is removed, so that a way in stays
/// for as long as it can. Nothing for a document that leaves it to the system, but routes of ours from before.
pub fn steps(wanted: Option<&Management>, machine: &Machine) -> Vec<Step> {
    let ours = wanted.filter(|m| m.addressing == Addressing::Gateway);
    let (mut added, mut removed) = (Vec::new(), Vec::new());
    for (name, configured) in ours.into_iter().flat_map(|m| &m.interfaces) {
        let Some(interface) = machine.interfaces.interfaces.get(name) else {
            continue;
        };
        let (index, name) = (interface.index, name.clone());
        let mtu = configured.mtu.filter(|mtu| *mtu != interface.mtu);
        if !interface.enabled || mtu.is_some() {
            let name = name.clone();
            added.push(Step::Enable { index, name, mtu });
        }
        for address in configured.addresses.keys().copied() {
            if !interface.addresses.contains_key(&address) {
                let name = name.clone();
                added.push(Step::AddAddress {
                    index,
                    name,
                    address,
                });
            }
        }
        removed.extend(extra(interface).map(|address| Step::RemoveAddress {
            index,
            name: name.clone(),
            address,
        }));
    }
    for (destination, configured) in ours.into_iter().flat_map(|m| &m.routes) {
        let mut routes = machine.routes.routes.iter();
        if routes.any(|r| r.destination == *destination && is(configured, r)) {
            continue;
        }
        let index = |name: &String| Some(machine.interfaces.interfaces.get(name)?.index);
        added.push(Step::SetRoute {
            destination: *destination,
            gateway: configured.gateway,
            index: configured.interface.as_ref().and_then(index),
            metric: configured.metric,
        });
    }
    let wants = |route: &RouteState| {
        let configured = ours.and_then(|m| m.routes.get(&route.destination));
        configured.is_some_and(|c| is(c, route))
    };
    let gone = machine.routes.routes.iter();
    let gone = gone.filter(|r| r.protocol == PROTOCOL && !wants(r));
    // A route to a place goes before the new one to it comes: the kernel may take both for the same.
    let mut all: Vec<Step> = gone.cloned().map(Step::RemoveRoute).collect();
    all.extend(added);
    all.extend(removed);
    all
}

/// A difference in words.
pub fn told(drift: &Drift) -> String {
    let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
    match drift.kind {
        DriftKind::InterfaceDisabled => {
            format!("{}: the interface is switched off.", drift.pointer)
        }
        _ => format!(
            "{}: the document has {}, the machine {}.",
            drift.pointer,
            side(&drift.configured),
            side(&drift.operational)
        ),
    }
}

/// Links that came or went between two looks.
pub fn link_events(before: &InterfaceList, now: &InterfaceList) -> Vec<(&'static str, String)> {
    let mut events = Vec::new();
    for (name, interface) in &now.interfaces {
        match before.interfaces.get(name) {
            None => events.push(("interface_added", format!("There is an interface {name}."))),
            Some(last) if last.carrier != interface.carrier => {
                let (kind, word) = if interface.carrier {
                    ("link_up", "up")
                } else {
                    ("link_down", "down")
                };
                events.push((kind, format!("{name}: the link is {word}.")));
            }
            Some(_) => {}
        }
    }
    let gone = before.interfaces.keys();
    for name in gone.filter(|name| !now.interfaces.contains_key(*name)) {
        events.push((
            "interface_removed",
            format!("The interface {name} is gone."),
        ));
    }
    events
}

fn route_pointer(destination: &Prefix) -> String {
    format!("/management/routes/{}", escaped(&destination.to_string()))
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crem_api::rest::AddressState;
    use crem_api::{Syntax, parse};

    fn wanted(addressing: &str) -> Management {
        let text = format!(
            r#"
            version = 1
            [segments.a]
            mode = "passthrough"
            crem_port = 4801
            path_mtu = 1500
            lan = {{ interface = "lan0" }}
            wan = {{ interface = "wan0" }}
            [management]
            addressing = "{addressing}"
            interfaces = {{ m0 = {{ addresses = {{ "192.0.2.1/24" = {{}} }}, mtu = 1400 }}, m1 = {{}} }}
            routes = {{ "0.0.0.0/0" = {{ gateway = "192.0.2.254" }} }}
            "#
        );
        parse(&text, Syntax::Toml).unwrap().management.unwrap()
    }

    fn address(permanent: bool) -> AddressState {
        AddressState {
            scope: "universe".to_owned(),
            permanent,
            configured: false,
        }
    }

    /// An interface with an address of somebody else, a leased one, and a route of ours from before.
    fn machine() -> Machine {
        let addresses = [("198.51.100.1/24", true), ("198.51.100.2/24", false)];
        let addresses = addresses.map(|(a, p)| (a.parse().unwrap(), address(p)));
        let interface = InterfaceState {
            index: 7,
            mtu: 1500,
            addresses: addresses.into(),
            ..InterfaceState::default()
        };
        let route = |destination: &str, protocol| RouteState {
            destination: destination.parse().unwrap(),
            gateway: Some("198.51.100.9".parse().unwrap()),
            interface: Some("m0".to_owned()),
            metric: 0,
            protocol,
            configured: false,
        };
        let mut machine = Machine::default();
        machine
            .interfaces
            .interfaces
            .insert("m0".to_owned(), interface);
        machine.routes.routes = vec![route("203.0.113.0/24", PROTOCOL), route("10.0.0.0/8", 3)];
        machine
    }

    #[test]
    fn every_difference_is_told_with_its_place() {
        let mut machine = machine();
        let wanted = wanted("system");
        mark(Some(&wanted), &mut machine.interfaces, &mut machine.routes);
        let found = drift(Some(&wanted), &machine);
        let told: Vec<_> = found.iter().map(|d| (d.pointer.as_str(), d.kind)).collect();
        assert_eq!(
            told,
            [
                ("/management/interfaces/m0", DriftKind::InterfaceDisabled),
                ("/management/interfaces/m0/mtu", DriftKind::Mtu),
                (
                    "/management/interfaces/m0/addresses/192.0.2.1~124",
                    DriftKind::AddressMissing
                ),
                (
                    "/management/interfaces/m0/addresses/198.51.100.1~124",
                    DriftKind::AddressExtra
                ),
                ("/management/interfaces/m1", DriftKind::InterfaceMissing),
                ("/management/routes/0.0.0.0~10", DriftKind::RouteMissing),
                ("/management/routes/203.0.113.0~124", DriftKind::RouteExtra),
            ]
        );
        assert!(drift(None, &machine).is_empty());
    }

    #[test]
    fn only_a_document_that_says_so_is_carried_out_and_what_others_made_stays() {
        let machine = machine();
        // Our own route goes even then: nobody else knows of it.
        let own_route = Step::RemoveRoute(machine.routes.routes[0].clone());
        assert_eq!(
            steps(Some(&wanted("system")), &machine),
            std::slice::from_ref(&own_route)
        );
        let name = || "m0".to_owned();
        assert_eq!(
            steps(Some(&wanted("gateway")), &machine),
            [
                own_route,
                Step::Enable {
                    index: 7,
                    name: name(),
                    mtu: Some(1400)
                },
                Step::AddAddress {
                    index: 7,
                    name: name(),
                    address: "192.0.2.1/24".parse().unwrap()
                },
                Step::SetRoute {
                    destination: "0.0.0.0/0".parse().unwrap(),
                    gateway: Some("192.0.2.254".parse().unwrap()),
                    index: None,
                    metric: None,
                },
                Step::RemoveAddress {
                    index: 7,
                    name: name(),
                    address: "198.51.100.1/24".parse().unwrap(),
                },
            ]
        );
    }

    #[test]
    fn links_that_change_between_two_looks_are_events() {
        let before = machine().interfaces;
        let mut now = before.clone();
        now.interfaces.get_mut("m0").unwrap().carrier = true;
        now.interfaces
            .insert("m9".to_owned(), InterfaceState::default());
        let kinds = |a, b| {
            link_events(a, b)
                .into_iter()
                .map(|(k, _)| k)
                .collect::<Vec<_>>()
        };
        assert_eq!(kinds(&before, &now), ["link_up", "interface_added"]);
        assert_eq!(kinds(&now, &before), ["link_down", "interface_removed"]);
        assert!(kinds(&now, &now).is_empty());
    }
}
