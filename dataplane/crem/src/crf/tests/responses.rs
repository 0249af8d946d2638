//! Streams of responses: who may have one, and what of it is never restored (AMB-READRESP).

use super::*;
use proptest::prelude::*;

pub(super) const QP: u32 = 0x29;

pub(super) fn on() -> CoreConfig {
    CoreConfig {
        responses: true,
        ..config()
    }
}

impl Rig {
    pub(super) fn asked(&mut self, qp: u32, opcode: u8, psn: u32, read_length: Option<u32>) {
        let flow = descriptor();
        let key = StreamKey {
            namespace: Namespace(0),
            source: flow.destination,
            destination: flow.source,
            qp: Qpn::new(qp),
            space: PsnSpace::Requests,
        };
        let request = Desc {
            key,
            opcode,
            read_length,
            mtu_seen: None,
            ..self.desc(psn)
        };
        self.crf
            .on_reverse_burst(self.now, &[request], &mut self.out);
        self.settle();
    }

    /// A READ of this many packets goes to the responder.
    pub(super) fn read(&mut self, psn: u32, packets: u32) {
        self.asked(QP, 0x0c, psn, Some(packets * 1024));
    }
}

/// A stream of responses with k = 8 that has shown its RDMA MTU. Its next PSN is 1000; what was asked for
/// before it was bound was seen, up to `asked`.
fn bound(m: u8, asked: u32) -> Rig {
    bound_with(on(), m, asked)
}

pub(super) fn bound_with(config: CoreConfig, m: u8, asked: u32) -> Rig {
    let mut rig = Rig::empty(config);
    rig.space = PsnSpace::Responses;
    rig.asked(QP, 0x14, asked - 1, None);
    rig.bring_up(m, 999);
    rig.now = rig.now + 20 * US;
    let first = Desc {
        opcode: 0x0d,
        mtu_seen: Some(1024),
        ..rig.desc(999)
    };
    rig.descs(&[first]);
    rig.taken();
    rig
}

/// The same with a READ of 32 packets, from 1000 on, under way.
pub(super) fn reading(m: u8) -> Rig {
    let mut rig = bound(m, 1000);
    rig.read(1000, 32);
    rig
}

// shows: AMB-READRESP, AMB-REFUSE
#[test]
fn the_kind_is_refused_unless_switched_on() {
    let kind = Hello {
        kind: 0xc1,
        ..hello(1)
    };
    let mut off = Rig::empty(config());
    assert_eq!((off.hello(&kind), off.count("hellos_refused")), (None, 1));
    let mut rig = Rig::empty(on());
    let ack = rig.hello(&kind).unwrap();
    assert_eq!(ack.kind, 0xc1);
    assert_eq!(rig.status().key.space, PsnSpace::Responses);
}

// shows: AMB-HELLONEW, AMB-PSNSPACE
#[test]
fn requests_and_responses_toward_one_queue_pair_are_two_flows() {
    let mut rig = Rig::bound(on(), 2, 1000);
    let requests = rig.flow;
    let ack = rig
        .hello(&Hello {
            kind: 0xc1,
            ..hello(1)
        })
        .unwrap();
    assert_ne!(ack.flow, requests, "the same nonce, of another kind");
    assert_eq!(rig.update(&params(ack.flow, 1, 1, 500)), Some(0));
    assert_eq!(rig.crf.flows().count(), 2);
    assert_eq!(
        rig.crf.stream_of(rig.csf, requests).map(|s| s.space),
        Some(PsnSpace::Requests)
    );
    assert_eq!(
        rig.crf.stream_of(rig.csf, ack.flow).map(|s| s.space),
        Some(PsnSpace::Responses)
    );
    // The PSNs of one are nothing to the other.
    rig.burst(&[1000, 1001]);
    rig.space = PsnSpace::Responses;
    rig.burst(&[600, 601]);
    rig.space = PsnSpace::Requests;
    rig.burst(&[1002]);
    assert_eq!(rig.taken(), [1000, 1001, 600, 601, 1002]);
    assert_eq!(rig.count("stray_sources"), 0);
}

