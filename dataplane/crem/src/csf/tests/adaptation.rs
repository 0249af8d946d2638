//! What reports and path evidence lead to: the class of the losses, and what it does to m.

use alloc::vec::Vec;
use crem_wire::crem::{LossReport, Message};

use super::rig::*;
use crate::csf::State;
use crate::csf::testing::key;
use crate::events::{Event, Unprotected};
use crate::policy::{BreakerState, Evidence, LossClass, PathEvidence};
use crate::time::Duration;

/// Hands what path reports say of the flow toward QP `qp` to it, if there is one.
fn evidence(rig: &mut Rig, qp: u32, queue_delay_us: i64, overflow: bool) {
    let evidence = PathEvidence {
        queue_delay_us,
        overflow,
    };
    let now = rig.now;
    if let Some(slot) = rig.csf.flows.slot(&key(qp)) {
        rig.csf
            .with_flow(slot, |flow, sh| flow.on_path_evidence(evidence, sh, now));
    }
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
    evidence(&mut rig, 1, 60, false);
    evidence(&mut rig, 2, 60, false);
    evidence(&mut rig, 3, 1_000, false);
    assert_eq!(
        rig.status(key(2)).class,
        LossClass::Transmission,
        "two flows do not add up"
    );
    evidence(&mut rig, 1, 60, false);
    rig.wait(MS);
    rig.report(key(1), 10, 10);
    let delayed = LossClass::Congestion(Evidence::QueueDelay);
    assert_eq!(
        (rig.status(key(1)).class, rig.status(key(2)).class),
        (delayed, delayed)
    );
    evidence(&mut rig, 2, 0, true);
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
    assert_eq!(rig.status(key(1)).class.name(), "congestion_overflow");
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

/// Packets at 1 per millisecond, and a report every SRTT with these counts of a thousand sources.
fn run(rig: &mut Rig, psn: &mut u32, ms: u64, (received, ce): (u32, u32)) {
    for _ in 0..ms / 20 {
        rig.paced(key(1), *psn..*psn + 20, MS);
        *psn += 20;
        if rig.status(key(1)).bound.is_some() {
            rig.report_with(key(1), 1000, received, ce, 0);
        }
    }
}

fn symbols(rig: &Rig) -> usize {
    rig.sent.iter().filter(|s| s.emit.slot.is_some()).count()
}

// shows: CREM-CC-10, CREM-CC-11, CREM-CC-12, AMB-CBNOW, AMB-CBCOPY
#[test]
fn an_open_breaker_stops_repair_at_once_and_comes_back_after_ten_clean_seconds() {
    let mut rig = Rig::new(config());
    let mut psn = rig.protect(key(1), 0);
    run(&mut rig, &mut psn, 3_000, (980, 0));
    assert!(rig.status(key(1)).m > 0 && symbols(&rig) > 0);
    run(&mut rig, &mut psn, 1_500, (850, 0));
    let status = rig.status(key(1));
    assert_eq!(
        (status.unprotected, status.m_allowed),
        (Some(Unprotected::Breaker), 0)
    );
    assert!(rig.events.contains(&Event::BreakerOpened(key(1))));
    assert!(rig.events.contains(&Event::PathBreakerOpened(gateway())));
    // m = 0 is announced as well, and nothing is sent meanwhile, whatever is asked for.
    rig.sent.clear();
    let request = rig.ranges(key(1), &[(psn - 70, 40)], 9);
    rig.deliver(&Message::RangeRequest(request));
    run(&mut rig, &mut psn, 9_000, (990, 0));
    assert_eq!(symbols(&rig), 0);
    assert!(rig.csf.counters().requests_broken > 0);
    assert_eq!(rig.updates().last().expect("an update").1.m, 0);
    assert!(rig.closes().is_empty(), "the flow stays open");
    run(&mut rig, &mut psn, 3_000, (990, 0));
    let status = rig.status(key(1));
    assert_eq!(status.unprotected, None);
    assert!(status.m > 0 && symbols(&rig) > 0, "redundancy is back");
    assert!(rig.events.contains(&Event::BreakerClosed(key(1))));
}

// shows: CREM-CC-13, AMB-CBRESUME, AMB-CBRETRY
#[test]
fn after_a_minute_of_violation_the_flow_is_closed_and_left_alone_for_long() {
    let mut rig = Rig::new(config());
    let mut psn = rig.protect(key(1), 0);
    run(&mut rig, &mut psn, 59_000, (600, 0));
    assert!(rig.closes().is_empty());
    run(&mut rig, &mut psn, 4_000, (600, 0));
    let reasons: Vec<u16> = rig.closes().iter().map(|close| close.reason).collect();
    assert_eq!(reasons, [4]);
    let status = rig.status(key(1));
    assert_eq!(
        (status.state, status.unprotected),
        (State::HeldOff, Some(Unprotected::Breaker))
    );
    let hellos = rig.hellos().len();
    let closed = rig.now;
    run(&mut rig, &mut psn, 100_000, (600, 0));
    // A pause beyond the idle time does not make the flow forget.
    rig.wait(Duration::from_secs(190));
    run(&mut rig, &mut psn, 2_000, (600, 0));
    assert_eq!(rig.hellos().len(), hellos, "five minutes");
    run(&mut rig, &mut psn, 20_000, (990, 0));
    let again = rig.hellos().get(hellos).expect("a further HELLO").0;
    assert!(again.since(closed) >= Duration::from_secs(297), "{again:?}");
    assert_eq!(rig.status(key(1)).unprotected, None);
}

// shows: CREM-POL-02, CREM-POL-03, AMB-MCONG
#[test]
fn congestion_freezes_m_and_raises_it_to_m_cong_at_most() {
    for (before, expected) in [(1000, 1), (980, 5)] {
        let mut rig = Rig::new(config());
        let mut psn = rig.protect(key(1), 0);
        run(&mut rig, &mut psn, 4_000, (before, 0));
        let m = rig.status(key(1)).m;
        assert_eq!(m, if before == 1000 { 0 } else { 5 });
        // Six percent with marks: nine symbols if it were transmission loss.
        run(&mut rig, &mut psn, 4_000, (940, 100));
        assert!(rig.status(key(1)).class.is_congestion());
        assert_eq!(rig.status(key(1)).m, expected, "from {m}");
        assert_eq!(config().fec.m_cong, 1);
    }
}

// shows: AMB-POLICY
#[test]
fn loss_that_rises_with_a_raise_takes_it_back_and_bars_raises_for_ten_seconds() {
    let mut rig = Rig::new(config());
    let mut psn = rig.protect(key(1), 0);
    run(&mut rig, &mut psn, 4_000, (1000, 0));
    assert_eq!(rig.status(key(1)).m, 0);
    // One percent, and what is sent in repair is lost besides.
    let mut raised = 0;
    let mut cycle = |rig: &mut Rig, psn: &mut u32, ms: u64| {
        for _ in 0..ms / 20 {
            let m = u32::from(rig.status(key(1)).m_allowed);
            raised = raised.max(m);
            run(rig, psn, 20, (990 - 1000 * m / 36, 0));
        }
    };
    cycle(&mut rig, &mut psn, 2_000);
    assert_eq!(rig.csf.counters().raises_reverted, 1);
    let induced = LossClass::Congestion(Evidence::SelfInduced);
    assert_eq!(rig.status(key(1)).class, induced);
    assert_eq!(rig.status(key(1)).m, 0);
    cycle(&mut rig, &mut psn, 7_000);
    assert_eq!(
        rig.csf.counters().raises_reverted,
        1,
        "barred for ten seconds"
    );
    assert_eq!(
        (rig.status(key(1)).m, rig.status(key(1)).class),
        (0, induced)
    );
    cycle(&mut rig, &mut psn, 4_000);
    assert_eq!(rig.csf.counters().raises_reverted, 2, "tried again");
    assert!(raised >= 4);
}

// shows: AMB-POLICY, AMB-LREXP
#[test]
fn a_raise_for_a_loss_that_was_asked_for_before_it_was_reported_is_kept() {
    for asks in [true, false] {
        let mut rig = Rig::new(config());
        let mut psn = rig.protect(key(1), 0);
        run(&mut rig, &mut psn, 4_000, (1000, 0));
        // Nine percent, of which little is reported while there are no symbols.
        for id in 1..=100 {
            let bare = rig.status(key(1)).m_allowed == 0;
            if bare && asks {
                let request = rig.ranges(key(1), &[(psn - 100, 90)], id);
                rig.deliver(&Message::RangeRequest(request));
            }
            let received = if bare { 995 } else { 910 };
            run(&mut rig, &mut psn, 20, (received, 0));
        }
        let reverted = rig.csf.counters().raises_reverted;
        assert_eq!(reverted, u64::from(!asks));
        assert_eq!(rig.status(key(1)).m > 3, asks);
    }
}

/// Twenty milliseconds are reported in which two percent of the sources were lost, and so much REPAIR came.
fn report_repairs(rig: &mut Rig, repairs_received: u32) {
    let report = LossReport {
        flow: rig.flow_id(key(1)),
        interval_us: 20_000,
        expected: 1000,
        received: 980,
        restored: 0,
        incomplete_blocks: 0,
        ce_marked: 0,
        repairs_received,
        repairs_ce_marked: 0,
    };
    rig.deliver(&Message::LossReport(report));
}

// shows: CREM-CC-06, CREM-CC-07, CREM-CC-08, AMB-REPLOSSMUST
#[test]
fn loss_of_repair_beyond_that_of_sources_reduces_m_to_zero() {
    let mut rig = Rig::new(config());
    let mut psn = rig.protect(key(1), 0);
    run(&mut rig, &mut psn, 4_000, (980, 0));
    assert_eq!(rig.status(key(1)).m, 5);
    assert_eq!(
        rig.csf.counters().repair_loss_reductions,
        0,
        "ten a report are reported"
    );
    // From now on no REPAIR arrives any more.
    for _ in 0..300 {
        rig.paced(key(1), psn..psn + 20, MS);
        psn += 20;
        report_repairs(&mut rig, 0);
        if rig.status(key(1)).m_allowed == 0 {
            break;
        }
    }
    assert_eq!(rig.status(key(1)).m_allowed, 0);
    assert!(rig.csf.counters().repair_loss_reductions > 0);
}

/// Time passes with two percent of the sources lost, and this share of the REPAIR in percent.
fn lose_repair(rig: &mut Rig, psn: &mut u32, ms: u64, percent: u32) {
    let start = symbols(rig);
    let arrived = |rig: &Rig| (symbols(rig) - start) as u32 * (100 - percent) / 100;
    let mut counted = 0;
    for _ in 0..ms / 20 {
        rig.paced(key(1), *psn..*psn + 20, MS);
        *psn += 20;
        let received = arrived(rig);
        report_repairs(rig, received - counted);
        counted = received;
    }
}

// shows: AMB-POLICY, CREM-POL-03
#[test]
fn repair_that_is_lost_more_than_sources_time_and_again_is_loss_of_our_own() {
    let induced = LossClass::Congestion(Evidence::SelfInduced);
    let mut rig = Rig::new(config());
    let mut psn = rig.protect(key(1), 0);
    run(&mut rig, &mut psn, 4_000, (980, 0));
    // Most of it is lost for long: found more than once.
    lose_repair(&mut rig, &mut psn, 4_000, 80);
    assert_eq!(rig.status(key(1)).class, induced);
    assert_eq!(rig.status(key(1)).m_allowed, 0);
    let m = rig.status(key(1)).m;
    run(&mut rig, &mut psn, 4_000, (940, 0));
    assert!(rig.status(key(1)).m <= m, "no raise for ten seconds");

    let mut rig = Rig::new(config());
    let mut psn = rig.protect(key(1), 0);
    run(&mut rig, &mut psn, 4_000, (980, 0));
    lose_repair(&mut rig, &mut psn, 8_000, 2);
    assert_eq!(rig.status(key(1)).class, LossClass::Transmission);
}

// shows: AMB-POLICY, AMB-RATECAP
#[test]
fn messages_of_eight_packets_earn_their_symbol() {
    let mut cfg = config();
    cfg.fec.adapt_k = true;
    let mut rig = Rig::new(cfg);
    let mut psn = rig.protect(key(1), 0);
    let mut messages = |rig: &mut Rig, count: u32| {
        for _ in 0..count {
            rig.psns(key(1), psn..psn + 8);
            psn += 8;
            rig.wait(RTT);
            rig.report(key(1), 1000, 999);
        }
    };
    messages(&mut rig, 100);
    rig.sent.clear();
    messages(&mut rig, 100);
    let status = rig.status(key(1));
    assert_eq!((status.k, status.m), (8, 1));
    assert_eq!(symbols(&rig), 100, "one symbol each");
}

// shows: CREM-POL-05, CREM-POL-06, AMB-EWMA
#[test]
fn the_first_report_of_a_loss_step_is_acted_on_and_one_loss_is_not() {
    let mut cfg = config();
    cfg.fec.adapt_k = true;
    cfg.fec.initial_loss_ppm = 1;
    let mut rig = Rig::new(cfg);
    let mut psn = rig.protect(key(1), 0);
    run(&mut rig, &mut psn, 1_000, (1000, 0));
    rig.report(key(1), 300, 299);
    assert_eq!(rig.status(key(1)).m, 0);
    // One percent from here on: the report leaves the receiver within 2.5 RTT and is here after three.
    let updates = rig.updates().len();
    rig.report(key(1), 1000, 990);
    let (_, update) = rig.updates()[updates..].first().copied().expect("at once");
    assert!(update.m > 0);
    let started = rig.now;
    while rig.status(key(1)).m == 0 {
        rig.paced(key(1), psn..psn + 1, MS / 4);
        psn += 1;
        assert!(rig.now.since(started) < 2 * RTT, "in force one RTT later");
    }
}

#[test]
fn the_breaker_of_a_path_stops_all_its_flows() {
    let mut rig = Rig::new(config());
    let mut psn = rig.protect(key(1), 0);
    rig.protect(key(2), 0);
    // The other flow is quiet meanwhile: it reports nothing itself.
    run(&mut rig, &mut psn, 1_500, (850, 0));
    let other = rig.status(key(2));
    assert_eq!(other.breaker, BreakerState::Closed);
    assert_eq!(
        (other.unprotected, other.m_allowed),
        (Some(Unprotected::Breaker), 0)
    );
    let paths: Vec<_> = rig.csf.paths().collect();
    assert_eq!(paths[0].breaker, BreakerState::Open);
    assert_eq!(rig.csf.counters().path_breaker_trips, 1);
}
