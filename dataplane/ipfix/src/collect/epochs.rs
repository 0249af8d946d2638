//! The epochs of one Transport Session and Observation Domain: admission by high-water identifier,
//! duplicates, gaps, contradictions, outcomes (section 7 of the sequence draft). A final report is never
//! made up, and nothing here says that a packet was lost: positions and packets are what they are called.

use std::collections::BTreeMap;
use std::time::Duration;

use crem_meter::Utc;
use crem_meter::seq::{Counts, Flags};

use super::{Report, ReportKey};
use crate::mutate::{self, Fault};

/// What became of a report.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// Taken, and no report is missing before it.
    Accepted,
    /// Taken; reports before it are missing.
    AcceptedGap,
    /// The latest report again, ignored.
    Duplicate,
    /// An older report, ignored.
    Stale,
    /// Out of range, inconsistent, or in contradiction to its epoch: not taken, the epoch goes on.
    Rejected,
    /// A flag without a meaning is set: the report counts for order but not for measurements.
    Unsupported,
    /// Other content for the latest identifier, or an extension of a closed epoch: the epoch is invalid
    /// from now on.
    EpochInvalid,
    /// A report of an epoch that is invalid.
    IgnoredInvalid,
    /// An epoch that is not known any more, or never was and comes out of order.
    Orphan,
    /// A new epoch for which there is no room.
    Refused,
}

impl Verdict {
    /// Every verdict.
    pub const ALL: [Self; 10] = [
        Self::Accepted,
        Self::AcceptedGap,
        Self::Duplicate,
        Self::Stale,
        Self::Rejected,
        Self::Unsupported,
        Self::EpochInvalid,
        Self::IgnoredInvalid,
        Self::Orphan,
        Self::Refused,
    ];

    /// A short stable name, as counters, output and test data use it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::AcceptedGap => "accepted_gap",
            Self::Duplicate => "duplicate",
            Self::Stale => "stale",
            Self::Rejected => "rejected",
            Self::Unsupported => "unsupported",
            Self::EpochInvalid => "epoch_invalid",
            Self::IgnoredInvalid => "ignored_invalid",
            Self::Orphan => "orphan",
            Self::Refused => "refused",
        }
    }

    /// Whether a conforming exporter over a transport that keeps order causes it.
    pub const fn is_expected(self) -> bool {
        matches!(self, Self::Accepted | Self::Duplicate)
    }
}

/// How an epoch ended for the collector.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// Every report from the first to a final one. Closure reasons and an unverified generation stand
    /// beside it (AMB-COL-OUTC).
    Complete,
    /// Reports are missing, or the final one, or one was not understood.
    Incomplete,
    /// Contradictory.
    Invalid,
}

impl Outcome {
    /// A short stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Incomplete => "incomplete",
            Self::Invalid => "invalid",
        }
    }
}

/// What is kept of an epoch when its context is given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stored {
    /// rdmaSequenceEpochId.
    pub epoch: u64,
    /// The key.
    pub key: ReportKey,
    /// The outcome.
    pub outcome: Outcome,
    /// Reports are missing.
    pub gap: bool,
    /// A report had a flag without a meaning.
    pub unsupported: bool,
    /// A final report was taken.
    pub final_seen: bool,
    /// The latest report taken.
    pub last_report: u64,
    /// The flags of the latest report taken.
    pub flags: Flags,
    /// flowStartMilliseconds.
    pub start: u64,
    /// flowEndMilliseconds of the latest report that was understood.
    pub end: u64,
    /// The counters of the latest report that was understood; `None` if none was.
    pub measurements: Option<Counts>,
}

/// What a collector keeps at most; operators see and set it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochLimits {
    /// Epochs of one session and domain at once.
    pub contexts: usize,
    /// An epoch without a report for so long is given up as incomplete (AMB-COL-INACT).
    pub inactivity: Duration,
    /// A closed epoch is kept for so long, to notice contradictions.
    pub retention: Duration,
}

impl Default for EpochLimits {
    fn default() -> Self {
        Self {
            contexts: 65536,
            inactivity: Duration::from_secs(300),
            retention: Duration::from_secs(60),
        }
    }
}

#[derive(Clone, Debug)]
struct Context {
    /// The latest report taken, understood or not: the base of comparisons.
    last: Report,
    /// The latest that was understood: its end and its counters.
    measured: Option<(u64, Counts)>,
    gap: bool,
    unsupported: bool,
    invalid: bool,
    /// When the last report came.
    touched: Utc,
}

/// The epochs of one Transport Session and Observation Domain.
#[derive(Clone, Debug)]
pub struct Epochs {
    limits: EpochLimits,
    high_water: u64,
    contexts: BTreeMap<u64, Context>,
}

impl Epochs {
    /// No epoch: a new session.
    pub const fn new(limits: EpochLimits) -> Self {
        Self {
            limits,
            high_water: 0,
            contexts: BTreeMap::new(),
        }
    }

    /// The largest epoch identifier of a valid report, 0 before the first.
    pub const fn high_water(&self) -> u64 {
        self.high_water
    }

    /// Epochs that are kept.
    pub fn len(&self) -> usize {
        self.contexts.len()
    }

