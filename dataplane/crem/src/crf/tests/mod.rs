//! Tests of the receiver function as a whole. Frames are numbered references; jobs are checked and
//! answered by rank, as the data plane would by octets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod binding;
mod conserve;
mod corrupt;
mod holding;
mod hostile;
mod late;
mod psns;
mod recovery;
mod replaying;
mod reports;
mod responses;
mod told;

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::net::SocketAddr;

use crem_fec::{Equation, Scheme};
use crem_wire::crem::registry::{CloseReason, ParamStatus};
use crem_wire::crem::{
    BlockRequest, FlowDescriptor, Hello, HelloAck, Limits, LossReport, Message, ParamAck,
    ParamUpdate, PsnRange, RangeRequest, RepairHeader,
};
use crem_wire::{Bitmap, ConfigId, FlowId, Psn, Qpn, RequestId};

use super::block::positions;
use super::*;
use crate::actions::{DecodeJob, Outcome};
use crate::config::Prefix;
use crate::packet::{Namespace, PsnSpace};
use crate::time::Duration;

pub(super) const US: Duration = Duration::from_micros(1);
pub(super) const MS: Duration = Duration::from_millis(1);
/// RTT of the path.
pub(super) const RTT: Duration = Duration::from_millis(20);
/// A with this RTT and no reordering.
pub(super) const A: Duration = Duration::from_micros(100);
pub(super) const T: u16 = 1062;

/// A frame: its PSN and a number that tells copies apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) psn: u32,
    pub(super) number: u64,
}

pub(super) type Buf = Rc<Frame>;

/// What the data plane finds when it decodes.
pub(super) type Judge = fn(&DecodeJob, Psn) -> Verdict;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Good,
    Corrupt,
    NoNeighbour,
    NoBuffer,
}

/// A receiver function with one flow, the messages it sent and the frames it delivered.
pub(super) struct Rig {
    pub(super) crf: Crf<Buf>,
    pub(super) out: Actions<Buf>,
    pub(super) now: Instant,
    pub(super) csf: SocketAddr,
    pub(super) flow: FlowId,
    pub(super) delivered: Vec<(Delivery, u32)>,
    pub(super) numbers: Vec<(u64, Instant)>,
    pub(super) sent: Vec<(SocketAddr, Message)>,
    pub(super) jobs: Vec<DecodeJob>,
    /// Positions and numbers of the sources of each job.
    pub(super) sources: Vec<Vec<(u8, u64)>>,
    pub(super) judge: Judge,
    /// Positions that a checked decode reports as damaged sources.
    pub(super) damaged: Bitmap,
    pub(super) space: PsnSpace,
    next_number: u64,
}

pub(super) fn config() -> CoreConfig {
    let mut config = CoreConfig::new(50_000);
    config.allowed_peers = Vec::from([Prefix {
        address: "192.0.2.0".parse().unwrap(),
        length: 24,
    }]);
    config
}

pub(super) fn descriptor() -> FlowDescriptor {
    FlowDescriptor {
        source: "10.0.0.1".parse().unwrap(),
        destination: "10.0.1.1".parse().unwrap(),
        qp: Qpn::new(0x17),
    }
}

pub(super) fn key() -> StreamKey {
    let flow = descriptor();
    StreamKey {
        namespace: Namespace(0),
        source: flow.source,
        destination: flow.destination,
        qp: flow.qp,
        space: PsnSpace::Requests,
    }
}

pub(super) fn hello(nonce: u64) -> Hello {
    Hello {
        kind: 1,
        limits: Limits {
            schemes: 0b111,
            max_k: 64,
            max_m: 8,
            max_t: 4138,
        },
        rdma_mtu: 1024,
        nonce,
        flow: descriptor(),
    }
}

pub(super) fn set(positions: &[u8]) -> Bitmap {
    positions.iter().copied().collect()
}

/// k = 8 with this many symbols, scheme 1.
pub(super) fn params(flow: FlowId, id: u8, m: u8, effective: u32) -> ParamUpdate {
    ParamUpdate {
        flow,
        config: ConfigId(id),
        scheme: 1,
        k: 8,
        m,
        t: T,
        effective: Psn::new(effective),
    }
}

