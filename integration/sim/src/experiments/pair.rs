//! The world of an experiment: senders behind gateway A, a path, receivers behind gateway B, and the way
//! back. One step takes everything that came up within a poll interval.

use std::net::{IpAddr, SocketAddr};

use crem_core::actions::{Actions, DecodeJob, Decoded, Outcome, SlotId};
use crem_core::config::{CoreConfig, Prefix};
use crem_core::crf::{Crf, CrfCounters, Payload, Same};
use crem_core::csf::{Csf, CsfCounters};
use crem_core::packet::Desc;
use crem_wire::crem::Message;
use crem_wire::{Bitmap, Psn};

use super::flow::{Flow, Frame};
use super::station::{self, Station};
use super::wire::{Forward, Item, Port, Tally, Transit};
use crate::endpoint::rc::Packet;
use crate::net::path::{Path, PathConfig};
use crate::rng::Rng;
use crate::{Duration, Instant};

/// Symbol slots of the sender's data plane.
const SLOTS: u32 = 65_536;

fn gateway_a() -> SocketAddr {
    SocketAddr::new(IpAddr::from([192, 0, 2, 1]), 50_000)
}

fn gateway_b() -> SocketAddr {
    SocketAddr::new(IpAddr::from([192, 0, 2, 2]), 50_000)
}

/// What stands between the hosts and the path.
#[derive(Clone, PartialEq, Debug)]
pub enum Protection {
    /// Nothing.
    Bare,
    /// A pair of gateways with this configuration.
    Crem(Box<CoreConfig>),
}

/// Everything about the world but its flows.
#[derive(Clone, PartialEq, Debug)]
pub struct PairConfig {
    /// Gateways.
    pub protection: Protection,
    /// The direction of the data.
    pub path: PathConfig,
    /// Delay of the way back.
    pub back: Duration,
    /// Loss of acknowledgments on the way back.
    pub back_ack_loss: f64,
    /// Loss of CREM messages on the way back.
    pub back_control_loss: f64,
    /// Rate of the gateway's WAN port, bit/s.
    pub port_rate: f64,
    /// The data plane polls this often.
    pub poll: Duration,
    /// The queue reports what it drops to the sender function.
    pub path_reports: bool,
    /// Sources are ECN capable.
    pub ect: bool,
    /// Determines everything random.
    pub seed: u64,
}

impl PairConfig {
    /// A clean path of this RTT, the port at this rate.
    pub fn new(protection: Protection, rtt: Duration, port_rate: f64, seed: u64) -> Self {
        Self {
            protection,
            path: PathConfig::clean(rtt / 2),
            back: rtt / 2,
            back_ack_loss: 0.0,
            back_control_loss: 0.0,
            port_rate,
            poll: Duration::from_micros(5),
            path_reports: false,
            ect: true,
            seed,
        }
    }
}

/// A core configuration with memory for these rates: what a box for them would be given.
pub fn roomy() -> CoreConfig {
    let mut cfg = CoreConfig::new(50_000);
    cfg.allowed_peers = vec![
        Prefix::host(gateway_a().ip()),
        Prefix::host(gateway_b().ip()),
    ];
    cfg.reporters = vec![Prefix::host(station::address().ip())];
    cfg.path_mtu = 9_000;
    cfg.fec.rdma_mtu = 4096;
    cfg.csf.retain_octets = 64 << 30;
    cfg.csf.retain_packets = 8 << 20;
    cfg.csf.retain_packets_per_flow = 8 << 20;
    cfg.crf.max_open_blocks = 16_384;
    cfg.crf.hold_packets = 1 << 20;
    cfg.crf.hold_octets = 8 << 30;
    cfg.crf.keep_packets = 4 << 20;
    cfg.crf.keep_octets = 32 << 30;
    cfg
}

fn same(a: &Payload<'_, Frame>, b: &Payload<'_, Frame>) -> bool {
    a.buf.packet.content == b.buf.packet.content && a.len == b.len
}

enum Back {
    Answer { flow: u16, packet: Packet },
    Control(Box<Message>),
    Report(Box<Message>),
}

/// The world.
pub struct Pair {
    now: Instant,
    config: PairConfig,
    protected: bool,
    /// Sender function.
    pub csf: Csf<Frame>,
    /// Receiver function.
    pub crf: Crf<Frame>,
    out_a: Actions<Frame>,
    out_b: Actions<Frame>,
    /// The flows.
    pub flows: Vec<Flow>,
    forward: Forward,
    back: Transit<Back>,
    burst: Vec<Desc<Frame>>,
    rng: Rng,
}

