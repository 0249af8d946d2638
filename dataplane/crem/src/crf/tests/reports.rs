//! LOSS_REPORT against known loss patterns.

use super::*;

// shows: CREM-LR-01, CREM-LR-02, QOS-ECN-04, QOS-ECN-07, AMB-LRINT, AMB-LRACTIVE
#[test]
fn a_clean_flow_reports_every_srtt_while_it_is_active() {
    let mut rig = Rig::bound(config(), 1, 1000);
    for n in 0..100 {
        rig.wait(MS);
        let mut desc = rig.desc(1000 + n);
        desc.ce = n % 4 == 0;
        rig.descs(&[desc]);
    }
    let reports = rig.count("reports");
    assert!((4..=6).contains(&reports), "{reports} in 100 ms");
    rig.wait(200 * MS);
    let r = rig.reports();
    assert_eq!((r.expected, r.received, r.ce_marked), (180, 180, 25));
    let sent = rig.count("reports");
    rig.wait(Duration::from_secs(1));
    assert_eq!(rig.count("reports"), sent, "silent while idle");
    rig.burst(&[1100]);
    rig.wait(100 * MS);
    let r = rig.reports();
    assert_eq!(r.expected, 1);
    assert!(
        r.interval_us <= 45_000,
        "the pause is not reported: {}",
        r.interval_us
    );
}

// shows: CREM-RECV-14, CREM-LR-02
#[test]
fn restored_packets_do_not_hide_losses() {
    let mut rig = Rig::bound(config(), 1, 1000);
    let mut psn = 1000;
    for _ in 0..50 {
        let burst: Vec<u32> = (0..8).filter(|n| *n != 3).map(|n| psn + n).collect();
        rig.burst(&burst);
        rig.ordinary(psn, 0);
        psn += 8;
        rig.wait(200 * US);
    }
    assert_eq!(rig.count("restored"), 50);
    rig.wait(100 * MS);
    let r = rig.reports();
    assert_eq!((r.expected, r.received, r.restored), (480, 430, 50));
    assert_eq!((r.incomplete_blocks, r.repairs_received), (0, 50));
    assert!(rig.status().loss > 0.0);
}

// shows: AMB-LREXP
#[test]
fn reordering_is_no_loss() {
    let mut rig = Rig::bound(config(), 1, 1000);
    for n in 0..200u32 {
        rig.now = rig.now + 20 * US;
        rig.burst(&[1000 + 2 * n + 1, 1000 + 2 * n]);
    }
    rig.wait(100 * MS);
    let r = rig.reports();
    assert_eq!((r.expected, r.received), (480, 480));
    assert!(rig.jobs.is_empty());
}

// shows: QOS-ECN-07, QOS-HDR-03, CREM-LR-02
#[test]
fn marks_on_repairs_are_counted() {
    let mut rig = Rig::bound(config(), 2, 1000);
    let header = rig.header(992, 0);
    let csf = rig.csf;
    rig.repair_from(csf, &header, true);
    rig.repair_from(csf, &header, false);
    rig.wait(100 * MS);
    let r = rig.reports();
    assert_eq!((r.repairs_received, r.repairs_ce_marked), (2, 1));
}

// shows: CREM-BLOCK-04, AMB-LREXP
#[test]
fn positions_nobody_names_stay_out_of_the_counts() {
    let mut rig = Rig::bound(config(), 1, 1000);
    rig.burst(&[1000, 1001, 1003, 1004, 1005, 1006, 1007, 1008]);
    // 1002 never was in the stream: the bitmap says so.
    let header = RepairHeader {
        present: set(&[0, 1, 3, 4, 5, 6, 7]),
        ..rig.header(1000, 0)
    };
    rig.repair(&header);
    assert_eq!(
        rig.taken(),
        [1000, 1001, 1003, 1004, 1005, 1006, 1007, 1008],
        "and nothing waits"
    );
    rig.wait(100 * MS);
    let r = rig.reports();
    assert_eq!((r.expected, r.received), (88, 88));
}

// shows: AMB-LATEDUP
#[test]
fn a_copy_that_comes_after_its_original_was_restored_passes() {
    let mut rig = Rig::bound(config(), 1, 1000);
    rig.burst(&[1000, 1001, 1003, 1004, 1005, 1006, 1007, 1008]);
    rig.ordinary(1000, 0);
    rig.wait(A);
    rig.taken();
    rig.burst(&[1002]);
    assert_eq!(rig.delivered, [(Delivery::Source, 1002)]);
    rig.wait(100 * MS);
    let r = rig.reports();
    assert_eq!((r.expected, r.received, r.restored), (89, 88, 1));
}
