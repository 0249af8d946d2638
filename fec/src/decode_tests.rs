//! Tests of decoding: losses, partial sets, late arrivals, absent positions, partial solving, bad input.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::{EncodeJob, Isa, Row, Scheme, rank};
use proptest::prelude::*;

/// A block as a sender holds it: payloads by position.
struct Block {
    t: usize,
    payloads: Vec<(u8, Vec<u8>)>,
}

impl Block {
    fn new(t: usize, positions: impl IntoIterator<Item = u8>, seed: u64) -> Self {
        let mut state = seed | 1;
        let mut next = || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) as usize
        };
        let payloads = positions
            .into_iter()
            .map(|p| {
                let length = MIN_PAYLOAD + next() % (t - 1 - MIN_PAYLOAD);
                (p, (0..length).map(|_| next() as u8).collect())
            })
            .collect();
        Self { t, payloads }
    }

    fn sources(&self, keep: impl Fn(u8) -> bool) -> Vec<Source<'_>> {
        let kept = self.payloads.iter().filter(|(p, _)| keep(*p));
        kept.map(|(position, p)| Source {
            position: *position,
            payload: p[..].into(),
        })
        .collect()
    }

    fn positions(&self) -> PositionSet {
        self.payloads.iter().map(|(p, _)| *p).collect()
    }

    fn payload(&self, position: u8) -> &[u8] {
        &self
            .payloads
            .iter()
            .find(|(p, _)| *p == position)
            .unwrap()
            .1
    }

    fn symbol(&self, scheme: Scheme, index: u8, set: PositionSet) -> (Equation, Vec<u8>) {
        let mut octets = vec![0xee; self.t];
        let sources = self.sources(|p| set.contains(p));
        let mut rows = [Row {
            index,
            symbol: &mut octets,
        }];
        Engine::detect().encode(&mut [EncodeJob::new(scheme, &mut rows, &sources, true).unwrap()]);
        (Equation { scheme, index, set }, octets)
    }
}

/// One engine for each instruction set of this processor.
fn engines() -> impl Iterator<Item = Engine> {
    Isa::ALL
        .into_iter()
        .filter_map(|isa| Engine::with_isa(isa).ok())
}

fn held(symbols: &[(Equation, Vec<u8>)]) -> Vec<Symbol<'_>> {
    symbols
        .iter()
        .map(|(e, o)| Symbol {
            equation: *e,
            octets: o[..].into(),
        })
        .collect()
}

fn job<'a>(
    t: usize,
    sources: &'a [Source<'a>],
    symbols: &'a [Symbol<'a>],
    unknown: PositionSet,
) -> DecodeJob<'a> {
    DecodeJob {
        t,
        min_payload: MIN_PAYLOAD,
        sources,
        symbols,
        unknown,
    }
}

// shows: CREM-RSP-08, CREM-RSP-09
#[test]
fn mixed_rounds_with_a_late_source() {
    let block = Block::new(60, 0..10, 5);
    let all = block.positions();
    let round1: PositionSet = [2u8, 3, 5, 7].into_iter().collect();
    let round2: PositionSet = [3u8, 5, 7].into_iter().collect();
    let symbols = [
        block.symbol(Scheme::Cauchy, 0, all),
        block.symbol(Scheme::Cauchy, 1, round1),
        block.symbol(Scheme::Cauchy, 3, round2),
    ];
    let sources = block.sources(|p| !round2.contains(p));
    let symbols = held(&symbols);
    let mut scratch = Scratch::new(8, 60);
    let decoded = Engine::detect()
        .decode(&job(60, &sources, &symbols, round2), &mut scratch)
        .unwrap();
    assert!(decoded.is_complete() && decoded.rank() == 3);
    for (position, outcome) in decoded.outcomes() {
        assert_eq!(outcome, Outcome::Restored(block.payload(position)));
    }
}

