//! The observer against a naive one that keeps every label in a set, on streams with reordering,
//! repeats, wraps and hostile jumps; and what closes an epoch.
#![allow(clippy::unwrap_used, clippy::panic)]

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crem_wire::roce::{Bth, Opcode};
use crem_wire::{Psn, Qpn};
use proptest::prelude::*;

use super::*;
use crate::flow::FlowRecord;
use crate::point::Place;
use crate::scope::Suspect;
use crate::seq::{Counts, Statement};
use crate::{PacketRecord, Prefix};

#[derive(Default)]
struct Reports(Vec<SequenceRecord>);

impl Sink for Reports {
    fn packet(&mut self, _: &PacketRecord) -> bool {
        false
    }
    fn flow(&mut self, _: Place, _: &FlowRecord) -> bool {
        false
    }
    fn sequence(&mut self, record: &SequenceRecord) -> bool {
        assert!(record.counts.is_consistent(record.window), "{record:?}");
        assert!(record.start <= record.end);
        if record.flags.contains(Flags::FINAL) {
            assert_eq!(record.counts.pending, 0);
        } else {
            assert!(record.counts.abandoned == 0 && !record.flags.intersects(Flags::REASONS));
        }
        self.0.push(*record);
        true
    }
}

const STATEMENT: Statement = Statement {
    only_send_and_write: true,
    complete_and_unambiguous: true,
    packets_per_second: 1_000_000,
    longest_retry: Duration::from_secs(4),
};

fn provision(window: u32) -> Provision {
    Provision {
        source: "10.0.0.0/24".parse().unwrap(),
        destination: "10.0.1.0/24".parse().unwrap(),
        qp: None,
        pkey: None,
        context: None,
        window,
        generation: None,
        statement: STATEMENT,
    }
}

fn config(contexts: u32, epochs: u32, window: u32) -> ObserverConfig {
    ObserverConfig {
        contexts,
        epochs,
        window,
        ..ObserverConfig::default()
    }
}

fn observer(config: ObserverConfig, provisions: Vec<Provision>) -> Observer {
    let point = Point::new(Place::WanIngress, 7, 0).unwrap();
    let mut observer = Observer::new(point, config, provisions).unwrap();
    observer.begin_session(1);
    observer
}

fn packet(qp: u32, opcode: u8, psn: u32) -> Observation {
    Observation {
        source: IpAddr::from([10, 0, 0, 1]),
        destination: IpAddr::from([10, 0, 1, 1]),
        source_port: 49152,
        destination_port: 4791,
        tos: 0,
        ip_octets: 100,
        payload_off: 42,
        payload_octets: 60,
        context: 0,
        bth: Bth {
            opcode: Opcode(opcode),
            octet1: 0,
            pkey: 0xffff,
            octet4: 0,
            dest_qp: Qpn::new(qp),
            octet8: 0,
            psn: Psn::new(psn),
        },
    }
}

fn at(millis: u64) -> Utc {
    Utc::from_millis(1_000_000 + millis)
}

const SEND: u8 = 4;
const READ: u8 = 0x0c;

/// Section 5 word by word, with sets.
#[derive(Default)]
struct Naive {
    width: i64,
    active: bool,
    start: i64,
    high: i64,
    seen: BTreeSet<i64>,
    pending: BTreeSet<i64>,
    counts: Counts,
    closed: Vec<Counts>,
}

impl Naive {
    fn close(&mut self) {
        if self.active {
            let mut counts = self.counts;
            counts.abandoned += self.pending.len() as u64;
            counts.pending = 0;
            self.closed.push(counts);
        }
        self.active = false;
    }

    fn begin(&mut self, psn: i64) {
        *self = Self {
            width: self.width,
            active: true,
            start: psn,
            high: psn,
            seen: BTreeSet::from([psn]),
            counts: Counts {
                requests: 1,
                ..Counts::default()
            },
            closed: core::mem::take(&mut self.closed),
            ..Self::default()
        };
    }

