//! What the control process knows of the machine that it runs on: interfaces, addresses and routes as the
//! kernel has them, resolvers and time servers, and what of that is other than the document says. [`kernel`] reads
//! and sets, [`drift`] compares and has no socket, [`names`] does both with files.

pub mod drift;
pub mod kernel;
pub mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crem_api::rest::{DnsState, Drift, InterfaceList, RouteList, TimeState};
use crem_api::{Addressing, LinkSettings, Management};
use tokio::sync::watch;

use crate::clock;
use crate::engine::Engine;
use crate::journal::Journal;
use crate::link::Links;
use drift::Step;
use kernel::Kernel;
use names::Places;

/// Without a message of the kernel it is looked at after so long.
const LOOK: Duration = Duration::from_secs(30);
/// After a message so long is waited for others: changes come in bunches.
const BUNCH: Duration = Duration::from_millis(100);
/// Looks at most until the kernel has what it should.
const ROUNDS: usize = 3;
/// Between an answer and the change of addresses that it told of.
const GRACE: Duration = Duration::from_millis(500);

/// The machine as it was seen last.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Machine {
    /// Interfaces with their addresses.
    pub interfaces: InterfaceList,
    /// Routes.
    pub routes: RouteList,
    /// Resolvers.
    pub dns: DnsState,
    /// Time servers and the clock.
    pub time: TimeState,
    /// What is other than in the document.
    pub drift: Vec<Drift>,
    /// What could not be set.
    pub failures: Vec<String>,
    /// What of the links of ports is other than the document says, by interface.
    pub links: BTreeMap<String, Vec<String>>,
}

/// The way to what was seen.
pub type Seen = watch::Receiver<Arc<Machine>>;

/// Follows the kernel and the document.
#[derive(Debug)]
pub struct Follower {
    publish: watch::Sender<Arc<Machine>>,
    journal: Arc<Journal>,
    places: Places,
    links: Arc<Mutex<Links>>,
}

impl Follower {
    /// Nothing is seen yet.
    pub fn new(journal: Arc<Journal>, places: Places, links: Arc<Mutex<Links>>) -> (Self, Seen) {
        let publish = watch::Sender::new(Arc::default());
        let seen = publish.subscribe();
        let follower = Self {
            publish,
            journal,
            places,
            links,
        };
        (follower, seen)
    }

    /// Follows until the task is dropped. A kernel that cannot be asked is told once; the process goes on.
    pub async fn follow(self, engine: Engine) {
        let mut kernel = match Kernel::open() {
            Ok(kernel) => kernel,
            Err(error) => {
                tracing::warn!("rtnetlink: {error}; interfaces and routes are not known");
                return;
            }
        };
        let mut changes = engine.follow();
        // What was carried out last, and for which interfaces.
        let mut done: Option<(Option<Management>, BTreeSet<u32>)> = None;
        loop {
            let wanted = management(&engine);
            if let Err(error) = self.look(&kernel, wanted.as_ref()).await {
                tracing::warn!("rtnetlink: {error}");
            }
            let now = (wanted.clone(), self.concerned(wanted.as_ref()));
            let ours = |m: &Option<Management>| {
                m.as_ref()
                    .is_some_and(|m| m.addressing == Addressing::Gateway)
            };
            let before = done.as_ref().is_some_and(|(m, _)| ours(m));
            if done.as_ref() != Some(&now) && (ours(&wanted) || before) {
                if done.is_some() {
                    // The answer that told of it has to get out first.
                    tokio::time::sleep(GRACE).await;
                }
                self.carry_out(&kernel, wanted.as_ref()).await;
            }
            done = Some(now);
            self.settle_links(&engine).await;
            tokio::select! {
                () = kernel.changed() => tokio::time::sleep(BUNCH).await,
                changed = changes.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(LOOK) => {}
            }
            kernel.drain();
        }
    }

    /// Numbers of the interfaces that the document names: one that comes anew has nothing set.
    fn concerned(&self, wanted: Option<&Management>) -> BTreeSet<u32> {
        let seen = self.publish.borrow();
        let named = wanted.into_iter().flat_map(|m| m.interfaces.keys());
        named
            .filter_map(|name| Some(seen.interfaces.interfaces.get(name)?.index))
            .collect()
    }

