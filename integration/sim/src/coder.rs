//! The coding that a gateway's data plane does for the protocol functions: code jobs into symbols,
//! decode jobs into packets. In rank mode a symbol is worked out only when a decode needs it, over
//! tokens; the decode itself is the same.

use std::rc::Rc;

use crem_core::actions::{Actions, DecodeJob, Decoded, Outcome, SlotId, SourceRef, Unknown};
use crem_fec::{
    EncodeJob, Engine, Equation, MIN_PAYLOAD, Outcome as Solved, PositionSet, Row, Scheme, Scratch,
    Source,
};
use crem_wire::Bitmap;

use crate::Instant;
use crate::frame::{self, Frame, Mode, Owner, Symbol, TOKEN_T};
use crate::packet::Packet;

/// Largest symbol that octet mode decodes.
const MAX_T: usize = 4400;

/// A symbol in a slot, not sent yet.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) sources: Rc<[(u8, Packet)]>,
    pub(crate) octets: Vec<u8>,
}

/// Coding for any number of gateways, one after the other.
pub(crate) struct Coder {
    mode: Mode,
    engine: Engine,
    scratch: Scratch,
    payloads: Vec<Vec<u8>>,
    /// Restored octets that check out but are of no packet that was coded.
    pub(crate) impostors: u64,
}

fn part<'a, T>(all: &'a [T], range: &std::ops::Range<u32>) -> &'a [T] {
    all.get(range.start as usize..range.end as usize)
        .unwrap_or_default()
}

impl Coder {
    pub(crate) fn new(mode: Mode) -> Self {
        Self {
            mode,
            engine: Engine::detect(),
            scratch: Scratch::new(256, MAX_T),
            payloads: Vec::new(),
            impostors: 0,
        }
    }

    /// Runs the code jobs; the symbols are then in their slots.
    pub(crate) fn code(&mut self, actions: &Actions<Frame>, slots: &mut [Option<Made>]) {
        for job in &actions.code {
            let rows = part(&actions.rows, &job.rows);
            if rows.is_empty() {
                continue;
            }
            let before = (!job.first)
                .then(|| slots.get(rows.first()?.slot.0 as usize)?.as_ref())
                .flatten();
            let before = before.map_or(&[][..], |made| &made.sources);
            let sources: Rc<[(u8, Packet)]> = before
                .iter()
                .cloned()
                .chain(
                    part(&actions.sources, &job.sources)
                        .iter()
                        .filter_map(named),
                )
                .collect();
            if self.mode == Mode::Octets {
                self.fill(sources.iter().map(|(_, packet)| packet));
            }
            for row in rows {
                let mut octets = Vec::new();
                if self.mode == Mode::Octets {
                    octets.resize(usize::from(job.t), 0);
                    self.encode(job.scheme, row.index, &sources, &mut octets);
                }
                let made = Made {
                    sources: Rc::clone(&sources),
                    octets,
                };
                if let Some(slot) = slots.get_mut(row.slot.0 as usize) {
                    *slot = Some(made);
                }
            }
        }
    }

