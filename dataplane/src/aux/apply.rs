//! Bringing a document into force while the worker runs: read, compare with what runs, check against the
//! machine, hand over, wait for the worker. Who may ask is the socket's business.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use crem_api::protocol::{Applied, Apply, ErrorCode, ErrorReply, Running};
use crem_api::{Document, Impact, changes, from_value, largest, to_value};
use tokio::sync::mpsc::Receiver;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::apply::{Order, Orders};
use crate::aux::About;
use crate::core_config::core_config;
use crate::describe::{describe, view};
use crate::machine::{self, Ports};
use crate::metering::{Change, Metered, Wanted};
use crate::team::Place;

/// Longest wait for the worker.
const PATIENCE: Duration = Duration::from_secs(2);

/// What cannot change any more.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    /// Frame buffers.
    pub pool_frames: u32,
    /// Octets of each.
    pub room: u16,
}

/// This thread's ends of the channels to the worker.
#[derive(Debug)]
pub struct OrderEnds {
    /// Orders to each worker.
    pub orders: Vec<SyncSender<Box<Orders>>>,
    /// The same when they are in force.
    pub done: Receiver<Box<Orders>>,
}

/// Keeps the document in force and replaces it.
#[derive(Debug)]
pub struct Applier {
    running: Document,
    generation: u64,
    revision: Option<u64>,
    started: Started,
    metered: Metered,
    ends: OrderEnds,
    /// Workers that have not brought their orders into force yet.
    outstanding: usize,
    about: watch::Sender<Arc<About>>,
}

impl Applier {
    /// Begins with the document that the process was started with.
    pub fn new(
        running: Document,
        about: About,
        started: Started,
        metered: Metered,
        ends: OrderEnds,
    ) -> Self {
        Self {
            running,
            generation: 0,
            revision: None,
            started,
            metered,
            ends,
            outstanding: 0,
            about: watch::Sender::new(Arc::new(about)),
        }
    }

    /// What the status says besides snapshots, as it changes.
    pub(super) fn about(&self) -> watch::Receiver<Arc<About>> {
        self.about.subscribe()
    }

    /// The document in force.
    pub(super) const fn document(&self) -> &Document {
        &self.running
    }

    /// The document in force, to be shown.
    pub(super) fn running(&self) -> Running {
        Running {
            generation: self.generation,
            revision: self.revision,
            document: to_value(&self.running),
        }
    }

    /// Brings a document into force, or says why not.
    pub(super) async fn apply(&mut self, apply: &Apply) -> Result<Applied, ErrorReply> {
        let wanted = from_value(&apply.document).map_err(ErrorReply::invalid)?;
        let changes = changes(&self.running, &wanted);
        let impact = largest(&changes);
        let allowed = apply.max_impact.min(Impact::Segment);
        if impact > allowed {
            let message = if impact == Impact::Process {
                "the document takes a new start of the data plane"
            } else {
                "the document disturbs more than was allowed"
            };
            return Err(ErrorReply {
                changes,
                ..ErrorReply::new(ErrorCode::Impact, message)
            });
        }
        let ports = machine::check_running(&wanted, self.started.pool_frames, self.started.room);
        let ports = ports.map_err(ErrorReply::invalid)?;
        let observed = self.metered.plan(&wanted).map_err(ErrorReply::invalid)?;
        let mut applied = Applied {
            generation: self.generation,
            impact,
            changes,
        };
        if !apply.dry_run {
            applied.generation += u64::from(impact != Impact::None);
            self.hand_over((wanted, observed), &ports, &applied).await?;
            self.revision = apply.revision;
            self.tell(&ports);
        }
        Ok(applied)
    }

