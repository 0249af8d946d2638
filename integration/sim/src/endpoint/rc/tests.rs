//! Tests of requesters and responders, back to back over a path that does as it is told.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use std::collections::VecDeque;

use super::*;
use crate::net::loss::{Loss, LossProcess};
use crate::rng::Rng;
use crate::{Duration, Instant};

const RTT: Duration = Duration::from_millis(2);
const RATE: u64 = 10_000_000_000;

/// A requester and a responder with a path between them that keeps the order.
struct Wire {
    now: Instant,
    requester: Requester,
    responder: Responder,
    forth: VecDeque<(Instant, Packet)>,
    back: VecDeque<(Instant, Packet)>,
    forth_loss: LossProcess,
    back_loss: LossProcess,
    rng: Rng,
    done: Vec<Completion>,
}

/// Runs of losses are counted in packets: they may take several lone repetitions.
const RETRIES: u32 = 60;

fn wire(recovery: Recovery, first: Serial, forth: Loss, back: Loss, seed: u64) -> Wire {
    let mut config = RequesterConfig::for_path(recovery, 1024, RATE, RTT);
    (config.first, config.ack_every, config.retries) = (first, 8, RETRIES);
    Wire {
        now: Instant(1_000_000),
        responder: Responder::new(ResponderConfig::facing(&config)),
        requester: Requester::new(config),
        forth: VecDeque::new(),
        back: VecDeque::new(),
        forth_loss: LossProcess::new(forth),
        back_loss: LossProcess::new(back),
        rng: Rng::new(seed),
        done: Vec::new(),
    }
}

const SELECTIVE: Recovery = Recovery::Selective {
    reorder: Duration::from_micros(5),
};

impl Wire {
    fn run(&mut self) {
        for step in 0..20_000_000u64 {
            assert!(step < 19_999_999, "no end: {:?}", self.requester.figures());
            if self.requester.open() == 0 || self.requester.error().is_some() {
                break;
            }
            let times = [
                self.forth.front().map(|f| f.0),
                self.back.front().map(|b| b.0),
                self.requester.next_send(),
                self.requester.next_timeout(),
                self.responder.next_send(),
            ];
            let next = times
                .into_iter()
                .flatten()
                .min()
                .expect("something to wait for");
            self.now = self.now.max(next);
            self.step();
        }
    }

    fn step(&mut self) {
        let now = self.now;
        if self.requester.next_timeout().is_some_and(|at| at <= now) {
            self.requester.on_timeout(now);
        }
        if let Some(packet) = self.requester.send(now)
            && !self.forth_loss.loses(&mut self.rng)
        {
            self.forth.push_back((now + RTT / 2, packet));
        }
        while let Some((_, packet)) = self.forth.pop_front_if(|f| f.0 <= now) {
            self.responder.on_packet(now, &packet, false);
        }
        if let Some(packet) = self.responder.send(now)
            && !self.back_loss.loses(&mut self.rng)
        {
            self.back.push_back((now + RTT / 2, packet));
        }
        while let Some((_, packet)) = self.back.pop_front_if(|b| b.0 <= now) {
            self.requester.on_packet(now, &packet);
        }
        while let Some(done) = self.requester.completion() {
            self.done.push(done);
        }
    }
}

#[test]
fn without_loss_a_write_takes_a_round_trip_and_its_own_time() {
    for recovery in [Recovery::GoBackN, SELECTIVE] {
        let mut wire = wire(recovery, 0, Loss::None, Loss::None, 1);
        wire.requester.post(wire.now, Operation::Write, 1 << 20);
        let start = wire.now;
        wire.run();
        let took = wire.done[0].done.since(start);
        let own = Duration::from_nanos(1024 * (1024 + 58) * 8 / 10);
        // A poll may be two microseconds late.
        let early = Duration::from_micros(3);
        assert!(
            took + early >= RTT + own && took < RTT + own * 11 / 10,
            "{took:?}"
        );
        assert_eq!(wire.requester.figures().again, 0);
        assert_eq!(wire.responder.figures().unique, 1024);
    }
}

#[test]
fn a_read_takes_a_round_trip_and_its_own_time() {
    for recovery in [Recovery::GoBackN, SELECTIVE] {
        let mut wire = wire(recovery, 0, Loss::None, Loss::None, 1);
        wire.requester.post(wire.now, Operation::Read, 1 << 20);
        wire.run();
        let took = wire.done[0].done.since(wire.done[0].posted);
        assert!(
            took >= RTT && took < RTT + Duration::from_millis(1),
            "{took:?}"
        );
        assert_eq!(wire.responder.figures().responses, 1024);
    }
}

