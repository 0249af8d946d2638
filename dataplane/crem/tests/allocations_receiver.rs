//! After warm-up a packet costs the receiver function no allocation, nor does a block that is restored.
//! One test only: the counter counts the whole process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::alloc::System;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use crem_core::actions::{Actions, DecodeId, Decoded, Outcome};
use crem_core::config::{CoreConfig, Prefix};
use crem_core::crf::{Crf, Same};
use crem_core::packet::{Desc, Namespace, PsnSpace, StreamKey};
use crem_core::time::{Duration, Instant};
use crem_wire::crem::{
    FlowDescriptor, Hello, Limits, Message, ParamUpdate, RangeRequest, RepairHeader,
};
use crem_wire::{Bitmap, ConfigId, FlowId, Psn, Qpn, RequestId};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

type Buf = Rc<u32>;

struct Flow {
    crf: Crf<Buf>,
    out: Actions<Buf>,
    now: Instant,
    flow: FlowId,
    psn: u32,
    frame: Buf,
    space: PsnSpace,
    burst: Vec<Desc<Buf>>,
    seed: u64,
    restored: u64,
    /// The answer to a decode job.
    decoded: Decoded<Buf>,
    /// Symbols ahead in a block.
    m: u8,
    /// Ranges that were asked for.
    ranges: u64,
}

fn csf() -> SocketAddr {
    SocketAddr::new(IpAddr::from([192, 0, 2, 1]), 50_000)
}

fn descriptor() -> FlowDescriptor {
    FlowDescriptor {
        source: IpAddr::from([10, 0, 0, 1]),
        destination: IpAddr::from([10, 0, 1, 1]),
        qp: Qpn::new(7),
    }
}

impl Flow {
    fn new(space: PsnSpace, m: u8) -> Self {
        let mut config = CoreConfig::new(50_000);
        config.responses = true;
        config.allowed_peers = vec![Prefix::host(csf().ip())];
        let mut crf: Crf<Buf> = Crf::new(config, [3; 32]);
        crf.compare_with(Same(|a, b| a.buf == b.buf));
        let mut out = Actions::default();
        let limits = Limits {
            schemes: 0b111,
            max_k: 64,
            max_m: 8,
            max_t: 4138,
        };
        let hello = Message::Hello(Hello {
            kind: if space == PsnSpace::Requests { 1 } else { 0xc1 },
            limits,
            rdma_mtu: 1024,
            nonce: 1,
            flow: descriptor(),
        });
        crf.on_message(Instant(0), csf(), &hello, &|_| true, &mut out);
        let Some(Message::HelloAck(ack)) = crf.poll_transmit().map(|t| t.message) else {
            panic!("no HELLO_ACK");
        };
        let now = Instant(0) + Duration::from_millis(20);
        let update = Message::ParamUpdate(ParamUpdate {
            flow: ack.flow,
            config: ConfigId(1),
            scheme: 1,
            k: 32,
            m,
            t: 1062,
            effective: Psn::new(0),
        });
        crf.on_message(now, csf(), &update, &|_| true, &mut out);
        Self {
            crf,
            out,
            now,
            flow: ack.flow,
            psn: 0,
            frame: Rc::new(0),
            space,
            burst: Vec::with_capacity(32),
            seed: 9,
            restored: 0,
            decoded: Decoded {
                id: DecodeId(0),
                outcomes: Vec::new(),
                corrupt_sources: Bitmap::EMPTY,
            },
            m,
            ranges: 0,
        }
    }

    fn desc(&self) -> Desc<Buf> {
        let flow = descriptor();
        Desc {
            key: StreamKey {
                namespace: Namespace(0),
                source: flow.source,
                destination: flow.destination,
                qp: flow.qp,
                space: self.space,
            },
            psn: Psn::new(self.psn),
            opcode: if self.space == PsnSpace::Requests {
                7
            } else {
                0x0e
            },
            payload_len: 1052,
            payload_off: 42,
            mtu_seen: Some(1024),
            read_length: None,
            ce: false,
            dscp: 26,
            buf: self.frame.clone(),
        }
    }

    /// One block, of which one packet in `loss` is lost (none with 0), and its symbols.
    fn block(&mut self, loss: u64) {
        let start = self.psn;
        self.burst.clear();
        let mut missing = 0;
        for _ in 0..32 {
            self.seed = self
                .seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let lost = loss > 0 && (self.seed >> 33).is_multiple_of(loss) && missing < 2;
            missing += u32::from(lost);
            if !lost {
                let desc = self.desc();
                self.burst.push(desc);
            }
            self.psn = (self.psn + 1) & 0xff_ffff;
        }
        self.crf.on_burst(self.now, &self.burst, &mut self.out);
        let mut request = [self.desc()];
        let key = &mut request[0].key;
        (key.source, key.destination) = (key.destination, key.source);
        key.space = PsnSpace::Requests;
        (request[0].opcode, request[0].read_length) = (0x0c, Some(32 * 1024));
        self.crf.on_reverse_burst(self.now, &request, &mut self.out);
        for index in 0..self.m {
            self.symbol(start, index, self.m, None);
        }
        self.now = self.now + Duration::from_micros(320);
        if self.crf.next_timeout().is_some_and(|at| at <= self.now) {
            self.crf.on_timeout(self.now, &mut self.out);
        }
        self.settle();
        self.talk();
    }

