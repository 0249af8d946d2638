//! Aggregate flows (section 4.3 of the BTH draft): one cache per Observation Point (AMB-BTH-OPID), its
//! size fixed at construction. A flow is exported when it is active for too long, idle, or given up for
//! another one.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::key::Words;
use crate::point::{Direction, Place, Point};
use crate::scope::Observation;
use crate::wheel::Wheel;
use crate::{Sink, Utc};

/// Why a flow record was made (flowEndReason is not in the draft's template; this is for counters).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// No packet for the idle timeout.
    Idle,
    /// Active for the active timeout; the flow goes on.
    Active,
    /// Given up for another flow: the cache is full.
    Evicted,
    /// The cache is being emptied.
    Flushed,
}

/// The Flow Keys of an aggregate flow. protocolIdentifier is always 17, flowDirection that of the point.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FlowKey {
    /// Source address.
    pub source: IpAddr,
    /// Destination address, of the same family.
    pub destination: IpAddr,
    /// UDP source port.
    pub source_port: u16,
    /// UDP destination port.
    pub destination_port: u16,
    /// rocev2BthPartitionKey.
    pub pkey: u16,
    /// rocev2BthDestinationQp.
    pub qp: crem_wire::Qpn,
    /// rocev2BthOpcode, where it is a key.
    pub opcode: Option<u8>,
}

impl FlowKey {
    /// That of a packet's flow.
    fn of(packet: &Observation, opcode_key: bool) -> Self {
        Self {
            source: packet.source,
            destination: packet.destination,
            source_port: packet.source_port,
            destination_port: packet.destination_port,
            pkey: packet.bth.pkey,
            qp: packet.bth.dest_qp,
            opcode: opcode_key.then_some(packet.bth.opcode.0),
        }
    }
}

/// What was seen of a flow between two times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowRecord {
    /// observationPointId.
    pub point: u64,
    /// flowDirection.
    pub direction: Direction,
    /// The Flow Keys.
    pub key: FlowKey,
    /// Time of the first packet.
    pub start: Utc,
    /// Time of the last packet.
    pub end: Utc,
    /// packetDeltaCount, or postPacketDeltaCount behind repair.
    pub packets: u64,
    /// octetDeltaCount, or postOctetDeltaCount: IP octets, headers included (AMB-BTH-OCTETS).
    pub octets: u64,
}

/// Bounds and timeouts of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowConfig {
    /// Most flows at once.
    pub flows: u32,
    /// flowActiveTimeout: a flow is exported at the latest so long after its first packet. Whole seconds,
    /// at least 1, are what can be told to a collector.
    pub active_timeout: Duration,
    /// flowIdleTimeout.
    pub idle_timeout: Duration,
    /// Whether the opcode is a Flow Key.
    pub opcode_key: bool,
}

impl Default for FlowConfig {
    fn default() -> Self {
        Self {
            flows: 16384,
            active_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(15),
            opcode_key: false,
        }
    }
}

impl FlowConfig {
    /// Octets of memory that a cache so configured takes.
    pub fn memory(&self) -> u64 {
        let per_flow = size_of::<Flow>() + 2 * (size_of::<(Words, u32)>() + 2);
        self.flows as u64 * per_flow as u64 + Wheel::memory(self.flows) as u64
    }
}

/// Records made, by reason, and packets counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowCounters {
    /// Packets that were counted in a flow.
    pub packets: u64,
    /// Records of idle flows.
    pub idle: u64,
    /// Records of flows that go on.
    pub active: u64,
    /// Records of flows that were given up for others.
    pub evicted: u64,
    /// Records made while emptying the cache.
    pub flushed: u64,
    /// Records that the sink did not take.
    pub lost_records: u64,
    /// Packets of those records.
    pub lost_packets: u64,
}

#[derive(Clone, Debug)]
struct Flow {
    words: Words,
    key: FlowKey,
    start: Utc,
    end: Utc,
    packets: u64,
    octets: u64,
}