impl Rig {
    /// A function that knows no flow.
    pub(super) fn empty(config: CoreConfig) -> Self {
        Self {
            crf: Crf::new(config, [7; 32]),
            out: Actions::default(),
            now: Instant(1_000_000_000),
            csf: "192.0.2.1:50000".parse().unwrap(),
            flow: FlowId::new(1).unwrap(),
            delivered: Vec::new(),
            numbers: Vec::new(),
            sent: Vec::new(),
            jobs: Vec::new(),
            sources: Vec::new(),
            judge: |_, _| Verdict::Good,
            damaged: Bitmap::EMPTY,
            space: PsnSpace::Requests,
            next_number: 0,
        }
    }

    /// A bound flow with k = 8, `m` symbols, RTT 20 ms and a known packet rate (10 µs), whose next PSN
    /// is `next`.
    pub(super) fn bound(config: CoreConfig, m: u8, next: u32) -> Self {
        Self::bound_in(PsnSpace::Requests, config, m, next)
    }

    /// As `bound`, a stream of this space.
    pub(super) fn bound_in(space: PsnSpace, config: CoreConfig, m: u8, next: u32) -> Self {
        let mut rig = Self::empty(config);
        rig.space = space;
        rig.bring_up(m, next);
        rig
    }

    /// Binds the flow and brings it to `next`.
    pub(super) fn bring_up(&mut self, m: u8, next: u32) {
        let first = next.wrapping_sub(80) & 0xff_ffff;
        let rig = self;
        rig.negotiate(params(FlowId::new(1).unwrap(), 1, m, first));
        for n in 0..40 {
            rig.now = rig.now + 20 * US;
            rig.burst(&[first + 2 * n, first + 2 * n + 1]);
        }
        assert_eq!(rig.taken().len(), 80);
        rig.sent.clear();
    }

    /// A flow bound with these parameters.
    pub(super) fn unbound_params(config: CoreConfig, update: ParamUpdate) -> Self {
        let mut rig = Self::empty(config);
        rig.negotiate(update);
        rig
    }

    fn negotiate(&mut self, update: ParamUpdate) {
        let kind = match self.space {
            PsnSpace::Requests => 1,
            PsnSpace::Responses => 0xc1,
        };
        let ack = self.hello(&Hello { kind, ..hello(1) }).unwrap();
        self.flow = ack.flow;
        self.now = self.now + RTT;
        let update = ParamUpdate {
            flow: self.flow,
            ..update
        };
        assert_eq!(self.update(&update), Some(ParamStatus::Accepted.code()));
    }

    pub(super) fn message(&mut self, message: &Message) {
        let csf = self.csf;
        self.message_from(csf, message);
    }

    pub(super) fn message_from(&mut self, from: SocketAddr, message: &Message) {
        self.crf
            .on_message(self.now, from, message, &|_| true, &mut self.out);
        self.settle();
    }

    pub(super) fn hello(&mut self, hello: &Hello) -> Option<HelloAck> {
        self.message(&Message::Hello(*hello));
        self.sent.pop().map(|(_, message)| match message {
            Message::HelloAck(ack) => ack,
            other => panic!("{other:?}"),
        })
    }

