//! Two gateways with a path of half a round trip each way between them, and hosts behind the first that
//! send to hosts behind the second. Time is simulated: packets come at a given rate whatever the machine
//! takes for them. Each gateway has its own pool: the path copies.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use crem_api::{Document, Invalid, Syntax, parse};
use crem_core::time::Instant;
use crem_dataplane::buffer::{BURST, Buffer};
use crem_dataplane::classify::{NEVER_CUT, Side, Station, View};
use crem_dataplane::control_frames::ControlFrames;
use crem_dataplane::dpdk::{Frame, FramePool};
use crem_dataplane::guard::Remake;
use crem_dataplane::inband::Inband;
use crem_dataplane::metering::{Metered, Relaying};
use crem_dataplane::protect::{Protection, Share};
use crem_dataplane::segment::{Parts, Segment};
use crem_dataplane::snapshot::{FlowSnapshot, SegmentSnapshot};
use crem_dpdk::{Clock, Mempool, rdtsc};
use crem_fec::Engine;
use crem_wire::frame::{Mac, ParseConfig};

use crate::packets::{Hosts, Noise};
use crate::port::{Arriving, Lane, Memory, MemoryPort, Shared};
use crate::timing::{BATCH, Meter};

/// Round-trip time of the path, nanoseconds.
pub const RTT: u64 = 50_000_000;
/// Batches from one copying of the path to the next.
const BATCHES: usize = 16;
/// Where the destination port of UDP over IPv4 stands in a frame, and that of RoCEv2.
const PORT_AT: usize = 36;
const ROCE: [u8; 2] = 4791u16.to_be_bytes();
const CREM_PORT: u16 = 4801;

/// What a world is to be like.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Flows of the hosts.
    pub flows: usize,
    /// Octets of RDMA payload of each packet.
    pub payload: usize,
    /// Packets that a flow sends in a row.
    pub run: usize,
    /// Repair symbols of each block of 32 packets; `None`: the gateways are in passthrough.
    pub m: Option<u8>,
    /// Frames lost on the path, of a million.
    pub loss_ppm: u32,
    /// Packets a second.
    pub rate: u64,
    /// Packets that the sender function retains at most, and the receiver function keeps.
    pub retained: u32,
    /// Frames of the hosts in memory.
    pub ring: usize,
    /// Aggregate flows are observed where frames come in from the hosts and leave for the path, and of each
    /// thousand packets one is recorded.
    pub metered: bool,
}

/// One gateway with its devices.
pub struct Gateway {
    /// The product's.
    pub segment: Segment<Memory>,
    /// Its device toward the hosts.
    pub lan: Shared,
    /// Its device toward the path.
    pub wan: Shared,
    /// What its turns took.
    pub meter: Meter,
    /// Takes records, and drops and counts them: no exporting process listens.
    relaying: Option<Relaying>,
}

/// Everything.
pub struct World {
    /// The gateway that codes.
    pub sender: Gateway,
    /// The gateway that restores.
    pub receiver: Gateway,
    /// What the hosts send.
    pub hosts: Hosts,
    setting: Setting,
    clock: Clock,
    now: Cell<u64>,
    noise: Noise,
    /// Frames of hosts lost on the path.
    pub lost: u64,
    gap: u64,
}

impl World {
    /// A world at rest, with a pool of frames for each gateway.
    ///
    /// # Errors
    /// What does not fit, in words.
    pub fn new(setting: Setting, pools: [&Mempool; 2], clock: Clock) -> Result<Self, String> {
        let sender = gateway(0, setting, pools[0])?;
        let receiver = gateway(1, setting, pools[1])?;
        receiver.lan.borrow_mut().is_sink = true;
        sender.wan.borrow_mut().is_sink = setting.m.is_none();
        let mut world = Self {
            sender,
            receiver,
            hosts: Hosts::new(setting.flows, setting.payload, setting.run),
            setting,
            clock,
            now: Cell::new(1_000_000_000),
            noise: Noise::new(77),
            lost: 0,
            gap: BURST as u64 * 1_000_000_000 / setting.rate,
        };
        world.fill(pools)?;
        Ok(world)
    }