#[test]
fn solved_positions_are_delivered_although_others_are_not() {
    let block = Block::new(70, 0..6, 9);
    let lost: PositionSet = [1u8, 3, 4].into_iter().collect();
    let symbols = [
        block.symbol(Scheme::Cauchy, 0, block.positions()),
        block.symbol(Scheme::Copy, 4, [4u8].into_iter().collect()),
    ];
    let sources = block.sources(|p| !lost.contains(p));
    let symbols = held(&symbols);
    let mut scratch = Scratch::new(8, 100);
    let decoded = Engine::detect()
        .decode(&job(70, &sources, &symbols, lost), &mut scratch)
        .unwrap();
    assert!(!decoded.is_complete());
    let outcomes: Vec<_> = decoded.outcomes().collect();
    assert_eq!(outcomes[0], (1, Outcome::Undetermined));
    assert_eq!(outcomes[1], (3, Outcome::Undetermined));
    assert_eq!(outcomes[2], (4, Outcome::Restored(block.payload(4))));
}

#[test]
fn a_missing_source_that_nobody_asked_for_is_an_unknown_all_the_same() {
    let block = Block::new(40, 0..5, 77);
    let unknown: PositionSet = [1u8].into_iter().collect();
    let one = [block.symbol(Scheme::Cauchy, 0, block.positions())];
    let two = [
        one[0].clone(),
        block.symbol(Scheme::Cauchy, 1, block.positions()),
    ];
    let sources = block.sources(|p| p != 1 && p != 2);
    let mut scratch = Scratch::new(4, 40);
    for (symbols, expected) in [
        (&one[..], Outcome::Undetermined),
        (&two[..], Outcome::Restored(block.payload(1))),
    ] {
        let symbols = held(symbols);
        let decoded = Engine::detect().decode(&job(40, &sources, &symbols, unknown), &mut scratch);
        let decoded = decoded.unwrap();
        assert!(decoded.outcomes().eq([(1u8, expected)]));
    }
}

// shows: CREM-FEC-13
#[test]
fn xor_recovers_one() {
    let block = Block::new(33, 3..9, 3);
    let symbols = [block.symbol(Scheme::Xor, 0, block.positions())];
    let symbols = held(&symbols);
    let sources = block.sources(|p| p != 5);
    let mut scratch = Scratch::new(1, 33);
    let unknown = [5u8].into_iter().collect();
    let decoded = Engine::detect()
        .decode(&job(33, &sources, &symbols, unknown), &mut scratch)
        .unwrap();
    assert!(
        decoded
            .outcomes()
            .eq([(5, Outcome::Restored(block.payload(5)))])
    );
}

// shows: CREM-SYM-04, AMB-SYM-PAD
#[test]
fn corruption_shows_in_prefix_or_padding() {
    let block = Block::new(64, 0..2, 1);
    let mut symbols = [block.symbol(Scheme::Copy, 1, [1u8].into_iter().collect())];
    symbols[0].1[63] ^= 1;
    let unknown: PositionSet = [1u8].into_iter().collect();
    let mut scratch = Scratch::new(2, 64);
    let at_end = held(&symbols);
    let decoded = Engine::detect()
        .decode(&job(64, &[], &at_end, unknown), &mut scratch)
        .unwrap();
    let full = block.payload(1).len() == 62;
    assert_eq!(
        decoded.outcomes().any(|(_, o)| o == Outcome::BadSymbol),
        !full
    );
    for prefix in [[0, 15], [0, 63], [255, 255]] {
        symbols[0].1[..2].copy_from_slice(&prefix);
        let bad = held(&symbols);
        let decoded = Engine::detect()
            .decode(&job(64, &[], &bad, unknown), &mut scratch)
            .unwrap();
        assert!(decoded.outcomes().eq([(1u8, Outcome::BadSymbol)]));
    }
}