    pub(super) fn update(&mut self, update: &ParamUpdate) -> Option<u8> {
        self.message(&Message::ParamUpdate(*update));
        match self.sent.pop() {
            Some((_, Message::ParamAck(ParamAck { status, .. }))) => Some(status),
            None => None,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn desc(&mut self, psn: u32) -> Desc<Buf> {
        self.next_number += 1;
        Desc {
            key: StreamKey {
                space: self.space,
                ..key()
            },
            psn: Psn::new(psn),
            opcode: match self.space {
                PsnSpace::Requests => 7,
                PsnSpace::Responses => 0x0e,
            },
            payload_len: 1052,
            payload_off: 42,
            mtu_seen: None,
            read_length: None,
            ce: false,
            dscp: 26,
            buf: Rc::new(Frame {
                psn: psn & 0xff_ffff,
                number: self.next_number,
            }),
        }
    }

    pub(super) fn burst(&mut self, psns: &[u32]) {
        let burst: Vec<_> = psns.iter().map(|psn| self.desc(*psn)).collect();
        self.descs(&burst);
    }

    pub(super) fn descs(&mut self, burst: &[Desc<Buf>]) {
        self.crf.on_burst(self.now, burst, &mut self.out);
        self.settle();
    }

    /// The header of an ordinary symbol of the block of 8 at `start`.
    pub(super) fn header(&self, start: u32, index: u8) -> RepairHeader {
        RepairHeader {
            flow: self.flow,
            last: false,
            info: false,
            config: ConfigId(1),
            scheme: 1,
            k: 8,
            index,
            block_start: Psn::new(start),
            session: None,
            symbol_length: T,
            present: Bitmap::first(8),
            lost: None,
        }
    }

    pub(super) fn repair(&mut self, header: &RepairHeader) {
        let csf = self.csf;
        self.repair_from(csf, header, false);
    }

    pub(super) fn repair_from(&mut self, from: SocketAddr, header: &RepairHeader, ce: bool) {
        self.next_number += 1;
        let frame = Rc::new(Frame {
            psn: u32::MAX,
            number: self.next_number,
        });
        let symbol = (!header.info).then_some((frame, 70));
        self.crf
            .on_repair(self.now, from, header, symbol, ce, &mut self.out);
        self.settle();
    }

    pub(super) fn ordinary(&mut self, start: u32, index: u8) {
        let header = self.header(start, index);
        self.repair(&header);
    }

    pub(super) fn coded(&mut self, start: u32, index: u8, lost: Bitmap, session: RequestId) {
        let header = RepairHeader {
            lost: Some(lost),
            session: Some(session),
            ..self.header(start, index)
        };
        self.repair(&header);
    }

    pub(super) fn copy(&mut self, start: u32, position: u8, session: Option<RequestId>) {
        let header = RepairHeader {
            scheme: 0,
            session,
            ..self.header(start, position)
        };
        self.repair(&header);
    }

    pub(super) fn info(&mut self, start: u32, present: Bitmap, session: Option<RequestId>) {
        let header = RepairHeader {
            info: true,
            symbol_length: 0,
            index: 0,
            present,
            session,
            ..self.header(start, 0)
        };
        self.repair(&header);
    }

    /// Lets time pass, calling the function whenever it wants to be called.
    pub(super) fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        let mut calls = 0;
        while let Some(at) = self.crf.next_timeout().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.crf.on_timeout(self.now, &mut self.out);
            self.settle();
            calls += 1;
            assert!(
                calls < 1_000,
                "time does not go on: {:?} {:?}",
                at,
                self.crf.table.get(0).and_then(|s| s.bound.as_ref())
            );
        }
        self.now = until;
    }

    /// Runs decode jobs, takes frames and messages out.
    pub(super) fn settle(&mut self) {
        let mut place = 0;
        while place < self.out.decode.len() {
            let job = self.out.decode[place].clone();
            let mut decoded = self.decode(&job);
            self.jobs.push(job);
            self.crf.on_decoded(self.now, &mut decoded, &mut self.out);
            place += 1;
        }
        for (kind, frame) in self.out.deliver.drain(..) {
            self.delivered.push((kind, frame.psn));
            if kind == Delivery::Source {
                self.numbers.push((frame.number, self.now));
            }
        }
        self.out.clear();
        while let Some(transmit) = self.crf.poll_transmit() {
            match &transmit.message {
                Message::BlockRequest(request) => {
                    assert!(usize::from(request.suggested) <= request.lost.len());
                }
                Message::HelloAck(_)
                | Message::ParamAck(_)
                | Message::LossReport(_)
                | Message::RangeRequest(_)
                | Message::Close(_) => {}
                other => panic!("not a receiver's message: {other:?}"),
            }
            self.sent.push((transmit.to, transmit.message));
        }
    }

