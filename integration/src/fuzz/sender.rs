//! The sender function with any sequence of packets, messages and timeouts. What must hold: no panic,
//! time goes on, tables keep their bounds, every message sent is one that the parser takes, symbol slots
//! are used once at a time, no index of a block twice, a block answered once an SRTT, ordinary symbols
//! below m/k of the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use crem_core::actions::{Actions, Emit, RepairKind, SlotId};
use crem_core::config::{CoreConfig, Mode};
use crem_core::csf::{Ahead, Csf};
use crem_core::learn::Ack;
use crem_core::packet::{Desc, Namespace, PsnSpace, StreamKey};
use crem_core::time::{Duration, Instant};
use crem_wire::crem::registry::{CloseReason, FlowKind};
use crem_wire::crem::{
    BlockRequest, Hello, HelloAck, Limits, Message, ParamAck, ParamUpdate, Parsed, RepairHeader,
    parse,
};
use crem_wire::{FlowId, Psn, Qpn, RequestId};

use super::Reader;
use super::reader::{flow_id, request_id};
use super::said::{any_managed, any_message, likely_report};
use super::world::{self, QUEUED, World as _, gateway, is_readable};

const FLOWS: u32 = 8;
const PEERS: u32 = 4;
const RETAIN: u32 = 300;
const SLOTS: u32 = 64;
/// Jumps beyond this may bring a PSN back within a run, so that indices would be used again.
const FAR: i32 = 1 << 20;
const FAR_JUMPS: u32 = 4;

/// What a flow was told, for the bound on its ordinary symbols.
#[derive(Default)]
struct Told {
    sources: u64,
    ordinary: u64,
    max_m: u64,
    min_k: u64,
}

struct Driven {
    /// Symbols may wait for their block to be complete.
    ahead: bool,
    csf: Csf<Rc<u32>>,
    now: Instant,
    actions: Actions<Rc<u32>>,
    /// Next PSN by queue pair.
    next: [u32; 4],
    far_jumps: u32,
    hellos: Vec<(SocketAddr, Hello)>,
    updates: Vec<ParamUpdate>,
    flows: Vec<FlowId>,
    blocks: Vec<RepairHeader>,
    used: BTreeSet<(FlowId, u32, u8)>,
    told: BTreeMap<FlowId, Told>,
    /// When a block was answered last, and what.
    answered: BTreeMap<(FlowId, u32), (Instant, RequestId)>,
    symbols: u64,
}

fn config() -> CoreConfig {
    let mut config = world::config(28);
    config.reporters.clone_from(&config.allowed_peers);
    config.fec.initial_loss_ppm = 2_000;
    config.csf.max_flows = FLOWS;
    config.csf.max_peers = PEERS;
    config.csf.retain_packets = RETAIN;
    config
}

/// Runs the calls that `data` describes; how many symbols were sent.
///
/// # Panics
/// What must hold does not: what the fuzzer is looking for.
pub fn calls(data: &[u8]) -> u64 {
    let mut reader = Reader::new(data);
    let mut config = config();
    config.responses = reader.once_in(2);
    config.csf.ahead.slots = SLOTS / 4 * u32::from(config.responses);
    config.csf.learn = reader.once_in(2);
    config.fec.m_min = reader.octet() % 4;
    let mut world = Driven::new(config);
    // A flow that gets as far as protection in most runs.
    world.start();
    while !reader.is_empty() {
        world.step(&mut reader);
    }
    world.csf.close_all(CloseReason::Normal);
    world.settle();
    assert_eq!(world.csf.retained(), (0, 0));
    world.csf.on_timeout(world.now, &mut world.actions);
    let free = &mut world.actions.free_slots;
    free.sort_unstable_by_key(|slot| slot.0);
    free.dedup();
    assert_eq!(free.len(), SLOTS as usize, "a slot is lost");
    world.symbols
}

impl world::World for Driven {
    fn now(&mut self) -> &mut Instant {
        &mut self.now
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.csf.next_timeout()
    }

    fn timeout(&mut self) {
        self.csf.on_timeout(self.now, &mut self.actions);
        self.settle();
    }
}