    /// Orders what changes and waits until it is in force.
    async fn hand_over(
        &mut self,
        (wanted, observed): (Document, Wanted),
        ports: &Ports,
        applied: &Applied,
    ) -> Result<(), ErrorReply> {
        if applied.impact == Impact::None {
            return Ok(());
        }
        self.take_done();
        if self.outstanding > 0 {
            let message = "a worker has not taken the last document yet; nothing was changed";
            return Err(ErrorReply::new(ErrorCode::Timeout, message));
        }
        let count = u16::try_from(self.ends.orders.len()).unwrap_or(u16::MAX);
        let orders = (0..count).map(|index| {
            let place = Place {
                index,
                count,
                seed: 0,
            };
            let metering = self.metered.changes(&observed, index)?;
            Ok(self.orders(&wanted, ports, applied, &place, metering))
        });
        let orders: Result<Vec<Orders>, _> = orders.collect();
        let orders = orders.map_err(ErrorReply::invalid)?;
        for (worker, orders) in self.ends.orders.iter().zip(orders) {
            // One that is gone ends the process; room there is.
            self.outstanding += usize::from(worker.try_send(Box::new(orders)).is_ok());
        }
        // From here on it comes into force, be it late.
        self.metered.adopt(observed);
        self.running = wanted;
        self.generation = applied.generation;
        tracing::info!(
            generation = self.generation,
            "a document with {} changes comes into force",
            applied.changes.len()
        );
        self.wait().await
    }

    /// What one worker has to change.
    fn orders(
        &self,
        wanted: &Document,
        ports: &Ports,
        applied: &Applied,
        place: &Place,
        metering: Vec<Change>,
    ) -> Orders {
        let segments = self.running.segments.values().zip(&wanted.segments);
        let segments = segments
            .enumerate()
            .filter(|(_, (old, (_, new)))| old != new);
        let order = |(number, (_, (id, new))): (usize, (_, (&_, &crem_api::Segment)))| {
            let at = format!("/segments/{id}/");
            let mut own = applied
                .changes
                .iter()
                .filter(|c| c.pointer.starts_with(&at));
            Order {
                segment: number,
                config: new.clone(),
                view: view(id, new, ports.mtus(number)),
                core: core_config(new, place),
                anew: own.any(|change| change.impact >= Impact::Segment),
            }
        };
        Orders {
            generation: applied.generation,
            segments: segments.map(order).collect(),
            metering,
        }
    }

    /// Takes what workers have brought into force.
    fn take_done(&mut self) {
        while self.ends.done.try_recv().is_ok() {
            self.outstanding = self.outstanding.saturating_sub(1);
        }
    }

    async fn wait(&mut self) -> Result<(), ErrorReply> {
        let in_force = async {
            while self.outstanding > 0 && self.ends.done.recv().await.is_some() {
                self.outstanding -= 1;
            }
        };
        timeout(PATIENCE, in_force).await.map_err(|_| {
            let message = "the worker did not say in time that the document is in force";
            ErrorReply::new(ErrorCode::Timeout, message)
        })
    }