    fn packet(&mut self, psn: u32) {
        let modulus = 1 << 24;
        let psn = i64::from(psn);
        if !self.active {
            return self.begin(psn);
        }
        let u = (psn - self.high).rem_euclid(modulus);
        let d = if u < modulus / 2 { u } else { u - modulus };
        if u == modulus / 2 || d > self.width {
            self.close();
            return self.begin(psn);
        }
        self.counts.requests += 1;
        if d >= 1 {
            for position in self.high + 1..self.high + d {
                self.pending.insert(position);
                self.counts.skipped += 1;
            }
            self.high += d;
            self.seen.insert(self.high);
            let low = self.low();
            let kept = self.pending.split_off(&low);
            self.counts.expired += self.pending.len() as u64;
            self.pending = kept;
            self.seen = self.seen.split_off(&low);
        } else if self.pending.remove(&(self.high + d)) {
            self.seen.insert(self.high + d);
            self.counts.filled += 1;
        } else if self.seen.contains(&(self.high + d)) {
            self.counts.repeated += 1;
        } else {
            assert!(self.high + d < self.low());
            self.counts.unclassified_late += 1;
        }
        self.counts.pending = self.pending.len() as u32;
    }

    fn low(&self) -> i64 {
        self.start.max(self.high - self.width + 1)
    }
}

/// PSNs of a stream: mostly ahead, some back, some hostile.
fn stream(width: u32) -> impl Strategy<Value = Vec<u32>> {
    let step = prop_oneof![
        8 => Just(1i64),
        3 => 2..6i64,
        3 => -8..=0i64,
        1 => Just(i64::from(width)),
        1 => Just(i64::from(width) + 1),
        1 => Just(i64::from(width / 2)),
        1 => -(i64::from(width) + 2)..=0i64,
        1 => Just(1 << 23),
        1 => Just((1 << 23) - 1),
        1 => Just(1 - (1 << 23)),
    ];
    (0..1u32 << 24, proptest::collection::vec(step, 1..120)).prop_map(|(first, steps)| {
        let mut high = i64::from(first);
        let mut psns = vec![first];
        for step in steps {
            let psn = (high + step).rem_euclid(1 << 24);
            if step > 0 {
                high = psn;
            }
            psns.push(psn as u32);
        }
        psns
    })
}

fn agree(width: u32, psns: &[u32]) -> Result<(), TestCaseError> {
    let mut observer = observer(config(1, 1, width), vec![provision(width)]);
    let mut naive = Naive {
        width: i64::from(width),
        ..Naive::default()
    };
    let mut reports = Reports::default();
    for (n, psn) in psns.iter().enumerate() {
        observer.packet(at(n as u64), &packet(9, SEND, *psn), &mut reports);
        naive.packet(*psn);
        let finals = reports.0.len();
        prop_assert_eq!(finals, naive.closed.len());
        let mut now = Reports::default();
        observer.report_all(&mut now);
        prop_assert_eq!(now.0[0].counts, naive.counts, "after {} of {:?}", n, psns);
    }
    naive.close();
    observer.close_all(&mut reports);
    let closed: Vec<Counts> = reports.0.iter().map(|report| report.counts).collect();
    prop_assert_eq!(closed, naive.closed);
    Ok(())
}

proptest! {
    // shows: SEQ-ALGO-06, SEQ-ALGO-12, SEQ-ALGO-13
    #[test]
    fn small_windows_agree_with_sets((width, psns) in (1..70u32).prop_flat_map(|w| (Just(w), stream(w)))) {
        agree(width, &psns)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]
    // shows: SEQ-ALGO-03
    #[test]
    fn wide_windows_agree_with_sets(
        (width, psns) in prop_oneof![4095..4099u32, 5000..9000u32]
            .prop_flat_map(|w| (Just(w), stream(w))),
    ) {
        agree(width, &psns[..psns.len().min(30)])?;
    }

    /// Many connections through few contexts: bounds hold, identifiers are never used twice, an epoch
    /// has one final report and none after it.
    // shows: SEQ-SEC-05
    #[test]
    fn contexts_and_epochs_are_bounded(
        ops in proptest::collection::vec((0..9u8, 2..20u32, 0..50u32), 1..300),
    ) {
        let mut observer = observer(config(8, 4, 16), vec![provision(16)]);
        let mut reports = Reports::default();
        let mut time = 0;
        for (op, qp, value) in ops {
            time += u64::from(value);
            match op {
                0 => observer.packet(at(time), &packet(qp, READ, value), &mut reports),
                1 => observer.missed(Suspect::Any),
                2 => observer.report_all(&mut reports),
                3 => {
                    time += 4000;
                    observer.poll(at(time), 3, &mut reports);
                }
                _ => observer.packet(at(time), &packet(qp, SEND, value), &mut reports),
            }
            prop_assert!(observer.active() <= 4);
        }
        observer.close_all(&mut reports);
        prop_assert_eq!(observer.active(), 0);
        let mut epochs: BTreeMap<u64, (u32, bool)> = BTreeMap::new();
        for report in &reports.0 {
            let qp = report.key.qp.get();
            let (owner, closed) = epochs.entry(report.epoch).or_insert((qp, false));
            prop_assert_eq!(*owner, qp);
            prop_assert!(!*closed);
            *closed = report.flags.contains(Flags::FINAL);
        }
        prop_assert!(epochs.values().all(|(_, closed)| *closed));
        let counters = observer.counters();
        prop_assert_eq!(counters.reports, reports.0.len() as u64);
        prop_assert_eq!(counters.finals, epochs.len() as u64);
    }
}

