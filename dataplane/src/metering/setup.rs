//! From the config document to what the segments observe, at the start and whenever the document changes, and
//! the relay that takes their records. How a segment changes is in `change`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};

use crem_api::{Document, Invalid, SegmentId};
use crem_ipfix::plan::Plan;
use crem_wire::frame::ParseConfig;

use super::relay::{Relay, RelayState};
use super::ring::{BATCHES, Inlet, ring};
use super::{Change, MeteringConfig, Shared, shared};

/// What a document asks to observe: of each segment, of each worker.
#[derive(Debug)]
pub struct Wanted(Vec<Vec<MeteringConfig>>);

/// What is observed, as it was ordered last.
#[derive(Debug)]
pub struct Metered {
    segments: Vec<Vec<Site>>,
    inlets: Sender<Inlet>,
}

/// One worker of a segment.
#[derive(Debug)]
struct Site {
    running: MeteringConfig,
    shared: Arc<Shared>,
}

/// What the auxiliary thread runs.
#[derive(Debug)]
pub struct Relaying {
    /// Passes records on.
    pub relay: Relay,
    /// What it did.
    pub state: Arc<RelayState>,
    /// What it shares with the metering of each segment, by their numbers, worker by worker.
    pub shared: Vec<(usize, Arc<Shared>)>,
}

impl Metered {
    /// Nothing is observed yet in the segments of a document; the other end is for [`Metered::relaying`].
    /// `utc_offset`: UTC less the workers' clock.
    pub fn new(document: &Document, utc_offset: u64) -> (Self, Receiver<Inlet>) {
        let (inlets, taken) = channel();
        let segments = document.segments.values().map(|config| {
            let site = |worker| {
                let shared = shared(utc_offset);
                for (blind, device) in shared.blind.iter().zip([&config.lan, &config.wan]) {
                    // What the kernel drops in front of such a port has to be found first.
                    let kernel = device.kernel_interface().is_some();
                    blind.store(kernel, Ordering::Relaxed);
                }
                Site {
                    running: MeteringConfig::nothing(worker),
                    shared,
                }
            };
            (0..document.workers).map(site).collect()
        });
        let segments = segments.collect();
        (Self { segments, inlets }, taken)
    }

    /// The relay to the exporting process that listens at `socket`.
    pub fn relaying(&self, socket: &Path, inlets: Receiver<Inlet>) -> Relaying {
        let state = Arc::new(RelayState::default());
        let segments = self.segments.iter().enumerate();
        let shared: Vec<(usize, Arc<Shared>)> = segments
            .flat_map(|(number, sites)| sites.iter().map(move |s| (number, Arc::clone(&s.shared))))
            .collect();
        let all = shared.iter().map(|(_, shared)| Arc::clone(shared));
        Relaying {
            relay: Relay::new(socket, inlets, all.collect(), Arc::clone(&state)),
            state,
            shared,
        }
    }

    /// What a document asks for; nothing without its part on IPFIX.
    ///
    /// # Errors
    /// Everything in that part that cannot be.
    pub fn plan(&self, document: &Document) -> Result<Wanted, Invalid> {
        let plan = document.ipfix.as_ref();
        let plan = plan.map(|ipfix| Plan::new(ipfix, document.workers));
        let plan = plan.transpose()?;
        let segments = document.segments.iter().map(|(id, config)| {
            let of = |worker| match &plan {
                Some(plan) => site(plan, id, config.crem_port, worker),
                None => MeteringConfig::nothing(worker),
            };
            (0..document.workers).map(of).collect()
        });
        Ok(Wanted(segments.collect()))
    }

    /// What one worker has to change for that.
    ///
    /// # Errors
    /// What cannot be built.
    pub fn changes(&self, wanted: &Wanted, worker: u16) -> Result<Vec<Change>, Invalid> {
        let mut changes = Vec::new();
        let sites = |n: usize| self.segments.get(n)?.get(usize::from(worker));
        for (number, wanted) in wanted.0.iter().enumerate() {
            let (Some(site), Some(wanted)) = (sites(number), wanted.get(usize::from(worker)))
            else {
                continue;
            };
            if site.running == *wanted {
                continue;
            }
            let begins = site.running.points.is_empty();
            let change = Change::new(
                number,
                &site.running,
                wanted.clone(),
                begins.then(|| self.start(&site.shared)),
            );
            changes.push(change.map_err(|error| {
                let found = format!("segment {number}, worker {worker}: {error}");
                Invalid::whole(found, "meters that can be built")
            })?);
        }
        Ok(changes)
    }

    fn start(&self, shared: &Arc<Shared>) -> (super::ring::Outbox, u64) {
        let (outbox, inlet) = ring(BATCHES, Arc::clone(shared));
        // At the end there may be no relay any more.
        let _ = self.inlets.send(inlet);
        (outbox, shared.utc_offset.load(Ordering::Relaxed))
    }

    /// The changes are ordered.
    pub fn adopt(&mut self, wanted: Wanted) {
        for (sites, wanted) in self.segments.iter_mut().zip(wanted.0) {
            for (site, wanted) in sites.iter_mut().zip(wanted) {
                site.running = wanted;
            }
        }
    }
}

/// What a worker observes in a segment; the same wherever nothing is.
fn site(plan: &Plan, id: &SegmentId, crem_port: u16, worker: u16) -> MeteringConfig {
    let points = plan.points(id, worker);
    if points.is_empty() {
        return MeteringConfig::nothing(worker);
    }
    MeteringConfig {
        scopes: plan.scopes().clone(),
        parse: ParseConfig {
            crem_port: Some(crem_port),
            vxlan_port: plan.vxlan_port(),
        },
        points,
        worker,
        memory: u64::MAX,
    }
}
