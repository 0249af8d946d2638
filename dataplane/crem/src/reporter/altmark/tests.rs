//! Two measurement points on a path that loses, delays and reorders marked packets.

use alloc::vec::Vec;
use crem_wire::Qpn;
use crem_wire::altmark::{AltMark, FlowMonId};
use crem_wire::crem::FlowDescriptor;
use proptest::prelude::*;

use super::*;
use crate::time::Instant;

/// A marking period, nanoseconds.
const T: u64 = 1_000_000;

fn config() -> AltMarkConfig {
    AltMarkConfig::new(Duration::from_nanos(T))
}

fn flow(qp: u32) -> MarkedFlow {
    MarkedFlow {
        flow_mon_id: FlowMonId::new(7),
        flow: FlowDescriptor {
            source: [10, 0, 1, 1].into(),
            destination: [10, 0, 2, 1].into(),
            qp: Qpn::new(qp),
        },
    }
}

fn mark(period: u64, delay: bool) -> AltMark {
    AltMark {
        flow_mon_id: FlowMonId::new(7),
        loss: period % 2 == 1,
        delay,
    }
}

fn count(period: u64, packets: u32) -> PeriodCount {
    PeriodCount {
        flow: flow(1),
        period,
        packets,
        timed: 0,
        time_sum_ns: 0,
    }
}

/// Serves both points at `now` of the one and `there` of the other, handing over the counts.
fn serve(up: &mut MarkMeter, down: &mut MarkCompare, now: u64, there: u64) {
    up.on_timeout(Instant(now));
    while let Some(count) = up.poll() {
        down.on_upstream(Instant(there), count);
    }
    down.on_timeout(Instant(there));
}

/// Lets time pass at both points.
fn run(up: &mut MarkMeter, down: &mut MarkCompare, from: u64, until: u64) {
    for now in (from..=until).step_by(T as usize / 20) {
        serve(up, down, now, now);
    }
}

fn results(down: &mut MarkCompare) -> Vec<PeriodLoss> {
    core::iter::from_fn(|| down.poll()).map(|r| r.1).collect()
}

#[test]
fn a_colour_other_than_that_of_the_period_means_the_nearer_neighbour() {
    let mut meter = MarkMeter::new(config());
    let mut see = |at: u64, colour| meter.observe(Instant(at), flow(1), &mark(colour, false));
    see(10 * T, 10);
    see(10 * T, 9);
    see(10 * T + T / 2 - 1, 9);
    see(10 * T + T / 2, 11);
    see(11 * T - 1, 10);
    see(11 * T - 1, 11);
    meter.on_timeout(Instant(20 * T));
    let counts: Vec<_> = core::iter::from_fn(|| meter.poll())
        .map(|c| (c.period, c.packets))
        .collect();
    assert_eq!(counts, [(9, 2), (10, 2), (11, 2)]);
}

#[test]
fn a_count_is_final_half_a_period_after_its_end_and_not_before() {
    let mut meter = MarkMeter::new(config());
    meter.observe(Instant(10 * T), flow(1), &mark(10, false));
    let due = 11 * T + T / 2;
    assert_eq!(meter.next_timeout(), Some(Instant(due)));
    meter.on_timeout(Instant(due - 1));
    assert_eq!(meter.poll(), None);
    meter.observe(Instant(due - 1), flow(1), &mark(10, false));
    meter.on_timeout(Instant(due));
    assert_eq!(meter.poll(), Some(count(10, 2)));
    assert_eq!((meter.poll(), meter.next_timeout()), (None, None));
}

#[test]
fn losses_of_each_period_are_the_difference_of_its_counts() {
    let (mut up, mut down) = (
        MarkMeter::new(config()),
        MarkCompare::new(config(), Instant(0)),
    );
    for n in 0..60u64 {
        let at = 2 * T + n * T / 10;
        let period = at / T;
        run(&mut up, &mut down, at, at);
        up.observe(Instant(at), flow(1), &mark(period, false));
        // Of the period with number 4 three are lost, of that with number 6 all.
        let lost = (period == 4 && n % 10 < 3) || period == 6;
        if !lost {
            down.observe(Instant(at + T / 5), flow(1), &mark(period, false));
        }
    }
    run(&mut up, &mut down, 8 * T, 30 * T);
    let lost: Vec<_> = results(&mut down)
        .iter()
        .map(|r| (r.period, r.lost))
        .collect();
    assert_eq!(lost, [(2, 0), (3, 0), (4, 3), (5, 0), (6, 10), (7, 0)]);
    assert_eq!((down.counters().compared, down.counters().lost), (6, 13));
}

#[test]
fn only_whole_periods_of_flows_seen_here_are_compared() {
    let mut down = MarkCompare::new(config(), Instant(5 * T + T / 10));
    // What was sent before this point counted is not lost.
    down.observe(Instant(5 * T + T / 5), flow(1), &mark(5, false));
    down.on_upstream(Instant(6 * T), count(5, 100));
    assert_eq!(down.counters().partial, 1);
    let mut other = count(8, 100);
    other.flow = flow(2);
    down.on_upstream(Instant(9 * T), other);
    assert_eq!(down.counters().elsewhere, 1);
    down.on_timeout(Instant(8 * T));
    assert_eq!(down.counters().partial, 2);
    assert_eq!(results(&mut down), []);
    // The first whole one.
    down.on_upstream(Instant(8 * T), count(6, 3));
    down.on_timeout(Instant(8 * T));
    assert_eq!(results(&mut down).len(), 1);
}