impl Driven {
    fn new(config: CoreConfig) -> Self {
        Self {
            ahead: config.csf.ahead != Ahead::OFF,
            csf: Csf::new(config, [9; 32]),
            now: Instant(1_000_000_000),
            actions: Actions {
                free_slots: (0..SLOTS).map(SlotId).collect(),
                ..Actions::default()
            },
            next: [0, 1000, 0xff_ff00, 0x7f_fff0],
            far_jumps: 0,
            hellos: Vec::new(),
            updates: Vec::new(),
            flows: Vec::new(),
            blocks: Vec::new(),
            used: BTreeSet::new(),
            told: BTreeMap::new(),
            answered: BTreeMap::new(),
            symbols: 0,
        }
    }

    fn start(&mut self) {
        self.burst(0, 0, 20, 1040);
        self.answer_hello(gateway(2), 0x07, 64);
        self.wait(Duration::from_millis(10));
        self.answer_update(0);
    }

    fn step(&mut self, reader: &mut Reader<'_>) {
        match reader.octet() % 20 {
            0..=6 => {
                let (pair, count) = (reader.octet() % 4, reader.octet() % 70);
                let jump = self.jump(reader);
                let len = 16 + reader.word() % 1200;
                self.burst(pair, jump, count, len);
            }
            7 => self.read_request(reader),
            8..=11 => self.wait(Duration::from_micros(u64::from(reader.word()))),
            12 => self.wait(Duration::from_millis(u64::from(reader.word()))),
            13 => {
                let from = gateway(reader.octet() % 4);
                self.answer_hello(from, reader.octet().into(), reader.octet());
            }
            14 => self.answer_update(reader.octet().saturating_sub(200)),
            15 | 16 => {
                let nonce = self.hellos.last().map_or(0, |(_, hello)| hello.nonce);
                let flow = self.flow(reader);
                let message = any_message(reader, flow, self.next[0], nonce);
                let from = gateway(2 + u8::from(reader.once_in(16)));
                self.deliver(from, &message, reader.once_in(8));
            }
            17 if reader.once_in(2) => self.learn(reader),
            17 => self.block_request(reader),
            18 => self.report(reader),
            _ => self.other(reader),
        }
    }

    fn jump(&mut self, reader: &mut Reader<'_>) -> i32 {
        if !reader.once_in(8) {
            return 0;
        }
        if reader.once_in(8) && self.far_jumps < FAR_JUMPS {
            self.far_jumps += 1;
            return FAR * i32::from(reader.octet() % 5 + 1);
        }
        i32::from(reader.word() % 300) - 100
    }

    fn desc(&self, pair: u8, psn: Psn, len: u16) -> Desc<Rc<u32>> {
        let key = StreamKey {
            namespace: Namespace(u64::from(pair == 3)),
            source: IpAddr::from([10, 0, 1, 1]),
            destination: IpAddr::from([10, 0, 2, 1]),
            qp: Qpn::new(u32::from(pair) % 3),
            space: if pair == 2 {
                PsnSpace::Responses
            } else {
                PsnSpace::Requests
            },
        };
        Desc {
            key,
            psn,
            opcode: 0x07,
            payload_len: len,
            payload_off: 42,
            mtu_seen: None,
            read_length: None,
            ce: false,
            dscp: 26,
            buf: Rc::new(psn.get()),
        }
    }

    fn burst(&mut self, pair: u8, jump: i32, count: u8, len: u16) {
        let Some(next) = self.next.get_mut(usize::from(pair)) else {
            return;
        };
        let first = Psn::new(*next).add(jump);
        *next = first.add(i32::from(count)).get();
        let packets: Vec<_> = (0..count)
            .map(|n| self.desc(pair, first.add(i32::from(n)), len))
            .collect();
        self.give(&packets);
    }

    fn read_request(&mut self, reader: &mut Reader<'_>) {
        let pair = reader.octet() % 2;
        let psn = Psn::new(self.next.get(usize::from(pair)).copied().unwrap_or(0));
        let mut packet = self.desc(pair, psn, 32);
        let length = u32::from(reader.word()) * 8;
        packet.opcode = 0x0c;
        packet.read_length = Some(if reader.once_in(64) {
            reader.long()
        } else {
            length
        });
        packet.mtu_seen = reader.once_in(16).then(|| 256 << (reader.octet() % 5));
        packet.dscp = reader.octet() % 64;
        if let Some(next) = self.next.get_mut(usize::from(pair)) {
            *next = psn.add(length.div_ceil(1024).max(1) as i32).get();
        }
        self.give(&[packet]);
    }