/// The flows of one Observation Point.
#[derive(Clone, Debug)]
pub struct FlowCache {
    point: Point,
    config: FlowConfig,
    /// The timeouts in nanoseconds.
    active: u64,
    idle: u64,
    index: HashMap<Words, u32>,
    /// The flow of the last packet.
    last: (Words, u32),
    flows: Vec<Flow>,
    free: Vec<u32>,
    wheel: Box<Wheel>,
    counters: FlowCounters,
}

impl FlowCache {
    /// An empty cache; its memory is taken now.
    pub fn new(point: Point, config: FlowConfig) -> Self {
        let flows = config.flows.max(1);
        let shortest = crate::time::nanos(config.active_timeout.min(config.idle_timeout));
        let tick = (shortest / 64).max(1_000_000);
        Self {
            point,
            config: FlowConfig { flows, ..config },
            active: crate::time::nanos(config.active_timeout),
            idle: crate::time::nanos(config.idle_timeout),
            // Twice the entries: a table that is at most half full is cleaned up in place.
            index: HashMap::with_capacity(2 * flows as usize),
            last: NO_FLOW,
            flows: Vec::with_capacity(flows as usize),
            free: Vec::with_capacity(flows as usize),
            wheel: Box::new(Wheel::new(flows, tick)),
            counters: FlowCounters::default(),
        }
    }

    /// Counts a packet in its flow.
    #[inline]
    pub fn packet(&mut self, now: Utc, packet: &Observation, sink: &mut impl Sink) {
        let words = words_of(packet, self.config.opcode_key);
        let slot = if self.last.0 == words {
            self.last.1
        } else {
            self.find(now, packet, words, sink)
        };
        let octets = u64::from(packet.ip_octets);
        let flow = &mut self.flows[slot as usize];
        let stale = now.0.saturating_sub(flow.start.0) >= self.active
            || now.0.saturating_sub(flow.end.0) >= self.idle;
        if flow.packets > 0 && stale {
            self.end(now, slot, sink);
        }
        let flow = &mut self.flows[slot as usize];
        if flow.packets == 0 {
            flow.start = now;
            flow.end = now;
        }
        flow.end = flow.end.max(now);
        flow.packets += 1;
        flow.octets += octets;
        self.counters.packets += 1;
    }

    /// A flow whose time is up ends at a packet of its own: the record is made and the packet is the
    /// first of the next one.
    #[cold]
    fn end(&mut self, now: Utc, slot: u32, sink: &mut impl Sink) {
        let reason = if now.since(self.flows[slot as usize].end) >= self.config.idle_timeout {
            End::Idle
        } else {
            End::Active
        };
        self.export(slot, reason, sink);
        self.wheel.set(slot, now.after(self.config.idle_timeout));
    }

    #[inline]
    fn find(&mut self, now: Utc, packet: &Observation, words: Words, sink: &mut impl Sink) -> u32 {
        let known = self.index.get(&words).copied();
        let slot = match known {
            Some(slot) => slot,
            None => self.insert(now, packet, words, sink),
        };
        self.last = (words, slot);
        slot
    }

    fn insert(
        &mut self,
        now: Utc,
        packet: &Observation,
        words: Words,
        sink: &mut impl Sink,
    ) -> u32 {
        let flow = Flow {
            words,
            key: FlowKey::of(packet, self.config.opcode_key),
            start: now,
            end: now,
            packets: 0,
            octets: 0,
        };
        if self.index.len() >= self.config.flows as usize {
            self.evict(sink);
        }
        let slot = match self.free.pop() {
            Some(slot) => {
                self.flows[slot as usize] = flow;
                slot
            }
            None => {
                self.flows.push(flow);
                self.flows.len() as u32 - 1
            }
        };
        if let Entry::Vacant(entry) = self.index.entry(words) {
            entry.insert(slot);
        }
        let first = self.config.idle_timeout.min(self.config.active_timeout);
        self.wheel.set(slot, now.after(first));
        slot
    }

    /// Gives up a flow whose deadline is among the next: one that was not active for long.
    fn evict(&mut self, sink: &mut impl Sink) {
        if let Some(slot) = self.wheel.earliest() {
            self.export(slot, End::Evicted, sink);
            self.remove(slot);
        }
    }

