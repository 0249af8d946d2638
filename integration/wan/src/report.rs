//! What the impairer did, counted by direction, class and fate.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::class::Class;

/// What happened to a frame, or how it got here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// It came in.
    Received,
    /// Dropped by the loss process.
    Lost,
    /// Dropped because the queue before the rate limit was full.
    QueueDropped,
    /// Dropped because too many frames were under way.
    Overflowed,
    /// A bit was flipped; it was delivered.
    Corrupted,
    /// It was delivered twice.
    Duplicated,
    /// It was held back so that others overtook it.
    Reordered,
    /// Its ECN bits were set to CE.
    Marked,
    /// Handed to the other side.
    Delivered,
}

impl Fate {
    const COUNT: usize = 9;
    const ALL: [Self; Self::COUNT] = [
        Self::Received,
        Self::Lost,
        Self::QueueDropped,
        Self::Overflowed,
        Self::Corrupted,
        Self::Duplicated,
        Self::Reordered,
        Self::Marked,
        Self::Delivered,
    ];

    /// The name used in reports and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::Lost => "lost",
            Self::QueueDropped => "queue-dropped",
            Self::Overflowed => "overflowed",
            Self::Corrupted => "corrupted",
            Self::Duplicated => "duplicated",
            Self::Reordered => "reordered",
            Self::Marked => "marked",
            Self::Delivered => "delivered",
        }
    }
}

/// Counters of one direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters([[u64; Fate::COUNT]; Class::ALL.len()]);

impl Counters {
    pub(crate) fn add(&mut self, class: Class, fate: Fate) {
        if let Some(count) = self
            .0
            .get_mut(class.index())
            .and_then(|f| f.get_mut(fate as usize))
        {
            *count += 1;
        }
    }

    pub(crate) fn get(&self, class: Class, fate: Fate) -> u64 {
        self.0
            .get(class.index())
            .and_then(|f| f.get(fate as usize))
            .copied()
            .unwrap_or(0)
    }

    pub(crate) fn report(&self) -> DirectionReport {
        let classes = Class::ALL.iter().map(|&class| {
            let fates = Fate::ALL
                .iter()
                .map(|&fate| (fate.name().to_owned(), self.get(class, fate)));
            (class.name().to_owned(), fates.collect())
        });
        DirectionReport {
            classes: classes.collect(),
            path_reports: 0,
            kernel_drops: 0,
            send_refused: 0,
        }
    }
}

/// One direction: class name → fate name → frames.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionReport {
    /// Counts by class and fate.
    pub classes: BTreeMap<String, BTreeMap<String, u64>>,
    /// PATH_REPORTs sent to the sources of this direction's flows.
    #[serde(default)]
    pub path_reports: u64,
    /// Frames the kernel dropped before this program saw them: not part of the emulation.
    pub kernel_drops: u64,
    /// Frames the kernel refused to send on.
    pub send_refused: u64,
}

impl DirectionReport {
    /// Frames of one class with one fate.
    pub fn count(&self, class: Class, fate: Fate) -> u64 {
        self.classes
            .get(class.name())
            .and_then(|f| f.get(fate.name()))
            .copied()
            .unwrap_or(0)
    }

    /// Frames of all classes with one fate.
    pub fn total(&self, fate: Fate) -> u64 {
        Class::ALL
            .iter()
            .map(|&class| self.count(class, fate))
            .sum()
    }
}

/// The whole link at the end of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// From side A to side B.
    pub a_to_b: DirectionReport,
    /// From side B to side A.
    pub b_to_a: DirectionReport,
    /// Log entries left out because the log was full.
    pub log_left_out: u64,
}

/// One frame that did not arrive as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// It was on the way from A to B.
    pub a_to_b: bool,
    /// What happened.
    pub fate: Fate,
    /// Its class.
    pub class: Class,
    /// [`crate::frame_hash`] of the frame as sent; of a corrupted one as delivered.
    pub hash: u64,
}

impl LogEntry {
    /// The line written to a log file.
    pub fn line(&self) -> String {
        let way = if self.a_to_b { "a-to-b" } else { "b-to-a" };
        format!(
            "{way} {} {} {:016x}",
            self.fate.name(),
            self.class.name(),
            self.hash
        )
    }

    /// Reads a line back; `None` if it is not one.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let a_to_b = match words.next()? {
            "a-to-b" => true,
            "b-to-a" => false,
            _ => return None,
        };
        let (fate, class) = (words.next()?, words.next()?);
        Some(Self {
            a_to_b,
            fate: Fate::ALL.into_iter().find(|f| f.name() == fate)?,
            class: Class::ALL.into_iter().find(|c| c.name() == class)?,
            hash: u64::from_str_radix(words.next()?, 16).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn log_lines_read_back() {
        let entry = LogEntry {
            a_to_b: true,
            fate: Fate::Lost,
            class: Class::CremRepair,
            hash: 0xabc,
        };
        assert_eq!(entry.line(), "a-to-b lost crem-repair 0000000000000abc");
        assert_eq!(LogEntry::parse(&entry.line()), Some(entry));
        assert_eq!(LogEntry::parse("a-to-b lost"), None);
    }

    #[test]
    fn fates_are_in_place() {
        for (i, fate) in Fate::ALL.into_iter().enumerate() {
            assert_eq!(fate as usize, i);
        }
        let mut counters = Counters::default();
        counters.add(Class::Rest, Fate::Delivered);
        let report = counters.report();
        assert_eq!(report.count(Class::Rest, Fate::Delivered), 1);
        assert_eq!(report.total(Fate::Delivered), 1);
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(
            serde_json::from_str::<DirectionReport>(&text).unwrap(),
            report
        );
    }
}
