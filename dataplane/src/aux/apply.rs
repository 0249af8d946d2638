//! Bringing a document into force while the worker runs: read, compare with what runs, check against the
//! machine, hand over, wait for the worker. Who may ask is the socket's business.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use crem_api::protocol::{Applied, Apply, ErrorCode, ErrorReply, Running};
use crem_api::{Document, Impact, Invalid, Mode, Segment, SegmentId};
use crem_api::{changes, from_value, largest, to_value};
use tokio::sync::mpsc::Receiver;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::apply::{Order, Orders};
use crate::aux::boxes::{Boxes, Now};
use crate::aux::{About, AboutSegment};
use crate::core_config::core_config;
use crate::describe::{describe, view};
use crate::machine::{self, Known, Ports};
use crate::metering::{Change, Metered, Wanted};
use crate::team::Place;

/// Longest wait for the worker.
const PATIENCE: Duration = Duration::from_secs(2);

/// What cannot change any more.
#[derive(Clone, Debug)]
pub struct Started {
    /// Frame buffers.
    pub pool_frames: u32,
    /// Octets of each.
    pub room: u16,
    /// What drivers said of their devices.
    pub known: Known,
}

impl Started {
    /// Whether the machine, as it was at the start, does for another document.
    fn check(&self, document: &Document) -> Result<Ports, Invalid> {
        machine::check_running(document, self.pool_frames, self.room, &self.known)
    }
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
    boxes: Boxes,
}

impl Applier {
    /// Begins with the document that the process was started with.
    pub fn new(
        running: Document,
        about: About,
        started: Started,
        metered: Metered,
        ends: OrderEnds,
        now: Now,
    ) -> Self {
        let boxes = Boxes::new(&running, now);
        let applier = Self {
            boxes,
            running,
            generation: 0,
            revision: None,
            started,
            metered,
            ends,
            outstanding: 0,
            about: watch::Sender::new(Arc::new(about)),
        };
        applier.tell_boxes();
        applier
    }

    /// Frames are forwarded.
    pub(super) fn begin(&mut self) {
        self.boxes.begin();
        self.tell_boxes();
    }

    /// The workers are gone.
    pub(super) fn end(&mut self) {
        self.boxes.end();
    }

    /// What has to be done ten times a second.
    pub(super) async fn keep_time(&mut self) {
        self.boxes.beat();
        self.take_done();
        for (number, then) in self.boxes.due() {
            if self.outstanding == 0 {
                self.come_back(number, then).await;
            }
        }
    }

    /// Ends bypass: mode `then` is in force again, or forwarding, should the document not have what that takes.
    async fn come_back(&mut self, number: usize, then: Mode) {
        let possible = self.check_as(number, then);
        let (mode, ports) = match possible {
            Ok(ports) => (then, ports),
            Err(invalid) => {
                tracing::error!("mode {} cannot come back: {invalid}", then.name());
                match self.check_as(number, Mode::Passthrough) {
                    Ok(ports) => (Mode::Passthrough, ports),
                    // Not even that: it goes on as it is, which forwards.
                    Err(_) => return,
                }
            }
        };
        self.boxes.come_back(number, mode, mode == then);
        let Some((id, segment)) = self.running.segments.iter().nth(number) else {
            return;
        };
        let config = self.boxes.in_force(number, segment);
        for (worker, place) in self.ends.orders.iter().zip(self.places()) {
            let orders = Orders {
                generation: self.generation,
                segments: vec![order(number, id, &config, &ports, &place, true)],
                metering: Vec::new(),
            };
            self.outstanding += usize::from(worker.try_send(Box::new(orders)).is_ok());
        }
        self.tell(&ports);
        if self.wait().await.is_err() {
            tracing::error!("a worker has not come back from bypass yet");
        }
    }

    /// Whether the document would do with another mode of a segment.
    fn check_as(&self, number: usize, mode: Mode) -> Result<Ports, Invalid> {
        let mut document = self.running.clone();
        if let Some(segment) = document.segments.values_mut().nth(number) {
            segment.mode = mode;
        }
        let document = from_value(&to_value(&document))?;
        self.started.check(&document)
    }

