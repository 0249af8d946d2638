//! Rules of the collector that the vectors leave open, and its bounds.
#![allow(clippy::type_complexity)]

use std::net::IpAddr;

use proptest::prelude::*;

use super::*;

fn report(epoch: u64, number: u64, flags: Flags, requests: u64) -> Report {
    Report {
        key: ReportKey {
            point: 1,
            source: IpAddr::from([10, 0, 0, 1]),
            destination: IpAddr::from([10, 0, 0, 2]),
            qp: 291,
            pkey: 0xffff,
            vlan: None,
            segment: None,
        },
        epoch,
        report: number,
        window: 8,
        flags,
        start: 100,
        end: 100 + number,
        counts: Counts {
            requests,
            ..Counts::default()
        },
    }
}

const NOW: Utc = Utc(1_000_000_000_000);

// shows: SEQ-EXP-14, SEQ-COL-01, SEQ-IE-02
#[test]
fn ranges_are_checked_before_anything_is_kept() {
    let good = report(1, 1, Flags::NONE, 1);
    let wrong: [(&str, fn(&mut Report)); 12] = [
        ("epoch", |r| r.epoch = 0),
        ("report", |r| r.report = 0),
        ("window", |r| r.window = 0),
        ("window", |r| r.window = (1 << 22) + 1),
        ("qp", |r| r.key.qp = 1 << 24),
        ("times", |r| r.end = r.start - 1),
        ("abandoned", |r| {
            (r.counts.skipped, r.counts.abandoned) = (1, 1)
        }),
        ("reason", |r| r.flags |= Flags::PROFILE_VIOLATION),
        ("requests", |r| r.counts.requests = 0),
        ("repeated", |r| r.counts.repeated = 1),
        ("sum", |r| r.counts.skipped = 1),
        ("overflow", |r| {
            (r.counts.filled, r.counts.expired) = (u64::MAX, 1)
        }),
    ];
    for (what, spoil) in wrong {
        let mut epochs = Epochs::new(EpochLimits::default());
        let mut bad = good;
        spoil(&mut bad);
        assert_eq!(epochs.report(NOW, &bad), Verdict::Rejected, "{what}");
        assert_eq!((epochs.high_water(), epochs.len()), (0, 0), "{what}");
        assert_eq!(epochs.report(NOW, &good), Verdict::Accepted);
    }
    let mut last = report(1, 1, Flags::FINAL, 1);
    (last.counts.skipped, last.counts.pending) = (1, 1);
    assert_eq!(
        Epochs::new(EpochLimits::default()).report(NOW, &last),
        Verdict::Rejected
    );
    last.counts = Counts {
        skipped: 1,
        abandoned: 1,
        requests: 2,
        ..Counts::default()
    };
    last.flags |= Flags::SERIAL_DISCONTINUITY | Flags::CAPTURE_DISCONTINUITY;
    assert_eq!(
        Epochs::new(EpochLimits::default()).report(NOW, &last),
        Verdict::Accepted
    );
}

// shows: SEQ-COL-05, SEQ-COL-06, SEQ-IANA-03
#[test]
fn a_first_report_that_is_not_understood_has_no_measurements() {
    let mut epochs = Epochs::new(EpochLimits::default());
    let strange = report(1, 1, Flags(0x8000), 5);
    assert_eq!(epochs.report(NOW, &strange), Verdict::Unsupported);
    assert_eq!(epochs.report(NOW, &strange), Verdict::Duplicate);
    // Its totals are the base all the same.
    assert_eq!(
        epochs.report(NOW, &report(1, 2, Flags::NONE, 4)),
        Verdict::Rejected
    );
    let stored = epochs.retire(1);
    assert!(stored.is_some_and(|s| s.measurements.is_none() && s.unsupported));
    // A final flag counts even then.
    assert_eq!(
        epochs.report(NOW, &report(2, 1, Flags(0x8001), 5)),
        Verdict::Unsupported
    );
    assert_eq!(
        epochs.report(NOW, &report(2, 2, Flags::FINAL, 5)),
        Verdict::EpochInvalid
    );
}

// shows: SEQ-ID-13, SEQ-COL-15
#[test]
fn silence_and_closure_are_given_up_in_time() {
    let limits = EpochLimits {
        contexts: 8,
        inactivity: Duration::from_secs(300),
        retention: Duration::from_secs(60),
    };
    let mut epochs = Epochs::new(limits);
    epochs.report(NOW, &report(1, 1, Flags::NONE, 1));
    epochs.report(NOW, &report(2, 1, Flags::FINAL, 1));
    let after = |seconds| NOW.after(Duration::from_secs(seconds));
    let mut gone = Vec::new();
    epochs.expire(after(59), |s| gone.push((s.epoch, s.outcome)));
    assert!(gone.is_empty());
    epochs.expire(after(60), |s| gone.push((s.epoch, s.outcome)));
    assert_eq!(gone, [(2, Outcome::Complete)]);
    epochs.report(after(100), &report(1, 2, Flags::NONE, 1));
    epochs.expire(after(399), |s| gone.push((s.epoch, s.outcome)));
    assert_eq!(gone.len(), 1);
    epochs.expire(after(400), |s| gone.push((s.epoch, s.outcome)));
    assert_eq!(gone[1], (1, Outcome::Incomplete));
    assert_eq!(
        epochs.report(after(401), &report(1, 3, Flags::FINAL, 1)),
        Verdict::Orphan
    );
    assert_eq!(epochs.high_water(), 2);
}

// shows: SEQ-COL-23, SEQ-COL-24, SEQ-COL-25, SEQ-COL-26, SEQ-COL-27
#[test]
fn no_name_claims_a_cause() {
    let names = Verdict::ALL.map(Verdict::name).into_iter();
    let outcomes = [Outcome::Complete, Outcome::Incomplete, Outcome::Invalid].map(Outcome::name);
    for name in names.chain(outcomes).chain(Flags(0x3f).names()) {
        for word in ["lost", "loss", "retrans", "reorder"] {
            assert!(!name.contains(word), "{name}");
        }
    }
}

proptest! {
    /// Whatever comes: high-water only rises, the bound holds, and an epoch that is stored as complete
    /// has a final report and no gap.
    // shows: SEQ-COL-14, SEQ-COL-18
    #[test]
    fn bounds_hold(reports in proptest::collection::vec(
        (1..12u64, 1..5u64, 0..4u16, 1..9u64), 0..80,
    )) {
        let limits = EpochLimits { contexts: 4, ..EpochLimits::default() };
        let mut epochs = Epochs::new(limits);
        let mut high = 0;
        for (epoch, number, kind, requests) in reports {
            let flags = [Flags::NONE, Flags::FINAL, Flags(0x0100), Flags::FINAL][usize::from(kind)];
            let verdict = epochs.report(NOW, &report(epoch, number, flags, requests));
            prop_assert!(epochs.high_water() >= high);
            if epoch <= high && verdict == Verdict::Refused {
                prop_assert!(false, "refused below high water");
            }
            high = epochs.high_water();
            prop_assert!(epochs.len() <= 4);
            if kind == 3 {
                epochs.retire(epoch);
            }
        }
        epochs.end_session(|stored| {
            let complete = stored.final_seen && !stored.gap && !stored.unsupported;
            assert!(stored.outcome != Outcome::Complete || complete);
        });
        prop_assert_eq!(epochs.high_water(), 0);
    }
}
