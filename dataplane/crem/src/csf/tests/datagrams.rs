//! Datagram traffic: never protected, shown with its reason, and bounded.

use alloc::vec::Vec;
use core::net::IpAddr;
use crem_wire::Qpn;

use super::rig::*;
use crate::config::Mode;
use crate::csf::{DatagramKey, DatagramStatus};
use crate::events::Unprotected;
use crate::packet::Namespace;
use crate::time::{Duration, Instant};

fn key(qp: u32) -> DatagramKey {
    DatagramKey {
        namespace: Namespace(0),
        source: IpAddr::from([10, 0, 1, 1]),
        destination: IpAddr::from([10, 0, 2, 1]),
        qp: Qpn::new(qp),
    }
}

fn listed(rig: &Rig) -> Vec<DatagramStatus> {
    rig.csf.datagrams().collect()
}

// shows: AMB-OPCODES
#[test]
fn datagrams_are_listed_with_the_reason_until_they_stop() {
    let mut rig = Rig::new(config());
    for _ in 0..100 {
        rig.csf.on_datagram(rig.now, key(7));
    }
    rig.wait(MS);
    let expected = DatagramStatus {
        key: key(7),
        unprotected: Unprotected::Datagram,
        packets: 100,
    };
    assert_eq!(listed(&rig), [expected]);
    assert!(rig.messages.is_empty(), "nothing is offered for them");
    assert_eq!(rig.csf.flows().count(), 0);
    rig.wait(Duration::from_secs(20));
    rig.csf.on_datagram(rig.now, key(8));
    rig.wait(Duration::from_secs(15));
    assert_eq!(listed(&rig).len(), 1, "the first has been quiet for 35 s");
    rig.wait(Duration::from_secs(16));
    assert!(listed(&rig).is_empty());
    assert_eq!(rig.csf.next_timeout(), None, "nothing is left to be done");
}

#[test]
fn the_newest_datagrams_take_the_place_of_the_oldest() {
    let mut rig = Rig::new(config());
    for qp in 0..2_000 {
        rig.csf.on_datagram(Instant(1_000_000_000), key(2 + qp));
        // The first one never stops.
        rig.csf.on_datagram(Instant(1_000_000_000), key(2));
    }
    let mut qps: Vec<u32> = listed(&rig).iter().map(|s| s.key.qp.get()).collect();
    qps.sort_unstable();
    assert_eq!(qps.len(), 1_024);
    assert_eq!(qps[..2], [2, 2_002 - 1_023]);
    assert_eq!(rig.csf.counters().datagrams, 4_000);
    assert_eq!(rig.csf.counters().datagrams_evicted, 2_000 - 1_024);
}

#[test]
fn a_gateway_that_only_passes_notes_no_datagrams() {
    let mut cfg = config();
    cfg.mode = Mode::Passthrough;
    let mut rig = Rig::new(cfg);
    rig.csf.on_datagram(rig.now, key(7));
    assert!(listed(&rig).is_empty());
}