// shows: AMB-READRESP
#[test]
fn a_lost_response_is_restored() {
    let mut rig = reading(1);
    rig.burst(&[1000, 1001, 1002, 1004, 1005, 1006, 1007, 1008]);
    rig.ordinary(1000, 0);
    rig.wait(A);
    assert_eq!(rig.taken(), (1000..1009).collect::<Vec<_>>());
    assert_eq!(rig.count("restored_ordinary"), 1);
    // And with a request, where the operator's hold fits one.
    let mut cfg = on();
    cfg.crf.hold = crate::config::Hold::Fixed(2 * RTT);
    let mut rig = bound_with(cfg, 1, 1000);
    rig.read(1000, 32);
    rig.burst(&(1000..1009).collect::<Vec<_>>());
    rig.burst(&[1009, 1012, 1013, 1014, 1015, 1016, 1017, 1018, 1019, 1020]);
    rig.wait(2 * A);
    let request = rig.range_request().unwrap();
    rig.wait(RTT);
    rig.coded(1008, 8, set(&[2, 3]), request.request);
    rig.coded(1008, 9, set(&[2, 3]), request.request);
    rig.wait(A);
    assert_eq!(rig.count("restored_coded"), 2);
}

// shows: AMB-READRESP
#[test]
fn further_requests_do_not_end_restoring() {
    let mut rig = reading(1);
    rig.burst(&[1000, 1001, 1002]);
    rig.read(1032, 8);
    rig.asked(QP, 0x13, 1040, None);
    // A WRITE in between consumed PSNs that nobody told of.
    rig.read(1060, 1);
    rig.burst(&[1004, 1005, 1006, 1007, 1008]);
    rig.ordinary(1000, 0);
    rig.wait(A);
    assert_eq!(rig.count("restored_ordinary"), 1);
    assert_eq!(rig.count("responses_given_up"), 0);
}

// shows: AMB-READRESP, AMB-REREAD
#[test]
fn nothing_is_restored_from_the_psn_on_that_was_asked_for_again() {
    let mut rig = reading(2);
    rig.burst(&[1000, 1001, 1003, 1004, 1006, 1007, 1008]);
    // The requester missed 1002 and asks for the rest of its READ once more.
    rig.read(1002, 30);
    assert_eq!(
        rig.taken(),
        [1000, 1001, 1003, 1004, 1006, 1007, 1008],
        "and nothing waits for what does not come"
    );
    rig.ordinary(1000, 0);
    rig.ordinary(1000, 1);
    rig.wait(100 * MS);
    assert!(rig.jobs.is_empty() && rig.range_request().is_none() && rig.block_request().is_none());
    assert_eq!(rig.count("restored"), 0);
    assert!(rig.count("responses_given_up") >= 2);
}

// shows: AMB-READRESP
#[test]
fn what_is_missing_before_that_psn_is_restored() {
    let mut rig = reading(2);
    rig.burst(&[1000, 1002, 1003, 1004, 1006, 1007, 1008]);
    // Whoever asks for this has what is before it: another queue pair.
    rig.read(1004, 28);
    assert_eq!(rig.taken(), [1000], "1001 is still waited for");
    rig.ordinary(1000, 0);
    rig.ordinary(1000, 1);
    rig.wait(A);
    let all: Vec<_> = rig.delivered.iter().map(|d| d.1).collect();
    assert_eq!(all, [1001, 1002, 1003, 1004, 1006, 1007, 1008]);
    let restored: Vec<_> = rig
        .delivered
        .iter()
        .filter(|d| d.0 == Delivery::Restored)
        .map(|d| d.1)
        .collect();
    assert_eq!(restored, [1001]);
    assert_eq!(rig.count("blocks_completed"), 1);
}

