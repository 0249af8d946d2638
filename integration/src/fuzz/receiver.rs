//! The receiver function with any sequence of packets, REPAIR, messages, decode results and timeouts.
//! What must hold: no panic, time goes on, every frame leaves exactly once and what has not left is
//! held, bounds are kept, decode jobs make sense, every message sent is one that the parser takes.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use crem_core::actions::{Actions, DecodeJob, Decoded, Delivery, Outcome};
use crem_core::config::{CoreConfig, Mode};
use crem_core::crf::Crf;
use crem_core::packet::{Desc, Namespace, PsnSpace, StreamKey};
use crem_core::time::{Duration, Instant};
use crem_wire::crem::registry::CloseReason;
use crem_wire::crem::{
    Close, FlowDescriptor, Hello, Limits, Message, ParamAck, ParamUpdate, RepairHeader,
};
use crem_wire::{ConfigId, FlowId, Psn, Qpn, RequestId};

use super::Reader;
use super::reader::flow_id;
use super::repairs::{T, any_repair, likely_repair};
use super::said::{Answer, check_answer};
use super::world::{self, QUEUED, World as _, gateway, is_readable};

const FLOWS: u32 = 4;
const OPEN_BLOCKS: u16 = 8;
const KEPT: u32 = 200;
const HELD: u32 = 50;

/// A frame: its PSN and its number in the order of arrival; symbols and restored packets have none.
struct Frame {
    psn: Psn,
    number: Option<usize>,
}

type Buf = Rc<Frame>;

struct Driven {
    crf: Crf<Buf>,
    now: Instant,
    out: Actions<Buf>,
    next: [u32; 3],
    /// Whether the frame with this number has left.
    left: Vec<bool>,
    waiting: u64,
    /// Flow ID and queue pair of what was answered.
    flows: Vec<(FlowId, u8)>,
    asked: Vec<RequestId>,
    verdicts: u8,
    restored: u64,
}

fn config() -> CoreConfig {
    let mut config = world::config(30);
    config.crf.max_flows = FLOWS;
    config.crf.max_open_blocks = OPEN_BLOCKS;
    config.crf.keep_packets = KEPT;
    config.crf.hold_packets = HELD;
    config
}

/// Runs the calls that `data` describes; how many packets were restored.
///
/// # Panics
/// What must hold does not: what the fuzzer is looking for.
pub fn calls(data: &[u8]) -> u64 {
    let mut reader = Reader::new(data);
    let mut config = config();
    config.verify_sources = reader.once_in(4);
    config.responses = reader.once_in(2);
    let mut world = Driven::new(config);
    world.start();
    while !reader.is_empty() {
        world.step(&mut reader);
    }
    world
        .crf
        .close_all(world.now, CloseReason::Normal, &mut world.out);
    world.settle();
    assert_eq!((world.waiting, world.crf.references().kept), (0, 0));
    world.restored
}

impl world::World for Driven {
    fn now(&mut self) -> &mut Instant {
        &mut self.now
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.crf.next_timeout()
    }

    fn timeout(&mut self) {
        self.crf.on_timeout(self.now, &mut self.out);
        self.settle();
    }
}

impl Driven {
    fn new(config: CoreConfig) -> Self {
        Self {
            crf: Crf::new(config, [5; 32]),
            now: Instant(1_000_000_000),
            out: Actions::default(),
            next: [1000, 0xff_ffe0, 5],
            left: Vec::new(),
            waiting: 0,
            flows: Vec::new(),
            asked: Vec::new(),
            verdicts: 0,
            restored: 0,
        }
    }

    /// A bound flow whose rate and round-trip time are known.
    fn start(&mut self) {
        self.hello(1, 0, 7);
        self.wait(Duration::from_millis(20));
        self.update(0, 1, 8, 2, self.next[0]);
        for _ in 0..20 {
            self.wait(Duration::from_micros(20));
            self.burst(0, 0, &[0, 1]);
        }
    }

    fn step(&mut self, reader: &mut Reader<'_>) {
        self.verdicts = reader.octet();
        match reader.octet() % 20 {
            0..=5 => self.any_burst(reader),
            6..=8 => self.wait(Duration::from_micros(u64::from(reader.word() % 4096))),
            9 => self.wait(Duration::from_millis(u64::from(reader.word() % 4096))),
            10..=14 => self.likely_repair(reader),
            15 => self.any_repair(reader),
            16 => {
                let (from, pair) = (reader.octet() % 5, reader.octet() % 3);
                self.hello(from, pair, u64::from(reader.octet() % 8));
            }
            17 => {
                let near = self.next[0];
                let (which, id) = (reader.octet(), reader.octet() % 5);
                let (k, m) = (reader.octet() % 70, reader.octet() % 10);
                self.update(which, id, k, m, reader.psn(near).get());
            }
            _ => self.other(reader),
        }
    }

    fn key(pair: u8) -> StreamKey {
        StreamKey {
            namespace: Namespace(0),
            source: IpAddr::from([10, 0, 1, 1]),
            destination: IpAddr::from([10, 0, 2, 1]),
            qp: Qpn::new(u32::from(pair % 2)),
            space: if pair == 2 {
                PsnSpace::Responses
            } else {
                PsnSpace::Requests
            },
        }
    }

