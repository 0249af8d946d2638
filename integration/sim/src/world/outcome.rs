//! What came of a world.

use crem_core::packet::PsnSpace;

use super::{State, World};
use crate::Duration;
use crate::coverage::Coverage;
use crate::wire::Form;

/// Figures gathered on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Packets that reached a host.
    pub arrived: u64,
    /// Packets that a responder took as new.
    pub useful: u64,
    /// Packets of protected kinds that gateways put on the WAN.
    pub crossed: u64,
    /// Of those, lost on it.
    pub lost: u64,
    /// Requests that crossed from each side, and of those the lost ones.
    pub requests: [[u64; 2]; 2],
    /// Restored packets delivered.
    pub restored: u64,
    /// Messages completed.
    pub completed: u64,
    /// Their octets.
    pub octets: u64,
    /// The slowest message.
    pub slowest: Duration,
    /// Queue pairs that failed.
    pub failed: u64,
    /// REPAIR messages put on the WAN.
    pub repair_sent: u64,
    /// Ordinary symbols.
    pub ordinary: u64,
    /// Coded retransmissions.
    pub coded: u64,
    /// Source copies.
    pub copies: u64,
    /// Block information.
    pub infos: u64,
    /// Datagrams on the CREM port that the product's codec refused.
    pub refused: u64,
}

impl Sums {
    pub(super) fn repair(&mut self, form: Form) {
        let count = match form {
            Form::Ordinary => &mut self.ordinary,
            Form::Coded => &mut self.coded,
            Form::Copy => &mut self.copies,
            Form::Info => &mut self.infos,
        };
        *count += 1;
    }
}

/// What came of a world.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The scenario's name.
    pub name: String,
    /// Its seed.
    pub seed: u64,
    /// Packets that hosts sent.
    pub packets: u64,
    /// Connections that were not done at the end.
    pub unfinished: usize,
    /// Virtual time that passed.
    pub took: Duration,
    /// Equal for worlds in which the same things happened at the same times.
    pub digest: u64,
    /// Rules that were broken, in words; further ones are only counted.
    pub violations: Vec<String>,
    /// How many rules were broken.
    pub broken: u64,
    /// Figures.
    pub sums: Sums,
    /// The longest hold at either side.
    pub held: Duration,
    /// What occurred.
    pub coverage: Coverage,
    /// Streams of requests that the sender functions protect at the end.
    pub protected: usize,
    /// Loss that LOSS_REPORTs told, sums of Expected and Received over all flows toward each side.
    pub reported: [[u64; 2]; 2],
    /// What flows cost in memory, where that was looked at.
    pub state: State,
}

impl World {
    /// Notes why which flows are not protected now.
    pub(super) fn note_reasons(&mut self, side: usize) {
        if let Some(gateway) = &self.sides[side].gateway {
            let flows = gateway.csf.flows().filter_map(|flow| flow.unprotected);
            let passing = gateway.csf.datagrams().map(|passing| passing.unprotected);
            let coverage = &mut self.coverage;
            flows
                .chain(passing)
                .for_each(|why| coverage.unprotected(&why));
        }
    }

    /// Adds the counters of a gateway that is about to go.
    pub(super) fn gather(&mut self, side: usize) {
        self.note_reasons(side);
        self.events_due(side);
        let Some(gateway) = &self.sides[side].gateway else {
            return;
        };
        let coverage = &mut self.coverage;
        let csf = gateway.csf.counters();
        csf.for_each(|name, value| coverage.counter("csf", name, value));
        let crf = gateway.crf.counters();
        crf.for_each(|name, value| coverage.counter("crf", name, value));
    }

    /// Events of the gateway of a side.
    pub(super) fn events_due(&mut self, side: usize) {
        if let Some(gateway) = &mut self.sides[side].gateway {
            while let Some(event) = gateway.poll_event() {
                self.coverage.event(&event);
            }
        }
    }

    fn protected(&self) -> usize {
        let gateways = self.sides.iter().filter_map(|side| side.gateway.as_ref());
        let flows = gateways.flat_map(|gateway| gateway.csf.flows());
        let requests = flows.filter(|flow| flow.key.space == PsnSpace::Requests);
        requests.filter(|flow| flow.unprotected.is_none()).count()
    }

    /// The end: everything held is let out, accounts are closed.
    pub(super) fn finish(mut self) -> Outcome {
        for side in 0..2 {
            if self.sides[side].up_at > self.now {
                continue;
            }
            if let Some(gateway) = &mut self.sides[side].gateway {
                gateway.release(self.now);
                self.settle(side);
                let (now, violations) = (self.now, &mut self.violations);
                self.sides[side].delivery.finish(now, violations);
            }
            self.gather(side);
        }
        let impostors = self.coder.impostors;
        self.violations.require(self.now, impostors == 0, || {
            format!("{impostors} decoded packets check out and are of no packet sent")
        });
        let protected = self.protected();
        self.state_is_known(protected);
        let longest = |side: usize| self.sides[side].delivery.longest;
        Outcome {
            protected,
            packets: self.serial,
            unfinished: self.pending,
            took: self.now.since(super::BEGIN),
            digest: self.digest,
            broken: self.violations.count(),
            violations: self.violations.list().to_vec(),
            sums: self.sums,
            held: longest(0).max(longest(1)),
            reported: [self.sides[0].ledger.reported, self.sides[1].ledger.reported],
            state: self.state,
            coverage: self.coverage,
            name: self.scenario.name,
            seed: self.scenario.seed,
        }
    }
}
