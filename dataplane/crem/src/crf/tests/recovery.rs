//! Restoring: by ordinary symbols, coded rounds in both forms, copies; when what is asked for.

use super::*;
use crem_wire::crem::PsnRange;

// shows: CREM-ARCH-05, CREM-RECV-02, CREM-RECV-05
#[test]
fn a_lost_packet_is_restored_in_order() {
    let mut rig = Rig::bound(config(), 1, 1000);
    rig.burst(&[1000, 1001, 1002, 1004, 1005, 1006, 1007, 1008]);
    rig.now = rig.now + 60 * US;
    rig.ordinary(1000, 0);
    assert!(rig.jobs.is_empty(), "the source may be late by A");
    rig.wait(40 * US);
    assert_eq!(rig.jobs.len(), 1);
    assert_eq!(
        rig.delivered[2..5],
        [
            (Delivery::Source, 1002),
            (Delivery::Restored, 1003),
            (Delivery::Source, 1004)
        ]
    );
    assert_eq!(rig.taken(), (1000..1009).collect::<Vec<_>>());
    assert_eq!(
        (
            rig.count("restored_ordinary"),
            rig.count("blocks_completed")
        ),
        (1, 1)
    );
    let took = rig.crf.times().recovery_ns;
    assert_eq!(took.count(), 1);
    assert!(
        (100_000..150_000).contains(&took.permille(500)),
        "60 µs, and what was left of A"
    );
    let job = &rig.jobs[0];
    assert_eq!((job.scheme, job.t, job.verify_sources), (1, T, false));
    assert_eq!(
        (job.sources.len(), job.symbols.len(), job.unknowns.len()),
        (7, 1, 1)
    );
    rig.wait(100 * MS);
    assert!(rig.block_request().is_none() && rig.range_request().is_none());
}

#[test]
fn late_sources_make_a_decode_needless() {
    let mut rig = Rig::bound(config(), 2, 1000);
    // The REPAIR overtakes the end of its block.
    rig.burst(&[1000, 1001, 1002, 1003]);
    rig.ordinary(1000, 0);
    rig.ordinary(1000, 1);
    rig.now = rig.now + 50 * US;
    rig.burst(&[1005, 1004, 1006, 1007]);
    rig.wait(100 * MS);
    assert!(rig.jobs.is_empty() && rig.block_request().is_none());
    assert_eq!(rig.count("blocks_completed"), 1);
    assert_eq!(rig.reports().expected, 88);
}

// shows: CREM-RECV-02, CREM-RECV-10
#[test]
fn the_lost_end_of_a_burst_is_restored() {
    let mut rig = Rig::bound(config(), 2, 1000);
    rig.burst(&[1000, 1001, 1002, 1003, 1004, 1005]);
    rig.ordinary(1000, 0);
    rig.ordinary(1000, 1);
    rig.wait(A);
    assert_eq!(rig.taken(), (1000..1008).collect::<Vec<_>>());
    rig.burst(&[1008]);
    assert_eq!(rig.taken(), [1008]);
    rig.wait(100 * MS);
    let r = rig.reports();
    assert_eq!((r.expected, r.received, r.restored), (89, 87, 2));
}

// shows: CREM-RECV-01, CREM-RECV-09, CREM-RECV-10, CREM-REQ-01, CREM-REQ-02, CREM-RSP-08
// shows: CREM-LR-02
#[test]
fn an_incomplete_block_is_asked_for() {
    let mut rig = Rig::bound(config(), 1, 1000);
    rig.burst(&[1000, 1002, 1003, 1005, 1006, 1008]);
    rig.ordinary(1000, 0);
    rig.wait(A - US);
    assert!(rig.block_request().is_none());
    rig.wait(US);
    let request = rig.block_request().unwrap();
    assert_eq!(request.lost, set(&[1, 4, 7]));
    assert_eq!(
        (request.held, request.suggested, request.k, request.scheme),
        (1, 2, 8, 1)
    );
    assert_eq!(
        (request.block_start, request.fallback),
        (Psn::new(1000), false)
    );
    rig.taken();
    rig.wait(RTT);
    rig.coded(1000, 1, request.lost, request.request);
    assert_eq!(rig.taken(), [] as [u32; 0]);
    rig.coded(1000, 2, request.lost, request.request);
    assert_eq!(rig.taken(), [1001, 1004, 1007]);
    assert_eq!(rig.count("restored_coded"), 3);
    rig.wait(100 * MS);
    assert!(rig.block_request().is_none());
    let r = rig.reports();
    assert_eq!(
        (r.expected, r.received, r.restored, r.incomplete_blocks),
        (89, 86, 3, 1)
    );
}

