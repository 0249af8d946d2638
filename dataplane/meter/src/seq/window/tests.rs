//! The window against a set of positions that is written down naively.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Every retained position with its label, `true` for pending.
struct Naive {
    width: i64,
    start: i64,
    high: i64,
    labels: BTreeMap<i64, bool>,
}

impl Naive {
    fn new(width: u32, first: Psn) -> Self {
        let start = i64::from(first.get());
        Self {
            width: i64::from(width),
            start,
            high: start,
            labels: BTreeMap::from([(start, false)]),
        }
    }

    fn low(&self) -> i64 {
        self.start.max(self.high - self.width + 1)
    }

    fn advance(&mut self, distance: u32) -> u32 {
        for position in self.high + 1..self.high + i64::from(distance) {
            self.labels.insert(position, true);
        }
        self.high += i64::from(distance);
        self.labels.insert(self.high, false);
        let kept = self.labels.split_off(&self.low());
        let expired = self.labels.values().filter(|&&pending| pending).count();
        self.labels = kept;
        expired as u32
    }

    fn look_back(&mut self, back: u32) -> Label {
        match self.labels.get_mut(&(self.high - i64::from(back))) {
            None => Label::Unclassified,
            Some(pending) if *pending => {
                *pending = false;
                Label::Filled
            }
            Some(_) => Label::Seen,
        }
    }

    fn pending(&self) -> u32 {
        self.labels.values().filter(|&&pending| pending).count() as u32
    }
}

#[derive(Clone, Copy, Debug)]
enum Move {
    Step,
    Ahead(u32),
    Back(u32),
}

/// Moves with distances near every edge of a window of this width.
fn moves(width: u32, most: usize) -> impl Strategy<Value = Vec<Move>> {
    let near = prop_oneof![
        1..=8u32,
        Just(width / 2),
        Just(width),
        width.saturating_sub(3)..=width,
        1..=width,
        4090..=4100u32,
    ];
    let one = prop_oneof![
        3 => Just(Move::Step),
        3 => near.clone().prop_map(move |d| Move::Ahead(d.clamp(1, width))),
        5 => near.prop_map(Move::Back),
    ];
    proptest::collection::vec(one, 1..most)
}

fn agree(width: u32, first: u32, moves: &[Move]) -> Result<(), TestCaseError> {
    let mut window = Window::new(width);
    window.restart(Psn::new(first));
    let mut naive = Naive::new(width, Psn::new(first));
    for &step in moves {
        match step {
            Move::Step => prop_assert_eq!(window.step(), naive.advance(1)),
            Move::Ahead(d) => prop_assert_eq!(window.advance(d), naive.advance(d)),
            Move::Back(d) => prop_assert_eq!(window.look_back(d), naive.look_back(d)),
        }
        prop_assert_eq!(window.pending(), naive.pending(), "after {:?}", step);
        prop_assert_eq!(window.high(), Psn::new(naive.high as u32));
    }
    Ok(())
}

proptest! {
    // shows: SEQ-ALGO-07, SEQ-ALGO-15
    #[test]
    fn small_windows_agree(width in 1..300u32, first in 0..1u32 << 24, seed in moves(299, 200)) {
        let moves: Vec<Move> = seed
            .into_iter()
            .map(|m| match m {
                Move::Ahead(d) => Move::Ahead(d.min(width)),
                other => other,
            })
            .collect();
        agree(width, first, &moves)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn windows_of_several_blocks_agree(
        width in prop_oneof![4095..=4098u32, 8191..=8194u32, 4097..20_000u32],
        first in 0..1u32 << 24,
        seed in moves(20_000, 60),
    ) {
        let moves: Vec<Move> = seed
            .into_iter()
            .map(|m| match m {
                Move::Ahead(d) => Move::Ahead(d.min(width)),
                other => other,
            })
            .collect();
        agree(width, first, &moves)?;
    }
}

// shows: SEQ-ALGO-01
#[test]
fn the_largest_window_agrees_on_hostile_jumps() {
    const W: u32 = Window::MAX_WIDTH;
    let mut window = Window::new(W);
    window.restart(Psn::new(0xff_ffff));
    assert_eq!(window.advance(W), 0);
    assert_eq!(window.pending(), W - 1);
    assert_eq!(window.advance(W / 2), W / 2);
    assert_eq!(window.pending(), W - 2);
    assert_eq!(window.look_back(W - 1), Label::Filled);
    assert_eq!(window.look_back(W - 1), Label::Seen);
    assert_eq!(window.look_back(W), Label::Unclassified);
    assert_eq!(window.look_back(W / 2), Label::Seen);
    assert_eq!(window.advance(W), W - 3);
    assert_eq!(window.pending(), W - 1);
    assert_eq!(window.step(), 1);
}

#[test]
fn a_step_over_the_end_of_a_block_keeps_what_is_pending() {
    let mut window = Window::new(4);
    window.restart(Psn::new(4093));
    assert_eq!(window.advance(2), 0);
    assert_eq!((window.step(), window.pending()), (0, 1));
    assert_eq!((window.step(), window.pending()), (0, 1));
    assert_eq!((window.step(), window.pending()), (1, 0));
}

// shows: SEQ-ALGO-11
#[test]
fn memory_is_two_and_a_bit_octets_for_sixteen_positions() {
    assert_eq!(Window::memory(1), 514);
    assert_eq!(Window::memory(4096), 2 * 514);
    assert_eq!(Window::memory(1 << 22), 1025 * 514);
    // Out of range is brought into it.
    assert_eq!(Window::memory(0), 514);
    assert_eq!(Window::memory(u32::MAX), 1025 * 514);
    assert_eq!(Window::new(0).width(), 1);
}
