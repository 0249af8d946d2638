//! What stays of an exporter when another one takes its place, after a changed document.

use crem_ipfix::session::{NotSent, Totals};

use super::{Exporter, ExporterCounters};

/// What stays of an exporter for another one to the same collector.
#[derive(Debug)]
pub(crate) struct Past {
    number: u32,
    totals: Totals,
    not_sent: NotSent,
    counters: ExporterCounters,
}

impl Exporter {
    /// What an exporter to the same collector goes on from.
    pub(crate) fn into_past(self) -> Past {
        Past {
            number: self.number,
            totals: self.totals,
            not_sent: self.not_sent,
            counters: self.counters,
        }
    }

    /// Goes on from another exporter to the same collector: sessions get further numbers, so that no
    /// snapshot of an earlier one passes for one of a later, and what is reported counts on.
    pub(crate) fn go_on_from(&mut self, past: Past) {
        self.number = past.number;
        self.totals = past.totals;
        self.not_sent = past.not_sent;
        self.counters = past.counters;
    }
}
