//! Floods and nonsense: memory stays bounded, nothing panics, the flow goes on.

use super::*;
use crem_wire::crem::{Parsed, parse};
use proptest::prelude::*;

// shows: CREM-OPS-02, AMB-OPENBLOCKS
#[test]
fn a_flood_of_blocks_is_bounded() {
    let mut small = config();
    small.crf.max_open_blocks = 16;
    small.crf.keep_packets = 500;
    let mut rig = Rig::bound(small, 2, 1000);
    for n in 0..2000u32 {
        let header = RepairHeader {
            block_start: Psn::new(1000 + (n * 8) % 4000),
            index: (n % 200) as u8,
            ..rig.header(0, 0)
        };
        rig.repair(&header);
        assert!(rig.status().open_blocks <= 16);
        assert!(rig.crf.references().kept <= 500);
    }
    assert!(rig.count("blocks_evicted") > 0);
    rig.burst(&[1000, 1001, 1002]);
    assert_eq!(rig.taken(), [1000, 1001, 1002]);
}

#[test]
fn symbols_of_one_block_are_bounded() {
    let mut rig = Rig::bound(config(), 2, 1000);
    rig.burst(&[1000, 1009]);
    let id = RequestId::new(3).unwrap();
    for round in 0..4u8 {
        for index in 0..240 {
            rig.coded(1000, index, set(&[1, 2 + round]), id);
        }
    }
    assert!(rig.crf.references().kept < 40, "{:?}", rig.crf.references());
    assert!(rig.count("repairs_redundant") > 900);
}

// shows: CREM-OPS-02
#[test]
fn kept_sources_are_bounded_and_the_oldest_go_first() {
    let mut small = config();
    small.crf.keep_packets = 64;
    small.crf.hold = crate::config::Hold::Off;
    let mut rig = Rig::bound(small, 2, 1000);
    // Gaps that nothing explains keep what is near them, up to the bound.
    let psns: Vec<u32> = (1001..1400).filter(|psn| psn % 8 != 0).collect();
    for chunk in psns.chunks(16) {
        rig.burst(chunk);
        assert!(rig.crf.references().kept <= 64);
    }
    assert!(rig.count("sources_evicted") > 0);
    assert_eq!(rig.count("positions_left") + rig.status().gaps as u64, 50);
    assert_eq!(rig.taken(), psns);
}

#[test]
fn references_are_given_up_when_buffers_are_short() {
    let mut rig = Rig::bound(config(), 2, 1000);
    let psns: Vec<u32> = (1001..1200).filter(|psn| psn % 8 != 0).collect();
    rig.burst(&psns);
    rig.ordinary(1000, 0);
    let before = rig.crf.references();
    assert!(
        before.kept > 170 && before.held as usize == psns.len(),
        "{before:?}"
    );
    rig.crf.give_up(rig.now, 150, &mut rig.out);
    rig.settle();
    assert!(rig.crf.references().kept <= before.kept - 150);
    let mut taken = rig.taken();
    assert!(taken.len() > 100, "holds end with the hope");
    rig.crf.release_all(rig.now, &mut rig.out);
    rig.settle();
    taken.extend(rig.taken());
    assert_eq!(taken, psns, "a held frame is sent on, never dropped");
    rig.crf.give_up(rig.now, 100_000, &mut rig.out);
    assert!(rig.crf.references().kept < 10);
}

#[test]
fn nobody_taking_messages_out_costs_messages_only() {
    let mut small = config();
    small.max_transmits = 5;
    let mut crf: Crf<Buf> = Crf::new(small, [1; 32]);
    let mut out = Actions::default();
    let csf = "192.0.2.1:50000".parse().unwrap();
    for nonce in 0..100 {
        crf.on_message(
            Instant(0),
            csf,
            &Message::Hello(hello(nonce)),
            &|_| true,
            &mut out,
        );
    }
    assert_eq!(core::iter::from_fn(|| crf.poll_transmit()).count(), 5);
    assert_eq!(crf.counters().transmits_dropped, 95);
}

fn any_bitmap() -> impl Strategy<Value = Bitmap> {
    prop_oneof![
        (0usize..=255).prop_map(Bitmap::first),
        proptest::collection::vec(0u8..255, 0..12).prop_map(|p| p.into_iter().collect()),
        any::<[u64; 4]>().prop_map(Bitmap::from_words),
    ]
}