    /// What a segment of each worker is.
    fn places(&self) -> impl Iterator<Item = Place> + use<> {
        let count = u16::try_from(self.ends.orders.len()).unwrap_or(u16::MAX);
        (0..count).map(move |index| Place {
            index,
            count,
            seed: 0,
        })
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
        let ports = self.started.check(&wanted);
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
        let metering = self
            .places()
            .map(|p| self.metered.changes(&observed, p.index));
        let metering: Result<Vec<Vec<Change>>, _> = metering.collect();
        let metering = metering.map_err(ErrorReply::invalid)?;
        self.boxes.before(&self.running, &wanted);
        let orders: Vec<Orders> = self
            .places()
            .zip(metering)
            .map(|(place, metering)| self.orders(&wanted, ports, applied, &place, metering))
            .collect();
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
        let in_force = self.wait().await;
        self.boxes.after();
        in_force
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
        let order = |(number, (_, (id, new))): (usize, (_, (&_, &Segment)))| {
            let at = format!("/segments/{id}/");
            let mut own = applied
                .changes
                .iter()
                .filter(|c| c.pointer.starts_with(&at));
            let anew = own.any(|change| change.impact >= Impact::Segment);
            let new = self.boxes.in_force(number, new);
            order(number, id, &new, ports, place, anew)
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

    /// What the status says of bypass and failure.
    fn complete(&self, number: usize, about: &mut AboutSegment) {
        (about.bypass, about.on_failure) = self.boxes.about(number);
        about.off_reason = self.boxes.off_reason(number);
    }

    /// The same of all segments, whose rest stays.
    fn tell_boxes(&self) {
        self.about.send_modify(|about| {
            let mut new = About::clone(about);
            for (number, segment) in new.segments.iter_mut().enumerate() {
                self.complete(number, segment);
            }
            *about = Arc::new(new);
        });
    }

    fn tell(&self, ports: &Ports) {
        let describe =
            |(n, ((id, s), before)): (usize, ((&SegmentId, &Segment), &AboutSegment))| {
                let mut about = AboutSegment {
                    // They stay open.
                    ports: before.ports.clone(),
                    ..describe(id, s, ports.mtus(n))
                };
                self.complete(n, &mut about);
                about
            };
        self.about.send_modify(|about| {
            let segments = self.running.segments.iter().zip(&about.segments);
            let segments = segments.enumerate().map(describe);
            *about = Arc::new(About {
                version: about.version.clone(),
                instance: about.instance.clone(),
                revision: self.revision,
                // A document that came later is what somebody wants.
                instead: None,
                segments: segments.collect(),
                numa: about.numa.clone(),
                confinement: about.confinement.clone(),
            });
        });
    }
}

/// What one worker has to change of a segment.
fn order(
    number: usize,
    id: &SegmentId,
    config: &Segment,
    ports: &Ports,
    place: &Place,
    anew: bool,
) -> Order {
    Order {
        segment: number,
        config: config.clone(),
        view: view(id, config, ports.mtus(number)),
        core: core_config(config, place),
        anew,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc::{Receiver as Orderly, sync_channel};

    use crem_core::time::Instant;

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
        /// Seconds.
        now: Arc<AtomicU64>,
        orders: Orderly<Box<Orders>>,
        done: tokio::sync::mpsc::Sender<Box<Orders>>,
    }

    impl Rig {
        fn new() -> Self {
            Self::of(BASE)
        }

        fn of(text: &str) -> Self {
            let (orders, taken) = sync_channel(1);
            let (done, back) = tokio::sync::mpsc::channel(4);
            let document = crem_api::parse(text, crem_api::Syntax::Toml).unwrap();
            let ports = machine::check(&document, 16383).unwrap();
            let started = Started {
                pool_frames: 16383,
                room: ports.room,
                known: Known::new(),
            };
            let mut opened = AboutSegment::default();
            opened.ports[0].driver = "net_x".to_owned();
            let about = About {
                version: String::new(),
                instance: String::new(),
                revision: None,
                instead: None,
                segments: vec![opened; 2],
                numa: Vec::new(),
                confinement: crem_api::Confinement::default(),
            };
            let orders = vec![orders];
            let ends = OrderEnds { orders, done: back };
            let (metered, _) = Metered::new(&document, 0);
            let now = Arc::new(AtomicU64::new(0));
            let at = Arc::clone(&now);
            let clock = move || Instant(at.load(Ordering::Relaxed) * 1_000_000_000);
            Self {
                applier: Applier::new(document, about, started, metered, ends, Box::new(clock)),
                now,
                orders: taken,
                done,
            }
        }

        /// Asks; a worker that obeys answers.
        fn ask(&mut self, apply: &Apply) -> (Result<Applied, ErrorReply>, Option<Box<Orders>>) {
            self.drive(async |applier| applier.apply(apply).await)
        }

        /// Lets time pass.
        fn pass(&mut self, seconds: u64) -> Option<Box<Orders>> {
            self.now.fetch_add(seconds, Ordering::Relaxed);
            self.drive(async |applier| applier.keep_time().await).1
        }

        fn drive<T>(
            &mut self,
            what: impl AsyncFnOnce(&mut Applier) -> T,
        ) -> (T, Option<Box<Orders>>) {
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
                tokio::join!(what(&mut self.applier), worker)
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
        let about = Arc::clone(&rig.applier.about().borrow());
        assert_eq!(about.revision, Some(3));
        // What their drivers said when they were opened holds on.
        assert!(about.segments.iter().all(|s| s.ports[0].driver == "net_x"));
    }

    /// What one order of one segment says.
    fn mode(orders: Option<Box<Orders>>) -> (Mode, bool) {
        let orders = orders.unwrap();
        let [order] = &orders.segments[..] else {
            panic!("one segment changes");
        };
        assert_eq!(order.view.active, order.config.mode == Mode::Active);
        (order.config.mode, order.anew)
    }

    #[test]
    fn bypass_ends_by_itself_and_what_was_before_comes_back() {
        let mut rig = Rig::new();
        let bypass = value("\"active\"", "\"bypass\"");
        let (applied, orders) = rig.ask(&apply(bypass.clone()));
        assert_eq!(applied.unwrap().impact, Impact::Segment);
        assert_eq!(mode(orders), (Mode::Bypass, true));
        assert!(rig.pass(1_799).is_none());
        let about = rig.applier.about().borrow().segments[0].bypass.clone();
        let (status, until) = about.unwrap();
        assert_eq!(
            (status.relay.as_str(), status.then.as_str()),
            ("none", "active")
        );
        assert_eq!(until, Instant(1_800_000_000_000));
        assert_eq!(mode(rig.pass(1)), (Mode::Active, true));
        assert!(rig.pass(5_000).is_none());
        let about = rig.applier.about().borrow().segments[0].clone();
        assert!(
            about
                .off_reason
                .unwrap()
                .starts_with("the time of mode bypass is over")
        );
        // The document still says bypass; what it changes besides comes into force in the mode there is.
        assert_eq!(rig.applier.running().document, bypass);
        let mut other = bypass.clone();
        other["segments"]["a"]["policy"]["target_fec"] = serde_json::json!(1e-7);
        assert_eq!(
            mode(rig.ask(&apply(other.clone())).1),
            (Mode::Active, false)
        );
        // Asked for again, it begins again; and a document ends it.
        other["segments"]["a"]["bypass"]["reason"] = serde_json::json!("the cable again");
        assert_eq!(mode(rig.ask(&apply(other)).1).0, Mode::Bypass);
        assert_eq!(mode(rig.ask(&apply(value("", ""))).1), (Mode::Active, true));
        let about = rig.applier.about().borrow().segments[0].clone();
        assert_eq!((about.bypass, about.off_reason), (None, None));
    }

    #[test]
    fn what_cannot_come_back_from_bypass_is_forwarded_and_said() {
        let mut rig = Rig::new();
        let mut bypass = value("\"active\"", "\"bypass\"");
        bypass["segments"]["a"]["peers"] = serde_json::json!({});
        assert_eq!(mode(rig.ask(&apply(bypass)).1), (Mode::Bypass, true));
        assert_eq!(mode(rig.pass(1_800)), (Mode::Passthrough, true));
        let about = rig.applier.about().borrow().segments[0].clone();
        assert!(
            about
                .off_reason
                .unwrap()
                .contains("has not what the mode before takes")
        );
    }

    #[test]
    fn a_relay_joins_the_ports_after_the_workers_let_go_and_comes_in_before_they_begin() {
        let path = std::env::temp_dir().join(format!("crem-applied-relay-{}", std::process::id()));
        let relay = format!(
            "crem_port = 4801\non_failure = \"wire\"\nbypass = {{ relay = {{ test = {path:?} }} }}"
        );
        let text = BASE.replacen("crem_port = 4801", &relay, 1);
        let mut rig = Rig::of(&text);
        let told = || std::fs::read_to_string(&path).unwrap_or_default();
        rig.applier.begin();
        rig.pass(1);
        assert_eq!(told(), "position inline\non_failure wire\nbeats 1\n");
        let about = rig.applier.about().borrow().segments[0].clone();
        assert_eq!(about.on_failure.in_effect, "wire");
        let bypass = text.replacen("\"active\"", "\"bypass\"", 1);
        let bypass = to_value(&crem_api::parse(&bypass, crem_api::Syntax::Toml).unwrap());
        assert_eq!(mode(rig.ask(&apply(bypass)).1).0, Mode::Bypass);
        assert!(told().starts_with("position wire\n"), "{}", told());
        assert_eq!(mode(rig.pass(1_800)).0, Mode::Active);
        assert!(told().starts_with("position inline\n"), "{}", told());
        rig.applier.end();
        assert!(told().starts_with("position wire\n"), "as on_failure says");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn without_a_relay_a_failure_blocks_whatever_is_wanted() {
        let text = BASE.replacen("crem_port", "on_failure = \"wire\"\ncrem_port", 1);
        let rig = Rig::of(&text);
        let about = rig.applier.about().borrow().segments[0].clone();
        let failure = &about.on_failure;
        assert_eq!(
            (failure.wanted.as_str(), failure.in_effect.as_str()),
            ("wire", "block")
        );
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
