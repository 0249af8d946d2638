//! What must hold over any traffic and any messages.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;
use crem_wire::crem::registry::CloseReason;
use crem_wire::crem::{
    BlockRequest, Close, HelloAck, Limits, LossReport, Message, ParamAck, PsnRange, RangeRequest,
};
use crem_wire::{Bitmap, ConfigId, FlowId, Psn, RequestId};
use proptest::prelude::*;

use super::rig::{MS, RTT, Rig, Sent, config, gateway};
use crate::actions::RepairKind;
use crate::csf::testing::{desc, key};

/// One step of a run.
#[derive(Clone, Debug)]
enum Step {
    /// `count` packets, the first `jump` beyond the last, of `len` octets.
    Packets {
        jump: i32,
        count: u8,
        len: u16,
    },
    Read {
        length: u32,
    },
    Wait {
        micros: u32,
    },
    Report {
        lost: u8,
        repairs_ce: bool,
    },
    Block {
        block: u8,
        lost: u32,
        held: u8,
        fallback: bool,
    },
    Range {
        back: u16,
        count: u8,
        fallback: bool,
    },
    GiveUp {
        packets: u16,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (prop_oneof![20 => Just(1), 3 => -40..200i32, 1 => -9_000_000..9_000_000i32], 1u8..80, 20u16..1060)
            .prop_map(|(jump, count, len)| Step::Packets { jump, count, len }),
        1 => prop_oneof![0u32..200_000, any::<u32>()].prop_map(|length| Step::Read { length }),
        4 => (0u32..60_000).prop_map(|micros| Step::Wait { micros }),
        2 => (any::<u8>(), prop::bool::weighted(0.1)).prop_map(|(lost, repairs_ce)| Step::Report { lost, repairs_ce }),
        3 => (any::<u8>(), any::<u32>(), 0u8..6, any::<bool>())
            .prop_map(|(block, lost, held, fallback)| Step::Block { block, lost, held, fallback }),
        2 => (0u16..3000, 1u8..=255, any::<bool>())
            .prop_map(|(back, count, fallback)| Step::Range { back, count, fallback }),
        1 => (0u16..200).prop_map(|packets| Step::GiveUp { packets }),
    ]
}

struct Run {
    rig: Rig,
    psn: u32,
    id: u16,
    all: Vec<Sent>,
}

impl Run {
    fn new(retain: u32) -> Self {
        let mut cfg = config();
        cfg.csf.retain_packets = retain;
        let mut rig = Rig::new(cfg);
        let psn = rig.protect(key(1), 0xff_f000);
        Self {
            rig,
            psn,
            id: 0,
            all: Vec::new(),
        }
    }

    fn take(&mut self, step: &Step) {
        let rig = &mut self.rig;
        self.id = self.id.wrapping_add(1).max(1);
        let bound = rig
            .csf
            .flows()
            .find(|f| f.key == key(1))
            .and_then(|f| f.bound);
        match *step {
            Step::Packets { jump, count, len } => {
                self.psn = Psn::new(self.psn).add(jump - 1).get();
                let burst: Vec<_> = (0..u32::from(count))
                    .map(|n| {
                        let mut packet = desc(key(1), Psn::new(self.psn).add(n as i32).get());
                        packet.payload_len = len;
                        packet
                    })
                    .collect();
                self.psn = Psn::new(self.psn).add(i32::from(count)).get();
                rig.packets(&burst);
            }
            Step::Read { length } => {
                let mut packet = desc(key(1), self.psn);
                packet.read_length = Some(length);
                rig.packets(&[packet]);
                self.psn = Psn::new(self.psn)
                    .add(length.div_ceil(1024).max(1) as i32)
                    .get();
            }
            Step::Wait { micros } => rig.wait(Duration::from_micros(micros.into())),
            Step::Report { lost, repairs_ce } if bound.is_some() => {
                rig.report_with(key(1), 256, 256 - u32::from(lost), 0, repairs_ce.into());
            }
            Step::Block {
                block,
                lost,
                held,
                fallback,
            } if bound.is_some() && !self.all.is_empty() => {
                let block = self.all[usize::from(block) * self.all.len() / 256].clone();
                let lost: Vec<u8> = (0..32).filter(|n| lost >> n & 1 == 1).collect();
                let mut request = rig.request(key(1), &block, &lost, held, self.id);
                (request.fallback, request.suggested) = (fallback, held.wrapping_mul(7));
                rig.deliver(&Message::BlockRequest(request));
            }
            Step::Range {
                back,
                count,
                fallback,
            } if bound.is_some() => {
                let start = Psn::new(self.psn).add(-i32::from(back)).get();
                let mut request = rig.ranges(key(1), &[(start, count)], self.id);
                request.fallback = fallback;
                rig.deliver(&Message::RangeRequest(request));
            }
            Step::GiveUp { packets } => {
                rig.csf.give_up(packets.into());
            }
            _ => {}
        }
        self.all.append(&mut self.rig.sent);
    }
}

