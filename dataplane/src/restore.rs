//! Running decode jobs: solving for lost payloads through `crem-fec`, rebuilding their headers and
//! checking their ICRC through `crem-wire`.

use crem_core::actions::{Actions, DecodeId, DecodeJob, Decoded, Neighbour, Outcome, Unknown};
use crem_fec::{
    DecodeJob as FecJob, Engine, Equation, MIN_PAYLOAD, Outcome as Solved, PositionSet, Scheme,
    Scratch, Source, Symbol, recycle,
};
use crem_wire::frame::{self, ParseConfig};
use crem_wire::rebuild::{Identification, NeighbourRef, RebuildError, RebuildPolicy, rebuild};
use crem_wire::{Bitmap, Psn, icrc};

use crate::buffer::{Buffer, Pool};
use crate::code::slice;
use crate::counters::Coding;

/// Octets that headers before the UDP payload take at most: Ethernet with two tags, IPv6, UDP, VXLAN,
/// and the same again inside, and room for extension headers.
const HEADERS: usize = 256;

/// The memory of one worker for decode jobs.
#[derive(Debug)]
pub struct Restorer<B> {
    engine: Engine,
    scratch: Scratch,
    policy: RebuildPolicy,
    frame: Vec<u8>,
    sources: Vec<Source<'static>>,
    symbols: Vec<Symbol<'static>>,
    /// The answer to a job, until the next one.
    decoded: Decoded<B>,
}

impl<B: Buffer> Restorer<B> {
    /// For symbols of at most `max_t` octets.
    pub fn new(engine: Engine, max_t: u16, parse: ParseConfig, ect0: bool) -> Self {
        Self {
            engine,
            scratch: Scratch::new(256, usize::from(max_t)),
            policy: RebuildPolicy {
                parse,
                ect0,
                ..RebuildPolicy::default()
            },
            frame: vec![0; HEADERS + usize::from(max_t)],
            sources: Vec::with_capacity(256),
            symbols: Vec::with_capacity(256),
            decoded: Decoded {
                id: DecodeId(0),
                outcomes: Vec::with_capacity(256),
                corrupt_sources: Bitmap::EMPTY,
            },
        }
    }

    /// Takes another largest symbol and another ECN field for what is restored.
    pub fn configure(&mut self, max_t: u16, ect0: bool) {
        *self = Self::new(self.engine, max_t, self.policy.parse, ect0);
    }

    /// Runs one job of `actions`. The answer stays here, in memory that all jobs share.
    pub fn run(
        &mut self,
        job: &DecodeJob,
        actions: &Actions<B>,
        pool: &impl Pool<B>,
        counters: &mut Coding,
    ) -> &mut Decoded<B> {
        counters.decode_jobs += 1;
        let unknowns = slice(&actions.unknowns, &job.unknowns);
        let mut sources: Vec<Source<'_>> = recycle(core::mem::take(&mut self.sources));
        let corrupt = self.known(job, actions, &mut sources);
        counters.corrupt_sources += corrupt.len() as u64;
        let mut symbols: Vec<Symbol<'_>> = recycle(core::mem::take(&mut self.symbols));
        held(job, actions, &mut symbols);
        let fec = FecJob {
            t: usize::from(job.t),
            min_payload: MIN_PAYLOAD,
            sources: &sources,
            symbols: &symbols,
            unknown: unknowns.iter().map(|u| u.position).collect(),
        };
        let outcomes = &mut self.decoded.outcomes;
        outcomes.clear();
        match self.engine.decode(&fec, &mut self.scratch) {
            Ok(decoded) => {
                for unknown in unknowns {
                    let mut all = decoded.outcomes();
                    let solved = all.find(|(p, _)| *p == unknown.position).map(|(_, o)| o);
                    let outcome = match solved {
                        Some(Solved::Restored(payload)) => {
                            let (policy, scratch) = (&self.policy, &mut self.frame);
                            rebuilt(payload, unknown, policy, scratch, pool, counters)
                        }
                        Some(Solved::BadSymbol) => Outcome::Corrupt,
                        Some(Solved::Undetermined) | None => Outcome::Undetermined,
                    };
                    outcomes.push((unknown.position, outcome));
                }
            }
            Err(_) => {
                counters.decode_refused += 1;
                outcomes.extend(unknowns.iter().map(|u| (u.position, Outcome::Undetermined)));
            }
        }
        self.sources = recycle(sources);
        self.symbols = recycle(symbols);
        outcomes
            .iter()
            .for_each(|(_, outcome)| count(outcome, counters));
        (self.decoded.id, self.decoded.corrupt_sources) = (job.id, corrupt);
        &mut self.decoded
    }

