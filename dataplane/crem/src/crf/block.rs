//! One open block: its description, what of it has arrived, and the repair symbols held. Pure
//! bookkeeping and rank; when to decode or to ask is decided elsewhere.

use alloc::vec::Vec;
use crem_fec::{Equation, PositionSet, RankSolver, Scheme};
use crem_wire::crem::RepairHeader;
use crem_wire::{Bitmap, ConfigId, Psn, RequestId};

use super::phase::Phase;
use super::window::{Place, Seen, Window};
use crate::actions::SymbolRef;
use crate::time::{Duration, Instant};

/// What identifies a block and all its REPAIRs agree on (AMB-BLOCKCONF).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Description {
    pub(crate) start: Psn,
    pub(crate) k: u8,
    pub(crate) present: Bitmap,
    pub(crate) config: ConfigId,
}

impl Description {
    /// The description that a REPAIR gives.
    pub(crate) const fn of(header: &RepairHeader) -> Self {
        Self {
            start: header.block_start,
            k: header.k,
            present: header.present,
            config: header.config,
        }
    }

    /// One beyond the last position.
    pub(crate) const fn end(&self) -> Psn {
        self.start.add(self.k as i32)
    }

    /// PSN of a position.
    pub(crate) const fn psn(&self, position: u8) -> Psn {
        self.start.add(position as i32)
    }

    /// The position of `psn`, if it is inside.
    pub(crate) fn position(&self, psn: Psn) -> Option<u8> {
        u8::try_from(psn.distance_from(self.start))
            .ok()
            .filter(|position| *position < self.k)
    }

    /// Whether the PSNs of both overlap.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        other.end().is_after(self.start) && self.end().is_after(other.start)
    }
}

/// What a block's symbols can do for its unknowns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Strength {
    /// Independent symbols.
    pub(crate) rank: u8,
    /// Missing positions that they determine.
    pub(crate) determined: Bitmap,
}

/// An open block.
#[derive(Clone, Debug)]
pub(crate) struct Block<B> {
    /// Tells blocks apart that come to stand at the same PSNs one after the other.
    pub(crate) serial: u64,
    pub(crate) description: Description,
    /// FEC scheme and T of its configuration.
    pub(crate) scheme: u8,
    pub(crate) t: u16,
    /// Positions whose packet arrived or was restored.
    pub(crate) have: Bitmap,
    /// Of those, positions whose octets are not kept, or not those that were coded: they count as unknown
    /// in a decode.
    pub(crate) gone: Bitmap,
    /// Positions whose packet arrived damaged.
    pub(crate) damaged: Bitmap,
    /// Positions that cannot be rebuilt and are not asked for.
    pub(crate) waived: Bitmap,
    pub(crate) symbols: Vec<SymbolRef<B>>,
    /// Ordinary indices seen.
    ordinary: Bitmap,
    /// When the block was first named.
    pub(crate) opened: Instant,
    /// When a packet beyond it was first seen while it was open.
    pub(crate) beyond: Option<Instant>,
    /// When all its ordinary symbols had been seen.
    pub(crate) all_seen: Option<Instant>,
    pub(crate) phase: Phase,
    /// When its phase is over.
    pub(crate) due: Instant,
    /// When a decode that waits for late sources is to be made.
    pub(crate) decode_at: Option<Instant>,
    pub(crate) request: Option<RequestId>,
    /// A symbol with the request's ID came.
    pub(crate) answered: bool,
    /// Counted in Incomplete Blocks.
    pub(crate) counted: bool,
    /// INFO with the request's ID came.
    pub(crate) informed: bool,
    /// A late source filled a position since the block was last looked at.
    pub(crate) dirty: bool,
    /// A decode of it has not been answered yet.
    pub(crate) decoding: bool,
    /// Nothing is left to do; it goes away at the end of the call.
    pub(crate) closed: bool,
    /// Holds, or has held, coded retransmissions.
    pub(crate) coded: bool,
    /// Decodes that led to nothing.
    pub(crate) failures: u8,
}

impl<B: Clone> Block<B> {
    /// A block as `description` gives it, with `symbols` as empty memory.
    pub(crate) fn new(
        serial: u64,
        description: Description,
        scheme: u8,
        t: u16,
        now: Instant,
        symbols: Vec<SymbolRef<B>>,
    ) -> Self {
        Self {
            serial,
            description,
            scheme,
            t,
            have: Bitmap::EMPTY,
            gone: Bitmap::EMPTY,
            damaged: Bitmap::EMPTY,
            waived: Bitmap::EMPTY,
            symbols,
            ordinary: Bitmap::EMPTY,
            opened: now,
            beyond: None,
            all_seen: None,
            phase: Phase::Watching,
            due: now,
            decode_at: None,
            request: None,
            answered: false,
            counted: false,
            informed: false,
            dirty: false,
            decoding: false,
            closed: false,
            coded: false,
            failures: 0,
        }
    }