// shows: AMB-READRESP
#[test]
fn the_second_answer_is_not_mended_with_the_first() {
    let mut rig = reading(2);
    rig.burst(&[1000, 1001]);
    // All that followed was lost. The second answer loses packets as well.
    rig.wait(RTT);
    rig.read(1002, 30);
    rig.burst(&[1002, 1003, 1006, 1007, 1008, 1011]);
    rig.ordinary(1000, 0);
    rig.ordinary(1000, 1);
    rig.wait(100 * MS);
    assert_eq!((rig.count("restored"), rig.jobs.len()), (0, 0));
    assert!(rig.block_request().is_none() && rig.range_request().is_none());
    assert_eq!(
        rig.taken(),
        [1000, 1001, 1002, 1003, 1006, 1007, 1008, 1011]
    );
    // Beyond what was asked for by then all is as before.
    rig.read(1032, 16);
    rig.burst(&(1012..1033).collect::<Vec<_>>());
    rig.burst(&[1034, 1035, 1036, 1037, 1038, 1039, 1040]);
    rig.ordinary(1032, 0);
    rig.wait(A);
    assert_eq!(rig.count("restored_ordinary"), 1);
}

/// 1002 was lost of what was asked for, up to 1096, and the requester went back; the first answer came up to
/// 1031, and the second one begins with `opcode`.
fn answered_again(opcode: u8) -> Rig {
    let mut rig = reading(2);
    rig.read(1032, 64);
    rig.burst(&[1000, 1001, 1003, 1004, 1005, 1006, 1007]);
    rig.read(1002, 30);
    rig.now = rig.now + RTT;
    rig.burst(&(1008..1032).collect::<Vec<_>>());
    rig.now = rig.now + 20 * US;
    let first = Desc {
        opcode,
        ..rig.desc(1002)
    };
    rig.descs(&[first]);
    rig.burst(&(1003..1032).collect::<Vec<_>>());
    rig
}

/// What is restored of 1052, lost of the second answer beyond what was answered before.
fn restored_beyond(rig: &mut Rig) -> u64 {
    // Of these nobody knows whether they were answered before.
    rig.burst(&[1032, 1033, 1034, 1035, 1037, 1038, 1039]);
    rig.ordinary(1032, 0);
    rig.wait(A);
    assert_eq!(rig.count("restored"), 0);
    rig.burst(&(1040..1052).chain(1053..1057).collect::<Vec<_>>());
    rig.ordinary(1048, 0);
    rig.wait(A);
    rig.count("restored")
}

// shows: AMB-READRESP, AMB-REREAD
#[test]
fn what_the_second_answer_is_the_first_to_bring_is_restored() {
    let mut rig = answered_again(0x0d);
    assert_eq!(rig.count("second_answers"), 1);
    // The requester asks on, and that is no other answer.
    rig.read(1032, 64);
    assert_eq!(restored_beyond(&mut rig), 1);
    // It goes back again.
    let mut rig = answered_again(0x0d);
    rig.read(1010, 22);
    rig.read(1032, 64);
    assert_eq!(restored_beyond(&mut rig), 0);
    // It has not begun, as far as anybody can see.
    for opcode in [0x0e, 0x0f] {
        let mut rig = answered_again(opcode);
        rig.read(1032, 64);
        assert_eq!(restored_beyond(&mut rig), 0);
        assert_eq!(rig.count("second_answers"), 0);
    }
}

// shows: AMB-READRESP
#[test]
fn after_a_pause_more_may_have_been_answered_than_came() {
    let mut rig = reading(2);
    rig.read(1032, 64);
    rig.burst(&[1000, 1001, 1003, 1004, 1005, 1006, 1007]);
    rig.read(1002, 30);
    rig.read(1032, 64);
    // Whatever the first answer was, the rest of it is lost.
    rig.now = rig.now + RTT;
    let first = Desc {
        opcode: 0x0d,
        ..rig.desc(1002)
    };
    rig.descs(&[first]);
    assert_eq!(rig.count("second_answers"), 1);
    rig.burst(&(1003..1032).collect::<Vec<_>>());
    assert_eq!(restored_beyond(&mut rig), 0);
}

