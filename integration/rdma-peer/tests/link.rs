//! Both ends over an emulated link, in simulated time.
#![allow(clippy::unwrap_used)]

use crem_rdma_peer::{
    Endpoint, Machine, Operation, Reader, Report, Requester, Responder, Transfer, Tuning,
};
use crem_wan::config::Loss;
use crem_wan::{Config, DirectionConfig, Fate, Impairer, Side};
use crem_wire::frame::{Mac, Tags};
use crem_wire::{Psn, Qpn};

const RTT_US: u64 = 2_000;

fn ends() -> (Endpoint, Endpoint) {
    let a = Endpoint {
        local_mac: Mac([2, 0, 0, 0, 0, 1]),
        peer_mac: Mac([2, 0, 0, 0, 0, 2]),
        tags: Tags::NONE,
        local_ip: [10, 0, 0, 1].into(),
        peer_ip: [10, 0, 0, 2].into(),
        udp_source: 0xc001,
        udp_source_lasts: None,
        local_qp: Qpn::new(1),
        peer_qp: Qpn::new(2),
        tos: 2,
    };
    let b = Endpoint {
        local_mac: a.peer_mac,
        peer_mac: a.local_mac,
        local_ip: a.peer_ip,
        peer_ip: a.local_ip,
        local_qp: a.peer_qp,
        peer_qp: a.local_qp,
        ..a
    };
    (a, b)
}

fn transfer(operation: Operation) -> Transfer {
    Transfer {
        operation,
        mtu: 1024,
        message_octets: 20_001,
        messages: Some(200),
        duration_ns: 0,
        start_psn: Psn::new(0xff_ff00),
        seed: 4,
    }
}

fn tuning() -> Tuning {
    // 200 Mbit/s over 2 ms hold 46 packets of 1 KiB.
    Tuning {
        rate_mbit: 200,
        window: 100,
        rtt_ns: Some(RTT_US * 1_000),
        ..Tuning::default()
    }
}

fn direction() -> DirectionConfig {
    DirectionConfig {
        delay_us: RTT_US / 2,
        ..DirectionConfig::default()
    }
}

fn lossy(loss: f64) -> DirectionConfig {
    DirectionConfig {
        loss: Loss::Uniform(loss),
        ..direction()
    }
}

struct Outcome {
    requester: Report,
    responder: Report,
    link: crem_wan::Report,
}

/// Runs both ends until the requester is done, at most 60 s of simulated time.
fn run(
    transfer: Transfer,
    tuning: Tuning,
    a_to_b: DirectionConfig,
    b_to_a: DirectionConfig,
) -> Outcome {
    let (a, b) = ends();
    let mut near: Box<dyn Machine> = match transfer.operation {
        Operation::Read => Box::new(Reader::new(a, transfer, tuning)),
        _ => Box::new(Requester::new(a, transfer, tuning)),
    };
    let mut far = Responder::new(b, transfer, tuning);
    let mut link = Impairer::new(&Config {
        seed: 9,
        crem_port: 0,
        a_to_b,
        b_to_a,
    });
    let mut now = 1;
    while !near.done() && now < 60_000_000_000 {
        step(&mut link, Side::A, near.as_mut(), now);
        step(&mut link, Side::B, &mut far, now);
        let wakes = [near.next_wake(), far.next_wake(), link.next_due()];
        now = wakes
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(now)
            .max(now + 1);
    }
    Outcome {
        requester: near.report(now),
        responder: far.report(now),
        link: link.report(),
    }
}

fn step(link: &mut Impairer, side: Side, machine: &mut dyn Machine, now: u64) {
    let mut arrived = Vec::new();
    link.take_due(now, side, &mut arrived);
    for frame in arrived {
        machine.on_frame(now, &frame);
    }
    machine.on_timeout(now);
    let mut frame = Vec::new();
    while machine.poll_transmit(now, &mut frame) {
        link.offer(now, side, frame.clone());
    }
}

fn assert_whole(outcome: &Outcome, octets: u64) {
    assert!(outcome.requester.completed, "{:?}", outcome.requester);
    for report in [&outcome.requester, &outcome.responder] {
        assert_eq!(
            (report.bytes_wrong, report.protocol_errors),
            (0, 0),
            "{report:?}"
        );
    }
    assert_eq!(outcome.requester.octets, octets);
    assert_eq!(outcome.requester.messages, 200);
    assert_eq!(outcome.responder.messages, 200);
}

const OCTETS: u64 = 200 * 20_001;

#[test]
fn clean_link_runs_at_the_rate() {
    for operation in [Operation::Write, Operation::Send, Operation::Read] {
        let outcome = run(transfer(operation), tuning(), direction(), direction());
        assert_whole(&outcome, OCTETS);
        assert_eq!(outcome.requester.packets_resent, 0, "{operation:?}");
        assert_eq!(outcome.requester.timeouts + outcome.responder.naks_sent, 0);
        assert!(
            outcome.requester.goodput_mbit > 170.0,
            "{operation:?} {:?}",
            outcome.requester
        );
        let rtt = outcome.requester.rtt_us;
        assert!(
            operation == Operation::Read || (2_000..2_300).contains(&rtt),
            "{rtt}"
        );
    }
}

