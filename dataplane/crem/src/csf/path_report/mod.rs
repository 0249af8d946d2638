//! PATH_REPORT (CREM, On-Path Path Reports): who may send one, which stream it speaks of, and what of it is
//! news. Which entries were seen before is kept in `seen.rs`; symbols for packets that a node dropped are
//! planned in `owed.rs` and sent in `extra.rs`; what evidence of congestion does to the class of the path is in
//! `super::path`. Nothing here takes data for delivered: a report never releases a block.

mod extra;
mod owed;
mod seen;

pub(super) use owed::Owed;

use alloc::vec::Vec;
use core::net::SocketAddr;
use crem_wire::Psn;
use crem_wire::crem::registry::LossCause;
use crem_wire::crem::{FlowDescriptor, HopEntry, PathReport};

use self::seen::{EntryKey, Seen};
use super::Csf;
use super::flow::Io;
use crate::actions::Actions;
use crate::memory::of_vec;
use crate::packet::{PktBuf, PsnSpace};
use crate::policy::PathEvidence;
use crate::time::Instant;

/// What the intake keeps from one report to the next, and its work space.
#[derive(Debug, Default)]
pub(super) struct PathIntake {
    seen: Seen,
    /// Dropped PSNs of one report, by the stream that holds them.
    named: [Vec<Psn>; 2],
}

impl PathIntake {
    /// Octets of memory.
    pub(super) fn octets(&self) -> usize {
        self.seen.octets() + self.named.iter().map(of_vec).sum::<usize>()
    }
}

/// Slots of the streams of a descriptor, requests first.
type Streams = [Option<u32>; 2];

impl<B: PktBuf> Csf<B> {
    /// Takes a report from the node at `from`. Costs one look-up for each entry and, for each PSN, a
    /// search among the retained blocks of both streams; a message has 16 entries of 255 PSNs at most.
    pub(super) fn on_path_report(
        &mut self,
        now: Instant,
        from: SocketAddr,
        report: &PathReport,
        actions: &mut Actions<B>,
    ) {
        if !self.sh.cfg.is_reporter(from.ip()) {
            self.sh.counters.path_reports_forbidden += 1;
            return;
        }
        let streams = self.streams_of(&report.flow);
        if streams == [None, None] {
            self.sh.counters.path_reports_unknown_flow += 1;
            return;
        }
        self.sh.counters.path_reports += 1;
        self.sh.counters.path_reports_truncated += u64::from(report.truncated);
        let mut path = core::mem::take(&mut self.sh.path);
        path.named.iter_mut().for_each(Vec::clear);
        let mut evidence = None;
        for hop in &report.hops {
            let key = EntryKey {
                node: hop.node,
                method: report.method,
                period: hop.period,
            };
            self.sh.counters.path_entries += 1;
            if !path.seen.is_news(report.flow, key) {
                self.sh.counters.path_entries_duplicate += 1;
                continue;
            }
            add(evidence.get_or_insert_default(), hop);
            self.assign(hop, &streams, &mut path.named);
        }
        for (slot, psns) in streams.iter().zip(&path.named) {
            let Some(slot) = *slot else { continue };
            if let Some(evidence) = evidence {
                self.with_flow(slot, |flow, sh| flow.on_path_evidence(evidence, sh, now));
            }
            if !psns.is_empty() {
                self.answer_drops(slot, psns, actions, now);
            }
        }
        self.sh.path = path;
    }

    /// The streams that a report's flow may mean: the Flow Label says nothing of requests or responses.
    fn streams_of(&self, flow: &FlowDescriptor) -> Streams {
        [PsnSpace::Requests, PsnSpace::Responses].map(|space| {
            let key = (flow.source, flow.destination, flow.qp, space);
            let slot = self.sh.descriptors.get(&key).copied()?;
            let is_bound = self.flows.get(slot).is_some_and(|f| f.binding.is_some());
            is_bound.then_some(slot)
        })
    }

    /// Sorts the dropped PSNs of an entry by the stream whose retained blocks hold them. A PSN that both
    /// hold could mean either packet, so it counts for none.
    fn assign(&mut self, hop: &HopEntry, streams: &Streams, named: &mut [Vec<Psn>; 2]) {
        let [requests, responses] = named;
        for &psn in &hop.dropped {
            let held = streams.map(|slot| slot.is_some_and(|slot| self.holds(slot, psn)));
            let counters = &mut self.sh.counters;
            counters.path_psns += 1;
            match held {
                [true, false] => requests.push(psn),
                [false, true] => responses.push(psn),
                [true, true] => counters.path_psns_ambiguous += 1,
                [false, false] => counters.path_psns_unheld += 1,
            }
        }
    }

    fn holds(&self, slot: u32, psn: Psn) -> bool {
        let binding = self.flows.get(slot).and_then(|f| f.binding.as_ref());
        binding.is_some_and(|b| b.block_with(psn, &self.sh.retained).is_some())
    }

    fn answer_drops(&mut self, slot: u32, psns: &[Psn], actions: &mut Actions<B>, now: Instant) {
        self.with_flow(slot, |flow, sh| {
            flow.with_binding(&mut Io { sh, actions, now }, |binding, ctx| {
                binding.on_dropped(psns, ctx);
            });
        });
    }
}

/// Adds what an entry says of congestion.
fn add(evidence: &mut PathEvidence, hop: &HopEntry) {
    evidence.queue_delay_us += i64::from(hop.queue_delay_change_us);
    evidence.overflow |= LossCause::of(hop.cause) == LossCause::QueueOverflow;
}