// shows: AMB-READRESP
#[test]
fn the_first_request_seen_of_a_queue_pair_counts_as_repeated() {
    let mut rig = bound(2, 1000);
    rig.burst(&[1000, 1001, 1003, 1004, 1005, 1006, 1007, 1008]);
    rig.asked(0x77, 0x0c, 1002, Some(1024));
    rig.ordinary(1000, 0);
    rig.wait(10 * MS);
    assert_eq!(rig.count("restored"), 0);
    // Of other hosts it does not matter.
    let mut rig = reading(2);
    rig.burst(&[1000, 1001, 1003, 1004, 1005, 1006, 1007, 1008]);
    let mut other = rig.desc(1002);
    other.key.space = PsnSpace::Requests;
    other.key.source = "10.0.9.9".parse().unwrap();
    (other.opcode, other.read_length) = (0x0c, Some(1024));
    rig.crf.on_reverse_burst(rig.now, &[other], &mut rig.out);
    rig.ordinary(1000, 0);
    rig.wait(10 * MS);
    assert_eq!(rig.count("restored"), 1);
}

// shows: AMB-READRESP
#[test]
fn an_atomic_operation_that_is_repeated_is_not_answered_from_the_past() {
    let mut rig = bound(2, 1000);
    for psn in 1000..1008 {
        rig.asked(QP, 0x14, psn, None);
    }
    rig.burst(&[1000, 1001, 1003, 1004, 1005, 1006, 1007]);
    rig.asked(QP, 0x14, 1002, None);
    rig.ordinary(1000, 0);
    rig.wait(100 * MS);
    assert_eq!(rig.count("restored"), 0);
}

// shows: AMB-READRESP
#[test]
fn nothing_is_restored_two_round_trips_after_the_gap() {
    for (late, restored) in [
        (Duration::ZERO, 1),
        (2 * RTT - 10 * MS, 1),
        (2 * RTT + MS, 0),
    ] {
        let mut rig = reading(1);
        rig.burst(&[1000, 1001, 1002, 1004, 1005, 1006, 1007, 1008]);
        rig.now = rig.now + late;
        rig.ordinary(1000, 0);
        rig.wait(A);
        assert_eq!(rig.count("restored"), restored, "{late:?}");
    }
    // Nor is anything asked for that would come later than that.
    let mut rig = reading(1);
    rig.burst(&[
        1000, 1001, 1002, 1004, 1005, 1006, 1007, 1008, 1009, 1010, 1011,
    ]);
    rig.wait(200 * MS);
    assert_eq!(rig.count("requests_range") + rig.count("requests_block"), 1);
}

// shows: AMB-READRESP, AMB-HOLD
#[test]
fn responses_are_held_for_two_round_trips_at_most() {
    let mut cfg = on();
    cfg.crf.hold = crate::config::Hold::Fixed(4 * RTT);
    for (space, released) in [(PsnSpace::Requests, false), (PsnSpace::Responses, true)] {
        let mut rig = Rig::bound_in(space, cfg.clone(), 1, 1000);
        rig.burst(&[1000, 1002, 1003]);
        assert_eq!(rig.taken(), [1000]);
        rig.wait(2 * RTT - MS);
        assert!(rig.taken().is_empty());
        rig.wait(2 * MS);
        assert_eq!(rig.taken() == [1002, 1003], released, "{space:?}");
    }
}

// shows: AMB-READRESP
#[test]
fn runs_that_are_sent_again_are_not_filled_with_copies() {
    fn same(_: &Payload<'_, Buf>, _: &Payload<'_, Buf>) -> bool {
        true
    }
    for (space, filled) in [(PsnSpace::Requests, true), (PsnSpace::Responses, false)] {
        let mut rig = Rig::bound_in(space, on(), 1, 1000);
        rig.crf.compare_with(Same(same));
        rig.burst(&(1000..1040).collect::<Vec<_>>());
        rig.now = rig.now + RTT;
        rig.burst(&(1010..1020).collect::<Vec<_>>());
        rig.burst(&(1022..1030).collect::<Vec<_>>());
        assert_eq!(rig.count("replayed") > 0, filled, "{space:?}");
    }
}

// shows: AMB-READRESP
#[test]
fn switching_responses_off_ends_their_streams_only() {
    let mut rig = Rig::bound(on(), 2, 1000);
    let kind = Hello {
        kind: 0xc1,
        ..hello(7)
    };
    let responses = rig.hello(&kind).unwrap().flow;
    rig.update(&params(responses, 1, 1, 500));
    rig.crf.set_config(rig.now, config(), &mut rig.out);
    rig.settle();
    let closed: Vec<_> = rig
        .sent
        .drain(..)
        .filter_map(|(_, m)| match m {
            Message::Close(close) => Some(close.flow),
            _ => None,
        })
        .collect();
    assert_eq!(closed, [responses]);
    assert_eq!(rig.status().key.space, PsnSpace::Requests);
}

