//! The Path Reporter from outside: what is told when, to whom, how often and in how many octets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use alloc::vec;
use alloc::vec::Vec;
use crem_wire::Qpn;
use crem_wire::crem::{HopEntry, Message, Parsed, parse};
use hashbrown::{HashMap, HashSet};
use proptest::prelude::*;

use super::*;
use crate::config::Prefix;

const PORT: u16 = 50_000;
const INTERVAL: Duration = Duration::from_micros(50);
const MS: Duration = Duration::from_millis(1);

fn start() -> Instant {
    Instant(1_000_000_000)
}

fn prefix(text: &str, length: u8) -> Prefix {
    Prefix {
        address: text.parse().unwrap(),
        length,
    }
}

fn config() -> ReporterConfig {
    let mut cfg = ReporterConfig::new(9, PORT);
    let direct = |text: &str, length| SourcePrefix {
        prefix: prefix(text, length),
        csf: None,
    };
    cfg.sources = vec![direct("10.0.0.0", 8), direct("2001:db8::", 32)];
    cfg
}

fn flow(qp: u32) -> Observed {
    Observed {
        flow: FlowDescriptor {
            source: [10, 0, 1, 1].into(),
            destination: [10, 0, 2, 1].into(),
            qp: Qpn::new(qp),
        },
        port: 0,
        dscp: 26,
    }
}

/// Lets time pass and gives what is sent with its time.
fn run(reporter: &mut Reporter, until: Instant) -> Vec<(Instant, Outgoing)> {
    let mut sent = Vec::new();
    while let Some(now) = reporter.next_timeout().filter(|at| *at <= until) {
        reporter.on_timeout(now);
        sent.extend(core::iter::from_fn(|| reporter.poll_transmit()).map(|out| (now, out)));
    }
    sent
}

fn one(reporter: &mut Reporter) -> Outgoing {
    let mut sent = run(reporter, start() + MS * 500);
    assert_eq!(sent.len(), 1);
    sent.remove(0).1
}

fn octets(out: &Outgoing) -> Vec<u8> {
    let mut octets = Vec::new();
    Message::PathReport(out.report.clone()).encode(&mut octets);
    octets
}

fn psns(entry: &HopEntry) -> Vec<u32> {
    entry.dropped.iter().map(|psn| psn.get()).collect()
}

// shows: CREM-PR-03, CREM-PR-04, CREM-PR-06, CREM-PR-11, CREM-ARCH-03, CREM-MSG-27, AMB-NODEID
#[test]
fn drops_are_told_an_interval_after_the_first_to_the_source_of_the_flow() {
    let mut reporter = Reporter::new(config(), 70);
    for (n, psn) in [4u32, 5, 9].into_iter().enumerate() {
        let at = start() + Duration::from_micros(20) * n as u32;
        reporter.on_drop(at, &flow(3), Psn::new(psn), LossCause::QueueOverflow);
    }
    let sent = run(&mut reporter, start() + MS);
    let [(at, out)] = sent.as_slice() else {
        panic!("{sent:?}")
    };
    assert_eq!(*at, start() + INTERVAL);
    assert_eq!(out.to, SocketAddr::new([10, 0, 1, 1].into(), PORT));
    assert_eq!(out.dscp, 26);
    let report = &out.report;
    assert_eq!((report.flow, report.method), (flow(3).flow, 3));
    assert!(!report.truncated);
    let [entry] = report.hops.as_slice() else {
        panic!("{report:?}")
    };
    let told = (entry.node, entry.period, entry.lost, entry.cause);
    assert_eq!(told, (9, 70, 3, 1));
    assert_eq!(psns(entry), [4, 5, 9]);
    assert_eq!(
        parse(&octets(out)),
        Ok(Parsed::Message(Message::PathReport(report.clone())))
    );
}

#[test]
fn each_cause_has_an_entry_and_a_number_of_its_own() {
    let mut reporter = Reporter::new(config(), 0);
    for (psn, cause) in [
        (1, LossCause::TransmissionError),
        (2, LossCause::QueueOverflow),
        (3, LossCause::TransmissionError),
    ] {
        reporter.on_drop(start(), &flow(3), Psn::new(psn), cause);
    }
    let told: Vec<_> = one(&mut reporter)
        .report
        .hops
        .iter()
        .map(|e| (e.period, e.cause, psns(e)))
        .collect();
    assert_eq!(told, [(0, 1, vec![2]), (1, 2, vec![1, 3])]);
}

