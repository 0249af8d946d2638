//! Neighbours by interface, until their time is over. Bounded: whoever sends ever new names finds the table
//! full, and that is counted. The clock is an argument.

use std::collections::BTreeMap;

use crem_api::rest::{LldpCounters, LldpList, LldpNeighbour};

use super::frame::{Said, parse};

/// Neighbours on one interface, at most.
pub const MAX_OF_INTERFACE: usize = 16;
/// Neighbours at all.
pub const MAX_NEIGHBOURS: usize = 256;

/// Interface, chassis and port.
type Key = (String, String, String);

/// What was said, and until when it holds, milliseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    neighbour: LldpNeighbour,
    until_ms: u64,
}

/// The neighbours.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Neighbours {
    known: BTreeMap<Key, Entry>,
    counters: LldpCounters,
}

impl Neighbours {
    /// Takes a frame of an interface. Events, if somebody is new or says farewell.
    pub fn take(
        &mut self,
        interface: &str,
        payload: &[u8],
        now_ms: u64,
    ) -> Vec<(&'static str, String)> {
        self.counters.received += 1;
        let Ok(Said { neighbour, ttl_s }) = parse(payload) else {
            self.counters.malformed += 1;
            return Vec::new();
        };
        let key = (
            interface.to_owned(),
            format!("{}/{}", neighbour.chassis_kind, neighbour.chassis),
            format!("{}/{}", neighbour.port_kind, neighbour.port),
        );
        if ttl_s == 0 {
            let gone = self.known.remove(&key);
            return gone
                .map(|entry| left(&entry.neighbour))
                .into_iter()
                .collect();
        }
        let new = !self.known.contains_key(&key);
        let here = self.known.keys().filter(|(on, ..)| on == interface).count();
        if new && (self.known.len() >= MAX_NEIGHBOURS || here >= MAX_OF_INTERFACE) {
            self.counters.left_out += 1;
            return Vec::new();
        }
        let neighbour = LldpNeighbour {
            interface: interface.to_owned(),
            ..neighbour
        };
        let event = new.then(|| {
            (
                "lldp_neighbour",
                format!("{} is a neighbour.", named(&neighbour)),
            )
        });
        let until_ms = now_ms.saturating_add(u64::from(ttl_s) * 1000);
        self.known.insert(
            key,
            Entry {
                neighbour,
                until_ms,
            },
        );
        event.into_iter().collect()
    }

    /// Forgets those whose time is over. Events.
    pub fn forget(&mut self, now_ms: u64) -> Vec<(&'static str, String)> {
        let mut gone = Vec::new();
        self.known.retain(|_, entry| {
            let stays = entry.until_ms > now_ms;
            if !stays {
                gone.push(left(&entry.neighbour));
            }
            stays
        });
        gone
    }

    /// All of them, with the time that is left.
    pub fn list(&self, now_ms: u64) -> LldpList {
        let left = |entry: &Entry| LldpNeighbour {
            ttl_ms: entry.until_ms.saturating_sub(now_ms),
            ..entry.neighbour.clone()
        };
        LldpList {
            neighbours: self.known.values().map(left).collect(),
            counters: self.counters.clone(),
        }
    }
}

fn left(neighbour: &LldpNeighbour) -> (&'static str, String) {
    (
        "lldp_neighbour_gone",
        format!("{} is no neighbour any more.", named(neighbour)),
    )
}

fn named(neighbour: &LldpNeighbour) -> String {
    let system = neighbour.system_name.as_ref().unwrap_or(&neighbour.chassis);
    format!(
        "{}: {system}, port {},",
        neighbour.interface, neighbour.port
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::super::frame::tests::{frame, tlv};
    use super::*;

    fn of(chassis: u32, ttl: u16) -> Vec<u8> {
        let id = [b"\x07".as_slice(), chassis.to_string().as_bytes()].concat();
        [tlv(1, &id), tlv(2, b"\x07p"), tlv(3, &ttl.to_be_bytes())].concat()
    }

    #[test]
    fn neighbours_come_stay_for_their_time_and_go() {
        let mut table = Neighbours::default();
        let events = table.take("eth0", &frame(2, &[(5, b"leaf")]), 1000);
        assert_eq!(
            events,
            [(
                "lldp_neighbour",
                "eth0: leaf, port Ethernet1/7, is a neighbour.".to_owned()
            )]
        );
        assert!(
            table
                .take("eth0", &frame(2, &[(5, b"leaf")]), 2000)
                .is_empty()
        );
        assert_eq!(table.list(2500).neighbours[0].ttl_ms, 1500);
        assert!(table.forget(3999).is_empty());
        assert_eq!(table.forget(4000)[0].0, "lldp_neighbour_gone");
        table.take("eth0", &frame(2, &[]), 5000);
        assert_eq!(
            table.take("eth0", &frame(0, &[]), 5001)[0].0,
            "lldp_neighbour_gone"
        );
        assert!(table.list(5001).neighbours.is_empty());
        assert!(table.take("eth0", b"\0", 5002).is_empty());
        let counters = table.list(0).counters;
        assert_eq!((counters.received, counters.malformed), (5, 1));
    }

    #[test]
    fn the_table_is_bounded() {
        let mut table = Neighbours::default();
        for n in 0..1000 {
            table.take("eth0", &of(n, 60), 0);
        }
        assert_eq!(table.list(0).neighbours.len(), MAX_OF_INTERFACE);
        for interface in 0..100 {
            for n in 0..10 {
                table.take(&format!("if{interface}"), &of(n, 60), 0);
            }
        }
        let list = table.list(0);
        assert_eq!(list.neighbours.len(), MAX_NEIGHBOURS);
        assert_eq!(list.counters.left_out, 2000 - MAX_NEIGHBOURS as u64);
    }
}
