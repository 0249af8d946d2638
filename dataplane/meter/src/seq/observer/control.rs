//! What reaches an observer beside packets: time, capture faults, changed provisioning, shutdown.

use alloc::vec::Vec;

use super::{Observer, PAIRS, pair_of};
use crate::scope::Suspect;
use crate::seq::connection::State;
use crate::seq::{
    ConnectionKey, Flags, ObserverConfig, ObserverCounters, Provision, ProvisionError,
};
use crate::{Sink, Utc};

impl Observer {
    /// Makes up to `budget` reports that are due and closes epochs that are idle. Returns whether more
    /// is due: then call again soon.
    pub fn poll(&mut self, now: Utc, budget: usize, sink: &mut impl Sink) -> bool {
        if self.session.is_none() {
            return false;
        }
        for _ in 0..budget {
            if let Some(slot) = self.sweep.checked_sub(1) {
                self.sweep = slot;
                self.settle_used(slot, sink);
            } else if let Some(slot) = self.wheel.pop(now) {
                self.due(now, slot, sink);
            } else {
                return false;
            }
        }
        true
    }

    /// When [`Observer::poll`] has something to do; `None` without a session or an active epoch.
    pub fn next_timeout(&self) -> Option<Utc> {
        self.session?;
        if self.sweep > 0 {
            return Some(Utc(0));
        }
        self.wheel.next()
    }

    fn settle_used(&mut self, slot: u32, sink: &mut impl Sink) {
        if self.contexts[slot as usize].state != State::Free {
            self.settle(slot, sink);
        }
    }

    fn due(&mut self, now: Utc, slot: u32, sink: &mut impl Sink) {
        self.settle_used(slot, sink);
        let State::Active(epoch) = self.contexts[slot as usize].state else {
            return;
        };
        let idle_at = self.epochs[epoch as usize]
            .last()
            .after(self.config.idle_timeout);
        if now > idle_at {
            self.close(slot, Flags::NONE, sink);
            return;
        }
        if now >= self.contexts[slot as usize].next_report {
            self.report(slot, sink);
            let interval = self.config.report_interval;
            let next = &mut self.contexts[slot as usize].next_report;
            *next = next.after(interval);
            if *next <= now {
                *next = now.after(interval);
            }
        }
        let context = &self.contexts[slot as usize];
        if matches!(context.state, State::Active(_)) {
            self.wheel.set(slot, context.next_report.min(idle_at));
        }
    }

    /// Makes a report of every active epoch now, whatever is due.
    pub fn report_all(&mut self, sink: &mut impl Sink) {
        self.every(sink, Self::report);
    }

    /// Closes every epoch in the ordinary way: the observer is about to be taken away.
    pub fn close_all(&mut self, sink: &mut impl Sink) {
        self.every(sink, |observer, slot, sink| {
            observer.close(slot, Flags::NONE, sink);
        });
    }

    /// Gives up every epoch for want of memory elsewhere.
    pub fn evict_all(&mut self, sink: &mut impl Sink) {
        self.every(sink, |observer, slot, sink| observer.evict(slot, sink));
    }

    fn every<S: Sink>(&mut self, sink: &mut S, mut act: impl FnMut(&mut Self, u32, &mut S)) {
        for slot in 0..self.contexts.len() as u32 {
            self.settle_used(slot, sink);
            act(self, slot, sink);
        }
    }

    /// Capture is incomplete from now on: every epoch closes and requests are not counted until
    /// [`Observer::capture_restored`]. The final reports come with the next packets and polls.
    pub fn capture_lost(&mut self) {
        self.suspended = true;
        self.faults = self.faults.wrapping_add(1);
        self.sweep = self.contexts.len() as u32;
    }

    /// Capture is complete again; metering starts with fresh state. Disabled connections stay disabled
    /// (AMB-SEQ-SUSP).
    pub fn capture_restored(&mut self) {
        self.suspended = false;
    }

