//! What occurred over all seeds: messages, CLOSE reasons, counters of both protocol functions, reasons
//! of unprotected flows, pairs of the state tables, PSN wrap. What can not occur is listed with the
//! reason in `unreachable`.

mod unreachable;

use std::collections::BTreeMap;

use crem_core::events::{Event, Unprotected};

/// Names of messages as the reader gives them.
const MESSAGES: [&str; 13] = [
    "REPAIR ordinary",
    "REPAIR coded retransmission",
    "REPAIR source copy",
    "REPAIR information",
    "HELLO",
    "HELLO_ACK",
    "PARAM_UPDATE",
    "PARAM_ACK",
    "REPAIR_REQUEST block",
    "REPAIR_REQUEST ranges",
    "LOSS_REPORT",
    "PATH_REPORT",
    "CLOSE",
];

/// Why flows are not protected, as documents name it; [`Unprotected`] has no others.
const REASONS: [&str; 24] = [
    "awaiting_parameters",
    "below_threshold",
    "breaker",
    "closed_by_peer",
    "datagram",
    "hello_pacing",
    "idle",
    "kind_not_known",
    "limits",
    "monitor",
    "mtu",
    "mtu_changed",
    "negative_cache",
    "no_hello_ack",
    "no_peer",
    "no_reports",
    "off",
    "parameters",
    "path_mtu",
    "peer_dead",
    "qp_reuse",
    "report_budget",
    "second_namespace",
    "table_full",
];

/// How often what occurred, by group and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    messages: BTreeMap<&'static str, u64>,
    reasons: [u64; 5],
    wraps: u64,
    counters: BTreeMap<(&'static str, &'static str), u64>,
    unprotected: BTreeMap<&'static str, u64>,
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Group and name.
    pub name: String,
    /// How often it occurred.
    pub count: u64,
    /// Why it cannot occur, if it cannot.
    pub excused: Option<&'static str>,
}

impl Entry {
    /// Whether it should have occurred and did not.
    pub fn is_missing(&self) -> bool {
        self.count == 0 && self.excused.is_none()
    }
}

impl Default for Coverage {
    fn default() -> Self {
        Self {
            messages: MESSAGES.iter().map(|name| (*name, 0)).collect(),
            reasons: [0; 5],
            wraps: 0,
            counters: BTreeMap::new(),
            unprotected: REASONS.iter().map(|name| (*name, 0)).collect(),
        }
    }
}

impl Coverage {
    pub(crate) fn message(&mut self, name: &'static str) {
        *self.messages.entry(name).or_default() += 1;
    }

    pub(crate) fn close(&mut self, reason: u16) {
        if let Some(count) = self.reasons.get_mut(usize::from(reason)) {
            *count += 1;
        }
    }

    pub(crate) fn wrap(&mut self) {
        self.wraps += 1;
    }

    pub(crate) fn counter(&mut self, group: &'static str, name: &'static str, value: u64) {
        *self.counters.entry((group, name)).or_default() += value;
    }

    /// A counter, over all gateways and their lives.
    pub fn counted(&self, group: &'static str, name: &'static str) -> u64 {
        self.counters.get(&(group, name)).copied().unwrap_or(0)
    }

    pub(crate) fn event(&mut self, event: &Event) {
        if let Event::FlowUnprotected(_, why) = event {
            self.unprotected(why);
        }
    }

    pub(crate) fn unprotected(&mut self, why: &Unprotected) {
        *self.unprotected.entry(why.name()).or_default() += 1;
    }

    /// Adds what another world met.
    pub fn merge(&mut self, other: &Self) {
        for (name, count) in &other.messages {
            *self.messages.entry(name).or_default() += count;
        }
        for (sum, count) in self.reasons.iter_mut().zip(other.reasons) {
            *sum += count;
        }
        self.wraps += other.wraps;
        for (name, count) in &other.counters {
            *self.counters.entry(*name).or_default() += count;
        }
        for (name, count) in &other.unprotected {
            *self.unprotected.entry(name).or_default() += count;
        }
    }

    /// The whole table. The pairs of the state tables are those of this process.
    pub fn entries(&self) -> Vec<Entry> {
        let mut all: Vec<(String, u64)> = Vec::new();
        all.extend(
            self.messages
                .iter()
                .map(|(n, c)| (format!("message {n}"), *c)),
        );
        let reasons = self.reasons.iter().enumerate();
        all.extend(reasons.map(|(reason, count)| (format!("CLOSE reason {reason}"), *count)));
        all.push(("PSN wrap".into(), self.wraps));
        let counters = self.counters.iter();
        all.extend(counters.map(|((group, name), c)| (format!("{group} {name}"), *c)));
        let unprotected = self.unprotected.iter();
        all.extend(unprotected.map(|(name, c)| (format!("unprotected {name}"), *c)));
        let listed = all.into_iter().map(|(name, count)| Entry {
            excused: unreachable::reason(&name),
            name,
            count,
        });
        #[allow(unused_mut)]
        let mut entries: Vec<Entry> = listed.collect();
        #[cfg(feature = "coverage")]
        entries.extend(crem_core::coverage::pairs().into_iter().map(|pair| Entry {
            name: pair.name,
            count: pair.count,
            excused: pair.impossible,
        }));
        entries
    }
}
