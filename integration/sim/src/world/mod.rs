//! A world: hosts, gateways and paths of one scenario, in virtual time, and the loop that lets it run.
//! How packets cross gateways is in `cross`, how messages do in `mail`, what happens at set times in
//! `steps`, what remains at the end in `outcome`.

mod build;
mod cross;
mod hostile;
mod hosts;
mod mail;
mod manage;
mod outcome;
mod reporter;
mod state;
mod steps;

pub use outcome::Outcome;
pub use state::State;

use std::collections::{HashMap, VecDeque};

use crem_core::packet::{Desc, StreamKey};
use crem_core::timer::Timers;

use crate::check::Violations;
use crate::check::delivery::DeliveryCheck;
use crate::check::ledger::Ledger;
use crate::coder::Coder;
use crate::coverage::Coverage;
use crate::endpoint::{Endpoint, Output};
use crate::event::{InFlight, Lane};
use crate::frame::Frame;
use crate::gateway::Gateway;
use crate::net::path::Path;
use crate::packet::Packet;
use crate::rng::{Rng, mix};
use crate::scenario::{Scenario, Tampering};
use crate::{Duration, Instant};

/// When virtual time begins; not zero, so that nothing confuses it with "never".
pub(crate) const BEGIN: Instant = Instant(1_000_000_000);

/// What travels.
#[derive(Debug)]
pub(crate) enum Item {
    Packet(Packet),
    Mail(Box<mail::Mail>),
    Managed(Box<manage::Managing>),
}

/// Where a lane leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// A host; which one follows from the packet.
    Hosts,
    /// The LAN port of the gateway at this side.
    Lan(usize),
    /// The WAN port of the gateway at this side.
    Wan(usize),
}

/// A path and where it leads.
struct Wire {
    path: Path,
    lane: Lane,
    rng: Rng,
}

/// One side of the WAN.
struct Side {
    gateway: Option<Gateway>,
    /// Up at this time again; the wire is down before.
    up_at: Instant,
    lives: u64,
    wan: Wire,
    channel: Option<Wire>,
    bypass: Option<Wire>,
    /// From each host, and to each host.
    from_host: Vec<Wire>,
    to_host: Vec<Wire>,
    /// The account of messages and sources with this side as sender.
    ledger: Ledger,
    delivery: DeliveryCheck,
    arrivals: u64,
    /// Names of messages that get lost.
    muted: Vec<&'static str>,
    /// What becomes of REPAIRs from here.
    tampering: Tampering,
    /// The Path Reporter says nothing before this.
    quiet_until: Instant,
    reports: u32,
    /// The last message that arrived from the peer.
    overheard: Vec<u8>,
    /// The last HELLO that did.
    hello: Vec<u8>,
    /// The first HELLOs that did, where somebody says them again.
    hellos: Vec<Vec<u8>>,
    /// The last REPAIR that did, where somebody forges messages of the peer.
    repair: Option<mail::Mail>,
    /// Packets that the path from here dropped and no Path Reporter told yet.
    drops: Vec<(usize, u32)>,
}

/// What is fixed about a stream: one for each connection and PSN space.
struct Stream {
    key: StreamKey,
    /// The first stream of the same descriptor: accounts of messages, which name no more, are kept there.
    account: usize,
}

/// Everything.
pub struct World {
    scenario: Scenario,
    now: Instant,
    rng: Rng,
    sides: [Side; 2],
    lanes: Vec<Place>,
    flight: InFlight<Item>,
    endpoints: Vec<Box<dyn Endpoint>>,
    timers: Timers,
    streams: Vec<Stream>,
    /// The PSN that crossed last, by stream.
    newest: Vec<u32>,
    by_descriptor: HashMap<mail::Descriptor, usize>,
    done: Vec<bool>,
    failed: Vec<bool>,
    /// Connections whose hosts say nothing more.
    unplugged: Vec<bool>,
    coder: Coder,
    output: Output,
    burst: Vec<Packet>,
    /// Packets of the burst from the WAN that are nothing to the receiver function, and how many of the
    /// others came before each.
    plain: VecDeque<(u64, Packet)>,
    descs: Vec<Desc<Frame>>,
    scratch: Vec<u8>,
    serial: u64,
    spread: u64,
    digest: u64,
    pending: usize,
    /// Hosts say nothing more.
    quiet: bool,
    step: usize,
    next_hostile: Option<Instant>,
    violations: Violations,
    coverage: Coverage,
    sums: outcome::Sums,
    state: State,
}