    /// Packets were missed, and capture is complete again already: epochs that may have lost one close,
    /// at their next packet or report. Addresses that happen to be counted together close together.
    pub fn missed(&mut self, suspect: Suspect) {
        match suspect {
            Suspect::Any => {
                self.faults = self.faults.wrapping_add(1);
                self.sweep = self.contexts.len() as u32;
            }
            Suspect::Pair(source, destination) => {
                let key = ConnectionKey {
                    source,
                    destination,
                    qp: crem_wire::Qpn::default(),
                    pkey: 0,
                    context: 0,
                };
                let pair = usize::from(pair_of(&key.words())) % PAIRS;
                self.pair_faults[pair] = self.pair_faults[pair].wrapping_add(1);
            }
        }
    }

    /// Enables a connection that a violation disabled. An active epoch goes on. `false` if the
    /// connection is not known.
    pub fn reprovision(&mut self, key: &ConnectionKey) -> bool {
        let Some(&slot) = self.index.get(&key.words()) else {
            return false;
        };
        let context = &mut self.contexts[slot as usize];
        if context.state == State::Disabled {
            context.state = State::Idle;
        }
        true
    }

    /// Replaces the provisions; those before are given back in their place. Epochs whose connection is not
    /// provisioned any more, or with another window or generation, close in the ordinary way, at their next
    /// packet or with the next polls; such a connection counts as provisioned anew, so a violation is forgiven.
    /// All others go on.
    ///
    /// # Errors
    /// As [`Observer::new`]; nothing is changed then.
    pub fn set_provisions(
        &mut self,
        provisions: &mut Vec<Provision>,
    ) -> Result<(), ProvisionError> {
        Self::check(provisions, &self.config)?;
        self.swap_provisions(provisions);
        Ok(())
    }

    /// As [`Observer::set_provisions`] with what was checked before.
    pub(crate) fn swap_provisions(&mut self, provisions: &mut Vec<Provision>) {
        core::mem::swap(&mut self.provisions, provisions);
        self.version = self.version.wrapping_add(1);
        self.sweep = self.contexts.len() as u32;
    }

    /// Nothing is provisioned any more: all epochs close with the next polls.
    pub(crate) fn retire(&mut self) {
        self.swap_provisions(&mut Vec::new());
    }

    /// The numbers of its epochs follow those of another observer, whose place it takes.
    pub(crate) fn number_after(&mut self, other: &Self) {
        self.next_epoch = self.next_epoch.max(other.next_epoch);
    }

    /// What other provisions mean for a connection.
    pub(super) fn provision_anew(&mut self, slot: u32, sink: &mut impl Sink) {
        let context = &self.contexts[slot as usize];
        let terms = self.provision_of(&context.key);
        let terms = terms.map(|provision| (provision.window, provision.generation));
        if terms != Some((context.window, context.generation)) {
            self.close(slot, Flags::NONE, sink);
            self.contexts[slot as usize].state = State::Idle;
        }
        let Some((window, generation)) = terms else {
            self.forget(slot);
            return;
        };
        let context = &mut self.contexts[slot as usize];
        context.window = window;
        context.generation = generation;
        context.version = self.version;
    }

    /// The provision that covers a connection: the first.
    pub(super) fn provision_of(&self, key: &ConnectionKey) -> Option<&Provision> {
        self.provisions
            .iter()
            .find(|provision| provision.covers(key))
    }

    /// Its bounds and intervals.
    pub const fn config(&self) -> &ObserverConfig {
        &self.config
    }

    /// The collector that it counts for.
    pub const fn collector(&self) -> u16 {
        self.config.collector
    }

    /// What happened so far.
    pub const fn counters(&self) -> &ObserverCounters {
        &self.counters
    }

    /// Connections with an active epoch.
    pub fn active(&self) -> usize {
        self.epochs.len() - self.free_epochs.len()
    }

    /// Connections that are disabled.
    pub fn disabled(&self) -> impl Iterator<Item = &ConnectionKey> {
        self.contexts
            .iter()
            .filter(|context| context.state == State::Disabled)
            .map(|context| &context.key)
    }
}