/// Names a block over all bindings: a new binding may code the same PSNs again.
fn block_of(sent: &Sent) -> (FlowId, u32) {
    (sent.emit.header.flow, sent.emit.header.block_start.get())
}

fn check_blocks(all: &[Sent]) -> Result<(), TestCaseError> {
    let mut used: BTreeSet<(FlowId, u32, u8)> = BTreeSet::new();
    let mut shapes: BTreeMap<(FlowId, u32), (u8, Bitmap, ConfigId)> = BTreeMap::new();
    for sent in all {
        let header = &sent.emit.header;
        let (flow, start) = block_of(sent);
        prop_assert!(header.k >= 1);
        prop_assert!(Bitmap::first(header.k.into()).contains_all(&header.present));
        if header.present.is_empty() {
            // A made-up block for a stretch without sources.
            prop_assert!(header.info);
            continue;
        }
        prop_assert!(header.k <= 128);
        let shape = (header.k, header.present, header.config);
        prop_assert_eq!(
            *shapes.entry((flow, start)).or_insert(shape),
            shape,
            "closed blocks never change"
        );
        let over: Bitmap = sent.over.iter().copied().collect();
        match sent.emit.kind {
            RepairKind::Ordinary | RepairKind::Coded => {
                prop_assert!(u16::from(header.index) + u16::from(header.k) <= 255);
                prop_assert!(
                    used.insert((flow, start, header.index)),
                    "index {} of {start:x} twice",
                    header.index
                );
                prop_assert_eq!(header.lost.unwrap_or(header.present), over);
                prop_assert!(header.present.contains_all(&over) && !over.is_empty());
                prop_assert_eq!(header.lost.is_some(), sent.emit.kind == RepairKind::Coded);
            }
            RepairKind::Copy => {
                prop_assert!(header.present.contains(header.index) && over.contains(header.index))
            }
            RepairKind::Info => prop_assert!(header.symbol_length == 0 && sent.over.is_empty()),
        }
    }
    check_overlap(&shapes)
}