    fn tell(&self, ports: &Ports) {
        let segments = self.running.segments.iter().enumerate();
        let segments = segments.map(|(n, (id, s))| describe(id, s, ports.mtus(n)));
        self.about.send_modify(|about| {
            *about = Arc::new(About {
                version: about.version.clone(),
                instance: about.instance.clone(),
                revision: self.revision,
                segments: segments.collect(),
            });
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use std::sync::mpsc::{Receiver as Orderly, sync_channel};

    use super::*;

    const BASE: &str = r#"
        version = 1
        [segments.a]
        mode = "active"
        crem_port = 4801
        path_mtu = 4500
        lan = { vdev = "net_null0" }
        wan = { vdev = "net_null1" }
        served = { "10.0.1.0/24" = {} }
        peers = { "10.0.2.0/24" = { address = "192.0.2.2" } }
        inband = { address = "192.0.2.1/24" }
        limits = { retained_frames = 1000, held_frames = 1000 }
        policy = { target_fec = 1e-6 }
        [segments.b]
        mode = "passthrough"
        crem_port = 4801
        path_mtu = 4500
        lan = { vdev = "net_null2" }
        wan = { vdev = "net_null3" }
    "#;

    fn value(from: &str, to: &str) -> serde_json::Value {
        assert!(BASE.contains(from), "{from}");
        let text = BASE.replacen(from, to, 1);
        let document = crem_api::parse(&text, crem_api::Syntax::Toml);
        to_value(&document.unwrap_or_else(|e| panic!("{e}")))
    }

    fn apply(document: serde_json::Value) -> Apply {
        Apply {
            revision: Some(3),
            max_impact: Impact::Segment,
            dry_run: false,
            document,
        }
    }

    struct Rig {
        applier: Applier,
        orders: Orderly<Box<Orders>>,
        done: tokio::sync::mpsc::Sender<Box<Orders>>,
    }

    impl Rig {
        fn new() -> Self {
            let (orders, taken) = sync_channel(1);
            let (done, back) = tokio::sync::mpsc::channel(4);
            let document = crem_api::parse(BASE, crem_api::Syntax::Toml).unwrap();
            let ports = machine::check(&document, 16383).unwrap();
            let started = Started {
                pool_frames: 16383,
                room: ports.room,
            };
            let about = About {
                version: String::new(),
                instance: String::new(),
                revision: None,
                segments: Vec::new(),
            };
            let orders = vec![orders];
            let ends = OrderEnds { orders, done: back };
            let (metered, _) = Metered::new(&document, 0);
            Self {
                applier: Applier::new(document, about, started, metered, ends),
                orders: taken,
                done,
            }
        }

        /// Asks; a worker that obeys answers.
        fn ask(&mut self, apply: &Apply) -> (Result<Applied, ErrorReply>, Option<Box<Orders>>) {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .unwrap();
            runtime.block_on(async {
                let worker = async {
                    tokio::task::yield_now().await;
                    let orders = self.orders.try_recv().ok();
                    let copy = orders.as_ref().map(|o| Orders {
                        generation: o.generation,
                        segments: Vec::new(),
                        metering: Vec::new(),
                    });
                    if let Some(done) = copy {
                        self.done.try_send(Box::new(done)).unwrap();
                    }
                    orders
                };
                tokio::join!(self.applier.apply(apply), worker)
            })
        }
    }

    #[test]
    fn only_the_segment_that_changes_is_ordered_to() {
        let mut rig = Rig::new();
        let (applied, orders) = rig.ask(&apply(value("1e-6", "1e-7")));
        let applied = applied.unwrap();
        assert_eq!((applied.generation, applied.impact), (1, Impact::Hot));
        let orders = orders.unwrap();
        let [order] = &orders.segments[..] else {
            panic!("one segment changes");
        };
        assert_eq!((order.segment, order.anew), (0, false));
        assert_eq!(order.core.fec.targets.fec, Some(1e-7));
        let running = rig.applier.running();
        assert_eq!((running.generation, running.revision), (1, Some(3)));
        assert_eq!(running.document, value("1e-6", "1e-7"));
        assert_eq!(rig.applier.about().borrow().revision, Some(3));
    }

    const IPFIX: &str = r#"
        [ipfix]
        domain = 1
        pen = 32473
        first_element = 1
        [ipfix.scopes]
        all = { source = "10.0.0.0/8", destination = "10.0.0.0/8" }
        [ipfix.points]
        out = { segment = "b", place = "wan_egress", base = 100, flows = true }
        [ipfix.collectors]
        one = { transport = "tcp", host = "192.0.2.9", port = 4739 }
    "#;

    fn with_ipfix(from: &str, to: &str) -> serde_json::Value {
        assert!(IPFIX.contains(from), "{from}");
        let text = format!("{BASE}{}", IPFIX.replacen(from, to, 1));
        let document = crem_api::parse(&text, crem_api::Syntax::Toml);
        to_value(&document.unwrap_or_else(|e| panic!("{e}")))
    }

    // shows: BTH-OPS-01
    #[test]
    fn what_is_observed_changes_while_frames_pass() {
        let mut rig = Rig::new();
        let observed = |orders: Option<Box<Orders>>| -> Vec<usize> {
            let orders = orders.unwrap();
            assert!(orders.segments.is_empty());
            orders
                .metering
                .iter()
                .map(|change| change.segment)
                .collect()
        };
        let (applied, orders) = rig.ask(&apply(with_ipfix("", "")));
        assert_eq!(applied.unwrap().impact, Impact::Hot);
        assert_eq!(observed(orders), [1]);
        // What collectors are told is no business of the segments.
        let (applied, orders) = rig.ask(&apply(with_ipfix("pen = 32473", "pen = 32474")));
        assert_eq!(applied.unwrap().impact, Impact::Hot);
        assert!(observed(orders).is_empty());
        let (_, orders) = rig.ask(&apply(with_ipfix("segment = \"b\"", "segment = \"a\"")));
        assert_eq!(observed(orders), [0, 1]);
        let (_, orders) = rig.ask(&apply(value("", "")));
        assert_eq!(observed(orders), [0]);
    }

    #[test]
    fn meters_without_the_memory_for_them_are_refused_and_nothing_changes() {
        let mut rig = Rig::new();
        let large = with_ipfix("[ipfix.scopes]", "memory_mb = 1\n[ipfix.scopes]");
        let (refused, orders) = rig.ask(&apply(large));
        let refused = refused.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Invalid);
        assert_eq!(refused.issues[0].pointer, "/ipfix/memory_mb");
        assert!(orders.is_none());
        assert_eq!(rig.applier.running().generation, 0);
    }

    #[test]
    fn the_same_document_again_orders_nothing() {
        let mut rig = Rig::new();
        let (applied, orders) = rig.ask(&apply(value("1e-6", "0.000001")));
        let applied = applied.unwrap();
        assert_eq!((applied.generation, applied.impact), (0, Impact::None));
        assert!(orders.is_none());
        assert_eq!(rig.applier.running().revision, Some(3));
    }

    #[test]
    fn what_disturbs_too_much_is_refused_with_the_places() {
        let mut rig = Rig::new();
        let mut hot = apply(value("\"active\"", "\"block\""));
        hot.max_impact = Impact::Hot;
        let refused = rig.ask(&hot).0.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Impact);
        assert_eq!(refused.changes[0].pointer, "/segments/a/mode");
        let refused = rig.ask(&apply(value("net_null1", "net_null9"))).0;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Impact);
        assert_eq!(refused.changes[0].impact, Impact::Process);
        assert_eq!(rig.applier.running().generation, 0);
    }