// shows: CREM-PR-06, CREM-SEC-04
#[test]
fn reports_go_to_the_csf_of_the_prefix_and_nowhere_outside_the_domain() {
    let mut cfg = config();
    cfg.sources.push(SourcePrefix {
        prefix: prefix("10.0.1.0", 24),
        csf: Some([192, 0, 2, 1].into()),
    });
    let mut reporter = Reporter::new(cfg, 0);
    let mut other = flow(4);
    other.flow.source = [10, 0, 9, 1].into();
    let mut outside = flow(5);
    outside.flow.source = [11, 0, 1, 1].into();
    for packet in [flow(3), other, outside] {
        reporter.on_drop(start(), &packet, Psn::new(1), LossCause::Unknown);
        reporter.on_delay(start(), &packet, MS);
    }
    let sent = run(&mut reporter, start() + MS);
    let to: HashMap<u32, IpAddr> = sent
        .iter()
        .map(|(_, out)| (out.report.flow.qp.get(), out.to.ip()))
        .collect();
    assert_eq!(to.len(), 2);
    assert_eq!(to[&3], IpAddr::from([192, 0, 2, 1]));
    assert_eq!(to[&4], IpAddr::from([10, 0, 9, 1]));
    assert_eq!(reporter.counters().outside_domain, 2);
}

// shows: CREM-PR-12, AMB-PRRATE
#[test]
fn in_a_storm_of_drops_no_flow_and_no_port_exceeds_its_rate_and_no_loss_is_forgotten() {
    let mut cfg = config();
    cfg.ports = 2;
    let mut reporter = Reporter::new(cfg, 0);
    let mut dropped = [0u64; 40];
    let mut sent = Vec::new();
    for n in 0..60_000u32 {
        let now = start() + Duration::from_micros(50) * n;
        sent.extend(run(&mut reporter, now));
        let qp = n * 7 % 40;
        let mut packet = flow(qp);
        // Port 1 has only one flow.
        packet.port = u16::from(qp == 0);
        reporter.on_drop(now, &packet, Psn::new(n), LossCause::TransmissionError);
        dropped[qp as usize] += 1;
    }
    sent.extend(run(&mut reporter, start() + MS * 60_000));
    let times = |of: &dyn Fn(&Outgoing) -> bool| -> Vec<Instant> {
        sent.iter().filter(|s| of(&s.1)).map(|s| s.0).collect()
    };
    let busiest = |times: &[Instant]| {
        let within = |(n, first): (usize, &Instant)| {
            times[n..]
                .iter()
                .take_while(|t| t.since(*first) < MS * 1000)
                .count()
        };
        times.iter().enumerate().map(within).max().unwrap()
    };
    let alone = busiest(&times(&|out| out.port == 1));
    let together = busiest(&times(&|out| out.port == 0));
    assert!((95..=100).contains(&alone), "one flow: {alone}");
    assert!((990..=1000).contains(&together), "39 flows: {together}");
    for (qp, dropped) in dropped.into_iter().enumerate() {
        let of = |out: &Outgoing| out.report.flow.qp.get() as usize == qp;
        assert!(busiest(&times(&of)) <= 100);
        let gaps = times(&of);
        assert!(gaps.windows(2).all(|w| w[1].since(w[0]) >= INTERVAL));
        let hops = sent
            .iter()
            .filter(|s| of(&s.1))
            .flat_map(|s| &s.1.report.hops);
        let (lost, listed) = hops.fold((0, 0), |(lost, listed), hop| {
            (
                lost + u64::from(hop.lost),
                listed + hop.dropped.len() as u64,
            )
        });
        assert_eq!(lost, dropped, "suppressed losses are in the next report");
        assert!(listed <= lost);
    }
    assert!(reporter.counters().reports_delayed > 0);
    assert_eq!(reporter.counters().losses_forgotten, 0);
}

// shows: CREM-PR-08, CREM-PR-09
#[test]
fn lists_are_cut_to_the_path_mtu_and_marked_so() {
    for (six, mtu, room) in [(false, 1000u16, 232), (false, 600, 132), (true, 1000, 221)] {
        let mut cfg = config();
        cfg.path_mtu = mtu;
        let mut reporter = Reporter::new(cfg, 0);
        let mut packet = flow(3);
        if six {
            packet.flow.source = "2001:db8::1".parse().unwrap();
            packet.flow.destination = "2001:db8::2".parse().unwrap();
        }
        for psn in 0..240 {
            reporter.on_drop(start(), &packet, Psn::new(psn), LossCause::QueueOverflow);
        }
        let out = one(&mut reporter);
        let headers = if six { 48 } else { 28 };
        assert!(octets(&out).len() + headers <= usize::from(mtu));
        assert!(
            octets(&out).len() + headers + 4 > usize::from(mtu),
            "as full as can be"
        );
        assert!(out.report.truncated);
        let entry = &out.report.hops[0];
        assert_eq!((entry.lost, entry.dropped.len()), (240, room));
        assert_eq!(psns(entry)[..3], [0, 1, 2], "the first ones are kept");
        assert_eq!(reporter.counters().psns_left_out, 240 - room as u64);
        // The next one tells all.
        reporter.on_drop(start() + MS, &packet, Psn::new(7), LossCause::QueueOverflow);
        assert!(!run(&mut reporter, start() + MS * 900)[0].1.report.truncated);
    }
}