// shows: CREM-REQ-03
#[test]
fn suggested_m_allows_for_loss_above_one_percent() {
    let mut rig = Rig::bound(config(), 1, 1000);
    rig.burst(&[1000, 1003, 1006]);
    rig.wait(200 * MS);
    rig.sent.clear();
    assert!(rig.status().loss > 0.01);
    let header = RepairHeader {
        last: true,
        ..rig.header(1008, 0)
    };
    rig.burst(&[1007, 1008, 1009, 1012, 1013, 1014, 1015]);
    rig.repair(&header);
    rig.wait(A);
    let request = rig.block_request().unwrap();
    assert_eq!(
        (request.lost, request.held, request.suggested),
        (set(&[2, 3]), 1, 2)
    );
}

// shows: CREM-RSP-09
#[test]
fn late_arrivals_shrink_the_unknowns_of_coded_symbols() {
    let mut rig = Rig::bound(config(), 1, 1000);
    rig.burst(&[1000, 1002, 1003, 1005, 1006, 1007, 1008]);
    rig.ordinary(1000, 0);
    rig.wait(A);
    let request = rig.block_request().unwrap();
    assert_eq!((request.lost, request.suggested), (set(&[1, 4]), 1));
    rig.burst(&[1004]);
    rig.wait(3 * A);
    assert_eq!(
        rig.jobs.len(),
        1,
        "the ordinary symbol is enough now; A is 400 µs after this"
    );
    assert_eq!(rig.count("restored"), 1);
    rig.coded(1000, 1, set(&[1, 4]), request.request);
    assert_eq!((rig.jobs.len(), rig.count("repairs_unneeded")), (1, 1));
}

// shows: CREM-REQ-06, CREM-FB-01, CREM-FB-03, CREM-MSG-23, AMB-ROUNDS, AMB-REQRETRY, AMB-FBCHOICE
// shows: CREM-OPS-03
#[test]
fn rounds_end_in_copies_and_those_in_the_transport() {
    let mut rig = Rig::bound(config(), 1, 1000);
    rig.burst(&[1000, 1002, 1003, 1005, 1006, 1007, 1008]);
    rig.ordinary(1000, 0);
    rig.wait(A);
    let first = rig.block_request().unwrap();
    rig.wait(2 * RTT);
    assert!(rig.block_request().is_none());
    rig.wait(A);
    let second = rig.block_request().unwrap();
    assert_eq!(second.request, first.request.next());
    assert_eq!((second.held, second.fallback), (1, false));
    rig.wait(2 * RTT + A);
    let third = rig.block_request().unwrap();
    assert!(third.fallback && third.lost == set(&[1, 4]));
    rig.taken();
    rig.copy(1000, 4, Some(third.request));
    assert_eq!(
        rig.taken(),
        [1001, 1004],
        "a copy and the symbol solve both"
    );
    let mut rig = Rig::bound(config(), 1, 1000);
    rig.burst(&[1000, 1002, 1003, 1005, 1006, 1007, 1008]);
    rig.ordinary(1000, 0);
    rig.wait(8 * RTT);
    assert_eq!(
        (rig.count("requests_block"), rig.count("requests_fallback")),
        (3, 1)
    );
    assert_eq!(
        (rig.count("blocks_left"), rig.count("positions_left")),
        (1, 2)
    );
    assert_eq!(rig.count("requests_unanswered"), 3);
}

#[test]
fn a_partial_answer_is_asked_for_again_after_the_spacing() {
    let mut rig = Rig::bound(config(), 1, 1000);
    rig.burst(&[1000, 1002, 1003, 1005, 1006, 1008]);
    rig.ordinary(1000, 0);
    rig.wait(A);
    let first = rig.block_request().unwrap();
    rig.wait(RTT);
    rig.coded(1000, 1, first.lost, first.request);
    rig.wait(RTT / 4 - US);
    assert!(rig.block_request().is_none(), "1.25 SRTT between requests");
    rig.wait(US);
    let second = rig.block_request().unwrap();
    assert_eq!((second.held, second.suggested), (2, 1));
}