    /// Puts the frames of both pools into any order, and takes those of the hosts.
    fn fill(&mut self, pools: [&Mempool; 2]) -> Result<(), String> {
        for pool in pools {
            let mut all: Vec<Frame> = Vec::with_capacity(pool.count() as usize);
            all.extend(core::iter::from_fn(|| pool.alloc().map(Frame::from)));
            self.noise.shuffle(&mut all);
        }
        let mut lan = self.sender.lan.borrow_mut();
        for _ in 0..self.setting.ring {
            let frame = pools[0].alloc().ok_or("the pool is too small")?;
            lan.fresh.push_back(Frame::from(frame));
        }
        Ok(())
    }

    /// Time of the world.
    pub fn now(&self) -> Instant {
        Instant(self.now.get())
    }

    /// Sixteen batches of turns of each gateway, with as many packets of the hosts at the beginning of each
    /// as its turns can take, as when a worker is behind and its ring is never empty; and the path.
    ///
    /// # Errors
    /// Memory ran out.
    pub fn step(&mut self) -> Result<(), String> {
        let start = self.now.get();
        let length = BATCH as u64 * self.gap;
        self.arrive(BATCHES * BATCH * BURST, |packet| {
            start + packet / (BATCH * BURST) as u64 * length
        })?;
        for batch in 0..BATCHES as u64 {
            let first = start + batch * length;
            run_batch(&mut self.sender, first, self.gap, &self.clock);
        }
        self.finish(start, start + BATCHES as u64 * length)
    }

    /// Lets the rest of the world do what belongs to the time from `start` to `end`.
    ///
    /// # Errors
    /// Memory ran out.
    pub fn finish(&mut self, start: u64, end: u64) -> Result<(), String> {
        self.now.set(end);
        for gateway in [&mut self.sender, &mut self.receiver] {
            if let Some(relaying) = &mut gateway.relaying {
                relaying.relay.drive(std::time::Instant::now(), 0);
            }
        }
        if self.setting.m.is_none() {
            return Ok(());
        }
        let length = (end - start) / BATCHES as u64;
        self.carry_to_receiver(start + RTT / 2, length)?;
        for batch in 0..BATCHES as u64 {
            let (first, gap) = (start + batch * length, length / BATCH as u64);
            run_batch(&mut self.receiver, first, gap, &self.clock);
        }
        self.carry_to_sender()
    }

    /// The hosts' next packets, and when each arrives.
    ///
    /// # Errors
    /// Memory ran out.
    pub fn arrive(&mut self, packets: usize, at: impl Fn(u64) -> u64) -> Result<(), String> {
        let lan = &mut *self.sender.lan.borrow_mut();
        for packet in 0..packets as u64 {
            let mut frame = lan.empty().ok_or("no frame for a host")?;
            write(&mut frame, self.hosts.len(), |octets| {
                self.hosts.write(octets)
            })?;
            lan.arriving.push_back(Arriving {
                at: at(packet),
                is_source: true,
                frame,
            });
        }
        Ok(())
    }

    /// What was sent arrives in as many portions as there are batches, `length` apart.
    fn carry_to_receiver(&mut self, first: u64, length: u64) -> Result<(), String> {
        let (mut from, mut to) = (self.sender.wan.borrow_mut(), self.receiver.wan.borrow_mut());
        let (from, to) = (&mut *from, &mut *to);
        let count = from.sent.len().max(1) as u64;
        for (n, frame) in from.sent.drain(..).enumerate() {
            let is_source = is_source(frame.octets());
            if self.noise.draw() % 1_000_000 < self.setting.loss_ppm {
                self.lost += u64::from(is_source);
            } else {
                let copy = copy(&frame, to)?;
                to.arriving.push_back(Arriving {
                    at: first + n as u64 * BATCHES as u64 / count * length,
                    is_source,
                    frame: copy,
                });
            }
        }
        Ok(())
    }

    fn carry_to_sender(&mut self) -> Result<(), String> {
        let (mut from, mut to) = (self.receiver.wan.borrow_mut(), self.sender.wan.borrow_mut());
        let (from, to) = (&mut *from, &mut *to);
        for frame in from.sent.drain(..) {
            let copy = copy(&frame, to)?;
            to.arriving.push_back(Arriving {
                at: self.now.get() + RTT / 2,
                is_source: false,
                frame: copy,
            });
        }
        Ok(())
    }