    /// Positions that are present, have not arrived, and are still wanted.
    pub(crate) fn missing(&self) -> Bitmap {
        self.description
            .present
            .minus(&self.have)
            .minus(&self.waived)
    }

    /// Reads from the window what of the block has arrived. O(k).
    pub(crate) fn refresh(&mut self, window: &Window<B>) {
        self.have = Bitmap::EMPTY;
        self.gone = Bitmap::EMPTY;
        for position in self.description.present.iter() {
            let psn = self.description.psn(position);
            let (have, kept) = match window.place(psn) {
                Place::Behind => (true, false),
                Place::In(Seen::Received | Seen::Restored) => (true, window.kept_at(psn).is_some()),
                Place::In(Seen::Resent) => (true, false),
                Place::In(_) | Place::Ahead => (false, false),
            };
            if have && !self.damaged.contains(position) {
                self.have.insert(position);
                if !kept {
                    self.gone.insert(position);
                }
            }
        }
    }

    /// Notes an ordinary symbol's index; true once all `m` of the block, or its last, were seen.
    pub(crate) fn see_ordinary(&mut self, index: u8, last: bool, m: u8) -> bool {
        self.ordinary.insert(index);
        last || self.ordinary.len() >= usize::from(m)
    }

    /// Whether this symbol is held already.
    pub(crate) fn holds(&self, scheme: u8, index: u8, set: &Bitmap) -> bool {
        self.symbols
            .iter()
            .any(|s| s.scheme == scheme && s.index == index && s.set == *set)
    }

    /// Unknowns of a decode: what is missing, and arrived sources that are not kept but are part of a
    /// symbol.
    fn unknown(&self) -> Bitmap {
        let missing = self.description.present.minus(&self.have);
        if self.gone.is_empty() {
            return missing;
        }
        let named = self
            .symbols
            .iter()
            .fold(Bitmap::EMPTY, |set, symbol| set.or(&symbol.set));
        missing.or(&self.gone.and(&named))
    }

    fn equations(&self) -> impl Iterator<Item = Equation> + Clone + '_ {
        self.symbols.iter().filter_map(|symbol| {
            Some(Equation {
                scheme: Scheme::from_number(symbol.scheme)?,
                index: symbol.index,
                set: positions(&symbol.set),
            })
        })
    }

    /// What the symbols can do. Cheap where all symbols cover all unknowns; otherwise elimination, for
    /// each missing position once if they do not determine all.
    pub(crate) fn strength(&self, solver: &mut RankSolver) -> Strength {
        let (missing, unknown) = (self.missing(), self.unknown());
        let rank = solver.rank(self.equations(), positions(&unknown));
        let mut determined = Bitmap::EMPTY;
        if rank == unknown.len() {
            determined = missing;
        } else if rank > 0 && !self.is_uniform(&unknown) {
            for position in missing.iter() {
                let mut others = unknown;
                others.remove(position);
                if solver.rank(self.equations(), positions(&others)) < rank {
                    determined.insert(position);
                }
            }
        }
        Strength {
            rank: rank.min(255) as u8,
            determined,
        }
    }

    /// Whether every symbol is of scheme 1 over all unknowns: then it is all or nothing.
    fn is_uniform(&self, unknown: &Bitmap) -> bool {
        self.symbols
            .iter()
            .all(|s| s.scheme == Scheme::Cauchy.number() && s.set.contains_all(unknown))
    }

    /// Whether a symbol over `set` would add to what is held. Costs a rank computation.
    pub(crate) fn is_useful(
        &self,
        solver: &mut RankSolver,
        scheme: u8,
        index: u8,
        set: &Bitmap,
    ) -> bool {
        let Some(scheme) = Scheme::from_number(scheme) else {
            return false;
        };
        let equation = Equation {
            scheme,
            index,
            set: positions(set),
        };
        let unknown = self.unknown().or(&self.gone.and(set));
        solver.is_independent(self.equations(), equation, positions(&unknown))
    }

    /// From when on `determined` may be decoded: not before their sources have had the reordering
    /// allowance.
    pub(crate) fn ready_at(
        &self,
        determined: &Bitmap,
        window: &Window<B>,
        allowance: Duration,
    ) -> Instant {
        determined
            .iter()
            .map(|position| {
                let psn = self.description.psn(position);
                match window.place(psn) {
                    Place::Ahead => self.all_seen.unwrap_or(self.opened),
                    _ => window.at(psn).unwrap_or(self.opened),
                }
            })
            .max()
            .map_or(self.opened, |latest| latest + allowance)
    }
}