prop_compose! {
    fn any_repair()(
        start in prop_oneof![900u32..1300, any::<u32>()],
        k in prop_oneof![Just(8u8), any::<u8>()],
        index in any::<u8>(),
        scheme in 0u8..4,
        config in 0u8..3,
        t in prop_oneof![Just(T), any::<u16>()],
        present in any_bitmap(),
        lost in proptest::option::of(any_bitmap()),
        session in any::<u16>(),
        last in any::<bool>(),
        info in any::<bool>(),
    ) -> RepairHeader {
        RepairHeader {
            flow: FlowId::new(1).unwrap(),
            last, info, k, index, scheme, present, lost,
            config: ConfigId(config),
            block_start: Psn::new(start),
            session: RequestId::new(session),
            symbol_length: t,
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Repair(RepairHeader),
    Burst(Vec<u32>),
    Wait(u32),
    Params(u8, u8, u8, u8, u32),
    Hello(u64),
    Close(u16),
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => any_repair().prop_map(Op::Repair),
        4 => proptest::collection::vec(prop_oneof![950u32..1400, any::<u32>()], 0..20).prop_map(Op::Burst),
        2 => (0u32..100_000).prop_map(Op::Wait),
        1 => any::<(u8, u8, u8, u8, u32)>().prop_map(|(a, b, c, d, e)| Op::Params(a % 4, b % 4, c, d, e)),
        1 => (0u64..4).prop_map(Op::Hello),
        1 => (0u16..900).prop_map(Op::Close),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    /// Whatever a bound peer sends: no panic, bounds hold, no frame is lost.
    // shows: CREM-ARCH-02, CREM-REQ-04
    #[test]
    fn any_messages_are_survived(ops in proptest::collection::vec(any_op(), 1..120)) {
        let mut small = config();
        small.crf.max_open_blocks = 8;
        small.crf.keep_packets = 200;
        small.crf.hold_packets = 50;
        let mut rig = Rig::bound(small, 2, 1000);
        rig.judge = |job, psn| match (job.id.0 + u64::from(psn.get())) % 5 {
            0 => Verdict::Corrupt,
            1 => Verdict::NoNeighbour,
            2 => Verdict::NoBuffer,
            _ => Verdict::Good,
        };
        rig.damaged = set(&[3]);
        let mut given = rig.numbers.len();
        for op in ops {
            match op {
                Op::Repair(header) => {
                    let header = RepairHeader { flow: rig.flow, ..header };
                    rig.repair(&header);
                }
                Op::Burst(psns) => {
                    given += psns.len();
                    rig.burst(&psns);
                }
                Op::Wait(us) => rig.wait(us * US),
                Op::Params(id, scheme, k, m, effective) => {
                    let update = ParamUpdate { scheme, k, ..params(rig.flow, id, m, effective) };
                    rig.update_any(&update);
                }
                Op::Hello(nonce) => rig.message(&Message::Hello(hello(nonce))),
                // CLOSE with other Flow IDs mostly, with ours at times.
                Op::Close(0) => rig.close(CloseReason::Normal),
                Op::Close(n) => {
                    let flow = FlowId::new(u32::from(n)).unwrap();
                    rig.message(&Message::Close(crem_wire::crem::Close { flow, reason: n }));
                }
            }
            let now = rig.crf.references();
            prop_assert!(now.kept <= 200 && now.held <= 50, "{:?}", now);
            prop_assert!(rig.crf.flows().all(|f| f.open_blocks <= 8));
        }
        rig.crf.close_all(rig.now, CloseReason::Normal, &mut rig.out);
        rig.settle();
        prop_assert_eq!(rig.crf.references(), References::default());
        prop_assert_eq!(rig.numbers.len(), given);
        rig.numbers.sort_unstable();
        rig.numbers.dedup_by_key(|n| n.0);
        prop_assert_eq!(rig.numbers.len(), given, "each frame once");
    }
}

impl Rig {
    fn update_any(&mut self, update: &ParamUpdate) {
        self.message(&Message::ParamUpdate(*update));
        self.sent.clear();
    }
}

/// The octets of a REPAIR with these fields, right in its lengths and in nothing else.
fn repair_octets(head: [u8; 4], flags: u8, rest: [u8; 8], words: [u32; 2], t: u8) -> Vec<u8> {
    let k = head[2];
    let mut octets = vec![0x11, flags & 0xe0, 0, 0, 0, 0, 0, 1];
    octets.extend(head);
    octets.extend(&rest[..6]);
    octets.extend(u16::from(t).to_be_bytes());
    let maps = if flags & 0x80 == 0 { 1 } else { 2 };
    for map in &words[..maps] {
        for word in 0..u32::from(k).div_ceil(32) {
            let within = u32::MAX.checked_shl((32 * (word + 1)).saturating_sub(u32::from(k)));
            octets.extend((map & within.unwrap_or(0)).to_be_bytes());
        }
    }
    octets.extend(vec![0; usize::from(t)]);
    let length = octets.len() as u16;
    octets[2..4].copy_from_slice(&length.to_be_bytes());
    octets
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]
    // shows: AMB-EMPTY, AMB-BITPAD
    #[test]
    fn what_the_codec_lets_through_is_never_counted_as_invalid(
        head in (0u8..2, 0u8..4, prop_oneof![1u8..40, any::<u8>()], prop_oneof![0u8..3, any::<u8>()]),
        flags in prop_oneof![Just(0u8), Just(0x80), any::<u8>()],
        rest in any::<[u8; 8]>(),
        unset in any::<bool>(),
        words in (prop_oneof![Just(u32::MAX), any::<u32>()], prop_oneof![any::<u32>(), Just(1 << 31)]),
        t in prop_oneof![Just(0u8), 1u8..40],
    ) {
        let (config, scheme, k, index) = head;
        let mut rest = rest;
        if unset {
            // No session.
            (rest[4], rest[5]) = (0, 0);
        }
        let octets = repair_octets([config, scheme, k, index], flags, rest, [words.0, words.1], t);
        if let Ok(Parsed::Repair(header, _)) = parse(&octets) {
            let mut rig = Rig::bound(super::config(), 2, 1000);
            let header = RepairHeader { flow: rig.header(0, 0).flow, ..header };
            rig.repair(&header);
            prop_assert_eq!(rig.count("repairs_invalid"), 0, "{:?}", header);
        }
    }
}
