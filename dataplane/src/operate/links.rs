//! Link propagation: a link that goes takes the one at the other port with it, so that what is connected there
//! notices, as it would at both ends of one cable. Reading and switching links is `aux/operate.rs`.

use core::time::Duration;

use crem_api::{LinkPropagation, Propagation};
use crem_core::time::Instant;

use crate::classify::Side;
use crate::counters::LinkCounters;

/// What the two links are seen to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// Both up.
    Both,
    /// Only the one at the LAN port.
    OnlyLan,
    /// Only the one at the WAN port.
    OnlyWan,
    /// Both down.
    None,
}

impl Seen {
    /// From what each port says.
    pub const fn of(lan: bool, wan: bool) -> Self {
        match (lan, wan) {
            (true, true) => Self::Both,
            (true, false) => Self::OnlyLan,
            (false, true) => Self::OnlyWan,
            (false, false) => Self::None,
        }
    }

    /// Whether the link at `side` is up.
    pub const fn up(self, side: Side) -> bool {
        matches!(
            (self, side),
            (Self::Both, _) | (Self::OnlyLan, Side::Lan) | (Self::OnlyWan, Side::Wan)
        )
    }
}

/// What is to be done with the link of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// Take it down.
    Lower(Side),
    /// Let it come up again.
    Raise(Side),
}

/// Where propagation stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Not both links were up since the start, or since something was mirrored: a link that is down says
    /// nothing new.
    Unarmed,
    /// Both are up.
    Armed,
    /// The one at this port went; it is not mirrored yet.
    Falling(Side),
    /// The one at this port is down, and the other one is held down for it: what that one shows is our own doing
    /// and starts nothing.
    Held(Side),
    /// The one at this port is up again; the other one is not let go yet.
    Rising(Side),
}

/// Every state and what is seen in it, `due` after the state's delay: the next state, and what is to be done.
pub const fn step(state: State, seen: Seen, due: bool) -> (State, Option<Act>) {
    match (state, seen) {
        (State::Unarmed, Seen::Both) | (State::Armed, Seen::Both) => (State::Armed, None),
        (State::Unarmed, _) => (State::Unarmed, None),
        (State::Armed, Seen::OnlyWan) => (State::Falling(Side::Lan), None),
        (State::Armed, Seen::OnlyLan) => (State::Falling(Side::Wan), None),
        // Both at once: neither is a consequence of the other.
        (State::Armed | State::Falling(_), Seen::None) => (State::Unarmed, None),
        (State::Falling(_), Seen::Both) => (State::Armed, None),
        (State::Falling(from), seen) if seen.up(from) => (State::Falling(from.opposite()), None),
        (State::Falling(from), _) if due => (State::Held(from), Some(Act::Lower(from.opposite()))),
        (State::Falling(from), _) => (State::Falling(from), None),
        (State::Held(from), seen) if seen.up(from) => (State::Rising(from), None),
        (State::Held(from), _) => (State::Held(from), None),
        (State::Rising(from), seen) if !seen.up(from) => (State::Held(from), None),
        (State::Rising(from), _) if due => (State::Unarmed, Some(Act::Raise(from.opposite()))),
        (State::Rising(from), _) => (State::Rising(from), None),
    }
}

/// Most acts of one look.
type Acts = [Option<Act>; 2];

/// The links of one segment.
#[derive(Debug)]
pub struct Links {
    config: LinkPropagation,
    state: State,
    /// Since when it is in this state.
    since: Instant,
    seen: Option<Seen>,
    counters: LinkCounters,
}

impl Links {
    /// Nothing is known of the links yet.
    pub fn new(config: LinkPropagation) -> Self {
        Self {
            config,
            state: State::Unarmed,
            since: Instant(0),
            seen: None,
            counters: LinkCounters::default(),
        }
    }