/// The same set as crem-fec has it.
pub(crate) fn positions(set: &Bitmap) -> PositionSet {
    PositionSet::from_words(set.words())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::pages::Store;
    use super::super::window::Kept;
    use super::*;
    use crate::config::CrfConfig;
    use alloc::rc::Rc;

    type Buf = Rc<u32>;

    fn block(present: Bitmap) -> Block<Buf> {
        let description = Description {
            start: Psn::new(0xff_fffc),
            k: 8,
            present,
            config: ConfigId(1),
        };
        Block::new(1, description, 1, 100, Instant(0), Vec::new())
    }

    fn symbol(scheme: u8, index: u8, set: Bitmap) -> SymbolRef<Buf> {
        SymbolRef {
            index,
            scheme,
            set,
            buf: Rc::new(0),
            off: 0,
        }
    }

    fn set(positions: &[u8]) -> Bitmap {
        positions.iter().copied().collect()
    }

    // shows: CREM-BLOCK-01
    #[test]
    fn positions_wrap_with_the_psn() {
        let d = block(Bitmap::first(8)).description;
        assert_eq!(d.position(Psn::new(0xff_fffc)), Some(0));
        assert_eq!(d.position(Psn::new(3)), Some(7));
        assert_eq!(
            (d.position(Psn::new(4)), d.position(Psn::new(0xff_fffb))),
            (None, None)
        );
        assert_eq!(d.end(), Psn::new(4));
        let next = Description {
            start: Psn::new(4),
            ..d
        };
        let shifted = Description {
            start: Psn::new(3),
            ..d
        };
        assert!(!d.overlaps(&next) && !next.overlaps(&d));
        assert!(d.overlaps(&shifted) && shifted.overlaps(&d));
    }

    // shows: CREM-RECV-01
    #[test]
    fn refresh_reads_the_window() {
        let mut store = Store::new(&CrfConfig::default());
        let mut window = Window::new(Psn::new(0xff_fffd));
        window.advance(Psn::new(3));
        for n in [0xff_fffeu32, 0xff_ffff, 0, 1] {
            assert!(window.arrived(Psn::new(n), Seen::Received, Instant(0), &mut store));
            if n != 0 {
                let kept = Kept {
                    buf: Rc::new(n),
                    off: 0,
                    len: 10,
                };
                window.keep(Psn::new(n), kept, &mut store);
            }
        }
        let mut b = block(set(&[0, 1, 2, 4, 5, 7]));
        b.refresh(&window);
        assert_eq!(
            b.have,
            set(&[0, 2, 4, 5]),
            "position 0 is behind the window"
        );
        assert_eq!(b.gone, set(&[0, 4]));
        assert_eq!(b.missing(), set(&[1, 7]));
        b.damaged.insert(2);
        b.refresh(&window);
        assert_eq!(b.missing(), set(&[1, 2, 7]));
    }

    // shows: CREM-RECV-01, AMB-RANK
    #[test]
    fn strength_is_by_rank() {
        let mut solver = RankSolver::default();
        let mut b = block(Bitmap::first(8));
        b.have = set(&[1, 3, 4, 5, 6]);
        b.symbols = Vec::from([
            symbol(1, 21, set(&[0, 7])),
            symbol(1, 17, set(&[2, 7])),
            symbol(1, 5, Bitmap::first(8)),
        ]);
        let s = b.strength(&mut solver);
        assert_eq!((s.rank, s.determined.is_empty()), (2, true));
        assert!(b.is_useful(&mut solver, 1, 6, &Bitmap::first(8)));
        assert!(b.is_useful(&mut solver, 0, 7, &set(&[7])));
        assert!(!b.is_useful(&mut solver, 1, 21, &set(&[0, 7])));
        b.symbols.push(symbol(0, 7, set(&[7])));
        let s = b.strength(&mut solver);
        assert_eq!((s.rank, s.determined), (3, set(&[0, 2, 7])));
        b.symbols.truncate(1);
        b.symbols.push(symbol(0, 2, set(&[2])));
        let s = b.strength(&mut solver);
        assert_eq!(
            (s.rank, s.determined),
            (2, set(&[2])),
            "what is solved is delivered"
        );
    }

    #[test]
    fn sources_that_are_not_kept_are_unknowns_of_symbols_that_name_them() {
        let mut solver = RankSolver::default();
        let mut b = block(Bitmap::first(8));
        b.have = set(&[0, 1, 2, 3, 4, 5, 6]);
        b.gone = set(&[0]);
        b.symbols.push(symbol(1, 0, Bitmap::first(8)));
        assert!(b.strength(&mut solver).determined.is_empty());
        b.symbols.push(symbol(1, 8, set(&[7])));
        assert_eq!(b.strength(&mut solver).determined, set(&[7]));
    }

    // shows: CREM-RECV-10, AMB-LAST
    #[test]
    fn ordinary_symbols_are_all_seen_by_count_or_flag() {
        let mut b = block(Bitmap::first(8));
        assert!(!b.see_ordinary(0, false, 3) && !b.see_ordinary(0, false, 3));
        assert!(!b.see_ordinary(1, false, 3) && b.see_ordinary(2, false, 3));
        assert!(block(Bitmap::first(8)).see_ordinary(0, true, 3));
    }
}