    /// Flows that the first gateway protects, and that the second one restores.
    pub fn protected(&self) -> (usize, usize) {
        let mut flows = Vec::new();
        self.sender.segment.list_flows(0, &mut flows);
        let sending = flows.iter().filter(|(_, flow)| match flow {
            FlowSnapshot::Sender(flow) => flow.unprotected.is_none(),
            FlowSnapshot::Receiver(_) | FlowSnapshot::Watched(_) | FlowSnapshot::Datagrams(_) => {
                false
            }
        });
        let sending = sending.count();
        flows.clear();
        self.receiver.segment.list_flows(0, &mut flows);
        let restoring = flows.iter().filter(|(_, flow)| match flow {
            FlowSnapshot::Sender(_) | FlowSnapshot::Watched(_) | FlowSnapshot::Datagrams(_) => {
                false
            }
            FlowSnapshot::Receiver(flow) => flow.config.is_some(),
        });
        (sending, restoring.count())
    }

    /// Why flows are not protected, with how many by each reason.
    pub fn unprotected(&self) -> BTreeMap<&'static str, usize> {
        let mut flows = Vec::new();
        self.sender.segment.list_flows(0, &mut flows);
        let mut reasons = BTreeMap::new();
        for (_, flow) in flows {
            if let FlowSnapshot::Sender(flow) = flow
                && let Some(reason) = flow.unprotected
            {
                *reasons.entry(reason.name()).or_default() += 1;
            }
        }
        reasons
    }

    /// Turns the meters on or off.
    pub fn measure(&mut self, on: bool) {
        self.sender.meter.is_off = !on;
        self.receiver.meter.is_off = !on;
    }

    /// Counters of both.
    pub fn describe(&mut self) -> [SegmentSnapshot; 2] {
        let mut both = [SegmentSnapshot::default(), SegmentSnapshot::default()];
        self.sender.segment.describe(&mut both[0]);
        self.receiver.segment.describe(&mut both[1]);
        both
    }
}

/// The turns of a batch, `gap` nanoseconds of simulated time apart. A turn with a full burst is followed
/// by another one at once while more is there.
fn run_batch(gateway: &mut Gateway, first: u64, gap: u64, clock: &Clock) {
    let taken =
        |gateway: &Gateway| gateway.lan.borrow().sources_taken + gateway.wan.borrow().sources_taken;
    let before = taken(gateway);
    let begun = gateway.meter.begin();
    let mut last = (rdtsc(), before);
    for turn in 0..BATCH as u64 {
        let now = first + turn * gap;
        gateway.lan.borrow_mut().now = now;
        gateway.wan.borrow_mut().now = now;
        loop {
            let probed = gateway.meter.probe.map_or(0, |probe| probe());
            gateway.segment.turn(&|| {
                // What the worker's clock costs, though the world's time is another.
                core::hint::black_box(clock.now_ns());
                Instant(now)
            });
            let (tsc, taken) = (rdtsc(), taken(gateway));
            gateway.meter.turn(tsc - last.0, taken - last.1);
            gateway.meter.probed += gateway.meter.probe.map_or(0, |probe| probe() - probed);
            gateway.wan.borrow_mut().note_sent();
            last = (rdtsc(), taken);
            if !gateway.lan.borrow().is_due() && !gateway.wan.borrow().is_due() {
                break;
            }
        }
    }
    gateway.meter.end(&begun, last.1 - before);
}

/// Whether a frame is a packet of a host.
pub fn is_source(frame: &[u8]) -> bool {
    frame.get(PORT_AT..PORT_AT + 2) == Some(&ROCE)
}

/// Gives a frame of the device a length and content.
fn write(frame: &mut Frame, len: u16, content: impl FnOnce(&mut [u8])) -> Result<(), String> {
    let octets = frame
        .append(len)
        .ok_or("a frame is too long for its buffer")?;
    content(octets);
    Ok(())
}

fn copy(from: &Frame, to: &mut Lane) -> Result<Frame, String> {
    let octets = from.octets();
    let mut copy = to.empty().ok_or("no frame for the path")?;
    let len = u16::try_from(octets.len()).map_err(|e| e.to_string())?;
    write(&mut copy, len, |to| to.copy_from_slice(octets))?;
    Ok(copy)
}