#[test]
fn a_list_that_is_full_is_marked_as_cut_too() {
    let mut cfg = config();
    cfg.path_mtu = 9000;
    let mut reporter = Reporter::new(cfg, 0);
    for psn in 0..256 {
        reporter.on_drop(start(), &flow(3), Psn::new(psn), LossCause::QueueOverflow);
    }
    let out = one(&mut reporter);
    assert!(out.report.truncated);
    assert_eq!(out.report.hops[0].lost, 256);
    assert_eq!(out.report.hops[0].dropped.len(), 255);
}

// shows: CREM-PR-04
#[test]
fn growth_of_the_queue_is_told_by_itself_beyond_the_step() {
    let mut reporter = Reporter::new(config(), 0);
    for us in [0u64, 40, 99] {
        reporter.on_delay(start(), &flow(3), Duration::from_micros(us));
    }
    assert_eq!(reporter.next_timeout(), None);
    reporter.on_delay(start(), &flow(3), Duration::from_micros(250));
    let hop = one(&mut reporter).report.hops[0].clone();
    assert_eq!(
        (hop.queue_delay_change_us, hop.lost, hop.cause),
        (250, 0, 0)
    );
    reporter.on_delay(start() + MS, &flow(3), Duration::from_micros(10));
    let hop = run(&mut reporter, start() + MS * 900)[0].1.report.hops[0].clone();
    assert_eq!(hop.queue_delay_change_us, -240);
}

// shows: CREM-MSG-26
#[test]
fn marking_periods_are_told_one_entry_each_with_their_number() {
    let mut reporter = Reporter::new(config(), 0);
    let lost = [(100, 0), (101, 4), (102, 0), (103, 1)];
    for (n, (period, lost)) in lost.into_iter().enumerate() {
        let period = PeriodLoss {
            period,
            lost,
            delay_change_us: 10,
        };
        let at = start() + Duration::from_micros(10) * n as u32;
        reporter.on_period(at, &flow(3), &period);
    }
    // What the node dropped itself is told with its own method.
    reporter.on_drop(start(), &flow(3), Psn::new(8), LossCause::QueueOverflow);
    let sent = run(&mut reporter, start() + MS);
    let told = |method: u8| -> Vec<(u32, u32, i32)> {
        let of = sent.iter().filter(|s| s.1.report.method == method);
        of.flat_map(|s| &s.1.report.hops)
            .map(|e| (e.period, e.lost, e.queue_delay_change_us))
            .collect()
    };
    assert_eq!(told(1), [(101, 4, 20), (103, 1, 20)]);
    assert_eq!(told(3), [(0, 1, 0)]);
    assert_eq!(sent.len(), 2);
}

fn downstream() -> IpAddr {
    [198, 51, 100, 2].into()
}

fn merging() -> ReporterConfig {
    let mut cfg = config();
    cfg.merge_from = vec![prefix("198.51.100.0", 24)];
    cfg
}

fn their_report(entries: u32, psns: u32) -> PathReport {
    let hops = (0..entries).map(|n| HopEntry {
        node: 100 + n,
        period: n,
        lost: psns,
        queue_delay_change_us: 5,
        cause: 1,
        dropped: (0..psns).map(Psn::new).collect(),
    });
    PathReport {
        truncated: false,
        method: 3,
        flow: flow(3).flow,
        hops: hops.collect(),
    }
}

fn pass(reporter: &mut Reporter, now: Instant, report: &PathReport) -> Passing {
    let source = report.flow.source;
    let packet = Observed {
        flow: report.flow,
        ..flow(0)
    };
    reporter.on_report(now, (downstream(), source), &packet, report)
}

