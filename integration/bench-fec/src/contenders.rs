//! What is measured: our engine by instruction set and schedule, ISA-L, reed-solomon-erasure, and the
//! XOR bound, all over the same packets.

use std::array;
use std::cell::{Cell, RefCell};
use std::path::Path;

use crem_fec::peers::{Isal, Variant, xor_streams};
use crem_fec::{
    DecodeJob, EncodeJob, Engine, Equation, Isa, Outcome, Payload, PositionSet, Row, Scheme,
    Scratch, Source, Symbol, cauchy,
};
use reed_solomon_erasure::galois_8::ReedSolomon;

use crate::memory::{BURST, K, KEPT, MAX_M, Ring, Symbols};
use crate::timing::Contender;

/// Where a contender takes its packets from.
pub(crate) struct Field<'f> {
    /// The packets.
    pub(crate) ring: &'f Ring,
    /// Symbol length in octets.
    pub(crate) t: usize,
    /// Every call takes the same block, else the next ones of the ring.
    pub(crate) hot: bool,
    cursor: Cell<usize>,
    buffers: RefCell<Symbols>,
}

impl<'f> Field<'f> {
    /// A field over a ring.
    ///
    /// # Errors
    /// No memory for symbols.
    pub(crate) fn new(ring: &'f Ring, t: usize, hot: bool) -> std::io::Result<Self> {
        Ok(Self {
            ring,
            t,
            hot,
            cursor: Cell::new(0),
            buffers: RefCell::new(Symbols::new(t)?),
        })
    }

    /// Blocks of one call.
    fn burst(&self) -> usize {
        if self.hot { 1 } else { BURST }
    }

    /// The first block of the next call.
    fn next(&self) -> usize {
        if self.hot {
            return 0;
        }
        let at = self.cursor.get();
        let next = at + BURST;
        self.cursor.set(if next + BURST > self.ring.blocks() {
            0
        } else {
            next
        });
        at
    }

    /// The packets of a block as our engine takes them.
    fn sources(&self, block: usize) -> [Source<'f>; K] {
        array::from_fn(|n| Source {
            position: n as u8,
            payload: Payload::Whole(&self.ring.packet(block, n)[..self.t - 2]),
        })
    }

    /// The same without `unknown`; places at the end are of no meaning.
    fn known(&self, block: usize, unknown: &PositionSet) -> [Source<'f>; K] {
        let mut sources = self.sources(block);
        let mut kept = 0;
        for n in 0..K {
            if !unknown.contains(n as u8) {
                sources[kept] = sources[n];
                kept += 1;
            }
        }
        sources
    }

    /// The symbols of a block as our decoder takes them.
    fn symbols(&self, block: usize) -> [Symbol<'f>; KEPT] {
        let set: PositionSet = (0..K as u8).collect();
        array::from_fn(|n| Symbol {
            equation: Equation {
                scheme: Scheme::Cauchy,
                index: n as u8,
                set,
            },
            octets: Payload::Whole(self.ring.symbol(block, n)),
        })
    }

    /// The packets of a block as the others take them.
    fn packets(&self, block: usize) -> [&'f [u8]; K] {
        array::from_fn(|n| self.ring.packet(block, n))
    }
}

/// C(i, j), row after row, as ISA-L takes it.
pub(crate) fn matrix(m: usize) -> Vec<u8> {
    let factor = |i: usize, j: usize| cauchy::coefficient(i as u8, j as u8).unwrap_or(0);
    (0..m)
        .flat_map(|i| (0..K).map(move |j| factor(i, j)))
        .collect()
}

/// How our engine is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Schedule {
    /// A block in one job, when it closes.
    AtClose,
    /// Eight packets a job, several blocks in turn, as packets of several flows arrive.
    InBurst,
}

fn encode<'a>(engine: &Engine, rows: &mut [Row<'a>], sources: &[Source<'a>], first: bool) {
    // Sources and rows of this program always make a possible job.
    if let Ok(job) = EncodeJob::new(Scheme::Cauchy, rows, sources, first) {
        engine.encode(&mut [job]);
    }
}