// shows: CREM-FB-02, CREM-FEC-13, CREM-FEC-14
#[test]
fn schemes_without_coded_retransmission_fall_back_at_once() {
    let xor = ParamUpdate {
        scheme: 2,
        m: 1,
        ..params(FlowId::new(1).unwrap(), 1, 1, 0)
    };
    let mut rig = Rig::unbound_params(config(), xor);
    rig.burst(&[0, 1, 3, 5, 6, 7, 8]);
    let header = RepairHeader {
        scheme: 2,
        ..rig.header(0, 0)
    };
    rig.repair(&header);
    rig.wait(A);
    let request = rig.block_request().unwrap();
    assert!(request.fallback && request.lost == set(&[2, 4]) && request.scheme == 2);
    let mut single = Rig::unbound_params(config(), xor);
    single.burst(&[0, 1, 2, 3, 5, 6, 7, 8]);
    let header = RepairHeader {
        scheme: 2,
        ..single.header(0, 0)
    };
    single.repair(&header);
    single.wait(A);
    assert!(
        single.taken().contains(&4),
        "{:?} {:?}",
        single.status(),
        single.crf.counters()
    );
}

// shows: CREM-FB-03
#[test]
fn without_scheme_0_nothing_is_asked_for_after_the_rounds() {
    let mut plain = config();
    plain.fec.schemes = 0b110;
    let mut rig = Rig::bound(plain, 1, 1000);
    rig.burst(&[1000, 1002, 1003, 1005, 1006, 1007, 1008]);
    rig.ordinary(1000, 0);
    rig.wait(8 * RTT);
    assert_eq!(
        (rig.count("requests_block"), rig.count("requests_fallback")),
        (2, 0)
    );
    assert_eq!(rig.count("blocks_left"), 1);
}

// shows: CREM-FEC-10, AMB-RANK
#[test]
fn mixed_sets_are_solved_by_rank() {
    let mut rig = Rig::bound(config(), 0, 1000);
    rig.burst(&[1001, 1003, 1004, 1005, 1006, 1008]);
    rig.wait(A);
    let request = rig.range_request().unwrap();
    assert_eq!(
        request.ranges.iter().collect::<Vec<_>>(),
        [(1000, 1), (1002, 1), (1007, 1)].map(|(start, count)| PsnRange {
            start: Psn::new(start),
            count
        })
    );
    rig.taken();
    rig.coded(1000, 21, set(&[0, 7]), request.request);
    rig.coded(1000, 17, set(&[2, 7]), request.request);
    rig.coded(1000, 5, set(&[0, 2, 7]), request.request);
    assert!(rig.jobs.is_empty(), "three symbols of rank 2");
    rig.coded(1000, 6, set(&[2]), request.request);
    assert_eq!(rig.taken(), [1000, 1002, 1007]);
    assert!(!rig.jobs.is_empty());
}

#[test]
fn what_is_solved_is_delivered_though_the_rest_is_not() {
    let mut rig = Rig::bound(config(), 1, 1000);
    rig.burst(&[1000, 1002, 1004, 1005, 1006, 1007, 1008]);
    rig.ordinary(1000, 0);
    rig.wait(A);
    let request = rig.block_request().unwrap();
    rig.taken();
    rig.copy(1000, 3, None);
    assert_eq!(rig.taken(), [1001, 1003]);
    assert_eq!(request.lost, set(&[1, 3]));
    let mut rig = Rig::bound(config(), 1, 1000);
    rig.burst(&[1000, 1004, 1005, 1006, 1007, 1008]);
    rig.ordinary(1000, 0);
    rig.wait(A);
    rig.taken();
    rig.copy(1000, 3, None);
    assert_eq!(rig.taken(), [1003]);
    assert_eq!(rig.status().open_blocks, 1);
}

