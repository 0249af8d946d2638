//! Two gateways with a path of half a round trip each way between them, and hosts behind the first that
//! send to hosts behind the second. Time is simulated: packets come at a given rate whatever the machine
//! takes for them. Each gateway has its own pool: the path copies. What a gateway is made of is in
//! `gateway.rs`.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crem_core::time::Instant;
use crem_dataplane::buffer::{BURST, Buffer};
use crem_dataplane::classify::Side;
use crem_dataplane::dpdk::Frame;
use crem_dataplane::snapshot::{FlowSnapshot, SegmentSnapshot};
use crem_dpdk::{Clock, Mempool};

use crate::crew::Crew;
use crate::gateway::Gateway;
use crate::packets::{Hosts, Noise};
use crate::port::{Arriving, Lane};
use crate::seat::{Batch, Seat};
use crate::timing::BATCH;

/// Round-trip time of the path, nanoseconds.
pub const RTT: u64 = 50_000_000;
/// Batches from one copying of the path to the next.
const BATCHES: usize = 16;
/// Where the destination port of UDP over IPv4 stands in a frame, and that of RoCEv2.
const PORT_AT: usize = 36;
const ROCE: [u8; 2] = 4791u16.to_be_bytes();
/// Where an octet of the source address of IPv4 stands by which frames are spread over queues.
const SPREAD_AT: usize = 29;

/// What a world is to be like.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Flows of the hosts.
    pub flows: usize,
    /// Octets of RDMA payload of each packet.
    pub payload: usize,
    /// Packets that a flow sends in a row.
    pub run: usize,
    /// Packets of a block.
    pub k: u8,
    /// Repair symbols of each block; `None`: the gateways are in passthrough.
    pub m: Option<u8>,
    /// Frames lost on the path, of a million.
    pub loss_ppm: u32,
    /// Workers of each gateway.
    pub workers: u16,
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

/// Everything.
pub struct World {
    /// The gateway that codes.
    pub sender: Gateway,
    /// The gateway that restores.
    pub receiver: Gateway,
    /// What the hosts send.
    pub hosts: Hosts,
    setting: Setting,
    crew: Rc<Crew>,
    clock: Clock,
    now: Cell<u64>,
    noise: Noise,
    /// Frames of hosts lost on the path.
    pub lost: u64,
    gap: u64,
}