#[test]
fn one_lost_packet_costs_a_window_or_one_packet() {
    let lost = || Loss::Chosen([100].into());
    let mut back = wire(Recovery::GoBackN, 0, lost(), Loss::None, 1);
    back.requester.post(back.now, Operation::Write, 4 << 20);
    back.run();
    // What is sent from the loss until the NAK is back: a round trip.
    let window = RTT.as_nanos() as u64 * 10 / 8 / 1082;
    let again = back.requester.figures().again;
    assert!(
        again > window * 9 / 10 && again < window * 11 / 10,
        "{again} of {window}"
    );
    assert_eq!(back.responder.figures().naks, 1);

    let mut selective = wire(SELECTIVE, 0, lost(), Loss::None, 1);
    selective
        .requester
        .post(selective.now, Operation::Write, 4 << 20);
    selective.run();
    assert_eq!(selective.requester.figures().again, 1);
    assert_eq!(selective.responder.figures().unique, 4096);
}

#[test]
fn the_last_packet_is_sent_again_after_the_timeout() {
    for recovery in [Recovery::GoBackN, SELECTIVE] {
        let mut wire = wire(recovery, 0, Loss::Chosen([7].into()), Loss::None, 1);
        wire.requester.post(wire.now, Operation::Write, 8192);
        wire.run();
        assert_eq!(wire.requester.figures().timeouts, 1);
        assert!(wire.done[0].done.since(wire.done[0].posted) > Duration::from_millis(67));
    }
}

#[test]
fn a_lost_response_makes_the_read_start_again_inside_its_span() {
    for recovery in [Recovery::GoBackN, SELECTIVE] {
        let mut wire = wire(recovery, 0, Loss::None, Loss::Chosen([10].into()), 1);
        wire.requester.post(wire.now, Operation::Read, 64 << 10);
        wire.run();
        assert_eq!(wire.requester.figures().reads_again, 1);
        assert_eq!(wire.responder.figures().reads_again, 1);
        assert_eq!(wire.requester.error(), None);
        let responses = wire.responder.figures().responses;
        // From the first missing one on; or that one alone.
        let expected = if recovery == Recovery::GoBackN {
            64 + 54
        } else {
            65
        };
        assert_eq!(responses, expected);
    }
}

#[test]
fn an_answer_from_before_the_read_started_again_fails_the_queue_pair() {
    let mut wire = wire(
        Recovery::GoBackN,
        0,
        Loss::None,
        Loss::Chosen([10].into()),
        1,
    );
    wire.requester.post(wire.now, Operation::Read, 64 << 10);
    while wire.requester.figures().reads_again == 0 {
        let times = [
            wire.forth.front().map(|f| f.0),
            wire.back.front().map(|b| b.0),
            wire.requester.next_send(),
            wire.responder.next_send(),
        ];
        wire.now = times.into_iter().flatten().min().unwrap().max(wire.now);
        wire.step();
    }
    let stale = Packet {
        psn: 10,
        body: Body::ReadResponse(Place::Middle),
        payload: 1024,
        content: 0,
        ack_req: false,
    };
    wire.requester.on_packet(wire.now, &stale);
    assert_eq!(wire.requester.error(), Some(QpError::OpcodeSequence));
}

#[test]
fn what_arrives_after_all_although_it_was_reported_missing_has_its_answers_under_way() {
    let mut wire = wire(Recovery::GoBackN, 0, Loss::None, Loss::None, 1);
    let now = wire.now;
    wire.requester.post(now, Operation::Write, 4096);
    wire.requester.post(now, Operation::Read, 8192);
    let mut at = now;
    while let Some(next) = wire.requester.next_send() {
        at = at.max(next);
        let _ = wire.requester.send(at);
    }
    let packet = |psn, body| Packet {
        psn,
        body,
        payload: 1024,
        content: 0,
        ack_req: false,
    };
    // Reported missing, sent back to, and restored on the way: the acknowledgment and the answers pass what
    // is sent again.
    for (psn, body) in [
        (1, Body::Nak),
        (3, Body::Ack),
        (4, Body::ReadResponse(Place::First)),
    ] {
        wire.requester.on_packet(at, &packet(psn, body));
    }
    at = at.max(wire.requester.next_send().expect("the rest of the READ"));
    let again = wire.requester.send(at).expect("a request");
    assert!(matches!(again.body, Body::ReadRequest(_)), "{again:?}");
    assert_eq!(again.psn, 5);
    for psn in 5..11 {
        let middle = packet(psn, Body::ReadResponse(Place::Middle));
        wire.requester.on_packet(at, &middle);
    }
    assert_eq!(wire.requester.error(), None);
}