/// Our engine over `M` symbols, one block.
fn own_block<const M: usize>(field: &Field<'_>, engine: &Engine, sources: &[Source<'_>]) -> usize {
    let mut symbols = field.buffers.borrow_mut();
    let mut buffers = symbols.rows(2);
    let mut rows: [Row<'_>; M] = array::from_fn(|r| Row {
        index: r as u8,
        symbol: buffers.next().unwrap_or_default(),
    });
    encode(engine, &mut rows, sources, true);
    1
}

/// Our engine over `M` symbols, several blocks a call.
fn own_burst<const M: usize>(field: &Field<'_>, engine: &Engine, schedule: Schedule) -> usize {
    let start = field.next();
    let mut symbols = field.buffers.borrow_mut();
    let mut buffers = symbols.rows(2);
    let mut rows: [[Row<'_>; M]; BURST] = array::from_fn(|_| {
        array::from_fn(|r| Row {
            index: r as u8,
            symbol: buffers.next().unwrap_or_default(),
        })
    });
    let sources: [[Source<'_>; K]; BURST] = array::from_fn(|b| field.sources(start + b));
    let per_job = if schedule == Schedule::AtClose { K } else { 8 };
    for group in 0..K / per_job {
        let mut pairs = rows.iter_mut().zip(&sources);
        let jobs: [Option<EncodeJob<'_, '_>>; BURST] = array::from_fn(|_| {
            let (rows, sources) = pairs.next()?;
            let sources = &sources[group * per_job..][..per_job];
            EncodeJob::new(Scheme::Cauchy, rows, sources, group == 0).ok()
        });
        if let [Some(a), Some(b), Some(c), Some(d)] = jobs {
            engine.encode(&mut [a, b, c, d]);
        }
    }
    BURST
}

fn own<'c, const M: usize>(
    field: &'c Field<'_>,
    engine: Engine,
    schedule: Schedule,
) -> Box<dyn FnMut() -> usize + 'c> {
    // As for the others, the list of packets is made beforehand where it is always the same one.
    let sources = field.sources(0);
    if field.hot {
        Box::new(move || own_block::<M>(field, &engine, &sources))
    } else {
        Box::new(move || own_burst::<M>(field, &engine, schedule))
    }
}

/// Our engine as a contender.
pub(crate) fn own_contender<'c>(
    field: &'c Field<'_>,
    m: usize,
    isa: Isa,
    prefetch: bool,
    schedule: Schedule,
) -> Option<Contender<'c>> {
    let engine = Engine::with_isa(isa).ok()?.prefetching(prefetch);
    let schedule_name = if schedule == Schedule::InBurst {
        " groups"
    } else {
        ""
    };
    let name = format!(
        "own {}{}{}",
        isa.name(),
        if prefetch { " +pf" } else { "" },
        schedule_name
    );
    let run = own_of_rows(field, engine, m, schedule)?;
    Some(Contender { name, run })
}

/// Our engine as programs get it that name no instruction set. ISA-L is entered in this way too, beside
/// each of its variants: of one kernel measured twice the better figure counts, so both sides have it
/// twice.
pub(crate) fn detected_contender<'c>(field: &'c Field<'_>, m: usize) -> Option<Contender<'c>> {
    let engine = Engine::detect().prefetching(!field.hot);
    let name = format!("own {} detected", engine.isa().name());
    let run = own_of_rows(field, engine, m, Schedule::AtClose)?;
    Some(Contender { name, run })
}

fn own_of_rows<'c>(
    field: &'c Field<'_>,
    engine: Engine,
    m: usize,
    schedule: Schedule,
) -> Option<Box<dyn FnMut() -> usize + 'c>> {
    Some(match m {
        1 => own::<1>(field, engine, schedule),
        2 => own::<2>(field, engine, schedule),
        4 => own::<4>(field, engine, schedule),
        8 => own::<8>(field, engine, schedule),
        _ => return None,
    })
}

/// ISA-L as a contender, if the library has the variant.
pub(crate) fn isal_contender<'c>(
    field: &'c Field<'_>,
    m: usize,
    library: &Path,
    variant: Variant,
) -> Option<Contender<'c>> {
    let isal = Isal::new(library, variant, &matrix(m), K).ok()?;
    let mut packets = field.packets(0);
    let run = move || {
        let (start, burst) = (field.next(), field.burst());
        let mut symbols = field.buffers.borrow_mut();
        let mut buffers = symbols.rows(0);
        for block in start..start + burst {
            if !field.hot {
                packets = field.packets(block);
            }
            let mut rows: [&mut [u8]; MAX_M] =
                array::from_fn(|_| buffers.next().unwrap_or_default());
            isal.encode(field.t, &packets, &mut rows[..m]);
        }
        burst
    };
    let name = match variant {
        Variant::Dispatched => "isal".to_owned(),
        other => format!("isal {}", format!("{other:?}").to_lowercase()),
    };
    Some(Contender {
        name,
        run: Box::new(run),
    })
}

