//! What is still to be told of one flow with one method, and where its next report stands.

use alloc::vec::Vec;
use crem_wire::crem::HopEntry;
use crem_wire::crem::registry::MAX_HOPS;

use super::limit::Pacer;
use super::local::Local;
use super::marked::Marked;
use super::message;

/// The node's own part.
#[derive(Debug)]
pub(super) enum Own {
    /// Method 3.
    Local(Local),
    /// Method 1.
    Marked(Marked),
}

/// What the timer of a flow waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Nothing: no report is to be made.
    Idle,
    /// The end of the aggregation interval.
    Gathering,
    /// The flow's turn.
    FlowTurn,
    /// The port's turn.
    PortTurn,
}

/// One flow, one method.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) own: Own,
    pub(super) port: u16,
    pub(super) dscp: u8,
    pub(super) pacer: Pacer,
    pub(super) stage: Stage,
    /// Entries of other nodes that leave with ours.
    pub(super) carried: Vec<HopEntry>,
    /// PSNs are missing from what is to be told.
    pub(super) cut: bool,
}

impl Pending {
    /// Losses that are still to be told.
    pub(super) fn lost(&self) -> u64 {
        let own = match &self.own {
            Own::Local(local) => local.lost(),
            Own::Marked(marked) => marked.lost(),
        };
        own + self.carried.iter().map(|e| u64::from(e.lost)).sum::<u64>()
    }

    /// Whether losses or periods of our own wait.
    pub(super) fn has_own(&self) -> bool {
        match &self.own {
            Own::Local(local) => local.lost() > 0,
            Own::Marked(marked) => !marked.is_empty(),
        }
    }

    /// Whether another node's entries fit beside what is carried already and one entry of our own, in
    /// number and in `room` octets.
    pub(super) fn can_carry(&self, entries: &[HopEntry], room: usize) -> bool {
        let count = self.carried.len() + entries.len();
        let octets = message::octets(&self.carried) + message::octets(entries) + message::ENTRY;
        count < MAX_HOPS && octets <= room
    }

    /// Takes out what the next report tells: what is carried, then our own as far as there is room.
    pub(super) fn take(&mut self, node: u32, period: &mut u32) -> Vec<HopEntry> {
        let mut entries = core::mem::take(&mut self.carried);
        let room = MAX_HOPS - entries.len().min(MAX_HOPS);
        entries.extend(match &mut self.own {
            Own::Local(local) => local.take(room, node, period),
            Own::Marked(marked) => marked.take(room),
        });
        entries
    }
}