    fn desc(&mut self, pair: u8, psn: Psn) -> Desc<Buf> {
        let number = Some(self.left.len());
        self.left.push(false);
        self.waiting += 1;
        Desc {
            key: Self::key(pair),
            psn,
            // Among responses an acknowledgment now and then.
            opcode: if pair == 2 && self.verdicts & 3 == 3 {
                0x11
            } else {
                0x07
            },
            payload_len: 1052,
            payload_off: 42,
            mtu_seen: None,
            read_length: None,
            ce: self.verdicts == 1,
            dscp: 26,
            buf: Rc::new(Frame { psn, number }),
        }
    }

    /// Packets at these distances from the next PSN.
    fn burst(&mut self, pair: u8, jump: i32, steps: &[i32]) {
        let first = Psn::new(self.next[usize::from(pair)]).add(jump);
        let packets: Vec<_> = steps
            .iter()
            .map(|step| self.desc(pair, first.add(*step)))
            .collect();
        if let Some(last) = steps.iter().max() {
            self.next[usize::from(pair)] = first.add(last + 1).get();
        }
        self.give(&packets);
    }

    fn any_burst(&mut self, reader: &mut Reader<'_>) {
        let pair = if reader.once_in(4) {
            reader.octet() % 3
        } else {
            0
        };
        let jump = match reader.octet() {
            0 => i32::from(reader.word()) * 200,
            1..=20 => i32::from(reader.octet()) - 128,
            21..=60 => i32::from(reader.octet() % 6),
            _ => 0,
        };
        let mut step = 0;
        let steps: Vec<i32> = (0..reader.octet() % 24)
            .map(|_| {
                step += 1 + i32::from(reader.once_in(12)) - 3 * i32::from(reader.once_in(40));
                step
            })
            .collect();
        if reader.once_in(10) {
            let psn = Psn::new(self.next[usize::from(pair)]);
            let mut read = self.desc(pair, psn);
            let length = u32::from(reader.word());
            read.opcode = 0x0c;
            read.read_length = Some(if reader.once_in(32) {
                reader.long()
            } else {
                length
            });
            read.mtu_seen = reader.once_in(8).then(|| 256 << (reader.octet() % 5));
            self.next[usize::from(pair)] = psn.add(length.div_ceil(1024).max(1) as i32).get();
            self.give(&[read]);
        }
        self.burst(pair, jump, &steps);
    }

    fn give(&mut self, packets: &[Desc<Buf>]) {
        self.crf.on_burst(self.now, packets, &mut self.out);
        self.settle();
    }

    fn message(&mut self, from: SocketAddr, message: &Message) {
        self.crf
            .on_message(self.now, from, message, &|_| true, &mut self.out);
        self.settle();
    }

    fn hello(&mut self, from: u8, pair: u8, nonce: u64) {
        let key = Self::key(pair);
        let known = self.flows.len();
        let hello = Hello {
            kind: if pair == 2 { 0xc1 } else { 1 },
            limits: Limits {
                schemes: 7,
                max_k: 64,
                max_m: 8,
                max_t: 4000,
            },
            rdma_mtu: 1024,
            nonce,
            flow: FlowDescriptor {
                source: key.source,
                destination: key.destination,
                qp: key.qp,
            },
        };
        self.message(gateway(from), &Message::Hello(hello));
        for (_, of) in self.flows.iter_mut().skip(known) {
            *of = pair;
        }
    }

    fn flow(&self, which: u8) -> FlowId {
        let from_the_end = usize::from(which) % self.flows.len().max(1);
        let flow = self.flows.iter().rev().nth(from_the_end);
        flow.map_or(flow_id(1), |(id, _)| *id)
    }

    fn update(&mut self, which: u8, id: u8, k: u8, m: u8, effective: u32) {
        let update = ParamUpdate {
            flow: self.flow(which % 3),
            config: ConfigId(id),
            scheme: if id == 4 { 2 } else { 1 },
            k,
            m: if id == 4 { 1 } else { m },
            t: T,
            effective: Psn::new(effective),
        };
        self.message(gateway(1), &Message::ParamUpdate(update));
    }

    fn likely_repair(&mut self, reader: &mut Reader<'_>) {
        let flow = self.flow(reader.octet() % 2);
        let session = reader.pick(&self.asked).copied();
        let header = likely_repair(reader, flow, self.next[0], session);
        self.repair(gateway(1), &header, reader.once_in(16));
    }

    fn any_repair(&mut self, reader: &mut Reader<'_>) {
        let flow = self.flow(reader.octet());
        let header = any_repair(reader, flow, self.next[0]);
        self.repair(gateway(1 + u8::from(reader.once_in(8))), &header, false);
    }

    fn repair(&mut self, from: SocketAddr, header: &RepairHeader, ce: bool) {
        let (psn, number) = (header.block_start, None);
        let symbol = (!header.info).then(|| (Rc::new(Frame { psn, number }), 70));
        self.crf
            .on_repair(self.now, from, header, symbol, ce, &mut self.out);
        self.settle();
    }