// shows: CREM-PR-10, AMB-PRMERGE
#[test]
fn a_report_from_downstream_leaves_with_ours_within_the_interval() {
    let mut reporter = Reporter::new(merging(), 70);
    let theirs = their_report(2, 3);
    assert_eq!(pass(&mut reporter, start(), &theirs), Passing::Merged);
    let later = start() + Duration::from_micros(30);
    reporter.on_drop(later, &flow(3), Psn::new(8), LossCause::TransmissionError);
    let sent = run(&mut reporter, start() + MS);
    assert_eq!(sent.len(), 1);
    assert_eq!(
        sent[0].0,
        start() + INTERVAL,
        "theirs waits no longer than that"
    );
    let hops = &sent[0].1.report.hops;
    assert_eq!(hops[..2], theirs.hops[..]);
    assert_eq!(
        (hops[2].node, hops[2].period, psns(&hops[2])),
        (9, 70, vec![8])
    );
}

#[test]
fn theirs_takes_no_turn_and_ours_rides_along() {
    let mut reporter = Reporter::new(merging(), 0);
    // Use up the flow's turns.
    let mut now = start();
    for psn in 0..25 {
        reporter.on_drop(now, &flow(3), Psn::new(psn), LossCause::TransmissionError);
        now = now + INTERVAL;
        run(&mut reporter, now);
    }
    reporter.on_drop(now, &flow(3), Psn::new(99), LossCause::TransmissionError);
    assert!(run(&mut reporter, now + MS).is_empty(), "no turn yet");
    let now = now + MS;
    assert_eq!(
        pass(&mut reporter, now, &their_report(1, 1)),
        Passing::Merged
    );
    let sent = run(&mut reporter, now + INTERVAL);
    assert_eq!(sent.len(), 1);
    assert!(
        sent[0]
            .1
            .report
            .hops
            .iter()
            .any(|hop| psns(hop).contains(&99))
    );
    assert!(run(&mut reporter, now + MS * 900).is_empty(), "all is told");
}

// shows: AMB-PRMERGE, CREM-MSG-28
#[test]
fn only_reports_of_listed_nodes_to_the_same_csf_that_fit_are_merged() {
    let mut reporter = Reporter::new(merging(), 0);
    let theirs = their_report(1, 1);
    let to: IpAddr = flow(3).flow.source;
    let stranger: IpAddr = [203, 0, 113, 5].into();
    let elsewhere: IpAddr = [10, 0, 1, 9].into();
    let mut forward = |from, to, report: &PathReport| {
        let packet = Observed {
            flow: report.flow,
            ..flow(0)
        };
        let way = reporter.on_report(start(), (from, to), &packet, report);
        assert_eq!(way, Passing::Forward, "{report:?}");
    };
    forward(stranger, to, &theirs);
    forward(downstream(), elsewhere, &theirs);
    let mut clustered = theirs.clone();
    clustered.method = 2;
    forward(downstream(), to, &clustered);
    // No entry of ours would have room beside sixteen, nor an octet beside a full message.
    forward(downstream(), to, &their_report(16, 0));
    forward(downstream(), to, &their_report(2, 180));
    assert_eq!(reporter.counters().not_merged, 5);
    assert_eq!(reporter.next_timeout(), None, "nothing was kept");
    assert_eq!(
        pass(&mut reporter, start(), &their_report(10, 0)),
        Passing::Merged
    );
    assert_eq!(
        pass(&mut reporter, start(), &their_report(6, 0)),
        Passing::Forward
    );
    assert_eq!(
        pass(&mut reporter, start(), &their_report(5, 0)),
        Passing::Merged
    );
    for cause in [LossCause::Unknown, LossCause::QueueOverflow] {
        reporter.on_drop(start(), &flow(3), Psn::new(1), cause);
    }
    let sent = run(&mut reporter, start() + MS);
    let counts: Vec<_> = sent.iter().map(|s| s.1.report.hops.len()).collect();
    assert_eq!(counts, [16, 1], "what has no room is told next");
    // Nobody is merged unless configured.
    let mut plain = Reporter::new(config(), 0);
    assert_eq!(pass(&mut plain, start(), &theirs), Passing::Forward);
}

#[test]
fn what_was_cut_downstream_stays_marked() {
    let mut reporter = Reporter::new(merging(), 0);
    let mut theirs = their_report(1, 1);
    theirs.truncated = true;
    pass(&mut reporter, start(), &theirs);
    assert!(one(&mut reporter).report.truncated);
    pass(&mut reporter, start() + MS * 600, &their_report(1, 1));
    assert!(!run(&mut reporter, start() + MS * 900)[0].1.report.truncated);
}