fn check_overlap(
    shapes: &BTreeMap<(FlowId, u32), (u8, Bitmap, ConfigId)>,
) -> Result<(), TestCaseError> {
    let mut covered: BTreeSet<(FlowId, u32)> = BTreeSet::new();
    for ((flow, start), (k, ..)) in shapes {
        for n in 0..*k {
            let psn = Psn::new(*start).add(n.into()).get();
            prop_assert!(covered.insert((*flow, psn)), "{psn:x} is in two blocks");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    // shows: CREM-BLOCK-02, CREM-BLOCK-03, CREM-FEC-06, CREM-RSP-02, CREM-OPS-02
    #[test]
    fn blocks_indices_and_bounds(steps in prop::collection::vec(step(), 1..120), retain in 40u32..2000) {
        let mut run = Run::new(retain);
        for step in &steps {
            run.take(step);
            prop_assert!(run.rig.csf.retained().0 <= retain);
            prop_assert!(run.rig.csf.next_timeout().is_some());
        }
        check_blocks(&run.all)?;
        run.rig.csf.close_all(CloseReason::Normal);
        prop_assert_eq!(run.rig.csf.retained(), (0, 0));
    }

    /// Over any traffic of one binding: symbols <= m/k of the sources plus one depth, octets likewise.
    // shows: CREM-CC-02, AMB-RATECAP
    #[test]
    fn token_caps_hold(
        bursts in prop::collection::vec((1u8..60, 16u16..1060, 0u32..30_000), 1..150), m in 1u8..8,
    ) {
        let mut cfg = config();
        (cfg.fec.m_min, cfg.fec.m_max) = (m, m);
        let mut rig = Rig::new(cfg);
        let mut psn = rig.protect(key(1), 0);
        let before = rig.csf.counters();
        let (mut sources, mut octets) = (0u64, 0u64);
        for (count, len, wait) in bursts {
            let burst: Vec<_> = (0..u32::from(count)).map(|n| {
                let mut packet = desc(key(1), psn + n);
                packet.payload_len = len;
                packet
            }).collect();
            rig.packets(&burst);
            // Retransmissions earn nothing.
            rig.packets(&burst);
            psn += u32::from(count);
            sources += u64::from(count);
            octets += u64::from(count) * u64::from(len);
            rig.wait(Duration::from_micros(wait.into()));
            rig.report(key(1), 100, 99);
            let symbols = rig.csf.counters().symbols_ordinary - before.symbols_ordinary;
            let (m, k, t) = (u64::from(m), 32, 1062);
            prop_assert!(symbols * k <= sources * m + m * k);
            prop_assert!(symbols * t * k <= 2 * m * octets + m * t * k);
        }
    }

    /// Whatever comes from the bound peer: no panic, bounded state, and never more than the volume cap.
    // shows: CREM-ARCH-01, CREM-CC-03
    #[test]
    fn any_message_is_survived(messages in prop::collection::vec(message(), 1..200)) {
        let mut rig = Rig::new(config());
        let mut psn = rig.protect(key(1), 0xff_fff0);
        rig.answer = false;
        for (n, message) in messages.into_iter().enumerate() {
            let flow = rig.csf.flows().find(|f| f.key == key(1)).and_then(|f| f.bound).map(|b| b.1);
            rig.deliver_from(gateway(), &with_flow(message, flow));
            if n % 4 == 0 {
                rig.psns(key(1), (psn..psn + 20).map(|p| p & 0xff_ffff));
                psn = (psn + 20) & 0xff_ffff;
            }
            rig.wait(MS);
            prop_assert!(rig.csf.flows().count() <= 1);
        }
        let ours = |m: &Message| matches!(m, Message::Hello(_) | Message::ParamUpdate(_) | Message::Close(_));
        prop_assert!(rig.messages.iter().all(|m| ours(&m.2)));
        let counters = rig.csf.counters();
        // Twice the claimed losses of four reports, and no report claims more than two intervals' traffic.
        let drawn = counters.symbols_coded + counters.symbols_copy;
        prop_assert!(drawn <= 64 + 8 * counters.sources_new);
        let all = core::mem::take(&mut rig.sent);
        check_blocks(&all)?;
    }
}

fn message() -> impl Strategy<Value = Message> {
    let flow = FlowId::new(1).expect("not zero");
    let psn = prop_oneof![0xff_ff00u32..0xff_ffff, 0u32..400, any::<u32>()].prop_map(Psn::new);
    let bitmap = any::<[u64; 4]>().prop_map(Bitmap::from_words);
    let request = (1u16..).prop_map(|id| RequestId::new(id).expect("not zero"));
    prop_oneof![
        (
            any::<u8>(),
            any::<u8>(),
            1u8..,
            any::<u8>(),
            psn.clone(),
            any::<u8>(),
            request.clone(),
            bitmap,
            any::<bool>()
        )
            .prop_map(
                move |(
                    config,
                    scheme,
                    k,
                    held,
                    block_start,
                    suggested,
                    request,
                    lost,
                    fallback,
                )| {
                    let config = ConfigId(config % 4);
                    Message::BlockRequest(BlockRequest {
                        flow,
                        fallback,
                        config,
                        scheme: scheme % 3,
                        k,
                        held,
                        block_start,
                        suggested,
                        request,
                        lost,
                    })
                }
            ),
        (
            prop::collection::vec((psn, 1u8..), 1..600),
            request,
            any::<bool>()
        )
            .prop_map(move |(ranges, request, fallback)| {
                let ranges = ranges
                    .into_iter()
                    .map(|(start, count)| PsnRange { start, count })
                    .collect();
                Message::RangeRequest(RangeRequest {
                    flow,
                    fallback,
                    request,
                    ranges,
                })
            }),
        any::<[u32; 8]>().prop_map(move |[a, b, c, d, e, f, g, h]| Message::LossReport(
            LossReport {
                flow,
                interval_us: a,
                expected: b,
                received: c,
                restored: d,
                incomplete_blocks: e,
                ce_marked: f,
                repairs_received: g,
                repairs_ce_marked: h,
            }
        )),
        (any::<u8>(), any::<u8>()).prop_map(move |(config, status)| Message::ParamAck(ParamAck {
            flow,
            config: ConfigId(config % 4),
            status: status % 5,
        })),
        any::<u16>().prop_map(move |reason| Message::Close(Close { flow, reason })),
        (any::<u64>(), any::<[u8; 4]>(), any::<u16>()).prop_map(
            move |(nonce, [kind, af, k, m], t)| {
                Message::HelloAck(HelloAck {
                    flow,
                    kind,
                    af,
                    nonce,
                    rdma_mtu: t,
                    max_open_blocks: t,
                    limits: Limits {
                        schemes: t,
                        max_k: k,
                        max_m: m,
                        max_t: t,
                    },
                })
            }
        ),
    ]
}

fn with_flow(mut message: Message, bound: Option<FlowId>) -> Message {
    if let Some(id) = bound {
        match &mut message {
            Message::BlockRequest(m) => m.flow = id,
            Message::RangeRequest(m) => m.flow = id,
            Message::LossReport(m) => m.flow = id,
            Message::ParamAck(m) => m.flow = id,
            // Most CLOSEs miss, or the run would be over at once.
            Message::Close(m) if m.reason % 16 == 0 => m.flow = id,
            _ => {}
        }
    }
    message
}

// shows: CREM-OPS-02
#[test]
fn flows_and_peers_stay_bounded_under_a_flood_of_keys() {
    let mut cfg = config();
    (cfg.csf.max_flows, cfg.csf.max_peers) = (50, 10);
    let mut rig = Rig::new(cfg);
    rig.answer = false;
    for n in 0..2000u32 {
        let mut key = key(n);
        key.destination = core::net::IpAddr::from([10, 9, (n >> 8) as u8, n as u8]);
        rig.psns(key, 0..17);
        assert!(rig.csf.flows().count() <= 50);
    }
    assert!(rig.csf.counters().peers_no_room > 0);
    rig.wait(RTT * 2000);
    assert_eq!(rig.csf.flows().count(), 0);
    assert_eq!(rig.csf.next_timeout(), None);
}

// shows: CREM-OPS-02, AMB-BLOCKID
#[test]
fn hostile_jumps_hold_no_memory() {
    let mut rig = Rig::new(config());
    let mut psn = rig.protect(key(1), 0);
    for n in 0..20_000u32 {
        psn = Psn::new(psn).add(1 + (n % 7) as i32 * 100_000).get();
        rig.psns(key(1), [psn]);
    }
    // 2^22 PSNs behind at most, and each block holds one packet.
    assert!(
        rig.csf.retained().0 <= 1 + (1 << 22) / 300_000 * 2 + 2,
        "{}",
        rig.csf.retained().0
    );
    assert!(rig.csf.counters().retain_distance > 1000);
}