// shows: AMB-READRESP
#[test]
fn new_requests_of_another_queue_pair_with_equal_psns_bar_nothing() {
    let mut rig = Rig::empty(on());
    rig.space = PsnSpace::Responses;
    for qp in [QP, 0x30] {
        rig.asked(qp, 0x0c, 967, Some(32 * 1024));
    }
    rig.bring_up(1, 1000);
    rig.asked(QP, 0x0c, 1095, Some(1024));
    rig.burst(&[1000, 1001, 1003, 1004, 1005, 1006, 1007, 1008]);
    rig.asked(0x30, 0x0c, 1095, Some(1024));
    rig.ordinary(1000, 0);
    rig.wait(A);
    assert_eq!(rig.count("restored"), 1);
    assert_eq!(rig.count("requests_reissued"), 0);
}

// shows: AMB-READRESP
#[test]
fn spans_are_reckoned_with_the_smallest_mtu_until_responses_show_more() {
    // 1000 octets: one packet at 1024, four at 256.
    let mut rig = Rig::empty(on());
    rig.space = PsnSpace::Responses;
    rig.asked(QP, 0x0c, 990, Some(1000));
    rig.bring_up(1, 1000);
    rig.asked(QP, 0x0c, 991, Some(1000));
    assert_eq!(
        rig.count("requests_reissued"),
        1,
        "could be inside the READ before"
    );
    let only = Desc {
        opcode: 0x10,
        payload_len: 12 + 4 + 1000 + 4,
        ..rig.desc(1000)
    };
    rig.descs(&[only]);
    rig.asked(QP, 0x0c, 992, Some(1000));
    rig.asked(QP, 0x0c, 993, Some(1000));
    assert_eq!(rig.count("requests_reissued"), 1);
    rig.asked(QP, 0x0c, 993, Some(1000));
    assert_eq!(rig.count("requests_reissued"), 2);
}

proptest! {
    // shows: AMB-READRESP, AMB-REREAD
    /// Whatever is lost, asked for, asked for again and repaired in whatever order: no PSN that was asked
    /// for twice is restored from then on, and every packet that came goes on once.
    #[test]
    fn what_was_asked_for_twice_is_never_restored(
        steps in proptest::collection::vec((0..6u8, 0..256u32), 1..80),
    ) {
        let mut rig = reading(2);
        let (mut at, mut asked) = (1000, 1032);
        let (mut again, mut sent) = (Vec::new(), rig.numbers.len());
        for (step, n) in steps {
            match step {
                0 | 1 => {
                    if at + 8 > asked {
                        rig.read(asked, at + 8 - asked);
                        asked = at + 8;
                    }
                    let came: Vec<u32> = (0..8).filter(|i| n >> i & 3 != 1).map(|i| at + i).collect();
                    at += 8;
                    sent += came.len();
                    rig.burst(&came);
                }
                2 => {
                    rig.read(asked, n % 24 + 1);
                    asked += n % 24 + 1;
                }
                3 => {
                    let back = (n % 48 + 1).min(asked - 1000);
                    rig.read(asked - back, back);
                    again.push(asked - back..asked);
                }
                4 => {
                    let start = at - 8 * (n % 4).min((at - 1000) / 8);
                    rig.ordinary(start, 0);
                    rig.ordinary(start, 1);
                }
                _ => rig.wait(n * 100 * US),
            }
            for (kind, psn) in rig.delivered.drain(..) {
                let twice = again.iter().any(|range| range.contains(&psn));
                prop_assert!(kind == Delivery::Source || !twice, "{psn} of {again:?}");
            }
        }
        rig.wait(500 * MS);
        let late = rig.delivered.iter().any(|(kind, psn)| {
            *kind == Delivery::Restored && again.iter().any(|range| range.contains(psn))
        });
        prop_assert!(!late);
        prop_assert_eq!(rig.numbers.len(), sent);
    }
}
