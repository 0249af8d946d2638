//! From the config document to the meters of the segments and the relay that takes their records.

use std::path::Path;
use std::sync::Arc;

use crem_api::{Device, Document, Invalid, Segment, SegmentId};
use crem_core::time::Instant;
use crem_ipfix::plan::Plan;
use crem_wire::frame::ParseConfig;

use super::relay::{Relay, RelayState};
use super::ring::{BATCHES, Inlet, ring};
use super::{Metering, MeteringConfig, Shared, UtcClock, shared, utc_offset};
use crate::buffer::Platform;

/// What metering is made from, while it is made.
#[derive(Debug)]
pub struct Setup {
    plan: Option<Plan>,
    inlets: Vec<Inlet>,
    shared: Vec<(usize, Arc<Shared>)>,
}

/// What the auxiliary thread gets of it.
#[derive(Debug)]
pub struct Relaying {
    /// Passes records on.
    pub relay: Relay,
    /// What it did.
    pub state: Arc<RelayState>,
    /// What it shares with the metering of each segment that has one.
    pub shared: Vec<(usize, Arc<Shared>)>,
}

impl Setup {
    /// What the document asks for; nothing without its part on IPFIX.
    ///
    /// # Errors
    /// Everything in that part that cannot be.
    pub fn new(document: &Document) -> Result<Self, Invalid> {
        let plan = document.ipfix.as_ref();
        Ok(Self {
            plan: plan
                .map(|ipfix| Plan::new(ipfix, document.workers))
                .transpose()?,
            inlets: Vec::new(),
            shared: Vec::new(),
        })
    }

    /// One worker's metering of a segment, if anything is observed there.
    ///
    /// # Errors
    /// What cannot be built.
    pub fn segment<P: Platform>(
        &mut self,
        number: usize,
        (id, config): (&SegmentId, &Segment),
        worker: u16,
        now: Instant,
    ) -> Result<Option<Metering<P>>, Invalid> {
        let Some(plan) = &self.plan else {
            return Ok(None);
        };
        let points = plan.points(id, worker);
        if points.is_empty() {
            return Ok(None);
        }
        let offset = utc_offset(now);
        let shared = shared(offset);
        for (blind, device) in shared.blind.iter().zip([&config.lan, &config.wan]) {
            // What the kernel drops in front of such a port has to be found first.
            let kernel = matches!(device, Device::Interface(_));
            blind.store(kernel, std::sync::atomic::Ordering::Relaxed);
        }
        let (outbox, inlet) = ring(BATCHES, Arc::clone(&shared));
        let meters = MeteringConfig {
            scopes: plan.scopes().clone(),
            parse: ParseConfig {
                crem_port: Some(config.crem_port),
                vxlan_port: plan.vxlan_port(),
            },
            points,
            worker,
            memory: u64::MAX,
        };
        let metering = Metering::new(meters, outbox, UtcClock::new(offset, now));
        self.inlets.push(inlet);
        self.shared.push((number, shared));
        metering.map(Some).map_err(|error| {
            Invalid::whole(format!("segment {id}: {error}"), "meters that can be built")
        })
    }

    /// The relay to the exporting process that listens at `socket`; `None` if nothing is observed.
    pub fn relaying(self, socket: &Path) -> Option<Relaying> {
        if self.inlets.is_empty() {
            return None;
        }
        let state = Arc::new(RelayState::default());
        Some(Relaying {
            relay: Relay::new(socket, self.inlets, Arc::clone(&state)),
            state,
            shared: self.shared,
        })
    }
}