// shows: CREM-BLOCK-11, CREM-RECV-12, CREM-REQ-07, AMB-LRINC
#[test]
fn without_symbols_ahead_ranges_are_asked_for_a_after_the_gap() {
    let mut rig = Rig::bound(config(), 0, 1000);
    rig.burst(&[1000, 1003]);
    rig.now = rig.now + 40 * US;
    rig.burst(&[1005]);
    rig.wait(59 * US);
    assert!(rig.range_request().is_none());
    rig.wait(US);
    let request = rig.range_request().unwrap();
    assert_eq!(
        request.ranges.iter().collect::<Vec<_>>(),
        [PsnRange {
            start: Psn::new(1001),
            count: 2
        }]
    );
    // The next gap may be in the same block: it waits for 1.25 SRTT.
    rig.wait(RTT * 5 / 4 - US);
    assert!(rig.range_request().is_none());
    rig.wait(US);
    let second = rig.range_request().unwrap();
    assert_eq!(
        second.ranges.iter().collect::<Vec<_>>(),
        [PsnRange {
            start: Psn::new(1004),
            count: 1
        }]
    );
    rig.coded(1000, 0, set(&[1, 2]), request.request);
    rig.coded(1000, 1, set(&[1, 2]), request.request);
    rig.coded(1000, 2, set(&[4]), second.request);
    assert_eq!(rig.count("restored_coded"), 3);
    assert_eq!(
        rig.reports().incomplete_blocks,
        0,
        "reported at the next interval"
    );
    rig.wait(RTT);
    assert_eq!(rig.reports().incomplete_blocks, 1);
}

// shows: CREM-RECV-12, AMB-RANGEWAIT
#[test]
fn with_symbols_ahead_the_range_form_waits_for_the_end_of_the_block() {
    let mut rig = Rig::bound(config(), 1, 1000);
    rig.burst(&[1000, 1002, 1003]);
    rig.now = rig.now + 40 * US;
    rig.burst(&[1004, 1005, 1006, 1007, 1008, 1009]);
    rig.wait(A - US);
    assert!(
        rig.range_request().is_none(),
        "1001 + 1 + 8 = 1010: just reached"
    );
    rig.wait(US);
    assert!(rig.range_request().is_some());
    // A pause does as well.
    let mut rig = Rig::bound(config(), 1, 1000);
    rig.burst(&[1000, 1002]);
    rig.wait(200 * US + A - US);
    assert!(rig.range_request().is_none());
    rig.wait(US);
    assert!(rig.range_request().is_some());
}

#[test]
fn unanswered_ranges_end_after_two_rounds_and_copies() {
    let mut rig = Rig::bound(config(), 0, 1000);
    rig.burst(&[1000, 1002]);
    rig.wait(A);
    assert!(rig.range_request().is_some());
    rig.wait(2 * RTT + A);
    assert!(rig.range_request().is_some());
    rig.wait(2 * RTT + A);
    assert!(rig.range_request().unwrap().fallback);
    rig.wait(2 * RTT + A);
    assert_eq!((rig.status().gaps, rig.count("positions_left")), (0, 1));
    rig.wait(100 * MS);
    let r = rig.reports();
    assert_eq!((r.expected - r.received, r.incomplete_blocks), (1, 1));
}

// shows: CREM-BLOCK-04, AMB-LONGREAD
#[test]
fn info_makes_positions_absent() {
    let mut rig = Rig::bound(config(), 0, 1000);
    rig.burst(&[1000, 1003, 1005]);
    rig.wait(A);
    let request = rig.range_request().unwrap();
    assert_eq!(request.ranges.len(), 2);
    rig.wait(RTT);
    rig.info(1000, set(&[0, 3, 5]), Some(request.request));
    assert_eq!(rig.status().gaps, 0);
    rig.wait(200 * MS);
    assert!(rig.range_request().is_none() && rig.block_request().is_none());
    let r = rig.reports();
    assert_eq!(
        (r.expected, r.received),
        (83, 83),
        "absent positions are no loss"
    );
    // INFO for a stretch without any packet, longer than a block (AMB-LONGREAD).
    rig.burst(&[1300]);
    rig.wait(A);
    let request = rig.range_request().unwrap();
    assert_eq!(request.ranges.len(), 2, "split at 255");
    let header = RepairHeader {
        k: 255,
        info: true,
        symbol_length: 0,
        present: Bitmap::EMPTY,
        session: Some(request.request),
        ..rig.header(1006, 0)
    };
    rig.repair(&header);
    rig.repair(&RepairHeader {
        block_start: Psn::new(1261),
        ..header
    });
    assert_eq!(rig.status().gaps, 0);
}