    /// Whether no epoch is kept.
    pub fn is_empty(&self) -> bool {
        self.contexts.is_empty()
    }

    /// Takes a report.
    pub fn report(&mut self, now: Utc, report: &Report) -> Verdict {
        // An inconsistent report neither advances the high-water identifier nor touches its epoch
        // (AMB-COL-HW, AMB-COL-ARITH).
        if !report.is_valid() {
            return Verdict::Rejected;
        }
        match self.contexts.get_mut(&report.epoch) {
            Some(context) => context.report(now, report),
            None => self.admit(now, report),
        }
    }

    fn admit(&mut self, now: Utc, report: &Report) -> Verdict {
        if report.epoch <= self.high_water {
            return Verdict::Orphan;
        }
        self.high_water = report.epoch;
        if self.contexts.len() >= self.limits.contexts {
            return Verdict::Refused;
        }
        let unsupported = report.flags.intersects(Flags::UNASSIGNED);
        let gap = report.report > 1 && !mutate::has(Fault::ReportGap);
        let context = Context {
            last: *report,
            measured: (!unsupported).then_some((report.end, report.counts)),
            gap,
            unsupported,
            invalid: false,
            touched: now,
        };
        self.contexts.insert(report.epoch, context);
        taken(unsupported, gap)
    }

    /// Gives up the context of an epoch; its later reports are orphans.
    pub fn retire(&mut self, epoch: u64) -> Option<Stored> {
        self.contexts.remove(&epoch).map(|context| context.store())
    }

    /// Gives up what was silent for too long or closed long enough ago.
    pub fn expire(&mut self, now: Utc, mut store: impl FnMut(Stored)) {
        let limits = self.limits;
        self.contexts.retain(|_, context| {
            let keep = if context.last.is_final() || context.invalid {
                limits.retention
            } else {
                limits.inactivity
            };
            let over = now.since(context.touched) >= keep;
            if over {
                store(context.store());
            }
            !over
        });
    }

    /// The session is over: everything is given up, in the order of epochs, and the next session starts
    /// with fresh identifiers.
    pub fn end_session(&mut self, mut store: impl FnMut(Stored)) {
        for context in std::mem::take(&mut self.contexts).into_values() {
            store(context.store());
        }
        self.high_water = 0;
    }

    /// The epochs that are kept, as they would be stored now.
    pub fn iter(&self) -> impl Iterator<Item = Stored> {
        self.contexts.values().map(Context::store)
    }
}

impl Context {
    fn report(&mut self, now: Utc, report: &Report) -> Verdict {
        // AMB-COL-KEY: the record only.
        if report.key != self.last.key {
            return Verdict::Rejected;
        }
        if self.invalid {
            return Verdict::IgnoredInvalid;
        }
        if report.report < self.last.report {
            return Verdict::Stale;
        }
        if *report == self.last {
            return Verdict::Duplicate;
        }
        if report.report == self.last.report || self.last.is_final() {
            self.invalid = true;
            self.touched = now;
            return Verdict::EpochInvalid;
        }
        if !self.continues(report) {
            return Verdict::Rejected;
        }
        let unsupported = report.flags.intersects(Flags::UNASSIGNED);
        let gap = report.report > self.last.report + 1 && !mutate::has(Fault::ReportGap);
        self.gap |= gap;
        self.unsupported |= unsupported;
        self.last = *report;
        self.touched = now;
        if !unsupported {
            self.measured = Some((report.end, report.counts));
        }
        taken(unsupported, gap)
    }

    /// Whether what may not change did not, and no total is less than before.
    fn continues(&self, report: &Report) -> bool {
        let (old, new) = (&self.last, report);
        let generation = |report: &Report| report.flags.0 & Flags::GENERATION_UNVERIFIED.0;
        let totals = |counts: &Counts| {
            [
                counts.skipped,
                counts.filled,
                counts.expired,
                counts.abandoned,
                counts.repeated,
                counts.requests,
                counts.unclassified_late,
            ]
        };
        old.window == new.window
            && old.start == new.start
            && generation(old) == generation(new)
            && totals(&old.counts)
                .iter()
                .zip(totals(&new.counts))
                .all(|(old, new)| *old <= new)
    }

    fn store(&self) -> Stored {
        let final_seen = self.last.is_final();
        let outcome = if self.invalid {
            Outcome::Invalid
        } else if final_seen && !self.gap && !self.unsupported {
            Outcome::Complete
        } else {
            Outcome::Incomplete
        };
        Stored {
            epoch: self.last.epoch,
            key: self.last.key,
            outcome,
            gap: self.gap,
            unsupported: self.unsupported,
            final_seen,
            last_report: self.last.report,
            flags: self.last.flags,
            start: self.last.start,
            end: self.measured.map_or(self.last.start, |(end, _)| end),
            measurements: self.measured.map(|(_, counts)| counts),
        }
    }
}

const fn taken(unsupported: bool, gap: bool) -> Verdict {
    match (unsupported, gap) {
        (true, _) => Verdict::Unsupported,
        (false, true) => Verdict::AcceptedGap,
        (false, false) => Verdict::Accepted,
    }
}

#[cfg(test)]
mod tests;