    /// Takes note of what the ports show at `now` and tells what is to be done, in order.
    pub fn look(&mut self, now: Instant, seen: Seen) -> Acts {
        self.count(seen);
        let mut acts = [None; 2];
        if self.config.mode == Propagation::Hub {
            return acts;
        }
        // A delay of zero is over at once.
        for act in &mut acts {
            let due = now.since(self.since) >= self.delay();
            let (next, todo) = step(self.state, seen, due);
            if next != self.state {
                (self.state, self.since) = (next, now);
            }
            *act = todo;
            self.note(todo);
        }
        acts
    }

    fn delay(&self) -> Duration {
        let ms = match self.state {
            State::Rising(_) => self.config.up_delay_ms,
            _ => self.config.down_delay_ms,
        };
        Duration::from_millis(ms.into())
    }

    /// Counts links that went by themselves.
    fn count(&mut self, seen: Seen) {
        let Some(before) = self.seen.replace(seen) else {
            return;
        };
        for (side, count) in [
            (Side::Lan, &mut self.counters.lan_down),
            (Side::Wan, &mut self.counters.wan_down),
        ] {
            let ours = held_of(self.state) == Some(side);
            *count += u64::from(before.up(side) && !seen.up(side) && !ours);
        }
    }

    fn note(&mut self, act: Option<Act>) {
        match act {
            Some(Act::Lower(Side::Lan)) => self.counters.lan_induced += 1,
            Some(Act::Lower(Side::Wan)) => self.counters.wan_induced += 1,
            Some(Act::Raise(_)) => self.counters.released += 1,
            None => {}
        }
    }

    /// Takes another configuration, and tells what it undoes.
    pub fn configure(&mut self, config: LinkPropagation) -> Option<Act> {
        self.config = config;
        if config.mode == Propagation::Wire {
            return None;
        }
        self.let_go()
    }

    /// Nothing is mirrored any more: the port to be let come up, if one is held.
    pub fn let_go(&mut self) -> Option<Act> {
        let act = held_of(self.state).map(Act::Raise);
        self.state = State::Unarmed;
        self.note(act);
        act
    }

    /// The driver could not do it.
    pub fn refused(&mut self) {
        self.counters.refused += 1;
        self.state = State::Unarmed;
    }

    /// The port that is held down.
    pub fn held(&self) -> Option<Side> {
        held_of(self.state)
    }

    /// What happened.
    pub fn counters(&self) -> LinkCounters {
        self.counters
    }
}