#[test]
fn impossible_jobs_are_refused() {
    let engine = Engine::detect();
    let block = Block::new(40, 0..4, 2);
    let good = block.symbol(Scheme::Cauchy, 0, block.positions());
    let one = [good.clone()];
    let symbols = held(&one);
    let sources = block.sources(|p| p > 1);
    let unknown: PositionSet = [0u8, 1].into_iter().collect();
    let mut scratch = Scratch::new(2, 40);
    let mut error = |job: DecodeJob<'_>| engine.decode(&job, &mut scratch).err();
    let fine = job(40, &sources, &symbols, unknown);
    assert_eq!(error(fine), None);
    assert_eq!(
        error(DecodeJob { t: 41, ..fine }),
        Some(DecodeError::SymbolLength)
    );
    assert_eq!(
        error(DecodeJob { t: 2, ..fine }),
        Some(DecodeError::SymbolLength)
    );
    assert!(error(DecodeJob { t: 39, ..fine }).is_some());
    let twice = [sources[0], sources[0]];
    let duplicate = DecodeJob {
        sources: &twice,
        ..fine
    };
    assert_eq!(
        error(duplicate),
        Some(DecodeError::DuplicateSource { position: 2 })
    );
    let both = DecodeJob {
        unknown: [2u8].into_iter().collect(),
        ..fine
    };
    assert_eq!(
        error(both),
        Some(DecodeError::KnownAndUnknown { position: 2 })
    );
    let none = DecodeJob {
        sources: &[],
        ..fine
    };
    assert_eq!(
        error(none),
        Some(DecodeError::TooManyUnknowns { unknowns: 4 })
    );
    let short = [Symbol {
        octets: Payload::Whole(&good.1[1..]),
        ..symbols[0]
    }];
    let wrong = DecodeJob {
        symbols: &short,
        ..fine
    };
    assert_eq!(
        error(wrong),
        Some(DecodeError::WrongSymbolLength { symbol: 0 })
    );
    let pole = [Symbol {
        equation: Equation {
            index: 252,
            ..good.0
        },
        ..symbols[0]
    }];
    let pole = DecodeJob {
        symbols: &pole,
        ..fine
    };
    assert_eq!(error(pole), Some(DecodeError::NoCoefficient { symbol: 0 }));
}

#[test]
fn symbols_may_come_in_pieces() {
    let block = Block::new(50, 0..3, 8);
    let (equation, octets) = block.symbol(Scheme::Cauchy, 4, block.positions());
    let sources = block.sources(|p| p != 2);
    let unknown: PositionSet = [2u8].into_iter().collect();
    let mut scratch = Scratch::new(1, 50);
    for cut in 0..=50 {
        let (a, b) = octets.split_at(cut);
        let (a1, a2) = a.split_at(cut.min(1));
        let parts = [a1, a2, b];
        let symbols = [Symbol {
            equation,
            octets: Payload::Parts(&parts),
        }];
        let job = job(50, &sources, &symbols, unknown);
        let decoded = Engine::detect().decode(&job, &mut scratch).unwrap();
        assert!(
            decoded
                .outcomes()
                .eq([(2, Outcome::Restored(block.payload(2)))])
        );
    }
}

/// A block with absent positions, losses, ordinary symbols, and coded retransmissions over random
/// sets, of which some sources arrive late.
#[derive(Debug, Clone)]
struct Case {
    t: usize,
    seed: u64,
    positions: Vec<u8>,
    lost: PositionSet,
    late: PositionSet,
    symbols: Vec<(Scheme, u8, PositionSet)>,
}