// shows: AMB-TAILL
#[test]
fn an_answer_reveals_losses_that_were_not_named() {
    let mut rig = Rig::bound(config(), 0, 1000);
    rig.burst(&[1000, 1002, 1003, 1004, 1005]);
    rig.wait(A);
    let request = rig.range_request().unwrap();
    rig.wait(RTT);
    // The block also had 1006 and 1007, whose loss nobody could see.
    rig.coded(1000, 0, set(&[1]), request.request);
    assert_eq!(rig.count("restored"), 1);
    rig.wait(10 * MS);
    let block = rig.block_request().unwrap();
    assert_eq!(
        (block.lost, block.held, block.suggested),
        (set(&[6, 7]), 0, 2)
    );
    rig.taken();
    rig.coded(1000, 1, block.lost, block.request);
    rig.coded(1000, 2, block.lost, block.request);
    assert_eq!(rig.taken(), [1006, 1007]);
}

// shows: AMB-TAILINFO
#[test]
fn an_unsolicited_info_shows_a_lost_tail() {
    let mut rig = Rig::bound(config(), 0, 1000);
    rig.burst(&[1000, 1001, 1002]);
    rig.info(1000, set(&[0, 1, 2, 3, 4]), None);
    rig.wait(A);
    let request = rig.block_request().unwrap();
    assert_eq!((request.lost, request.suggested), (set(&[3, 4]), 2));
    rig.taken();
    rig.wait(RTT);
    let k5 = |rig: &Rig, index| RepairHeader {
        present: set(&[0, 1, 2, 3, 4]),
        lost: Some(request.lost),
        session: Some(request.request),
        ..rig.header(1000, index)
    };
    for index in [0, 1] {
        let header = k5(&rig, index);
        rig.repair(&header);
    }
    assert_eq!(rig.taken(), [1003, 1004]);
}

// shows: AMB-REQBACKOFF
#[test]
fn silence_of_the_csf_slows_requests_and_ends_holds() {
    let mut rig = Rig::bound(config(), 0, 1000);
    let mut psn = 1000;
    let mut held = Vec::new();
    for _ in 0..100 {
        psn += 2;
        rig.burst(&[psn]);
        held.push(rig.status().held);
        rig.wait(RTT);
    }
    let requests = rig.count("requests_range");
    assert!(
        (5..20).contains(&requests),
        "{requests} requests in 2 s of silence"
    );
    assert_eq!((held[0], held[99]), (1, 0));
    rig.wait(Duration::from_secs(2));
    let r = rig.reports();
    assert_eq!(
        r.expected - r.received,
        101,
        "all of it is lost, for the breaker to see"
    );
    assert_eq!(rig.status().gaps, 0);
}

// shows: CREM-BLOCK-10, AMB-EARLYK
#[test]
fn early_closed_blocks_bring_their_own_k() {
    let mut rig = Rig::bound(config(), 2, 1000);
    rig.burst(&[1000, 1002]);
    let header = RepairHeader {
        k: 3,
        present: Bitmap::first(3),
        ..rig.header(1000, 0)
    };
    rig.repair(&header);
    rig.wait(A);
    assert_eq!(rig.taken(), [1000, 1001, 1002]);
    let long = RepairHeader {
        k: 9,
        present: Bitmap::first(9),
        ..rig.header(1003, 0)
    };
    rig.burst(&[1004, 1012]);
    rig.repair(&long);
    assert_eq!(
        rig.count("repairs_unknown_config"),
        1,
        "longer than configured"
    );
}