impl Pair {
    /// The world of `config` with these flows.
    pub fn new(config: PairConfig, flows: Vec<Flow>) -> Self {
        let (protected, core) = match &config.protection {
            Protection::Bare => (false, roomy()),
            Protection::Crem(core) => (true, (**core).clone()),
        };
        let mut rng = Rng::new(config.seed);
        let seed = |n: u8| [n ^ config.seed as u8; 32];
        let mut crf = Crf::new(core.clone(), seed(2));
        crf.compare_with(Same(same));
        let patience = (config.path.delay + config.back) / 2;
        Self {
            now: Instant(1_000_000_000),
            protected,
            csf: Csf::new(core, seed(1)),
            crf,
            out_a: Actions {
                free_slots: (0..SLOTS).map(SlotId).collect(),
                ..Actions::default()
            },
            out_b: Actions::default(),
            flows,
            forward: Forward {
                port: Port::new(config.port_rate, patience, SLOTS as usize),
                path: Path::new(config.path.clone()),
                transit: Transit::default(),
                tally: Tally::default(),
                rng: rng.fork(1),
                station: config.path_reports.then(Station::new),
            },
            back: Transit::default(),
            burst: Vec::with_capacity(256),
            rng,
            config,
        }
    }

    /// The time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The path toward the receivers.
    pub fn path(&mut self) -> &mut Path {
        &mut self.forward.path
    }

    /// What went toward the WAN so far.
    pub fn tally(&self) -> Tally {
        self.forward.tally
    }

    /// What the functions counted.
    pub fn counters(&self) -> (CsfCounters, CrfCounters) {
        (self.csf.counters(), self.crf.counters())
    }

    /// Runs until `until`, or until nothing is left to happen.
    pub fn run_until(&mut self, until: Instant) {
        while let Some(next) = self.next_event().filter(|at| *at <= until) {
            self.step(next);
        }
        self.now = self.now.max(until);
    }

    /// Runs while `more` says so and something is left to happen.
    pub fn run_while(&mut self, more: impl Fn(&Self) -> bool) {
        while more(self)
            && let Some(next) = self.next_event()
        {
            self.step(next);
        }
    }

    /// Whether every flow that still sends is protected.
    pub fn all_protected(&self) -> bool {
        let protected = self.csf.flows().filter(|f| f.unprotected.is_none()).count();
        !self.protected || protected >= self.flows.len()
    }

    fn next_event(&self) -> Option<Instant> {
        let flows = self.flows.iter().filter_map(Flow::next_event).min();
        let core = if self.protected {
            [self.csf.next_timeout(), self.crf.next_timeout()]
        } else {
            [None; 2]
        };
        let wire = [
            self.forward.transit.next(),
            self.back.next(),
            self.forward.port.next(),
            flows,
            self.forward.station.as_ref().and_then(Station::next),
        ];
        core.into_iter().chain(wire).flatten().min()
    }

    /// Everything that comes up within one poll interval.
    fn step(&mut self, next: Instant) {
        self.now = next.max(self.now + self.config.poll);
        self.arrivals_b();
        self.arrivals_a();
        self.timers();
        self.forward.pump(self.now);
        self.send();
        self.forward.pump(self.now);
        self.reports();
    }

    /// The node with the queue is as far from the senders as the queue: at the path's entry.
    fn reports(&mut self) {
        if let Some(station) = &mut self.forward.station {
            while let Some(message) = station.poll(self.now) {
                self.back.push(
                    self.now + self.config.back / 4,
                    Back::Report(Box::new(message)),
                );
            }
        }
    }

    // ---- gateway A and the senders

    fn arrivals_a(&mut self) {
        let mut messages = false;
        while let Some(item) = self.back.pop_due(self.now) {
            match item {
                Back::Answer { flow, packet } => {
                    if let Some(flow) = self.flows.get_mut(usize::from(flow)) {
                        flow.on_answer(self.now, &packet);
                    }
                }
                Back::Control(message) => {
                    let (now, out) = (self.now, &mut self.out_a);
                    self.csf.on_message(now, gateway_b(), &message, false, out);
                    messages = true;
                }
                Back::Report(message) => {
                    let (now, out) = (self.now, &mut self.out_a);
                    let from = station::address();
                    self.csf.on_message(now, from, &message, false, out);
                    messages = true;
                }
            }
        }
        if messages {
            self.drain_a();
        }
    }

    fn send(&mut self) {
        for number in 0..self.flows.len() {
            let flow = &mut self.flows[number];
            flow.on_time(self.now);
            let mut burst = std::mem::take(&mut self.burst);
            while let Some(packet) = flow.send(self.now) {
                self.forward
                    .source(self.now, number as u16, packet, self.config.ect);
                if self.protected {
                    let flow_number = number as u16;
                    burst.push(flow.desc(Frame {
                        packet,
                        ce: false,
                        flow: flow_number,
                    }));
                }
            }
            if !burst.is_empty() {
                self.csf.on_burst(self.now, &burst, &mut self.out_a);
                burst.clear();
                self.drain_a();
            }
            self.burst = burst;
        }
    }