// shows: SEQ-ID-08, SEQ-EXP-05
#[test]
fn reports_come_at_intervals_and_idle_epochs_close() {
    let mut observer = observer(config(4, 4, 16), vec![provision(16)]);
    let mut reports = Reports::default();
    observer.packet(at(0), &packet(9, SEND, 1), &mut reports);
    let mut now = 0;
    while now < 70_000 {
        now += 100;
        if observer.next_timeout().is_some_and(|due| due <= at(now)) {
            observer.poll(at(now), 8, &mut reports);
        }
    }
    // Every ten seconds, though nothing changed (AMB-SEQ-EMIT); the last request was at 0.
    assert_eq!(reports.0.len(), 6);
    let (last, before) = reports.0.split_last().unwrap();
    assert!(
        before
            .iter()
            .all(|report| report.flags == Flags::GENERATION_UNVERIFIED)
    );
    assert_eq!(last.flags, Flags::FINAL | Flags::GENERATION_UNVERIFIED);
    assert_eq!(observer.next_timeout(), None);
    // Without a poll in time, the next request finds the epoch idle.
    observer.packet(at(100_000), &packet(9, SEND, 2), &mut reports);
    observer.packet(at(160_001), &packet(9, SEND, 3), &mut reports);
    assert_eq!(reports.0.len(), 7);
    assert_eq!(reports.0[6].end, at(100_000));
    // Exactly the timeout is not yet idle.
    observer.packet(at(220_001), &packet(9, SEND, 4), &mut reports);
    assert_eq!(reports.0.len(), 7);
}

// shows: SEQ-APP-03, SEQ-APP-05
#[test]
fn a_violation_disables_until_provisioned_again() {
    let mut observer = observer(config(4, 4, 16), vec![provision(16)]);
    let mut reports = Reports::default();
    observer.packet(at(0), &packet(9, SEND, 1), &mut reports);
    observer.packet(at(1), &packet(9, READ, 2), &mut reports);
    assert_eq!(reports.0.len(), 1);
    assert!(reports.0[0].flags.contains(Flags::PROFILE_VIOLATION));
    assert_eq!(reports.0[0].counts.requests, 1);
    for psn in 3..10 {
        observer.packet(at(2), &packet(9, SEND, psn), &mut reports);
    }
    // Neither a new session nor restored capture enables it (AMB-SEQ-SUSP).
    observer.capture_lost();
    observer.capture_restored();
    observer.begin_session(2);
    observer.packet(at(3), &packet(9, SEND, 11), &mut reports);
    assert_eq!((observer.active(), observer.counters().disabled), (0, 8));
    let key = *observer.disabled().next().unwrap();
    assert!(observer.reprovision(&key));
    observer.packet(at(4), &packet(9, SEND, 12), &mut reports);
    assert_eq!(observer.active(), 1);
    // A first request that is unsupported disables as well, and needs no report.
    observer.packet(at(5), &packet(10, READ, 1), &mut reports);
    observer.packet(at(5), &packet(10, SEND, 2), &mut reports);
    assert_eq!((observer.active(), reports.0.len()), (1, 1));
}