    fn remove(&mut self, slot: u32) {
        self.wheel.remove(slot);
        self.index.remove(&self.flows[slot as usize].words);
        self.free.push(slot);
        self.last = NO_FLOW;
    }

    /// Makes the record of a flow, unless it has no packet, and starts counting anew.
    fn export(&mut self, slot: u32, reason: End, sink: &mut impl Sink) {
        let flow = &mut self.flows[slot as usize];
        if flow.packets == 0 {
            return;
        }
        let record = FlowRecord {
            point: self.point.id,
            direction: self.point.place.direction(),
            key: flow.key,
            start: flow.start,
            end: flow.end,
            packets: flow.packets,
            octets: flow.octets,
        };
        flow.packets = 0;
        flow.octets = 0;
        let counter = match reason {
            End::Idle => &mut self.counters.idle,
            End::Active => &mut self.counters.active,
            End::Evicted => &mut self.counters.evicted,
            End::Flushed => &mut self.counters.flushed,
        };
        *counter += 1;
        if !sink.flow(self.point.place, &record) {
            self.counters.lost_records += 1;
            self.counters.lost_packets += record.packets;
        }
    }

    /// Makes up to `budget` records that are due. Returns whether more may be due: then call again soon.
    pub fn poll(&mut self, now: Utc, budget: usize, sink: &mut impl Sink) -> bool {
        for _ in 0..budget {
            let Some(slot) = self.wheel.pop(now) else {
                return false;
            };
            self.due(now, slot, sink);
        }
        true
    }

    fn due(&mut self, now: Utc, slot: u32, sink: &mut impl Sink) {
        let flow = &self.flows[slot as usize];
        let idle_at = flow.end.after(self.config.idle_timeout);
        if now >= idle_at {
            self.export(slot, End::Idle, sink);
            self.remove(slot);
            return;
        }
        let mut active_at = flow.start.after(self.config.active_timeout);
        if flow.packets > 0 && now >= active_at {
            self.export(slot, End::Active, sink);
            active_at = idle_at;
        } else if flow.packets == 0 {
            active_at = idle_at;
        }
        self.wheel.set(slot, idle_at.min(active_at));
    }

    /// When [`FlowCache::poll`] has something to do.
    pub fn next_timeout(&self) -> Option<Utc> {
        self.wheel.next()
    }

    /// Makes the records of all flows and forgets them.
    pub fn flush(&mut self, sink: &mut impl Sink) {
        while self.flush_some(u32::MAX as usize, sink) {}
    }

    /// As [`FlowCache::flush`], up to `budget` records. Returns whether there may be more.
    pub fn flush_some(&mut self, budget: usize, sink: &mut impl Sink) -> bool {
        for _ in 0..budget {
            let Some(slot) = self.wheel.earliest() else {
                return false;
            };
            self.export(slot, End::Flushed, sink);
            self.remove(slot);
        }
        true
    }

    /// Where it counts.
    pub const fn place(&self) -> Place {
        self.point.place
    }

    /// Flows that are known now.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether no flow is known.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// What happened so far.
    pub const fn counters(&self) -> &FlowCounters {
        &self.counters
    }
}

/// No key has these words: the last one has a bit that none sets.
const NO_FLOW: (Words, u32) = (Words::NONE, u32::MAX);

/// The key of a packet's flow in words, equal exactly if the keys are.
#[inline(always)]
fn words_of(packet: &Observation, opcode_key: bool) -> Words {
    let opcode = if opcode_key {
        1 << 8 | u64::from(packet.bth.opcode.0)
    } else {
        0
    };
    let ports = u64::from(packet.source_port) << 48
        | u64::from(packet.destination_port) << 32
        | u64::from(packet.bth.pkey) << 16;
    let qp = u64::from(packet.bth.dest_qp.get()) << 16;
    Words::new(&packet.source, &packet.destination, [ports, qp | opcode])
}

#[cfg(test)]
mod tests;