    fn drain_a(&mut self) {
        for emit in &self.out_a.emit {
            self.forward.repair(emit);
            self.out_a.free_slots.extend(emit.slot);
        }
        self.out_a.clear();
        while let Some(transmit) = self.csf.poll_transmit() {
            self.forward.control(self.now, transmit.message);
        }
    }

    fn timers(&mut self) {
        if !self.protected {
            return;
        }
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= self.now);
        let (a, b) = (due(self.csf.next_timeout()), due(self.crf.next_timeout()));
        if a {
            self.csf.on_timeout(self.now, &mut self.out_a);
            self.drain_a();
        }
        if b {
            self.crf.on_timeout(self.now, &mut self.out_b);
            self.drain_b();
        }
    }

    // ---- gateway B and the receivers

    fn arrivals_b(&mut self) {
        while let Some(item) = self.forward.transit.pop_due(self.now) {
            match item {
                Item::Source { flow, packet, ce } => {
                    let frame = Frame { packet, ce, flow };
                    let Some(flow) = self.flows.get_mut(usize::from(flow)) else {
                        continue;
                    };
                    if self.protected {
                        self.burst.push(flow.desc(frame));
                    } else {
                        flow.receive(self.now, &frame);
                    }
                }
                Item::Repair { header, ce } => {
                    self.sources_b();
                    let symbol = (!header.info).then(|| (self.symbol(), 0));
                    let (now, out) = (self.now, &mut self.out_b);
                    self.crf
                        .on_repair(now, gateway_a(), &header, symbol, ce, out);
                    self.decode();
                }
                Item::Control(message) => {
                    self.sources_b();
                    let (now, out) = (self.now, &mut self.out_b);
                    self.crf
                        .on_message(now, gateway_a(), &message, &|_| true, out);
                }
            }
        }
        self.sources_b();
        self.drain_b();
    }

    fn symbol(&self) -> Frame {
        Frame {
            packet: self.flows[0].sent(Psn::new(0)),
            ce: false,
            flow: 0,
        }
    }

    fn sources_b(&mut self) {
        if !self.burst.is_empty() {
            self.crf.on_burst(self.now, &self.burst, &mut self.out_b);
            self.burst.clear();
            self.decode();
        }
    }

    /// A decode finds what the core says is determined: without octets there is nothing to compute.
    fn decode(&mut self) {
        let mut at = 0;
        while let Some(job) = self.out_b.decode.get(at).cloned() {
            at += 1;
            let mut decoded = self.decoded(&job);
            self.crf.on_decoded(self.now, &mut decoded, &mut self.out_b);
        }
        self.out_b.decode.clear();
    }

    fn decoded(&self, job: &DecodeJob) -> Decoded<Frame> {
        let unknowns = job.unknowns.start as usize..job.unknowns.end as usize;
        let number = job.stream.qp.get() as u16 - 1;
        let flow = &self.flows[usize::from(number)];
        let outcomes = self.out_b.unknowns[unknowns].iter().map(|unknown| {
            let packet = flow.sent(unknown.psn);
            let restored = Outcome::Restored {
                buf: Frame {
                    packet,
                    ce: false,
                    flow: number,
                },
                payload_off: 42,
                payload_len: packet.udp_payload(),
            };
            (unknown.position, restored)
        });
        Decoded {
            id: job.id,
            outcomes: outcomes.collect(),
            corrupt_sources: Bitmap::EMPTY,
        }
    }

    fn drain_b(&mut self) {
        if self.protected {
            self.decode();
            let mut deliver = std::mem::take(&mut self.out_b.deliver);
            for (_, frame) in deliver.drain(..) {
                if let Some(flow) = self.flows.get_mut(usize::from(frame.flow)) {
                    flow.receive(self.now, &frame);
                }
            }
            self.out_b.deliver = deliver;
            self.out_b.clear();
            while let Some(transmit) = self.crf.poll_transmit() {
                if !self.rng.chance(self.config.back_control_loss) {
                    let at = self.now + self.config.back;
                    let message = Back::Control(Box::new(transmit.message));
                    self.back.push(at, message);
                }
            }
        }
        for number in 0..self.flows.len() {
            while let Some(packet) = self.flows[number].answer(self.now) {
                if !self.rng.chance(self.config.back_ack_loss) {
                    let flow = number as u16;
                    let answer = Back::Answer { flow, packet };
                    self.back.push(self.now + self.config.back, answer);
                }
            }
        }
    }
}