const fn held_of(state: State) -> Option<Side> {
    match state {
        State::Held(from) | State::Rising(from) => Some(from.opposite()),
        State::Unarmed | State::Armed | State::Falling(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crem_core::rng::Rng;

    const LOWER_WAN: Option<Act> = Some(Act::Lower(Side::Wan));
    const LOWER_LAN: Option<Act> = Some(Act::Lower(Side::Lan));
    const RAISE_WAN: Option<Act> = Some(Act::Raise(Side::Wan));
    const RAISE_LAN: Option<Act> = Some(Act::Raise(Side::Lan));

    /// What becomes of a state, by what is seen: before its delay is over, and after. One row a state, in the
    /// order both, only LAN, only WAN, none.
    type Row = (State, [(State, State, Option<Act>); 4]);

    const TABLE: [Row; 8] = {
        use Side::{Lan, Wan};
        use State::{Armed, Falling, Held, Rising, Unarmed};
        const fn same(to: State) -> (State, State, Option<Act>) {
            (to, to, None)
        }
        [
            (
                Unarmed,
                [same(Armed), same(Unarmed), same(Unarmed), same(Unarmed)],
            ),
            (
                Armed,
                [
                    same(Armed),
                    same(Falling(Wan)),
                    same(Falling(Lan)),
                    same(Unarmed),
                ],
            ),
            (
                Falling(Lan),
                [
                    same(Armed),
                    same(Falling(Wan)),
                    (Falling(Lan), Held(Lan), LOWER_WAN),
                    same(Unarmed),
                ],
            ),
            (
                Falling(Wan),
                [
                    same(Armed),
                    (Falling(Wan), Held(Wan), LOWER_LAN),
                    same(Falling(Lan)),
                    same(Unarmed),
                ],
            ),
            (
                Held(Lan),
                [
                    same(Rising(Lan)),
                    same(Rising(Lan)),
                    same(Held(Lan)),
                    same(Held(Lan)),
                ],
            ),
            (
                Held(Wan),
                [
                    same(Rising(Wan)),
                    same(Held(Wan)),
                    same(Rising(Wan)),
                    same(Held(Wan)),
                ],
            ),
            (
                Rising(Lan),
                [
                    (Rising(Lan), Unarmed, RAISE_WAN),
                    (Rising(Lan), Unarmed, RAISE_WAN),
                    same(Held(Lan)),
                    same(Held(Lan)),
                ],
            ),
            (
                Rising(Wan),
                [
                    (Rising(Wan), Unarmed, RAISE_LAN),
                    same(Held(Wan)),
                    (Rising(Wan), Unarmed, RAISE_LAN),
                    same(Held(Wan)),
                ],
            ),
        ]
    };

    #[test]
    fn every_state_and_what_is_seen_in_it() {
        let seen = [Seen::Both, Seen::OnlyLan, Seen::OnlyWan, Seen::None];
        for (state, row) in TABLE {
            for (seen, (early, late, act)) in seen.into_iter().zip(row) {
                assert_eq!(
                    step(state, seen, false),
                    (early, None),
                    "{state:?} {seen:?}"
                );
                assert_eq!(
                    step(state, seen, true),
                    (late, act),
                    "{state:?} {seen:?}, due"
                );
            }
        }
    }

    fn dice(seed: u8) -> impl FnMut(u32) -> u32 {
        let mut rng = Rng::new([seed; 32]);
        move |below| rng.next_u32() % below
    }

    fn config(mode: Propagation) -> LinkPropagation {
        LinkPropagation {
            mode,
            down_delay_ms: 300,
            up_delay_ms: 200,
        }
    }

    /// Two ports with cables, and what the box does to them.
    struct Rig {
        links: Links,
        now: u64,
        lowered: [bool; 2],
    }

    impl Rig {
        fn new(mode: Propagation) -> Self {
            Self {
                links: Links::new(config(mode)),
                now: 0,
                lowered: [false; 2],
            }
        }

        fn seen(&self, cables: [bool; 2]) -> [bool; 2] {
            [cables[0] && !self.lowered[0], cables[1] && !self.lowered[1]]
        }

        /// A look, a tenth of a second after the last one.
        fn look(&mut self, cables: [bool; 2]) -> Acts {
            self.now += 100_000_000;
            let [lan, wan] = self.seen(cables);
            let acts = self.links.look(Instant(self.now), Seen::of(lan, wan));
            for act in acts.into_iter().flatten() {
                let (side, lowered) = match act {
                    Act::Lower(side) => (side, true),
                    Act::Raise(side) => (side, false),
                };
                self.lowered[side as usize] = lowered;
            }
            acts
        }
    }

    #[test]
    fn a_link_that_goes_takes_the_other_one_along_after_the_delay() {
        let mut rig = Rig::new(Propagation::Wire);
        rig.look([true, true]);
        for _ in 0..3 {
            assert_eq!(rig.look([false, true]), [None, None]);
        }
        assert_eq!(rig.look([false, true])[0], LOWER_WAN);
        assert_eq!(rig.links.held(), Some(Side::Wan));
        // The cable comes back, is not trusted for a while, and then the other port is let go.
        let acts: Vec<_> = (0..5).map(|_| rig.look([true, true])).collect();
        assert_eq!(acts.iter().flatten().flatten().count(), 1);
        assert_eq!(acts[2][0], RAISE_WAN);
        let counters = rig.links.counters();
        assert_eq!((counters.lan_down, counters.wan_down), (1, 0));
        assert_eq!((counters.wan_induced, counters.lan_induced), (1, 0));
        assert_eq!(counters.released, 1);
    }

    #[test]
    fn a_short_outage_and_one_before_both_were_up_are_not_mirrored() {
        let mut rig = Rig::new(Propagation::Wire);
        for _ in 0..50 {
            assert_eq!(rig.look([false, true]), [None, None]);
        }
        rig.look([true, true]);
        for _ in 0..20 {
            for cables in [[false, true], [false, true], [true, true]] {
                assert_eq!(rig.look(cables), [None, None]);
            }
        }
        assert_eq!(rig.links.counters().lan_down, 20);
    }

    #[test]
    fn a_hub_only_counts() {
        let mut rig = Rig::new(Propagation::Hub);
        for round in 0..40 {
            assert_eq!(rig.look([round % 20 < 10, true]), [None, None]);
        }
        assert_eq!(rig.links.counters().lan_down, 2);
        assert_eq!(rig.links.held(), None);
    }

    #[test]
    fn another_configuration_and_the_end_let_go() {
        for end in [true, false] {
            let mut rig = Rig::new(Propagation::Wire);
            rig.look([true, true]);
            for _ in 0..4 {
                rig.look([true, false]);
            }
            assert_eq!(rig.links.held(), Some(Side::Lan));
            let act = if end {
                rig.links.let_go()
            } else {
                rig.links.configure(config(Propagation::Hub))
            };
            assert_eq!(act, RAISE_LAN);
            assert_eq!(rig.links.let_go(), None);
        }
    }

    #[test]
    fn whatever_cables_do_what_was_induced_starts_nothing() {
        for seed in 0..=255 {
            let mut below = dice(seed);
            let mut rig = Rig::new(Propagation::Wire);
            let (mut cables, mut both, mut down) = ([true; 2], false, [0_u32; 2]);
            for _ in 0..2_000 {
                if below(8) == 0 {
                    let which = usize::from(below(2) == 0);
                    cables[which] = !cables[which];
                }
                let seen = rig.seen(cables);
                both |= seen == [true, true];
                for (down, up) in down.iter_mut().zip(cables) {
                    *down = if up { 0 } else { *down + 1 };
                }
                for act in rig.look(cables).into_iter().flatten() {
                    if let Act::Lower(side) = act {
                        let from = side.opposite() as usize;
                        assert!(both, "armed by both links only");
                        assert!(down[from] > 3, "a cable is out for the delay: {down:?}");
                        both = false;
                    }
                }
                assert!(rig.lowered != [true, true], "one of them at most");
                let held = rig.links.held().map(|side| side as usize);
                for side in 0..2 {
                    assert_eq!(rig.lowered[side], held == Some(side));
                }
            }
            // Cables that stay bring everything back.
            for _ in 0..10 {
                rig.look([true, true]);
            }
            assert_eq!(rig.seen([true, true]), [true, true], "{seed}");
        }
    }

    #[test]
    fn two_boxes_on_one_cable_do_not_hold_each_other_down() {
        for seed in 0..=255 {
            let mut below = dice(seed);
            let mut boxes = [Rig::new(Propagation::Wire), Rig::new(Propagation::Wire)];
            let mut hosts = [true; 2];
            let look = |boxes: &mut [Rig; 2], hosts: [bool; 2]| {
                // The cable between them carries while neither end is taken down.
                let middle = !boxes[0].lowered[1] && !boxes[1].lowered[1];
                let [near, far] = boxes;
                near.look([hosts[0], middle]);
                far.look([hosts[1], middle]);
            };
            for _ in 0..500 {
                if below(6) == 0 {
                    let which = usize::from(below(2) == 0);
                    hosts[which] = !hosts[which];
                }
                look(&mut boxes, hosts);
            }
            for _ in 0..30 {
                look(&mut boxes, [true, true]);
            }
            for one in &boxes {
                assert_eq!(one.lowered, [false, false], "{seed}");
                assert_eq!(one.links.state, State::Armed, "{seed}");
            }
        }
    }
}