fn gateway(number: usize, setting: Setting, pool: &Mempool) -> Result<Gateway, String> {
    let document = document(number, setting)?;
    let config = document.segments.values().next().cloned();
    let config = config.ok_or("no segment")?;
    let station = Station {
        address: address(number),
        mac: mac(number),
        vlan: None,
    };
    let view = View {
        parse: ParseConfig {
            crem_port: Some(CREM_PORT),
            vxlan_port: None,
        },
        served: config.served.keys().copied().collect(),
        own: Some(station),
        active: setting.m.is_some(),
        responses: false,
        learn: false,
        verify_sources: false,
        control: ControlFrames::default(),
        networks: Vec::new(),
        watched: false,
        cut_from: [NEVER_CUT; 2],
    };
    let kernel = MemoryPort(Lane::new(pool, true));
    let mut inband = Inband::new(station, kernel, Side::Wan, Instant(0));
    inband.set_next_hop(address(1 - number), Some(mac(1 - number)));
    let (seen, mode) = (view.clone(), config.mode);
    let remake: Remake<Memory> = Box::new(move || {
        let seed = [number as u8 + 1; 32];
        let engine = Engine::detect();
        let share = Share::ALONE;
        Some(Protection::new(
            &config,
            station.address,
            &seen,
            engine,
            seed,
            share,
        ))
    });
    let (lan, wan) = (Lane::new(pool, false), Lane::new(pool, false));
    let mut segment = Segment::new(Parts {
        view,
        lan: MemoryPort(lan.clone()),
        wan: MemoryPort(wan.clone()),
        pool: FramePool(pool.clone()),
        inband: Some(inband),
        mode,
        wan_rate: None,
        remake: setting.m.is_some().then_some(remake),
    });
    let relaying = setting
        .metered
        .then(|| observe(&document, &mut segment))
        .transpose()
        .map_err(|e| e.to_string())?;
    Ok(Gateway {
        segment,
        lan,
        wan,
        meter: Meter::default(),
        relaying,
    })
}

/// Has the segment observe what the document says.
fn observe(document: &Document, segment: &mut Segment<Memory>) -> Result<Relaying, Invalid> {
    let (mut metered, inlets) = Metered::new(document, 0);
    let wanted = metered.plan(document)?;
    for mut change in metered.changes(&wanted, 0)? {
        segment.observe(Instant(1_000_000_000), &mut change);
    }
    metered.adopt(wanted);
    Ok(metered.relaying(Path::new("/nonexistent/export.sock"), inlets))
}

fn address(gateway: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, gateway as u8 + 1))
}

fn mac(gateway: usize) -> Mac {
    Mac([2, 0, 0, 0, 0, 0x10 + gateway as u8])
}

/// What is observed, and a collector, without which nothing would be.
const METERED: &str = r#"
        [ipfix]
        domain = 1
        pen = 32473
        first_element = 1
        [ipfix.scopes.all]
        source = "10.0.0.0/16"
        destination = "10.0.0.0/16"
        [ipfix.points.in]
        segment = "a"
        place = "lan_ingress"
        base = 100
        flows = true
        packets = { select = "count", interval = 1, space = 999, selection_sequence = 1 }
        [ipfix.points.out]
        segment = "a"
        place = "wan_egress"
        base = 200
        flows = true
        [ipfix.collectors.a]
        transport = "tcp"
        host = "192.0.2.99"
"#;

fn document(gateway: usize, setting: Setting) -> Result<Document, String> {
    let m = setting.m.unwrap_or(0);
    let (path, rdma) = if setting.payload > 1024 {
        (4214, 4096)
    } else {
        (1500, 1024)
    };
    let mode = if setting.m.is_some() {
        "active"
    } else {
        "passthrough"
    };
    let text = format!(
        r#"
        version = 1
        [segments.a]
        mode = "{mode}"
        crem_port = {CREM_PORT}
        path_mtu = {path}
        rdma_mtu = {rdma}
        lan = {{ vdev = "lan" }}
        wan = {{ vdev = "wan" }}
        served = {{ "10.0.{}.0/24" = {{}} }}
        peers = {{ "10.0.{}.0/24" = {{ address = "{}" }} }}
        inband = {{ address = "{}/24" }}
        policy = {{ k = 32, adapt_k = false, m_min = {m}, m_max = {m}, m_cong = {m} }}
        limits = {{ flows = {}, retained_frames = {}, held_frames = {}, open_blocks = 16384,
                    hello_per_s = 100000, hello_outstanding = 10000,
                    report_budget = 2000000 }}
        "#,
        gateway + 1,
        2 - gateway,
        address(1 - gateway),
        address(gateway),
        setting.flows.max(64) * 2,
        setting.retained,
        // The receiver keeps the last block of each flow, and refuses flows beyond that.
        setting.retained.max(setting.flows as u32 * 32),
    );
    let metered = if setting.metered { METERED } else { "" };
    parse(&(text + metered), Syntax::Toml).map_err(|e| e.to_string())
}