    /// The known sources of a job; those whose ICRC is wrong, if that is to be checked, are left out and
    /// named.
    fn known<'a>(
        &self,
        job: &DecodeJob,
        actions: &'a Actions<B>,
        sources: &mut Vec<Source<'a>>,
    ) -> Bitmap {
        let mut corrupt = Bitmap::EMPTY;
        for source in slice(&actions.sources, &job.sources) {
            let octets = source.buf.octets();
            if job.verify_sources {
                let parsed = frame::parse(octets, &self.policy.parse);
                if !icrc::verify_frame(octets, &parsed) {
                    corrupt.insert(source.position);
                    continue;
                }
            }
            let (from, len) = (usize::from(source.off), usize::from(source.len));
            if let Some(payload) = octets.get(from..from + len) {
                sources.push(Source {
                    position: source.position,
                    payload: payload.into(),
                });
            }
        }
        corrupt
    }
}

fn held<'a, B: Buffer>(job: &DecodeJob, actions: &'a Actions<B>, symbols: &mut Vec<Symbol<'a>>) {
    for symbol in slice(&actions.symbols, &job.symbols) {
        let from = usize::from(symbol.off);
        let octets = symbol.buf.octets().get(from..from + usize::from(job.t));
        if let (Some(octets), Some(scheme)) = (octets, Scheme::from_number(symbol.scheme)) {
            let set = PositionSet::from_words(symbol.set.words());
            let equation = Equation {
                scheme,
                index: symbol.index,
                set,
            };
            symbols.push(Symbol {
                equation,
                octets: octets.into(),
            });
        }
    }
}

fn rebuilt<B: Buffer>(
    payload: &[u8],
    unknown: &Unknown<B>,
    policy: &RebuildPolicy,
    scratch: &mut [u8],
    pool: &impl Pool<B>,
    counters: &mut Coding,
) -> Outcome<B> {
    let (before, after) = (lender(&unknown.before), lender(&unknown.after));
    let made = match rebuild(payload, before, after, policy, scratch) {
        Ok(made) if made.psn == unknown.psn => made,
        Err(RebuildError::NoNeighbour) => return Outcome::NoNeighbour,
        Ok(_) | Err(_) => return Outcome::Corrupt,
    };
    if made.identification == Identification::Solved {
        counters.identification_solved += 1;
    }
    let lens = (
        u16::try_from(made.len),
        u16::try_from(made.payload_off),
        u16::try_from(made.payload_len),
        scratch.get(..made.len),
    );
    let (Ok(len), Ok(payload_off), Ok(payload_len), Some(frame)) = lens else {
        return Outcome::Corrupt;
    };
    let Some(mut buf) = pool.take(len) else {
        return Outcome::NoBuffer;
    };
    let Some(octets) = buf.octets_mut().filter(|o| o.len() == frame.len()) else {
        return Outcome::NoBuffer;
    };
    octets.copy_from_slice(frame);
    Outcome::Restored {
        buf,
        payload_off,
        payload_len,
    }
}

fn lender<B: Buffer>(neighbour: &Option<Neighbour<B>>) -> Option<NeighbourRef<'_>> {
    let neighbour = neighbour.as_ref()?;
    let psn: Psn = neighbour.psn;
    Some(NeighbourRef {
        frame: neighbour.buf.octets(),
        psn,
    })
}

fn count<B>(outcome: &Outcome<B>, counters: &mut Coding) {
    let counter = match outcome {
        Outcome::Restored { .. } => &mut counters.restored,
        Outcome::Undetermined => &mut counters.undetermined,
        Outcome::Corrupt => &mut counters.corrupt,
        Outcome::NoNeighbour => &mut counters.no_neighbour,
        Outcome::NoBuffer => &mut counters.no_buffer,
    };
    *counter += 1;
}