    fn other(&mut self, reader: &mut Reader<'_>) {
        match reader.octet() % 12 {
            0 => self.crf.release_all(self.now, &mut self.out),
            1 => {
                let packets = u32::from(reader.octet());
                self.crf.give_up(self.now, packets, &mut self.out);
            }
            2 => {
                let mut config = config();
                if reader.once_in(2) {
                    config.mode = Mode::Passthrough;
                }
                self.crf.set_config(self.now, config, &mut self.out);
                self.settle();
                self.crf.set_config(self.now, self::config(), &mut self.out);
            }
            3 => {
                let flow = self.flow(reader.octet());
                let reason = u16::from(reader.octet()) % 6;
                self.message(gateway(1), &Message::Close(Close { flow, reason }));
            }
            4 => {
                let (flow, config) = (self.flow(reader.octet()), ConfigId(reader.octet()));
                let ack = ParamAck {
                    flow,
                    config,
                    status: reader.octet(),
                };
                self.message(gateway(1), &Message::ParamAck(ack));
            }
            6 => {
                // A READ or an atomic request goes the other way.
                let near = self.next[2];
                let mut asked = self.desc(2, reader.psn(near));
                self.left.pop();
                self.waiting -= 1;
                asked.key.space = PsnSpace::Requests;
                std::mem::swap(&mut asked.key.source, &mut asked.key.destination);
                asked.opcode = if reader.once_in(2) { 0x0c } else { 0x13 };
                asked.read_length = Some(u32::from(reader.word()));
                self.crf.on_reverse_burst(self.now, &[asked], &mut self.out);
            }
            5 => self
                .crf
                .close_all(self.now, CloseReason::FlowEnded, &mut self.out),
            _ => self.start(),
        }
        self.settle();
    }

    /// Works off what came out and looks at it.
    fn settle(&mut self) {
        let mut place = 0;
        while let Some(job) = self.out.decode.get(place).cloned() {
            let mut decoded = self.decode(&job);
            self.crf.on_decoded(self.now, &mut decoded, &mut self.out);
            place += 1;
        }
        for (kind, frame) in self.out.deliver.drain(..) {
            match frame.number {
                Some(number) => {
                    assert_ne!(kind, Delivery::Restored);
                    assert!(!self.left[number], "a frame left twice");
                    self.left[number] = true;
                    self.waiting -= 1;
                }
                None => {
                    assert_eq!(kind, Delivery::Restored);
                    self.restored += 1;
                }
            }
        }
        self.out.clear();
        self.drain();
        let now = self.crf.references();
        assert!(
            now.held >= self.waiting,
            "{} frames are gone",
            self.waiting - now.held
        );
        assert!(
            now.held <= u64::from(HELD) && now.kept <= u64::from(KEPT),
            "{now:?}"
        );
        assert!(self.crf.flows().count() <= FLOWS as usize);
        assert!(
            self.crf
                .flows()
                .all(|f| f.open_blocks as usize <= usize::from(OPEN_BLOCKS))
        );
    }

    fn decode(&self, job: &DecodeJob) -> Decoded<Buf> {
        let range = |r: &std::ops::Range<u32>| r.start as usize..r.end as usize;
        let at = |position: u8| job.block_start.add(i32::from(position));
        let sources = &self.out.sources[range(&job.sources)];
        let unknowns = &self.out.unknowns[range(&job.unknowns)];
        assert!(!self.out.symbols[range(&job.symbols)].is_empty() && !unknowns.is_empty());
        assert!(sources.iter().all(|s| s.buf.psn == at(s.position)));
        let outcomes = unknowns
            .iter()
            .map(|unknown| {
                assert_eq!(unknown.psn, at(unknown.position));
                assert!(sources.iter().all(|s| s.position != unknown.position));
                let outcome = match self.verdicts.wrapping_add(unknown.position) % 9 {
                    0 => Outcome::Corrupt,
                    1 => Outcome::NoNeighbour,
                    2 => Outcome::NoBuffer,
                    _ => Outcome::Restored {
                        buf: Rc::new(Frame {
                            psn: unknown.psn,
                            number: None,
                        }),
                        payload_off: 42,
                        payload_len: 1052,
                    },
                };
                (unknown.position, outcome)
            })
            .collect();
        // Some frames came damaged; what was restored is verified and never is.
        let damaged = |frame: &Frame| frame.number.is_some_and(|n| n % 16 == 3);
        let corrupt = sources
            .iter()
            .filter(|s| job.verify_sources && damaged(&s.buf));
        Decoded {
            id: job.id,
            outcomes,
            corrupt_sources: corrupt.map(|s| s.position).collect(),
        }
    }

    fn drain(&mut self) {
        while self.crf.poll_event().is_some() {}
        let mut sent = 0;
        while let Some(transmit) = self.crf.poll_transmit() {
            sent += 1;
            is_readable(&transmit.message);
            match check_answer(&transmit.message) {
                Some(Answer::Bound(flow)) => self.flows.push((flow, 0)),
                Some(Answer::Asks(request)) => self.asked.push(request),
                None => {}
            }
        }
        assert!(sent <= QUEUED);
    }
}