// shows: CREM-PARAM-08, AMB-UNKCFG, AMB-EMPTY, AMB-TCONST
#[test]
fn repairs_that_do_not_fit_are_dropped_and_counted() {
    let mut rig = Rig::bound(config(), 2, 1000);
    rig.burst(&[1000, 1002]);
    let h = rig.header(1000, 0);
    let unknown = [
        RepairHeader {
            config: ConfigId(2),
            ..h
        },
        RepairHeader { scheme: 2, ..h },
        RepairHeader {
            symbol_length: T - 1,
            ..h
        },
        RepairHeader {
            scheme: 0,
            symbol_length: 20,
            ..h
        },
    ];
    let invalid = [
        RepairHeader {
            present: set(&[9]),
            ..h
        },
        RepairHeader {
            present: Bitmap::EMPTY,
            ..h
        },
        RepairHeader {
            lost: Some(Bitmap::EMPTY),
            session: RequestId::new(1),
            ..h
        },
        RepairHeader {
            present: set(&[0, 1]),
            lost: Some(set(&[2])),
            session: RequestId::new(1),
            ..h
        },
        RepairHeader {
            lost: Some(set(&[2])),
            ..h
        },
        RepairHeader { k: 0, ..h },
        RepairHeader { index: 248, ..h },
        RepairHeader { scheme: 7, ..h },
        RepairHeader {
            scheme: 0,
            index: 9,
            ..h
        },
    ];
    let far = [
        RepairHeader {
            block_start: Psn::new(1000 + (1 << 21)),
            ..h
        },
        RepairHeader {
            block_start: Psn::new(1000 + (1 << 23)),
            ..h
        },
    ];
    for header in unknown.iter().chain(&invalid).chain(&far) {
        rig.repair(header);
    }
    assert_eq!(rig.count("repairs_unknown_config"), unknown.len() as u64);
    assert_eq!(rig.count("repairs_invalid"), invalid.len() as u64);
    assert_eq!(rig.count("repairs_out_of_range"), far.len() as u64);
    assert_eq!(rig.status().open_blocks, 0);
}

// shows: CREM-PARAM-01, CREM-PARAM-10, CREM-PARAM-11
#[test]
fn symbols_of_an_older_configuration_still_decode() {
    let mut rig = Rig::bound(config(), 1, 1000);
    let flow = rig.flow;
    let update = ParamUpdate {
        k: 16,
        ..params(flow, 2, 2, 1008)
    };
    assert_eq!(rig.update(&update), Some(0));
    rig.burst(&[1000, 1001, 1002, 1003, 1004, 1005, 1007]);
    rig.burst(&[1008, 1009, 1010]);
    rig.ordinary(1000, 0);
    rig.wait(A);
    assert_eq!(rig.count("restored"), 1);
    assert_eq!(rig.status().config.unwrap().id, ConfigId(2));
    let header = RepairHeader {
        config: ConfigId(2),
        k: 16,
        present: Bitmap::first(16),
        ..rig.header(1008, 0)
    };
    let psns: Vec<u32> = (1011..1024).filter(|p| *p != 1015).collect();
    rig.burst(&psns);
    rig.repair(&header);
    rig.wait(A);
    assert_eq!(rig.count("restored"), 2);
    rig.burst(&(1024..1050).collect::<Vec<_>>());
    rig.wait(5 * RTT);
    rig.burst(&[1050]);
    let header = rig.header(1052, 0);
    rig.burst(&[1053]);
    rig.repair(&header);
    assert_eq!(
        rig.count("repairs_unknown_config"),
        1,
        "the older one was released"
    );
}

// shows: AMB-COPY
#[test]
fn copies_may_name_a_later_configuration() {
    let mut rig = Rig::bound(config(), 1, 1000);
    rig.burst(&[1000, 1002, 1003, 1005, 1006, 1007, 1008]);
    rig.ordinary(1000, 0);
    let update = ParamUpdate {
        t: T + 8,
        ..params(rig.flow, 2, 1, 2000)
    };
    assert_eq!(rig.update(&update), Some(0));
    let copy = RepairHeader {
        scheme: 0,
        config: ConfigId(2),
        ..rig.header(1000, 1)
    };
    rig.repair(&RepairHeader {
        symbol_length: T + 8,
        ..copy
    });
    assert_eq!(rig.count("repairs_unknown_config"), 1, "not the block's T");
    rig.repair(&copy);
    rig.wait(A);
    assert_eq!(rig.taken(), (1000..1009).collect::<Vec<_>>());
}