    /// Carries out until nothing is left to do: with an address the kernel takes away others of the same network.
    async fn carry_out(&self, kernel: &Kernel, wanted: Option<&Management>) {
        for _ in 0..ROUNDS {
            let steps = {
                let seen = self.publish.borrow();
                drift::steps(wanted, &seen)
            };
            if steps.is_empty() {
                self.publish
                    .send_modify(|machine| Arc::make_mut(machine).failures.clear());
                return;
            }
            let mut failures = Vec::new();
            for step in steps {
                let text = step.told();
                match kernel.carry_out(&step).await {
                    Ok(()) => self.say(step.event(), text),
                    Err(error) => {
                        let text = format!("{text} Failed: {error}.");
                        self.say("addressing_failed", text.clone());
                        failures.push(text);
                    }
                }
            }
            let failed = !failures.is_empty();
            self.publish
                .send_modify(|machine| Arc::make_mut(machine).failures = failures);
            if let Err(error) = self.look(kernel, wanted).await {
                tracing::warn!("rtnetlink: {error}");
            }
            if failed {
                return;
            }
        }
    }

    async fn look(
        &self,
        kernel: &Kernel,
        wanted: Option<&Management>,
    ) -> Result<(), rtnetlink::Error> {
        let (mut interfaces, mut routes) = kernel.read().await?;
        drift::mark(wanted, &mut interfaces, &mut routes);
        let at_ms = clock::now().wall_ms;
        (interfaces.at_ms, routes.at_ms) = (at_ms, at_ms);
        let before = Arc::clone(&self.publish.borrow());
        let (dns, time) = self.places.look(wanted, at_ms);
        for error in [
            (&dns.error, &before.dns.error),
            (&time.error, &before.time.error),
        ] {
            if let (Some(error), true) = (error.0, error.0 != error.1) {
                self.say("names_failed", error.clone());
            }
        }
        let mut machine = Machine {
            interfaces,
            routes,
            dns,
            time,
            drift: Vec::new(),
            failures: before.failures.clone(),
            links: before.links.clone(),
        };
        machine.drift = drift::drift(wanted, &machine);
        let names = names::drift(wanted, &machine.dns, &machine.time);
        machine.drift.extend(names);
        if before.interfaces.at_ms > 0 {
            for (kind, text) in drift::link_events(&before.interfaces, &machine.interfaces) {
                self.say(kind, text);
            }
        }
        for found in machine.drift.iter().filter(|d| !before.drift.contains(d)) {
            self.say("drift", drift::told(found));
        }
        for gone in before.drift.iter().filter(|d| !machine.drift.contains(d)) {
            self.say(
                "drift_gone",
                format!("{}: as in the document again.", gone.pointer),
            );
        }
        self.publish.send_replace(Arc::new(machine));
        Ok(())
    }

    /// Has links of ports be as the document says.
    async fn settle_links(&self, engine: &Engine) {
        let wanted = wanted_links(engine, &self.publish.borrow());
        let links = Arc::clone(&self.links);
        // Drivers take their time.
        let settled = tokio::task::spawn_blocking(move || {
            let mut links = links.lock().unwrap_or_else(PoisonError::into_inner);
            links.settle_only(wanted.iter().map(|(name, ..)| name.as_str()));
            let settle = |(name, index, link): (String, u32, LinkSettings)| {
                let (done, otherwise) = links.settle(&name, index, &link);
                (name, done, otherwise)
            };
            wanted.into_iter().map(settle).collect::<Vec<_>>()
        });
        let Ok(settled) = settled.await else { return };
        let before = self.publish.borrow().links.clone();
        let mut links = BTreeMap::new();
        for (name, done, otherwise) in settled {
            for text in done {
                self.say("link_set", text);
            }
            let known = before.get(&name);
            for text in otherwise
                .iter()
                .filter(|t| !known.is_some_and(|k| k.contains(t)))
            {
                self.say("link_not_set", format!("{name}: {text}."));
            }
            if !otherwise.is_empty() {
                links.insert(name, otherwise);
            }
        }
        self.publish
            .send_modify(|machine| Arc::make_mut(machine).links = links);
    }

    fn say(&self, kind: &str, text: String) {
        self.journal.push(clock::now().wall_ms, kind, text, None);
    }
}

impl Step {
    fn event(&self) -> &'static str {
        "addressing"
    }
}

/// Kernel interfaces that are ports, with their numbers and what the document says of their links.
fn wanted_links(engine: &Engine, seen: &Machine) -> Vec<(String, u32, LinkSettings)> {
    let view = engine.view();
    let segments = view.document.iter().flat_map(|d| d.segments.values());
    let ports = segments.flat_map(|s| [(&s.lan, &s.lan_link), (&s.wan, &s.wan_link)]);
    let said = ports.filter(|(_, link)| !link.is_empty());
    let there = said.filter_map(|(device, link)| {
        let name = device.kernel_interface()?;
        let index = seen.interfaces.interfaces.get(name)?.index;
        Some((name.to_owned(), index, link.clone()))
    });
    there.collect()
}

fn management(engine: &Engine) -> Option<Management> {
    engine.view().document.as_ref()?.management.clone()
}