fn case() -> impl Strategy<Value = Case> {
    (
        1u8..=64,
        19usize..150,
        any::<u64>(),
        any::<[u64; 3]>(),
        0usize..9,
        0usize..6,
    )
        .prop_map(|(k, t, seed, masks, ordinary, extra)| {
            let bit = |n: usize, p: u8| masks[n] >> (p % 64) & 1 == 1;
            let positions: Vec<u8> = (0..k)
                .filter(|&p| p == 0 || bit(0, p) || bit(1, p))
                .collect();
            let present: PositionSet = positions.iter().copied().collect();
            let lost = positions
                .iter()
                .copied()
                .filter(|&p| bit(2, p) && bit(1, p))
                .take(8)
                .collect();
            let late: PositionSet = positions
                .iter()
                .copied()
                .filter(|&p| bit(2, p) && seed >> (p % 64) & 1 == 1)
                .take(2)
                .collect();
            let mut symbols: Vec<_> = (0..ordinary as u8)
                .map(|i| (Scheme::Cauchy, 2 * i, present))
                .collect();
            for n in 0..extra {
                let named = |p: &u8| (seed >> ((usize::from(*p) * 5 + n * 11) % 64)) & 3 != 0;
                let set: PositionSet = PositionSet::iter(&lost).filter(named).collect();
                let scheme = match (seed >> n) & 7 {
                    0 => (Scheme::Copy, positions[n % positions.len()], present),
                    1 => (Scheme::Xor, 0, present),
                    _ if set.is_empty() => continue,
                    _ => (Scheme::Cauchy, 31 + n as u8, set),
                };
                symbols.push(scheme);
            }
            Case {
                t,
                seed,
                positions,
                lost,
                late,
                symbols,
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 6 } else { 512 }))]

    /// What is delivered is right, the rank is that of the coefficients, and full rank delivers all.
    // shows: CREM-FEC-10, CREM-BLOCK-04
    #[test]
    fn decoding_delivers_what_the_rank_allows(case in case()) {
        let block = Block::new(case.t, case.positions.iter().copied(), case.seed);
        let symbols: Vec<_> = case.symbols.iter().map(|(s, i, set)| block.symbol(*s, *i, *set)).collect();
        let symbols = held(&symbols);
        let unknown = case.lost.minus(&case.late);
        let sources = block.sources(|p| !unknown.contains(p));
        let mut scratch = Scratch::new(64, 150);
        let job = job(case.t, &sources, &symbols, unknown);
        for engine in engines() {
            let decoded = engine.decode(&job, &mut scratch).unwrap();
            prop_assert_eq!(decoded.rank(), rank(symbols.iter().map(|s| s.equation), unknown));
            let mut restored = 0;
            for (position, outcome) in decoded.outcomes() {
                match outcome {
                    Outcome::Restored(payload) => {
                        prop_assert_eq!(payload, block.payload(position));
                        restored += 1;
                    }
                    Outcome::Undetermined => prop_assert!(!decoded.is_complete()),
                    Outcome::BadSymbol => prop_assert!(false),
                }
            }
            prop_assert!(restored <= decoded.rank());
        }
    }

    /// As many ordinary symbols as losses always suffice.
    // shows: CREM-FEC-12
    #[test]
    fn the_code_is_maximum_distance_separable(
        k in 1u8..=240,
        picks in proptest::collection::vec(any::<u8>(), 0..16),
        first in 0u8..=239,
        seed: u64,
    ) {
        let block = Block::new(40, 0..k, seed);
        let unknown: PositionSet = picks.iter().map(|p| p % k).collect();
        let count = unknown.len() as u8;
        let first = first.min(255 - k - (count.max(1) - 1).min(255 - k));
        let all = block.positions();
        let symbols: Vec<_> = (0..count).map(|n| block.symbol(Scheme::Cauchy, first + n, all)).collect();
        let symbols = held(&symbols);
        let sources = block.sources(|p| !unknown.contains(p));
        let mut scratch = Scratch::new(16, 40);
        for engine in engines() {
            let decoded = engine.decode(&job(40, &sources, &symbols, unknown), &mut scratch).unwrap();
            prop_assert!(decoded.is_complete());
            for (position, outcome) in decoded.outcomes() {
                prop_assert_eq!(outcome, Outcome::Restored(block.payload(position)));
            }
        }
    }
}
