//! A world from a scenario.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use crem_core::packet::{Namespace, PsnSpace, StreamKey};
use crem_core::timer::Timers;
use crem_wire::Qpn;

use super::{BEGIN, Place, Side, Stream, Wire, World};
use crate::check::Violations;
use crate::check::delivery::DeliveryCheck;
use crate::check::ledger::Ledger;
use crate::coder::Coder;
use crate::coverage::Coverage;
use crate::endpoint::Endpoint;
use crate::endpoint::rc::ResponderConfig;
use crate::endpoint::rc_end::{RequesterEnd, ResponderEnd};
use crate::event::InFlight;
use crate::net::path::{Path, PathConfig};
use crate::packet::Conn;
use crate::rng::{Rng, mix};
use crate::scenario::{Connection, Forger, Scenario};
use crate::{Duration, Instant};

/// The requester's QP number is the responder's plus this.
pub(super) const REQUESTER_QP: u32 = 1 << 20;

/// The address of a host.
fn host(ipv6: bool, side: usize, host: u8) -> IpAddr {
    let side = side as u8 + 1;
    match ipv6 {
        false => IpAddr::from([10, 0, side, host + 1]),
        true => {
            let (side, host) = (u16::from(side), u16::from(host) + 1);
            IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, side, 0, 0, 0, host))
        }
    }
}

/// Keys of the streams of requests and of responses.
fn keys(scenario: &Scenario, connection: &Connection) -> [StreamKey; 2] {
    let (from, to) = (connection.side, 1 - connection.side);
    let address = |side: usize| host(scenario.ipv6, side, connection.hosts[side]);
    let requests = StreamKey {
        namespace: Namespace(connection.namespace),
        source: address(from),
        destination: address(to),
        qp: Qpn::new(connection.qp),
        space: PsnSpace::Requests,
    };
    let responses = StreamKey {
        namespace: requests.namespace,
        source: requests.destination,
        destination: requests.source,
        qp: Qpn::new(connection.qp + REQUESTER_QP),
        space: PsnSpace::Responses,
    };
    [requests, responses]
}

struct Builder {
    flight: InFlight<super::Item>,
    lanes: Vec<Place>,
    rng: Rng,
}

impl Builder {
    fn wire(&mut self, config: &PathConfig, to: Place) -> Wire {
        let lane = self.flight.add_lane();
        self.lanes.push(to);
        Wire {
            path: Path::new(config.clone()),
            lane,
            rng: self.rng.fork(u64::from(lane.0)),
        }
    }

    fn side(&mut self, scenario: &Scenario, side: usize, streams: usize, rtt: Duration) -> Side {
        let far = 1 - side;
        let hosts = scenario.hosts[side];
        let channel = scenario.channel.as_ref().map(|channel| &channel[side]);
        let bypass = scenario.bypass.as_ref().map(|bypass| &bypass[side]);
        Side {
            gateway: World::make_gateway(scenario, side, 0),
            up_at: Instant(0),
            lives: 0,
            wan: self.wire(&scenario.wan[side], Place::Wan(far)),
            channel: channel.map(|config| self.wire(config, Place::Wan(far))),
            bypass: bypass.map(|config| self.wire(config, Place::Hosts)),
            from_host: (0..hosts)
                .map(|_| self.wire(&scenario.lan, Place::Lan(side)))
                .collect(),
            to_host: (0..hosts)
                .map(|_| self.wire(&scenario.lan, Place::Hosts))
                .collect(),
            ledger: Ledger::new(streams, rtt, scenario.path_mtu),
            delivery: DeliveryCheck::new(scenario.holds(side), streams),
            arrivals: 0,
            muted: Vec::new(),
            tampering: crate::scenario::Tampering::default(),
            quiet_until: Instant(0),
            reports: 0,
            overheard: Vec::new(),
            hello: Vec::new(),
            hellos: Vec::new(),
            repair: None,
            drops: Vec::new(),
        }
    }
}

/// The shortest time that a message and its answer take. An answer forged with the right nonce comes at
/// any time: what a gateway believes of its round trip then has no lower bound.
fn round_trip(scenario: &Scenario) -> Duration {
    if scenario.forger == Forger::Crafty {
        return Duration::ZERO;
    }
    let paths = scenario.channel.as_ref().unwrap_or(&scenario.wan);
    let later = scenario.steps.iter().filter_map(|(_, step)| match step {
        crate::scenario::Step::Path(side, path) => Some((*side, path.delay)),
        _ => None,
    });
    let mut shortest = [paths[0].delay, paths[1].delay];
    for (side, delay) in later {
        shortest[side] = shortest[side].min(delay);
    }
    shortest[0] + shortest[1]
}

fn ends(scenario: &Scenario) -> Vec<Box<dyn Endpoint>> {
    let mut all: Vec<Box<dyn Endpoint>> = Vec::new();
    for (number, connection) in scenario.connections.iter().enumerate() {
        let conn = Conn(number as u32);
        let mut workload = connection.workload;
        workload.start = BEGIN + workload.start.since(Instant(0));
        let seed = mix(scenario.seed ^ mix(number as u64));
        let responder = ResponderConfig::facing(&connection.transport);
        let requester = RequesterEnd::new(conn, connection.transport, workload, seed);
        all.push(Box::new(requester));
        all.push(Box::new(ResponderEnd::new(conn, responder)));
    }
    all
}

impl World {
    /// The world of a scenario, before anything happened.
    pub(super) fn new(scenario: Scenario) -> Self {
        let mut rng = Rng::new(scenario.seed);
        let mut builder = Builder {
            flight: InFlight::new(),
            lanes: Vec::new(),
            rng: rng.fork(1),
        };
        let count = scenario.connections.len() * 2;
        let rtt = round_trip(&scenario);
        let sides = [0, 1].map(|side| builder.side(&scenario, side, count, rtt));
        let endpoints = ends(&scenario);
        let mut timers = Timers::with_capacity(endpoints.len());
        for (slot, endpoint) in endpoints.iter().enumerate() {
            if let Some(at) = endpoint.next_timer() {
                timers.set(slot as u32, at);
            }
        }
        let mut streams = Vec::with_capacity(count);
        let mut by_descriptor = HashMap::new();
        for connection in &scenario.connections {
            for key in keys(&scenario, connection) {
                let descriptor = (key.source, key.destination, key.qp.get(), key.space);
                let account = *by_descriptor.entry(descriptor).or_insert(streams.len());
                streams.push(Stream { key, account });
            }
        }
        let next_hostile = (scenario.hostile > 0.0).then_some(BEGIN);
        Self {
            now: BEGIN,
            sides,
            lanes: builder.lanes,
            flight: builder.flight,
            done: vec![false; endpoints.len()],
            failed: vec![false; endpoints.len()],
            pending: endpoints.len() / 2,
            unplugged: vec![false; endpoints.len() / 2],
            quiet: false,
            endpoints,
            timers,
            newest: vec![0; streams.len()],
            streams,
            by_descriptor,
            coder: Coder::new(scenario.mode),
            output: crate::endpoint::Output::default(),
            burst: Vec::new(),
            plain: std::collections::VecDeque::new(),
            descs: Vec::new(),
            scratch: Vec::new(),
            serial: 0,
            spread: 0,
            digest: scenario.seed,
            step: 0,
            next_hostile,
            violations: Violations::default(),
            coverage: Coverage::default(),
            sums: super::outcome::Sums::default(),
            state: super::State::default(),
            rng,
            scenario,
        }
    }
}