    /// One symbol of the block that begins at `start`: of those ahead, or of the answer to a request.
    fn symbol(&mut self, start: u32, index: u8, of: u8, answer: Option<(RequestId, Bitmap)>) {
        let header = RepairHeader {
            flow: self.flow,
            last: index + 1 == of,
            info: false,
            config: ConfigId(1),
            scheme: 1,
            k: 32,
            index,
            block_start: Psn::new(start),
            session: answer.map(|(request, _)| request),
            symbol_length: 1062,
            present: Bitmap::first(32),
            lost: answer.map(|(_, lost)| lost),
        };
        let symbol = Some((self.frame.clone(), 70));
        self.crf
            .on_repair(self.now, csf(), &header, symbol, false, &mut self.out);
    }

    /// Answers a request for ranges, block by block.
    fn answer(&mut self, request: &RangeRequest) {
        let mut block: Option<(u32, Bitmap)> = None;
        for range in request.ranges.iter() {
            self.ranges += 1;
            for n in 0..i32::from(range.count) {
                let psn = range.start.add(n).get();
                let (start, position) = (psn & !31, (psn & 31) as u8);
                let (of, lost) = block.get_or_insert((start, Bitmap::EMPTY));
                if *of != start {
                    let full = core::mem::replace(of, start);
                    let lost = core::mem::replace(lost, Bitmap::EMPTY);
                    self.coded(full, request.request, lost);
                }
                if let Some((_, lost)) = &mut block {
                    lost.insert(position);
                }
            }
        }
        if let Some((start, lost)) = block {
            self.coded(start, request.request, lost);
        }
    }

    fn coded(&mut self, start: u32, request: RequestId, lost: Bitmap) {
        let of = u8::try_from(lost.len()).unwrap();
        for index in 0..of {
            self.symbol(start, index, of, Some((request, lost)));
        }
    }

    fn settle(&mut self) {
        let mut next = 0;
        while let Some(job) = self.out.decode.get(next).cloned() {
            next += 1;
            let unknowns = job.unknowns.start as usize..job.unknowns.end as usize;
            let restored = |position| {
                let outcome = Outcome::Restored {
                    buf: self.frame.clone(),
                    payload_off: 42,
                    payload_len: 1052,
                };
                (position, outcome)
            };
            let outcomes = self.out.unknowns[unknowns].iter();
            let outcomes = outcomes.map(|u| restored(u.position));
            self.decoded.outcomes.extend(outcomes);
            self.restored += self.decoded.outcomes.len() as u64;
            self.decoded.id = job.id;
            self.crf
                .on_decoded(self.now, &mut self.decoded, &mut self.out);
            assert!(self.decoded.outcomes.is_empty());
        }
        self.out.clear();
    }

    /// Whatever the receiver function says; requests for ranges are answered.
    fn talk(&mut self) {
        while let Some(transmit) = self.crf.poll_transmit() {
            if let Message::RangeRequest(request) = &transmit.message {
                self.answer(request);
            }
        }
        self.settle();
    }
}

#[test]
fn a_packet_allocates_nothing_after_warm_up() {
    for (space, m) in [
        (PsnSpace::Requests, 2),
        (PsnSpace::Responses, 2),
        (PsnSpace::Requests, 0),
    ] {
        let mut flow = Flow::new(space, m);
        for _ in 0..20_000 {
            flow.block(50);
        }
        let before = flow.crf.counters();
        for loss in [0, 50] {
            let (restored, ranges) = (flow.restored, flow.ranges);
            let region = Region::new(GLOBAL);
            for _ in 0..10_000 {
                flow.block(loss);
            }
            let change = region.change();
            assert_eq!(
                (change.allocations, change.reallocations),
                (0, 0),
                "{space:?} {m} {loss}: {change:?}"
            );
            assert_eq!(flow.restored - restored > 1_000, loss > 0);
            let asked = flow.ranges - ranges > 1_000;
            assert_eq!(
                asked,
                loss > 0 && m == 0,
                "without symbols ahead ranges are asked for"
            );
        }
        let counters = flow.crf.counters();
        // A second gap of a block may not be asked for in time.
        assert!(m == 0 || counters.positions_left == before.positions_left);
        assert_eq!(counters.requests_reissued, before.requests_reissued);
    }
}