#[test]
fn without_the_other_points_count_nothing_is_said() {
    let mut down = MarkCompare::new(config(), Instant(0));
    down.observe(Instant(3 * T), flow(1), &mark(3, false));
    let over = 4 * T + T / 2;
    down.on_timeout(Instant(over));
    assert_eq!(down.next_timeout(), Some(Instant(over + 4 * T)));
    down.on_timeout(Instant(over + 4 * T - 1));
    assert_eq!(down.counters().unmatched, 0);
    down.on_timeout(Instant(over + 4 * T));
    assert_eq!(down.counters().unmatched, 1);
    assert_eq!((down.poll(), down.next_timeout()), (None, None));
    // It comes too late: this point has nothing to compare it with, and must not take that for loss.
    down.on_upstream(Instant(over + 5 * T), count(3, 1));
    down.on_timeout(Instant(over + 5 * T));
    assert_eq!(results(&mut down), []);
}

#[test]
fn more_packets_here_than_upstream_are_no_loss() {
    let mut down = MarkCompare::new(config(), Instant(0));
    for _ in 0..3 {
        down.observe(Instant(3 * T), flow(1), &mark(3, false));
    }
    down.on_upstream(Instant(5 * T), count(3, 2));
    down.on_timeout(Instant(5 * T));
    assert_eq!(results(&mut down)[0].lost, 0);
    assert_eq!(down.counters().inconsistent, 1);
}

#[test]
fn the_change_of_the_delay_is_told_and_a_constant_clock_error_is_not() {
    const WRONG: u64 = T / 8;
    let (mut up, mut down) = (
        MarkMeter::new(config()),
        MarkCompare::new(config(), Instant(0)),
    );
    for (period, delay) in [(4u64, 20_000u64), (5, 50_000), (6, 50_999), (7, 10_000)] {
        for n in 1..4 {
            let at = period * T + n * T / 10;
            up.observe(Instant(at), flow(1), &mark(period, n < 3));
            // In period 6 a timed packet is lost.
            if period != 6 || n != 1 {
                let seen = at + delay + WRONG;
                down.observe(Instant(seen), flow(1), &mark(period, n < 3));
            }
        }
    }
    run(&mut up, &mut down, 8 * T, 30 * T);
    let changes: Vec<_> = results(&mut down)
        .iter()
        .map(|r| (r.period, r.lost, r.delay_change_us))
        .collect();
    assert_eq!(changes, [(4, 0, 0), (5, 0, 30), (6, 1, 0), (7, 0, -40)]);
}

#[test]
fn flows_and_halves_are_bounded() {
    let mut cfg = config();
    (cfg.max_flows, cfg.wait_periods, cfg.max_results) = (4, 2, 3);
    let mut down = MarkCompare::new(cfg, Instant(0));
    for qp in 0..100 {
        down.observe(Instant(3 * T), flow(qp), &mark(3, false));
    }
    down.on_timeout(Instant(5 * T));
    assert_eq!(down.meter_counters().flows_evicted, 96);
    // Each takes a place of its own; there are eight.
    for period in 10..40 {
        let mut count = count(period, 1);
        count.flow = flow(99);
        down.on_upstream(Instant(5 * T), count);
    }
    assert!(down.counters().crowded >= 22);
    down.on_timeout(Instant(90 * T));
    assert_eq!(results(&mut down).len(), 3);
    assert!(down.counters().results_dropped >= 5);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// With clocks apart and packets late by less than a quarter of a period each, what is found lost is what
    /// was lost, in its own period.
    #[test]
    fn losses_are_found_exactly(
        packets in prop::collection::vec((0u64..T / 4, any::<bool>(), 0u64..T / 4 - 1, 0u32..3), 50..600),
        skew in 0u64..T / 4, ahead in any::<bool>(),
    ) {
        let (mut up, mut down) = (MarkMeter::new(config()), MarkCompare::new(config(), Instant(0)));
        let mut lost = [[0u32; 400]; 3];
        let mut events = Vec::new();
        let mut at = 3 * T;
        let mut seen = [false; 3];
        for (gap, arrives, late, qp) in packets {
            at += gap;
            // The first of each flow arrives, so that the point knows the flow.
            let arrives = arrives || !core::mem::replace(&mut seen[qp as usize], true);
            events.push((at, true, qp, at / T));
            if arrives {
                events.push((at + late, false, qp, at / T));
            } else {
                lost[qp as usize][(at / T) as usize] += 1;
            }
        }
        events.extend((0..400).map(|n| (at + n * T / 20, true, u32::MAX, 0)));
        events.sort_unstable();
        for (now, sent, qp, period) in events {
            let there = if ahead { now + skew } else { now - skew };
            serve(&mut up, &mut down, now, there);
            match (qp, sent) {
                (u32::MAX, _) => {}
                (_, true) => up.observe(Instant(now), flow(qp), &mark(period, true)),
                (_, false) => down.observe(Instant(there), flow(qp), &mark(period, true)),
            }
        }
        let mut found = [[0u32; 400]; 3];
        while let Some((flow, result)) = down.poll() {
            found[flow.flow.qp.get() as usize][result.period as usize] += result.lost;
        }
        prop_assert_eq!(found, lost);
        prop_assert_eq!(down.counters().inconsistent, 0);
    }
}