    fn fill<'a>(&mut self, packets: impl Iterator<Item = &'a Packet>) {
        for (place, packet) in packets.enumerate() {
            if self.payloads.len() == place {
                self.payloads.push(Vec::new());
            }
            frame::write_payload(self.mode, packet, &mut self.payloads[place]);
        }
    }

    /// Codes the payloads that `fill` made for `sources`.
    fn encode(&self, scheme: u8, index: u8, sources: &[(u8, Packet)], out: &mut [u8]) {
        let sources: Vec<_> = sources
            .iter()
            .zip(&self.payloads)
            .map(|((position, _), payload)| Source {
                position: *position,
                payload: payload.as_slice().into(),
            })
            .collect();
        let mut rows = [Row { index, symbol: out }];
        if let Some(scheme) = Scheme::from_number(scheme)
            && let Ok(job) = EncodeJob::new(scheme, &mut rows, &sources, true)
        {
            self.engine.encode(&mut [job]);
        }
    }

    /// Runs one decode job for the receiver function that `owner` counts for.
    pub(crate) fn decode(
        &mut self,
        now: Instant,
        job: &DecodeJob,
        actions: &Actions<Frame>,
        owner: &Owner,
    ) -> Decoded<Frame> {
        let t = match self.mode {
            Mode::Rank => TOKEN_T,
            Mode::Octets => usize::from(job.t),
        };
        let held: Vec<(Equation, Vec<u8>, &Symbol)> = part(&actions.symbols, &job.symbols)
            .iter()
            .filter_map(|held| {
                let symbol = held.buf.as_symbol()?;
                let equation = Equation {
                    scheme: Scheme::from_number(held.scheme)?,
                    index: held.index,
                    set: PositionSet::from_words(held.set.words()),
                };
                Some((equation, self.octets_of(symbol, t), symbol))
            })
            .collect();
        let known = part(&actions.sources, &job.sources);
        self.fill(known.iter().filter_map(|s| s.buf.as_packet()));
        let mut corrupt = Bitmap::EMPTY;
        let mut sources = Vec::with_capacity(known.len());
        for (source, payload) in known.iter().zip(&self.payloads) {
            if job.verify_sources && !frame::is_sound(payload) {
                corrupt.insert(source.position);
                continue;
            }
            sources.push(Source {
                position: source.position,
                payload: payload.as_slice().into(),
            });
        }
        let symbols: Vec<_> = held
            .iter()
            .map(|(equation, octets, _)| crem_fec::Symbol {
                equation: *equation,
                octets: octets.as_slice().into(),
            })
            .collect();
        let unknowns = part(&actions.unknowns, &job.unknowns);
        let wanted: Bitmap = unknowns.iter().map(|u| u.position).collect();
        let system = crem_fec::DecodeJob {
            t,
            min_payload: MIN_PAYLOAD,
            sources: &sources,
            symbols: &symbols,
            unknown: PositionSet::from_words(wanted.words()),
        };
        let solved: Vec<(u8, Option<Vec<u8>>, bool)> =
            match self.engine.decode(&system, &mut self.scratch) {
                Ok(decoded) => decoded.outcomes().map(keep).collect(),
                Err(_) => Vec::new(),
            };
        let outcomes = unknowns
            .iter()
            .map(|unknown| {
                let found = solved.iter().find(|(p, ..)| *p == unknown.position);
                let outcome = match found {
                    Some((position, Some(octets), _)) => {
                        let candidates = held.iter().flat_map(|(_, _, symbol)| {
                            let at = symbol.sources.iter().filter(|(p, _)| p == position);
                            at.map(|(_, packet)| packet)
                        });
                        self.restored(now, octets, unknown, candidates, owner)
                    }
                    Some((_, None, true)) => Outcome::Corrupt,
                    _ => Outcome::Undetermined,
                };
                (unknown.position, outcome)
            })
            .collect();
        Decoded {
            id: job.id,
            outcomes,
            corrupt_sources: corrupt,
        }
    }

    /// The octets of a symbol, T of them.
    fn octets_of(&mut self, symbol: &Symbol, t: usize) -> Vec<u8> {
        match self.mode {
            Mode::Octets => symbol.octets.clone(),
            Mode::Rank => {
                let mut octets = vec![0; t];
                self.fill(symbol.sources.iter().map(|(_, packet)| packet));
                let (scheme, index) = (symbol.equation.scheme.number(), symbol.equation.index);
                self.encode(scheme, index, &symbol.sources, &mut octets);
                if symbol.damage != 0 {
                    frame::damage(&mut octets, symbol.damage);
                }
                octets
            }
        }
    }

    /// Judges decoded octets: they must check out, be those of the packet at this place, and have a
    /// neighbour to take headers from.
    fn restored<'a>(
        &mut self,
        now: Instant,
        octets: &[u8],
        unknown: &Unknown<Frame>,
        candidates: impl Iterator<Item = &'a Packet>,
        owner: &Owner,
    ) -> Outcome<Frame> {
        if !frame::is_sound(octets) {
            return Outcome::Corrupt;
        }
        let mut payload = Vec::new();
        let mut original = None;
        for candidate in candidates {
            frame::write_payload(self.mode, candidate, &mut payload);
            if payload == octets {
                original = Some(*candidate);
                break;
            }
        }
        let Some(mut packet) = original else {
            self.impostors += 1;
            return Outcome::Corrupt;
        };
        let lender = unknown.before.as_ref().or(unknown.after.as_ref());
        let Some(lender) = lender.and_then(|n| n.buf.as_packet()) else {
            return Outcome::NoNeighbour;
        };
        if packet.psn != unknown.psn {
            return Outcome::Corrupt;
        }
        (packet.serial, packet.ce, packet.ect) = (0, false, false);
        packet.dscp = lender.dscp;
        let payload_len = packet.payload_len;
        Outcome::Restored {
            buf: Frame::packet(packet, now, u64::MAX, owner),
            payload_off: 42,
            payload_len,
        }
    }
}

fn named(source: &SourceRef<Frame>) -> Option<(u8, Packet)> {
    Some((source.position, *source.buf.as_packet()?))
}

/// Position, octets if solved, whether solved to something impossible.
fn keep((position, solved): (u8, Solved<'_>)) -> (u8, Option<Vec<u8>>, bool) {
    match solved {
        Solved::Restored(octets) => (position, Some(octets.to_vec()), false),
        Solved::BadSymbol => (position, None, true),
        Solved::Undetermined => (position, None, false),
    }
}

/// Slots of one gateway.
pub(crate) fn slots(count: u32) -> (Vec<SlotId>, Vec<Option<Made>>) {
    let free = (0..count).map(SlotId).collect();
    (free, vec![None; count as usize])
}