impl World {
    /// Lets the scenario happen and tells what came of it.
    pub fn run(scenario: Scenario) -> Outcome {
        let mut world = Self::new(scenario);
        let end = BEGIN + world.scenario.lasts;
        world.until(end, true);
        world.quiet = true;
        let quiet = world.now + world.scenario.linger;
        world.until(quiet, false);
        world.finish()
    }

    /// Lets time pass until `end`, or until all connections are done if `traffic` is all that counts.
    fn until(&mut self, end: Instant, traffic: bool) {
        let done = |world: &Self| {
            let over = world.pending == 0 && world.steps_done();
            traffic && (over || world.serial >= world.scenario.packets)
        };
        while self.violations.count() == 0 && !done(self) {
            let Some(next) = self.next_event().filter(|at| *at <= end) else {
                self.now = self.now.max(end);
                return;
            };
            self.now = self.now.max(next);
            self.steps_due();
            self.arrivals_due();
            self.hosts_due();
            self.gateways_due();
            self.look_at_state();
        }
    }

    fn next_event(&self) -> Option<Instant> {
        let gateways = self.sides.iter().map(|side| {
            let timer = side.gateway.as_ref().and_then(Gateway::next_timer);
            timer.map(|at| at.max(side.up_at))
        });
        [self.flight.next(), self.timers.next(), self.next_step()]
            .into_iter()
            .chain(gateways)
            .flatten()
            .min()
    }

    /// Everything that has arrived, lane by lane.
    fn arrivals_due(&mut self) {
        while let Some((lane, item)) = self.flight.pop_overtaking(self.now) {
            let place = self.lanes[usize::from(lane.0)];
            self.arrive(place, item);
            self.end_burst(place);
        }
        for lane in 0..self.flight.lanes() {
            let Some(first) = self.flight.pop(Lane(lane), self.now) else {
                continue;
            };
            let place = self.lanes[usize::from(lane)];
            self.arrive(place, first);
            while let Some(item) = self.flight.pop(Lane(lane), self.now) {
                self.arrive(place, item);
            }
            self.end_burst(place);
        }
    }

    /// One item at its place. Packets at a gateway gather until the burst ends.
    fn arrive(&mut self, place: Place, item: Item) {
        match (place, item) {
            (Place::Hosts, Item::Packet(packet)) => self.at_host(&packet),
            (Place::Lan(_) | Place::Wan(_), Item::Packet(packet)) => {
                self.burst.push(packet);
                if self.burst.len() >= cross::BURST {
                    self.end_burst(place);
                }
            }
            (Place::Wan(side), Item::Mail(mail)) => {
                self.end_burst(place);
                self.mail_arrives(side, *mail);
            }
            (Place::Wan(side), Item::Managed(managing)) => {
                self.end_burst(place);
                self.managing_arrives(side, *managing);
            }
            (Place::Hosts | Place::Lan(_), Item::Mail(_) | Item::Managed(_)) => {}
        }
    }

    fn end_burst(&mut self, place: Place) {
        if self.burst.is_empty() {
            return;
        }
        match place {
            Place::Lan(side) => self.cross_to_wan(side),
            Place::Wan(side) => self.cross_to_lan(side),
            Place::Hosts => {}
        }
    }

    fn gateways_due(&mut self) {
        for side in 0..2 {
            let due = |side: &Side| {
                let timer = side.gateway.as_ref().and_then(Gateway::next_timer);
                timer.is_some_and(|at| at.max(side.up_at) <= self.now)
            };
            if due(&self.sides[side])
                && let Some(gateway) = &mut self.sides[side].gateway
            {
                gateway.on_timer(self.now);
                self.settle(side);
            }
        }
    }

    /// Enters something into the digest by which two runs are compared.
    fn note(&mut self, what: u64) {
        self.digest = mix(self.digest ^ what).wrapping_add(self.now.0);
    }
}

/// When a gateway that looks at arrivals every `poll` sees what arrives at `at`.
fn looked_at(at: Instant, poll: Duration) -> Instant {
    match poll.as_nanos() as u64 {
        0 => at,
        poll => Instant(at.0.div_ceil(poll) * poll),
    }
}
