//! What reports and path evidence lead to: the class of the losses, and what it does to m.

use alloc::vec::Vec;
use core::net::IpAddr;
use crem_wire::Qpn;

use super::rig::*;
use crate::csf::testing::key;
use crate::events::Event;
use crate::policy::{Evidence, LossClass, PathEvidence};

/// The name that PATH_REPORT gives to the flow of `key(qp)`.
fn named(qp: u32) -> (IpAddr, IpAddr, Qpn) {
    let key = key(qp);
    (key.source, key.destination, key.qp)
}

fn classes(rig: &Rig) -> Vec<LossClass> {
    let class = |event: &Event| match event {
        Event::LossClassified { peer, class } => {
            assert_eq!(*peer, gateway());
            Some(*class)
        }
        _ => None,
    };
    rig.events.iter().filter_map(class).collect()
}

// shows: CREM-POL-01, AMB-CLASSIFY
#[test]
fn path_evidence_turns_losses_into_congestion_for_all_flows_of_the_peer() {
    let mut rig = Rig::new(config());
    rig.protect(key(1), 0);
    rig.protect(key(2), 0);
    rig.report(key(1), 1000, 990);
    assert_eq!(rig.status(key(2)).class, LossClass::Transmission);
    let grown = |us| PathEvidence {
        queue_delay_us: us,
        overflow: false,
    };
    rig.csf.on_path_evidence(rig.now, named(1), grown(60));
    rig.csf.on_path_evidence(rig.now, named(2), grown(60));
    rig.csf.on_path_evidence(rig.now, named(3), grown(1_000));
    assert_eq!(
        rig.status(key(2)).class,
        LossClass::Transmission,
        "two flows do not add up"
    );
    rig.csf.on_path_evidence(rig.now, named(1), grown(60));
    rig.wait(MS);
    rig.report(key(1), 10, 10);
    let delayed = LossClass::Congestion(Evidence::QueueDelay);
    assert_eq!(
        (rig.status(key(1)).class, rig.status(key(2)).class),
        (delayed, delayed)
    );
    let overflow = PathEvidence {
        queue_delay_us: 0,
        overflow: true,
    };
    rig.csf.on_path_evidence(rig.now, named(2), overflow);
    rig.report(key(1), 1000, 900);
    assert_eq!(
        classes(&rig),
        [
            LossClass::Transmission,
            delayed,
            LossClass::Congestion(Evidence::Overflow)
        ]
    );
    let paths: Vec<_> = rig.csf.paths().collect();
    assert_eq!(paths.len(), 1);
    assert_eq!(
        (paths[0].peer, paths[0].class),
        (gateway(), rig.status(key(1)).class)
    );
    let counters = rig.csf.counters();
    assert_eq!(
        (counters.lost_transmission, counters.lost_congestion),
        (10, 100)
    );
    assert_eq!(
        (counters.class_queue_delay, counters.class_overflow),
        (1, 1)
    );
}