    fn give(&mut self, packets: &[Desc<Rc<u32>>]) {
        for status in self.csf.flows() {
            if let Some((_, id)) = status.bound {
                let sources = packets.iter().filter(|p| p.key == status.key).count();
                self.told.entry(id).or_default().sources += sources as u64;
            }
        }
        self.csf.on_burst(self.now, packets, &mut self.actions);
        self.settle();
    }

    fn deliver(&mut self, from: SocketAddr, message: &Message, ce: bool) {
        self.csf
            .on_message(self.now, from, message, ce, &mut self.actions);
        self.settle();
    }

    fn answer_hello(&mut self, from: SocketAddr, schemes: u16, max_k: u8) {
        let Some((_, hello)) = self.hellos.pop() else {
            return;
        };
        let id = self.flows.len() as u32 + 1;
        let flow = flow_id(id);
        self.flows.push(flow);
        let ack = HelloAck {
            flow,
            kind: hello.kind,
            af: 4,
            limits: Limits {
                schemes: schemes | 2,
                max_k,
                max_m: 16,
                max_t: 4000,
            },
            rdma_mtu: hello.rdma_mtu,
            nonce: hello.nonce,
            max_open_blocks: u16::from(max_k) * 8,
        };
        self.deliver(from, &Message::HelloAck(ack), false);
    }

    fn answer_update(&mut self, status: u8) {
        let Some(update) = self.updates.pop() else {
            return;
        };
        let ack = ParamAck {
            flow: update.flow,
            config: update.config,
            status,
        };
        self.deliver(gateway(2), &Message::ParamAck(ack), false);
    }

    fn flow(&self, reader: &mut Reader<'_>) -> FlowId {
        let bound: Vec<FlowId> = self
            .csf
            .flows()
            .filter_map(|f| f.bound.map(|b| b.1))
            .collect();
        reader
            .pick(&bound)
            .or_else(|| self.flows.first())
            .copied()
            .unwrap_or(flow_id(1))
    }

    fn block_request(&mut self, reader: &mut Reader<'_>) {
        let Some(block) = reader.pick(&self.blocks).copied() else {
            return;
        };
        let request = BlockRequest {
            flow: block.flow,
            fallback: reader.once_in(4),
            config: block.config,
            scheme: block.scheme.max(1),
            k: block.k,
            held: reader.octet() % 4,
            block_start: block.block_start,
            suggested: reader.octet() % 8,
            request: request_id(reader.word()),
            lost: reader.bitmap(),
        };
        self.deliver(gateway(2), &Message::BlockRequest(request), false);
    }

    fn report(&mut self, reader: &mut Reader<'_>) {
        let flow = self.flow(reader);
        let report = likely_report(reader, flow);
        self.deliver(gateway(2), &Message::LossReport(report), false);
    }

    /// An acknowledgment, or a message of the connection manager, on the way back.
    fn learn(&mut self, reader: &mut Reader<'_>) {
        let managed = any_managed(reader);
        if reader.once_in(3) {
            self.csf.on_managed(self.now, &managed);
        } else {
            let ack = Ack {
                way: managed.way,
                qp: Qpn::new(u32::from(reader.octet() % 4)),
                psn: reader.psn(self.next[0]),
                negative: reader.once_in(4),
                mtu: reader.once_in(8).then(|| 256 << (reader.octet() % 6)),
            };
            self.csf.on_ack(self.now, &ack);
        }
        self.settle();
    }

    fn other(&mut self, reader: &mut Reader<'_>) {
        match reader.octet() % 12 {
            0..=3 => {
                self.csf.give_up(u32::from(reader.octet()));
            }
            4 => self.csf.close_all(CloseReason::Normal),
            5 => {
                let mut config = config();
                if reader.once_in(2) {
                    config.mode = Mode::Passthrough;
                }
                config.fec.k = reader.octet().clamp(1, 128);
                self.csf.set_config(self.now, config);
                self.csf.set_config(self.now, self::config());
            }
            6 => {
                let host = Some(IpAddr::from([10, 0, 2, 1]));
                self.csf.peer_alive(gateway(reader.octet() % 4), host);
            }
            // A caller short of slots.
            7 => {
                let slots = std::mem::take(&mut self.actions.free_slots);
                self.burst(0, 0, 40, 1000);
                self.actions.free_slots.extend(slots);
            }
            _ => self.start(),
        }
        self.settle();
    }