// shows: BTH-IE-15, SEQ-APP-01, SEQ-APP-06
#[test]
fn every_opcode_is_counted_ignored_or_a_violation() {
    for opcode in 0..=255u8 {
        let mut observer = observer(config(4, 4, 16), vec![provision(16)]);
        let mut reports = Reports::default();
        observer.packet(at(0), &packet(9, SEND, 1), &mut reports);
        observer.packet(at(1), &packet(9, opcode, 2), &mut reports);
        observer.report_all(&mut reports);
        let report = reports.0[0];
        let violation = report.flags.contains(Flags::PROFILE_VIOLATION);
        let expected = match opcode {
            0x00..=0x0b => (2, false),
            0x0d..=0x12 | 0x81 => (1, false),
            _ => (1, true),
        };
        assert_eq!((report.counts.requests, violation), expected, "{opcode:#x}");
    }
}

// shows: SEQ-APP-03, SEQ-APP-04
#[test]
fn a_malformed_request_is_a_violation() {
    let mut observer = observer(config(4, 4, 16), vec![provision(16)]);
    let mut reports = Reports::default();
    observer.packet(at(0), &packet(9, SEND, 1), &mut reports);
    // WRITE First needs a RETH: 12 + 16 octets, and an ICRC.
    let mut write = packet(9, 6, 2);
    write.payload_octets = 31;
    observer.packet(at(0), &write, &mut reports);
    assert!(reports.0[0].flags.contains(Flags::PROFILE_VIOLATION));
}

// shows: SEQ-APP-11, SEQ-APP-12
#[test]
fn lost_capture_closes_what_it_may_have_touched() {
    let mut observer = observer(config(4, 4, 16), vec![provision(16)]);
    let mut reports = Reports::default();
    observer.packet(at(0), &packet(9, SEND, 1), &mut reports);
    observer.packet(at(0), &packet(10, SEND, 1), &mut reports);
    let pair = |last| Suspect::Pair(IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 1, last]));
    observer.missed(pair(77));
    observer.packet(at(1), &packet(9, SEND, 2), &mut reports);
    assert!(reports.0.is_empty(), "another pair of addresses");
    observer.missed(pair(1));
    observer.packet(at(2), &packet(9, SEND, 3), &mut reports);
    assert_eq!(reports.0.len(), 1);
    assert!(reports.0[0].flags.contains(Flags::CAPTURE_DISCONTINUITY));
    assert_eq!(reports.0[0].counts.requests, 2);
    // The other connection closes at its report.
    observer.poll(at(11_000), 8, &mut reports);
    assert_eq!(reports.0.len(), 3);
    let kinds: Vec<bool> = reports
        .0
        .iter()
        .map(|r| r.flags.contains(Flags::CAPTURE_DISCONTINUITY))
        .collect();
    assert_eq!(kinds.iter().filter(|lost| **lost).count(), 2);
    // While capture is known to be incomplete nothing is counted.
    observer.capture_lost();
    assert_eq!(observer.next_timeout(), Some(Utc(0)));
    observer.poll(at(11_001), 8, &mut reports);
    observer.packet(at(11_002), &packet(9, SEND, 4), &mut reports);
    assert_eq!((observer.active(), observer.counters().suspended), (0, 1));
}

// shows: SEQ-ID-07
#[test]
fn sessions_start_afresh_and_without_one_nothing_is_counted() {
    let mut observer = observer(config(4, 4, 16), vec![provision(16)]);
    let mut reports = Reports::default();
    observer.packet(at(0), &packet(9, SEND, 1), &mut reports);
    observer.packet(at(0), &packet(10, SEND, 1), &mut reports);
    observer.end_session();
    observer.packet(at(1), &packet(9, SEND, 2), &mut reports);
    assert_eq!(observer.next_timeout(), None);
    assert!(!observer.poll(at(70_000), 8, &mut reports));
    observer.begin_session(2);
    observer.packet(at(3), &packet(9, SEND, 3), &mut reports);
    observer.report_all(&mut reports);
    assert_eq!(reports.0.len(), 1);
    let report = reports.0[0];
    assert_eq!(
        (report.session, report.counts.requests, report.start),
        (2, 1, at(3))
    );
    assert_eq!(observer.active(), 1);
}