#[test]
fn flows_are_bounded_and_those_with_nothing_to_tell_go_first() {
    let mut cfg = config();
    cfg.max_flows = 3;
    let mut reporter = Reporter::new(cfg, 0);
    reporter.on_drop(start(), &flow(1), Psn::new(1), LossCause::Unknown);
    for qp in 2..4 {
        reporter.on_delay(start(), &flow(qp), MS);
    }
    reporter.on_drop(start(), &flow(4), Psn::new(1), LossCause::Unknown);
    reporter.on_drop(start(), &flow(5), Psn::new(1), LossCause::Unknown);
    assert_eq!(reporter.counters().flows_evicted, 0);
    reporter.on_drop(start(), &flow(6), Psn::new(1), LossCause::Unknown);
    let counters = reporter.counters();
    assert_eq!((counters.flows_evicted, counters.losses_forgotten), (1, 1));
    let told: Vec<_> = run(&mut reporter, start() + MS)
        .iter()
        .map(|s| s.1.report.flow.qp.get())
        .collect();
    assert_eq!(told.len(), 3);
    assert!(!told.contains(&1), "the oldest");
}

#[test]
fn reports_that_nobody_takes_are_dropped_and_counted() {
    let mut cfg = config();
    cfg.max_transmits = 2;
    let mut reporter = Reporter::new(cfg, 0);
    for qp in 0..5 {
        reporter.on_drop(start(), &flow(qp), Psn::new(1), LossCause::Unknown);
    }
    reporter.on_timeout(start() + MS);
    assert_eq!(reporter.counters().transmit_dropped, 3);
    assert_eq!(core::iter::from_fn(|| reporter.poll_transmit()).count(), 2);
}

/// Something that happens at a node: after this many microseconds, of this kind, for this flow.
type Step = (u32, u8, u32, u32);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever happens: each loss is told exactly once, no entry of ours has the number of another, and every
    /// message parses and fits the path.
    // shows: CREM-PR-08, CREM-MSG-28, AMB-PRDUP
    #[test]
    fn losses_are_told_once_in_messages_that_fit(
        steps in prop::collection::vec((0u32..3_000, 0u8..5, 0u32..4, 1u32..300), 1..200), mtu in 500u16..2_000,
    ) {
        let mut cfg = merging();
        cfg.path_mtu = mtu;
        let mut reporter = Reporter::new(cfg, u32::MAX - 20);
        let mut now = start();
        let (mut dropped, mut sent) = ([0u64; 4], Vec::new());
        for (n, step) in steps.iter().enumerate() {
            now = now + Duration::from_micros(step.0.into());
            sent.extend(run(&mut reporter, now));
            happen(&mut reporter, now, n as u32, step, &mut dropped);
        }
        sent.extend(run(&mut reporter, now + MS * 10_000));
        let mut told = [0u64; 4];
        let mut numbers = HashSet::new();
        for (_, out) in &sent {
            let octets = octets(out);
            prop_assert!(octets.len() + 28 <= usize::from(mtu.max(576)));
            prop_assert_eq!(parse(&octets), Ok(Parsed::Message(Message::PathReport(out.report.clone()))));
            for hop in &out.report.hops {
                told[out.report.flow.qp.get() as usize] += u64::from(hop.lost);
                prop_assert!(hop.node != 9 || numbers.insert((out.report.flow, out.report.method, hop.period)));
            }
        }
        prop_assert_eq!(told, dropped);
        prop_assert_eq!(reporter.counters().losses_forgotten, 0);
    }
}

fn happen(
    reporter: &mut Reporter,
    now: Instant,
    n: u32,
    &(_, kind, qp, amount): &Step,
    dropped: &mut [u64; 4],
) {
    let place = &mut dropped[qp as usize];
    match kind {
        0 | 1 => {
            *place += u64::from(amount);
            let cause = [LossCause::QueueOverflow, LossCause::TransmissionError][usize::from(kind)];
            for psn in 0..amount {
                reporter.on_drop(now, &flow(qp), Psn::new(psn), cause);
            }
        }
        2 => reporter.on_delay(now, &flow(qp), Duration::from_micros(amount.into())),
        3 => {
            *place += u64::from(amount);
            let period = PeriodLoss {
                period: n,
                lost: amount,
                delay_change_us: -5,
            };
            reporter.on_period(now, &flow(qp), &period);
        }
        _ => {
            let mut theirs = their_report(1 + amount % 3, amount % 50);
            theirs.flow.qp = Qpn::new(qp);
            if pass(reporter, now, &theirs) == Passing::Merged {
                *place += theirs.hops.iter().map(|h| u64::from(h.lost)).sum::<u64>();
            }
        }
    }
}