impl World {
    /// A world at rest, with a pool of frames for each gateway and a thread for each worker.
    ///
    /// # Errors
    /// What does not fit, in words.
    pub fn new(
        setting: Setting,
        pools: [&Mempool; 2],
        clock: Clock,
        crew: Rc<Crew>,
    ) -> Result<Self, String> {
        let mut sender = Gateway::new(0, setting, pools[0])?;
        let mut receiver = Gateway::new(1, setting, pools[1])?;
        receiver
            .lanes(Side::Lan)
            .for_each(|lane| lane.is_sink = true);
        let is_alone = setting.m.is_none();
        sender
            .lanes(Side::Wan)
            .for_each(|lane| lane.is_sink = is_alone);
        let mut world = Self {
            sender,
            receiver,
            hosts: Hosts::new(setting.flows, setting.payload, setting.run),
            setting,
            crew,
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
        let each = self.setting.ring / usize::from(self.setting.workers.max(1));
        for lane in self.sender.lanes(Side::Lan) {
            for _ in 0..each {
                let frame = pools[0].alloc().ok_or("the pool is too small")?;
                lane.fresh.push_back(Frame::from(frame));
            }
        }
        Ok(())
    }

    /// Nanoseconds from a turn to the next.
    pub fn gap(&self) -> u64 {
        self.gap
    }

    /// Time of the world.
    pub fn now(&self) -> Instant {
        Instant(self.now.get())
    }

    /// Sixteen batches of turns of each gateway, with as many packets of the hosts at the beginning of each
    /// as the turns of one worker can take, as when it is behind and its ring is never empty; and the path.
    ///
    /// # Errors
    /// Memory ran out.
    pub fn step(&mut self) -> Result<(), String> {
        let start = self.now.get();
        let length = BATCH as u64 * self.gap;
        let each = BATCH * BURST;
        self.arrive(BATCHES * each, |packet| {
            start + packet / each as u64 * length
        })?;
        let (crew, clock) = (Rc::clone(&self.crew), self.clock);
        crew.run(&mut self.sender.seats, &batches(start, length), clock)?;
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
        let (crew, clock) = (Rc::clone(&self.crew), self.clock);
        crew.run(&mut self.receiver.seats, &batches(start, length), clock)?;
        self.carry_to_sender()
    }

    /// The hosts' next packets, and when each arrives.
    ///
    /// # Errors
    /// Memory ran out.
    pub fn arrive(&mut self, packets: usize, at: impl Fn(u64) -> u64) -> Result<(), String> {
        let mut lanes: Vec<&mut Lane> = self.sender.lanes(Side::Lan).collect();
        for packet in 0..packets as u64 {
            let flow = self.hosts.next_flow();
            let lane = queue(&mut lanes, self.hosts.headers(flow))?;
            let mut frame = lane.empty().ok_or("no frame for a host")?;
            write(&mut frame, self.hosts.len(), |octets| {
                self.hosts.write(flow, octets)
            })?;
            lane.arriving.push_back(Arriving {
                at: at(packet),
                is_source: true,
                frame,
            });
        }
        Ok(())
    }

    /// What was sent arrives in as many portions as there are batches, `length` apart.
    fn carry_to_receiver(&mut self, first: u64, length: u64) -> Result<(), String> {
        let sent = in_order(self.sender.lanes(Side::Wan), first - RTT / 2, length);
        let mut lanes: Vec<&mut Lane> = self.receiver.lanes(Side::Wan).collect();
        let count = sent.len().max(1) as u64;
        for (n, frame) in sent.into_iter().enumerate() {
            let is_source = is_source(frame.octets());
            if self.noise.draw() % 1_000_000 < self.setting.loss_ppm {
                self.lost += u64::from(is_source);
                continue;
            }
            let to = queue(&mut lanes, frame.octets())?;
            let frame = copy(&frame, to)?;
            to.arriving.push_back(Arriving {
                at: first + n as u64 * BATCHES as u64 / count * length,
                is_source,
                frame,
            });
        }
        Ok(())
    }

    fn carry_to_sender(&mut self) -> Result<(), String> {
        let mut lanes: Vec<&mut Lane> = self.sender.lanes(Side::Wan).collect();
        for from in self.receiver.lanes(Side::Wan) {
            for (_, frame) in from.sent.drain(..) {
                let to = queue(&mut lanes, frame.octets())?;
                let frame = copy(&frame, to)?;
                to.arriving.push_back(Arriving {
                    at: self.now.get() + RTT / 2,
                    is_source: false,
                    frame,
                });
            }
        }
        Ok(())
    }

    /// Flows that the first gateway protects, and that the second one restores.
    pub fn protected(&self) -> (usize, usize) {
        let sending = self.sender.flows().into_iter().filter(|flow| match flow {
            FlowSnapshot::Sender(flow) => flow.unprotected.is_none(),
            FlowSnapshot::Receiver(_) | FlowSnapshot::Watched(_) | FlowSnapshot::Datagrams(_) => {
                false
            }
        });
        let restoring = self.receiver.flows().into_iter().filter(|flow| match flow {
            FlowSnapshot::Sender(_) | FlowSnapshot::Watched(_) | FlowSnapshot::Datagrams(_) => {
                false
            }
            FlowSnapshot::Receiver(flow) => flow.config.is_some(),
        });
        (sending.count(), restoring.count())
    }

    /// Why flows are not protected, with how many by each reason.
    pub fn unprotected(&self) -> BTreeMap<&'static str, usize> {
        let mut reasons = BTreeMap::new();
        for flow in self.sender.flows() {
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
        let seats = self.sender.seats.iter_mut().chain(&mut self.receiver.seats);
        seats.for_each(|seat| seat.meter.is_off = !on);
    }

    /// Counters of the workers of both.
    pub fn describe(&mut self) -> [Vec<SegmentSnapshot>; 2] {
        [&mut self.sender, &mut self.receiver].map(|gateway| {
            let describe = |seat: &mut Box<Seat>| {
                let mut snapshot = SegmentSnapshot::default();
                seat.segment.describe(&mut snapshot);
                snapshot
            };
            gateway.seats.iter_mut().map(describe).collect()
        })
    }
}

/// All batches of a step.
fn batches(start: u64, length: u64) -> Vec<Batch> {
    let batch = |batch| Batch {
        first: start + batch * length,
        gap: length / BATCH as u64,
    };
    (0..BATCHES as u64).map(batch).collect()
}

/// What several workers sent in a step, one batch after the other: sources before what may be coded from
/// them. One worker's in the order in which it sent it.
fn in_order<'a>(lanes: impl Iterator<Item = &'a mut Lane>, start: u64, length: u64) -> Vec<Frame> {
    let mut lanes: Vec<&mut Lane> = lanes.collect();
    if let [only] = lanes.as_mut_slice() {
        return only.sent.drain(..).map(|(_, frame)| frame).collect();
    }
    let sent = lanes.iter_mut().flat_map(|lane| lane.sent.drain(..));
    let batch = |at: u64| at.saturating_sub(start) / length.max(1);
    let mut all: Vec<_> = sent
        .map(|(at, frame)| (batch(at), !is_source(frame.octets()), frame))
        .collect();
    all.sort_by_key(|(batch, is_message, _)| (*batch, *is_message));
    all.into_iter().map(|(_, _, frame)| frame).collect()
}

/// The queue that a frame comes in by: all of two hosts by the same one, as adapters are told to.
fn queue<'a>(lanes: &'a mut [&mut Lane], frame: &[u8]) -> Result<&'a mut Lane, String> {
    let spread = frame.get(SPREAD_AT).copied().unwrap_or(0);
    let number = usize::from(spread) % lanes.len().max(1);
    let lane = lanes.get_mut(number).ok_or("no queue")?;
    Ok(lane)
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