// shows: SEQ-ID-08, SEQ-SEC-06
#[test]
fn the_least_recent_epoch_is_given_up_but_never_a_disabled_connection() {
    let mut observer = observer(config(3, 2, 16), vec![provision(16)]);
    let mut reports = Reports::default();
    observer.packet(at(0), &packet(9, SEND, 1), &mut reports);
    observer.packet(at(1), &packet(10, SEND, 1), &mut reports);
    observer.packet(at(2), &packet(9, SEND, 2), &mut reports);
    observer.packet(at(3), &packet(11, SEND, 1), &mut reports);
    assert_eq!(reports.0.len(), 1);
    assert_eq!(reports.0[0].key.qp, Qpn::new(10));
    assert!(reports.0[0].flags.contains(Flags::STATE_EXHAUSTION));
    assert_eq!(observer.counters().evicted, 1);
    // All contexts disabled: a further connection is refused, and counted.
    for qp in [9, 10, 11] {
        observer.packet(at(4), &packet(qp, READ, 1), &mut reports);
    }
    observer.packet(at(5), &packet(12, SEND, 1), &mut reports);
    assert_eq!((observer.active(), observer.counters().refused), (0, 1));
    observer.packet(at(6), &packet(10, SEND, 1), &mut reports);
    assert_eq!(observer.active(), 0);
}

// shows: SEQ-APP-01, SEQ-ID-04
#[test]
fn only_what_is_provisioned_is_counted() {
    let mut one = provision(16);
    one.qp = Some(Qpn::new(9));
    one.pkey = Some(0xffff);
    let mut observer = observer(config(4, 4, 16), vec![one]);
    let mut reports = Reports::default();
    observer.packet(at(0), &packet(9, SEND, 1), &mut reports);
    let mut other = packet(9, READ, 1);
    other.bth.pkey = 1;
    observer.packet(at(0), &other, &mut reports);
    let mut outside = packet(9, SEND, 1);
    outside.source = IpAddr::from([10, 0, 9, 1]);
    observer.packet(at(0), &outside, &mut reports);
    observer.packet(at(0), &packet(8, SEND, 1), &mut reports);
    assert_eq!(
        (observer.active(), observer.counters().unprovisioned),
        (1, 3)
    );
    // The UDP source port is no key.
    let mut port = packet(9, SEND, 2);
    port.source_port = 1;
    observer.packet(at(0), &port, &mut reports);
    observer.report_all(&mut reports);
    assert_eq!(reports.0[0].counts.requests, 2);
    // Management packets are of no connection, whatever is provisioned.
    let mut any = tests::observer(config(4, 4, 16), vec![provision(16)]);
    any.packet(at(0), &packet(1, 0x64, 1), &mut reports);
    assert_eq!(any.counters().unprovisioned, 1);
}

fn host(window: u32, generation: Option<u64>) -> Provision {
    Provision {
        source: Prefix::host(IpAddr::from([10, 0, 0, 1])),
        destination: Prefix::host(IpAddr::from([10, 0, 1, 1])),
        qp: Some(Qpn::new(9)),
        pkey: Some(0xffff),
        context: Some(0),
        generation,
        ..provision(window)
    }
}

// shows: SEQ-ID-08, SEQ-ID-10
#[test]
fn changed_terms_close_and_equal_ones_do_not() {
    let mut observer = observer(config(4, 4, 16), vec![host(16, Some(1))]);
    let mut reports = Reports::default();
    let next = |observer: &mut Observer, reports: &mut Reports, psn| {
        observer.packet(at(u64::from(psn)), &packet(9, SEND, psn), reports);
    };
    next(&mut observer, &mut reports, 1);
    // In another place of the list, but the same.
    let other = Provision {
        qp: Some(Qpn::new(5)),
        ..host(16, None)
    };
    let change = |observer: &mut Observer, provisions: &[Provision]| {
        observer.set_provisions(&mut provisions.to_vec())
    };
    change(&mut observer, &[other, host(16, Some(1))]).unwrap();
    next(&mut observer, &mut reports, 2);
    assert!(reports.0.is_empty());
    change(&mut observer, &[host(16, Some(2))]).unwrap();
    next(&mut observer, &mut reports, 3);
    assert_eq!(reports.0.len(), 1);
    assert_eq!(
        reports.0[0].flags,
        Flags::FINAL,
        "generation verified, ordinary closure"
    );
    assert_eq!(reports.0[0].counts.requests, 2);
    // Without a packet the epoch closes with the next polls.
    change(&mut observer, &[host(8, Some(2))]).unwrap();
    assert_eq!(observer.next_timeout(), Some(Utc(0)));
    assert!(!observer.poll(at(3), 8, &mut reports));
    assert_eq!((reports.0.len(), observer.active()), (2, 0));
    next(&mut observer, &mut reports, 4);
    change(&mut observer, &[]).unwrap();
    next(&mut observer, &mut reports, 5);
    assert_eq!((reports.0.len(), reports.0[2].window), (3, 8));
    next(&mut observer, &mut reports, 5);
    assert_eq!(observer.counters().unprovisioned, 2);
    let wide = change(&mut observer, &[host(17, None)]);
    assert_eq!(wide, Err(ProvisionError::Window(17)));
}

