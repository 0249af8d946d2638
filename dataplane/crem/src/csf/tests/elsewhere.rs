//! Several workers: what one sender function tells the others, and takes from them.

use crem_wire::crem::LossReport;

use super::rig::*;
use crate::config::Shard;
use crate::csf::testing::key;
use crate::csf::{FlowIdChange, State};

fn report(rig: &Rig, expected: u32, received: u32) -> LossReport {
    LossReport {
        flow: rig.flow_id(key(1)),
        interval_us: 20_000,
        expected,
        received,
        restored: 0,
        incomplete_blocks: 0,
        ce_marked: 0,
        repairs_received: 0,
        repairs_ce_marked: 0,
    }
}

fn bound(shard: Shard) -> Rig {
    let mut cfg = config();
    cfg.shard = shard;
    let mut rig = Rig::new(cfg);
    rig.paced(key(1), 0..200, MS);
    assert_eq!(rig.status(key(1)).state, State::Active);
    rig
}

#[test]
fn nonces_and_changes_of_flow_ids_tell_the_worker() {
    let mut rig = bound(Shard { index: 2, count: 3 });
    assert!(rig.hellos().iter().all(|(_, nonce)| nonce % 3 == 2));
    let (peer, id) = (gateway(), rig.flow_id(key(1)));
    let change = |bound| FlowIdChange { peer, id, bound };
    assert_eq!(rig.csf.poll_flow_id(), Some(change(true)));
    assert_eq!(rig.csf.poll_flow_id(), None);
    assert!(rig.csf.srtt_of(peer, id).is_some());
    rig.csf
        .close_all(crem_wire::crem::registry::CloseReason::Normal);
    assert_eq!(rig.csf.poll_flow_id(), Some(change(false)));
    assert_eq!(rig.csf.srtt_of(peer, id), None);
}

#[test]
fn one_worker_has_nobody_to_tell() {
    let mut rig = bound(Shard::WHOLE);
    assert_eq!(rig.csf.poll_flow_id(), None);
}

#[test]
fn reports_of_other_workers_count_for_the_path_and_for_no_flow() {
    let mut rig = bound(Shard { index: 0, count: 2 });
    let before = rig.csf.paths().next().unwrap();
    let counters = rig.csf.counters();
    for _ in 0..50 {
        rig.wait(RTT);
        let report = report(&rig, 1000, 900);
        rig.csf
            .on_report_elsewhere(rig.now, gateway(), &report, RTT);
    }
    let after = rig.csf.paths().next().unwrap();
    assert!(after.loss > before.loss + 0.05, "{before:?} {after:?}");
    assert_eq!(rig.csf.counters().loss_reports, counters.loss_reports);
    assert_eq!(rig.status(key(1)).loss, 0.0005);
    // A path that nobody here uses stays unknown.
    let stranger = "192.0.2.77:50000".parse().unwrap();
    let report = report(&rig, 10, 9);
    rig.csf.on_report_elsewhere(rig.now, stranger, &report, RTT);
    assert_eq!(rig.csf.paths().count(), 1);
}