#[test]
fn everything_arrives_over_a_bad_link() {
    let bad = DirectionConfig {
        loss: Loss::Uniform(0.02),
        duplicate: 0.01,
        corrupt: 0.01,
        reorder: 0.01,
        reorder_extra_us: 300,
        jitter_us: 50,
        ..direction()
    };
    for operation in [Operation::Write, Operation::Send, Operation::Read] {
        for selective_repeat in [false, true] {
            let tuning = Tuning {
                selective_repeat,
                ..tuning()
            };
            let outcome = run(transfer(operation), tuning, bad.clone(), bad.clone());
            assert_whole(&outcome, OCTETS);
            let resent = outcome.requester.packets_resent + outcome.responder.packets_resent;
            assert!(resent > 0, "{operation:?}");
        }
    }
}

#[test]
fn one_nak_a_gap() {
    let outcome = run(
        transfer(Operation::Write),
        tuning(),
        lossy(0.01),
        direction(),
    );
    assert_whole(&outcome, OCTETS);
    let lost = outcome.link.a_to_b.total(Fate::Lost);
    assert!(lost > 20, "{lost}");
    assert!(outcome.responder.naks_sent <= lost);
    assert!(outcome.responder.out_of_order > 10 * outcome.responder.naks_sent);
}

#[test]
fn goodput_under_loss_is_that_of_go_back_n() {
    let mut long = transfer(Operation::Write);
    long.messages = Some(1_000);
    let clean = run(long, tuning(), direction(), direction()).requester;
    let loss = 0.01;
    let outcome = run(long, tuning(), lossy(loss), direction());
    let in_rtt = clean.packets_sent as f64 / clean.seconds * RTT_US as f64 * 1e-6;
    let expected = (1.0 - loss) / (1.0 - loss + loss * in_rtt);
    let share = outcome.requester.goodput_mbit / clean.goodput_mbit;
    assert!(
        (share / expected - 1.0).abs() < 0.2,
        "share {share}, formula {expected}"
    );
}

#[test]
fn selective_repeat_resends_little() {
    let go_back = run(
        transfer(Operation::Write),
        tuning(),
        lossy(0.01),
        direction(),
    );
    let selective = Tuning {
        selective_repeat: true,
        ..tuning()
    };
    let repeat = run(
        transfer(Operation::Write),
        selective,
        lossy(0.01),
        direction(),
    );
    assert_whole(&repeat, OCTETS);
    assert!(repeat.requester.packets_resent * 5 < go_back.requester.packets_resent);
}

#[test]
fn lost_last_packets_cost_a_timeout() {
    let mut one = transfer(Operation::Write);
    one.messages = Some(1);
    one.message_octets = 500;
    let gone = DirectionConfig {
        loss: Loss::GilbertElliott {
            to_bad: 1.0,
            to_good: 0.5,
            loss_good: 0.0,
            loss_bad: 1.0,
        },
        ..direction()
    };
    let report = run(one, tuning(), gone, direction()).requester;
    assert!(report.completed && report.timeouts >= 1, "{report:?}");
    assert!(report.seconds > 4.0 * RTT_US as f64 * 1e-6);
}

#[test]
fn marks_slow_the_sender_down_and_nothing_is_lost() {
    let narrow = DirectionConfig {
        rate_mbit: 100,
        queue_octets: 400_000,
        ecn_threshold_octets: Some(20_000),
        ..direction()
    };
    let mut long = transfer(Operation::Write);
    long.messages = Some(500);
    let outcome = run(long, tuning(), narrow.clone(), direction());
    assert!(outcome.requester.completed && outcome.requester.cnps_received > 0);
    assert!(outcome.responder.ce_marked > 0);
    assert_eq!(outcome.link.a_to_b.total(Fate::QueueDropped), 0);
    assert!(
        outcome.requester.goodput_mbit > 60.0,
        "{:?}",
        outcome.requester
    );
    let deaf = Tuning {
        react_to_cnp: false,
        ..tuning()
    };
    let tight = DirectionConfig {
        queue_octets: 60_000,
        ..narrow
    };
    let outcome = run(long, deaf, tight, direction());
    assert!(outcome.requester.completed && outcome.requester.cnps_received == 0);
    assert!(outcome.link.a_to_b.total(Fate::QueueDropped) > 0);
}

#[test]
fn duration_ends_at_a_message_boundary() {
    let mut timed = transfer(Operation::Write);
    (timed.messages, timed.duration_ns) = (None, 50_000_000);
    let report = run(timed, tuning(), lossy(0.01), direction()).requester;
    assert!(report.completed && report.messages > 5, "{report:?}");
    assert_eq!(report.octets, report.messages * 20_001);
    assert!(report.seconds < 0.3);
}