/// reed-solomon-erasure with its C code as a contender. Its matrix is another, its work the same.
pub(crate) fn rse_contender<'c>(field: &'c Field<'_>, m: usize) -> Option<Contender<'c>> {
    let code = ReedSolomon::new(K, m).ok()?;
    let mut packets = field.packets(0);
    let run = move || {
        let (start, burst) = (field.next(), field.burst());
        let mut symbols = field.buffers.borrow_mut();
        let mut buffers = symbols.rows(0);
        for block in start..start + burst {
            if !field.hot {
                packets = field.packets(block);
            }
            let mut rows: [&mut [u8]; MAX_M] =
                array::from_fn(|_| buffers.next().unwrap_or_default());
            _ = code.encode_sep(&packets, &mut rows[..m]);
        }
        burst
    };
    Some(Contender {
        name: "reed-solomon-erasure simd".to_owned(),
        run: Box::new(run),
    })
}

/// The bound: XOR of all packets of a block.
pub(crate) fn xor_contender<'c>(field: &'c Field<'_>) -> Contender<'c> {
    let mut packets = field.packets(0);
    let run = move || {
        let (start, burst) = (field.next(), field.burst());
        let mut symbols = field.buffers.borrow_mut();
        for (block, row) in (start..start + burst).zip(symbols.rows(0)) {
            if !field.hot {
                packets = field.packets(block);
            }
            xor_streams(&packets, row);
        }
        burst
    };
    Contender {
        name: "xor bound".to_owned(),
        run: Box::new(run),
    }
}

/// Fills in the symbols of every block, for decoding.
pub(crate) fn prepare(ring: &mut Ring, t: usize) {
    let engine = Engine::detect();
    for block in 0..ring.blocks() {
        let mut symbols = vec![vec![0; t]; KEPT];
        {
            let source = |n: usize| Payload::Whole(&ring.packet(block, n)[..t - 2]);
            let sources: [_; K] = array::from_fn(|n| Source {
                position: n as u8,
                payload: source(n),
            });
            let mut rows: Vec<Row<'_>> = symbols
                .iter_mut()
                .enumerate()
                .map(|(r, s)| Row {
                    index: r as u8,
                    symbol: s,
                })
                .collect();
            encode(&engine, &mut rows, &sources, true);
        }
        ring.set_symbols(block, &symbols);
    }
}

/// Our decoder with `lost` of [`K`] packets missing, as a contender.
pub(crate) fn decode_contender<'c>(
    field: &'c Field<'_>,
    lost: usize,
    isa: Isa,
) -> Option<Contender<'c>> {
    let engine = Engine::with_isa(isa).ok()?.prefetching(!field.hot);
    let mut scratch = Scratch::new(16, field.t);
    // Spread over the block.
    let unknown: PositionSet = (0..lost).map(|n| (n * 7 + 3) as u8).collect();
    let (mut sources, mut symbols) = (field.known(0, &unknown), field.symbols(0));
    let run = move || {
        let (start, burst) = (field.next(), field.burst());
        for block in start..start + burst {
            if !field.hot {
                (sources, symbols) = (field.known(block, &unknown), field.symbols(block));
            }
            let job = DecodeJob {
                t: field.t,
                min_payload: crem_fec::MIN_PAYLOAD,
                sources: &sources[..K - lost],
                symbols: &symbols[..lost],
                unknown,
            };
            let decoded = engine.decode(&job, &mut scratch);
            let right = decoded.is_ok_and(|decoded| {
                decoded
                    .outcomes()
                    .all(|(_, outcome)| matches!(outcome, Outcome::Restored(_)))
            });
            assert!(right, "a block was not decoded");
        }
        burst
    };
    Some(Contender {
        name: format!("own {}", isa.name()),
        run: Box::new(run),
    })
}