    #[test]
    fn what_cannot_be_is_refused_with_every_problem_and_a_trial_changes_nothing() {
        let mut rig = Rig::new();
        let refused = rig.ask(&apply(serde_json::json!({"version": 2}))).0;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Invalid);
        assert_eq!(refused.issues.len(), 2, "{:?}", refused.issues);
        let large = apply(value("retained_frames = 1000", "retained_frames = 60000"));
        let refused = rig.ask(&large).0.unwrap_err();
        assert!(refused.issues[0].pointer.ends_with("/limits"));
        let longer = apply(value("path_mtu = 4500", "path_mtu = 8192"));
        assert!(rig.ask(&longer).0.is_ok(), "the ports take as much already");
        let mut trial = apply(value("1e-6", "1e-7"));
        trial.dry_run = true;
        let before = rig.applier.running();
        let (applied, orders) = rig.ask(&trial);
        assert_eq!(applied.unwrap().impact, Impact::Segment);
        assert!(orders.is_none());
        assert_eq!(rig.applier.running(), before);
    }

    #[test]
    fn a_worker_that_does_not_answer_is_told_of_and_the_next_document_waits() {
        let mut rig = Rig::new();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let (first, second) = (apply(value("1e-6", "1e-7")), apply(value("1e-6", "1e-8")));
        let refused = runtime.block_on(rig.applier.apply(&first)).unwrap_err();
        assert_eq!(refused.code, ErrorCode::Timeout);
        let refused = runtime.block_on(rig.applier.apply(&second)).unwrap_err();
        assert!(refused.message.contains("nothing was changed"));
        assert_eq!(rig.applier.running().document, first.document);
    }
}