    /// What the data plane makes of a job. Checks that the job is one that can be solved.
    fn decode(&mut self, job: &DecodeJob) -> Decoded<Buf> {
        let range = |r: &Range<u32>| r.start as usize..r.end as usize;
        let symbols = &self.out.symbols[range(&job.symbols)];
        let sources = &self.out.sources[range(&job.sources)];
        let unknowns = &self.out.unknowns[range(&job.unknowns)];
        for source in sources {
            let psn = job.block_start.add(i32::from(source.position));
            assert_eq!(source.buf.psn, psn.get(), "the source of its position");
        }
        let used = sources.iter().map(|s| (s.position, s.buf.number)).collect();
        self.sources.push(used);
        let known: Bitmap = sources.iter().map(|s| s.position).collect();
        let named = symbols.iter().fold(Bitmap::EMPTY, |n, s| n.or(&s.set));
        let all = named.minus(&known);
        let equations = || {
            symbols.iter().map(|s| Equation {
                scheme: Scheme::from_number(s.scheme).unwrap(),
                index: s.index,
                set: positions(&s.set),
            })
        };
        let rank = crem_fec::rank(equations(), positions(&all));
        let mut outcomes = Vec::new();
        for unknown in unknowns {
            assert_eq!(
                unknown.psn,
                job.block_start.add(i32::from(unknown.position))
            );
            assert!(!known.contains(unknown.position));
            let mut others = all;
            others.remove(unknown.position);
            assert!(
                crem_fec::rank(equations(), positions(&others)) < rank,
                "position {} is not determined",
                unknown.position
            );
            let near = |n: &Option<crate::actions::Neighbour<Buf>>| {
                n.as_ref().map(|n| (n.psn.get(), n.buf.psn))
            };
            for (psn, buf) in [near(&unknown.before), near(&unknown.after)]
                .into_iter()
                .flatten()
            {
                assert_eq!(psn, buf);
            }
            let outcome = match (self.judge)(job, unknown.psn) {
                Verdict::Good => Outcome::Restored {
                    buf: Rc::new(Frame {
                        psn: unknown.psn.get(),
                        number: 0,
                    }),
                    payload_off: 42,
                    payload_len: 1052,
                },
                Verdict::Corrupt => Outcome::Corrupt,
                Verdict::NoNeighbour => Outcome::NoNeighbour,
                Verdict::NoBuffer => Outcome::NoBuffer,
            };
            outcomes.push((unknown.position, outcome));
        }
        Decoded {
            id: job.id,
            outcomes,
            corrupt_sources: if job.verify_sources {
                self.damaged
            } else {
                Bitmap::EMPTY
            },
        }
    }

    /// PSNs delivered since the last call.
    pub(super) fn taken(&mut self) -> Vec<u32> {
        self.delivered.drain(..).map(|(_, psn)| psn).collect()
    }

    /// The next block-form request.
    pub(super) fn block_request(&mut self) -> Option<BlockRequest> {
        let place = self
            .sent
            .iter()
            .position(|(_, m)| matches!(m, Message::BlockRequest(_)))?;
        match self.sent.remove(place) {
            (_, Message::BlockRequest(request)) => Some(request),
            _ => None,
        }
    }

    /// The next range-form request.
    pub(super) fn range_request(&mut self) -> Option<RangeRequest> {
        let place = self
            .sent
            .iter()
            .position(|(_, m)| matches!(m, Message::RangeRequest(_)))?;
        match self.sent.remove(place) {
            (_, Message::RangeRequest(request)) => Some(request),
            _ => None,
        }
    }

    /// All reports sent since the last call, summed up.
    pub(super) fn reports(&mut self) -> LossReport {
        let mut sum = LossReport {
            flow: self.flow,
            interval_us: 0,
            expected: 0,
            received: 0,
            restored: 0,
            incomplete_blocks: 0,
            ce_marked: 0,
            repairs_received: 0,
            repairs_ce_marked: 0,
        };
        self.sent.retain(|(_, message)| {
            let Message::LossReport(r) = message else {
                return true;
            };
            assert!(r.received <= r.expected && r.ce_marked <= r.received);
            sum.interval_us += r.interval_us;
            sum.expected += r.expected;
            sum.received += r.received;
            sum.restored += r.restored;
            sum.incomplete_blocks += r.incomplete_blocks;
            sum.ce_marked += r.ce_marked;
            sum.repairs_received += r.repairs_received;
            sum.repairs_ce_marked += r.repairs_ce_marked;
            false
        });
        sum
    }

    pub(super) fn status(&self) -> FlowStatus {
        self.crf.flows().next().unwrap()
    }

    pub(super) fn count(&self, name: &str) -> u64 {
        let mut found = None;
        self.crf.counters().for_each(|n, value| {
            if n == name {
                found = Some(value);
            }
        });
        found.unwrap_or_else(|| panic!("no counter {name}"))
    }

    pub(super) fn close(&mut self, reason: CloseReason) {
        let flow = self.flow;
        self.message(&Message::Close(crem_wire::crem::Close {
            flow,
            reason: reason.code(),
        }));
    }
}

/// The first range of a request.
pub(super) fn first_of(request: &RangeRequest) -> PsnRange {
    request.ranges.iter().next().expect("a range")
}