    /// Takes everything out and looks at it.
    fn settle(&mut self) {
        for index in 0..self.actions.emit.len() {
            let emit = self.actions.emit[index].clone();
            self.emitted(&emit);
        }
        let slots: Vec<SlotId> = self.actions.emit.iter().filter_map(|e| e.slot).collect();
        for row in &self.actions.rows {
            let waits = self.ahead && !self.actions.free_slots.contains(&row.slot);
            assert!(waits || slots.contains(&row.slot), "nobody sends it");
        }
        for slot in slots {
            assert!(
                !self.actions.free_slots.contains(&slot),
                "a slot in use is free"
            );
            self.actions.free_slots.push(slot);
        }
        self.actions.clear();
        self.drain();
        let (packets, _) = self.csf.retained();
        assert!(packets <= RETAIN, "{packets} packets retained");
        assert!(self.csf.flows().count() <= FLOWS as usize);
    }

    fn emitted(&mut self, emit: &Emit) {
        let header = &emit.header;
        let mut octets = vec![0; header.encoded_len()];
        header.encode(&mut octets);
        octets.resize(octets.len() + usize::from(header.symbol_length), 0);
        match parse(&octets) {
            Ok(Parsed::Repair(read, _)) => assert_eq!(read, *header),
            other => panic!("sent what nobody reads: {other:?} {header:?}"),
        }
        assert_eq!(emit.slot.is_none(), emit.kind == RepairKind::Info);
        if matches!(emit.kind, RepairKind::Ordinary | RepairKind::Coded) {
            assert!(u16::from(header.index) + u16::from(header.k) <= 255);
            let name = (header.flow, header.block_start.get(), header.index);
            assert!(self.used.insert(name), "an index twice: {name:?}");
            self.symbols += 1;
        }
        if matches!(emit.kind, RepairKind::Coded | RepairKind::Copy) {
            self.answer(emit);
        }
        if emit.kind == RepairKind::Ordinary {
            let told = self.told.entry(header.flow).or_default();
            told.ordinary += 1;
            let most = told.sources * told.max_m + told.max_m * told.min_k;
            assert!(
                told.ordinary * told.min_k <= most,
                "{} ordinary symbols for {} sources",
                told.ordinary,
                told.sources
            );
        }
        self.blocks.push(*header);
        if self.blocks.len() > 64 {
            self.blocks.remove(0);
        }
    }

    /// A block is answered once an SRTT at most, and no symbol goes unasked for.
    fn answer(&mut self, emit: &Emit) {
        let header = &emit.header;
        let Some(session) = header.session else {
            panic!("an answer to nothing: {header:?}");
        };
        let flow = self.csf.flows().find(|f| f.key == emit.stream);
        let srtt = flow.and_then(|f| f.srtt).unwrap_or_default();
        let block = (header.flow, header.block_start.get());
        let last = self.answered.insert(block, (self.now, session));
        if let Some((at, before)) = last.filter(|(_, before)| *before != session) {
            let after = self.now.since(at);
            assert!(after >= srtt, "{before:?} and {session:?} within {after:?}");
        }
    }

    fn drain(&mut self) {
        let mut events = 0;
        while self.csf.poll_event().is_some() {
            events += 1;
        }
        assert!(events <= QUEUED);
        let mut sent = 0;
        while let Some(transmit) = self.csf.poll_transmit() {
            sent += 1;
            is_readable(&transmit.message);
            match transmit.message {
                Message::Hello(hello) => {
                    let kinds = [FlowKind::RoceV2.code(), FlowKind::RoceV2Responses.code()];
                    assert!(kinds.contains(&hello.kind));
                    self.hellos.push((transmit.to, hello));
                }
                Message::ParamUpdate(update) => {
                    let told = self.told.entry(update.flow).or_default();
                    told.max_m = told.max_m.max(u64::from(update.m));
                    let k = u64::from(update.k);
                    told.min_k = if told.min_k == 0 {
                        k
                    } else {
                        told.min_k.min(k)
                    };
                    self.updates.push(update);
                }
                Message::Close(_) => {}
                other => panic!("not a sender's message: {other:?}"),
            }
        }
        assert!(sent <= QUEUED);
    }
}