// shows: SEQ-APP-03
#[test]
fn only_other_terms_forgive_a_violation() {
    let mut observer = observer(config(4, 4, 16), vec![host(16, Some(1))]);
    let mut reports = Reports::default();
    let next = |observer: &mut Observer, reports: &mut Reports, opcode, psn| {
        observer.packet(at(u64::from(psn)), &packet(9, opcode, psn), reports);
    };
    next(&mut observer, &mut reports, SEND, 1);
    next(&mut observer, &mut reports, 0x0c, 2);
    assert_eq!(observer.disabled().count(), 1);
    observer
        .set_provisions(&mut vec![host(16, Some(1))])
        .unwrap();
    next(&mut observer, &mut reports, SEND, 3);
    assert_eq!((observer.active(), observer.disabled().count()), (0, 1));
    observer
        .set_provisions(&mut vec![host(16, Some(2))])
        .unwrap();
    next(&mut observer, &mut reports, SEND, 4);
    assert_eq!((observer.active(), observer.disabled().count()), (1, 0));
}

// shows: SEQ-APP-02, SEQ-APP-08, SEQ-APP-09, SEQ-APP-10, SEQ-APP-13, SEQ-IE-02
#[test]
fn what_is_not_stated_is_refused() {
    let good = provision(4096);
    assert_eq!(good.check(), Ok(()));
    let with = |change: fn(&mut Provision)| {
        let mut provision = good;
        change(&mut provision);
        provision.check()
    };
    assert_eq!(with(|p| p.window = 0), Err(ProvisionError::Window(0)));
    assert!(with(|p| p.window = (1 << 22) + 1).is_err());
    assert_eq!(with(|p| p.window = 1 << 22), Ok(()));
    assert_eq!(
        with(|p| p.statement.only_send_and_write = false),
        Err(ProvisionError::Operations)
    );
    assert_eq!(
        with(|p| p.statement.complete_and_unambiguous = false),
        Err(ProvisionError::Coverage)
    );
    // 400 Gb/s of 4 KiB packets wrap in 1.4 s: a retry of 700 ms is too late (AMB-SEQ-HALF).
    let fast = with(|p| {
        p.statement.packets_per_second = 12_000_000;
        p.statement.longest_retry = Duration::from_millis(700);
    });
    assert_eq!(fast, Err(ProvisionError::HalfSpace(8_400_000)));
    assert_eq!(
        with(|p| p.generation = Some(1)),
        Err(ProvisionError::Generation)
    );
}

// shows: SEQ-SEC-06
#[test]
fn reports_that_nobody_takes_are_counted() {
    struct Full;
    impl Sink for Full {
        fn packet(&mut self, _: &PacketRecord) -> bool {
            false
        }
        fn flow(&mut self, _: Place, _: &FlowRecord) -> bool {
            false
        }
        fn sequence(&mut self, _: &SequenceRecord) -> bool {
            false
        }
    }
    let mut observer = observer(config(4, 4, 16), vec![provision(16)]);
    observer.packet(at(0), &packet(9, SEND, 1), &mut Full);
    observer.close_all(&mut Full);
    assert_eq!(observer.counters().lost_reports, 1);
}

#[test]
fn memory_is_planned_for_the_largest_window() {
    let wide = config(1, 1, 1 << 22).memory();
    assert!((520_000..560_000).contains(&wide), "{wide}");
    assert!(config(10_000, 10_000, 4096).memory() < 20 << 20);
}