#[test]
fn everything_completes_in_order_over_any_loss_and_the_wrap() {
    for seed in 0..60 {
        for recovery in [Recovery::GoBackN, SELECTIVE] {
            let mut rng = Rng::new(seed);
            let loss = |rng: &mut Rng| match rng.below(3) {
                0 => Loss::None,
                1 => Loss::Uniform(rng.unit() * 0.01),
                _ => Loss::Bursts {
                    rate: 0.01,
                    burst: 5.0,
                },
            };
            let (forth, back) = (loss(&mut rng), loss(&mut rng));
            let mut wire = wire(recovery, (1 << 24) - 500, forth, back, seed);
            for _ in 0..30 {
                let octets = rng.between(1, 100_000) as u32;
                let operation = if rng.chance(0.4) {
                    Operation::Read
                } else {
                    Operation::Write
                };
                wire.requester.post(wire.now, operation, octets);
            }
            wire.run();
            assert_eq!(wire.requester.error(), None, "{recovery:?} {seed}");
            let numbers: Vec<_> = wire.done.iter().map(|d| d.message).collect();
            assert_eq!(numbers, (0..30).collect::<Vec<_>>());
        }
    }
}

#[test]
fn on_a_clean_path_nothing_is_asked_for_twice() {
    for recovery in [Recovery::GoBackN, SELECTIVE] {
        for seed in 0..6 {
            let mut rng = Rng::new(seed);
            let mut wire = wire(recovery, 0, Loss::None, Loss::None, seed);
            for _ in 0..300 {
                let octets = rng.between(16_000, 20_000) as u32;
                let read = rng.chance(0.85);
                let operation = if read {
                    Operation::Read
                } else {
                    Operation::Write
                };
                wire.requester.post(wire.now, operation, octets);
            }
            wire.run();
            let figures = wire.requester.figures();
            assert_eq!(wire.requester.error(), None, "{figures:?}");
            assert_eq!((figures.again, figures.timeouts), (0, 0), "{figures:?}");
        }
    }
}

#[test]
fn a_dead_path_fails_the_queue_pair() {
    for recovery in [Recovery::GoBackN, SELECTIVE] {
        let mut wire = wire(recovery, 0, Loss::Uniform(1.0), Loss::None, 1);
        wire.requester.post(wire.now, Operation::Write, 8192);
        wire.run();
        assert_eq!(wire.requester.error(), Some(QpError::RetriesExceeded));
    }
}

#[test]
fn a_rate_is_cut_by_notifications_and_grows_back() {
    let mut dcqcn = Dcqcn::new(DcqcnConfig::default());
    let at = |us: u64| Instant(us * 1000);
    dcqcn.on_cnp(at(0));
    assert_eq!(dcqcn.rate(at(0)), 0.5);
    dcqcn.on_cnp(at(100));
    assert_eq!(dcqcn.rate(at(100)), 0.5, "one cut a period");
    dcqcn.on_cnp(at(310));
    assert!(dcqcn.rate(at(310)) < 0.3);
    let later = dcqcn.rate(at(2_000));
    assert!(later > 0.4 && later < 0.6, "{later}");
    assert_eq!(dcqcn.rate(at(2_000_000)), 1.0);
}

#[test]
fn an_open_source_keeps_its_rate() {
    let mut source = OpenSource::new(Instant(0), (1 << 24) - 2, 1024, 1000.5, 8);
    let mut psns = Vec::new();
    for _ in 0..4 {
        let at = source.next_send();
        psns.push(source.send(at).unwrap().psn);
        assert!(source.send(at).is_none());
    }
    assert_eq!(psns, [0xff_fffe, 0xff_ffff, 0, 1]);
    assert_eq!(source.next_send(), Instant(4002));
}

#[test]
fn serials_are_found_again() {
    for near in [0u64, 5, 1 << 23, (1 << 24) - 1, 1 << 24, (7 << 24) + 3] {
        for distance in [-5_000_000i64, -1, 0, 1, 5_000_000] {
            let Some(serial) = near.checked_add_signed(distance) else {
                continue;
            };
            assert_eq!(unwrap_psn((serial & 0xff_ffff) as u32, near), serial);
        }
    }
}
