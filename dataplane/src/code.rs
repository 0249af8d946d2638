//! Running code jobs: contributions of sources to symbols, through `crem-fec`, in the slots' buffers.

use core::ops::Range;

use crem_core::actions::{Actions, CodeJob, SlotId, SourceRef};
use crem_fec::{EncodeJob, Engine, Row, Scheme, Source, recycle};

use crate::buffer::{Buffer, Pool};
use crate::counters::{Coding, Drops};
use crate::slots::{RESERVE, Slots};

/// The memory of one worker for code jobs.
#[derive(Debug)]
pub struct Coder<B> {
    engine: Engine,
    taken: Vec<(u8, SlotId, B)>,
    rows: Vec<Row<'static>>,
    sources: Vec<Source<'static>>,
}

impl<B: Buffer> Coder<B> {
    /// A coder with the kernels of `engine`.
    pub fn new(engine: Engine) -> Self {
        Self {
            engine,
            taken: Vec::with_capacity(64),
            rows: Vec::with_capacity(64),
            sources: Vec::with_capacity(256),
        }
    }

    /// Runs every code job of `actions` in order, fetching the packets of later ones into the cache on
    /// the way.
    pub fn run(
        &mut self,
        actions: &Actions<B>,
        slots: &mut Slots<B>,
        pool: &impl Pool<B>,
        counters: &mut Coding,
        drops: &mut Drops,
    ) {
        let mut jobs = actions.code.iter();
        while let Some(job) = jobs.next() {
            counters.code_jobs += 1;
            self.take_buffers(job, actions, slots, pool, drops);
            self.code(job, jobs.as_slice(), actions, counters);
            for (_, slot, buffer) in self.taken.drain(..) {
                slots.put(slot, buffer);
            }
        }
    }

    fn take_buffers(
        &mut self,
        job: &CodeJob,
        actions: &Actions<B>,
        slots: &mut Slots<B>,
        pool: &impl Pool<B>,
        drops: &mut Drops,
    ) {
        for row in slice(&actions.rows, &job.rows) {
            match slots.take(row.slot, job.t, job.first, pool) {
                Some(buffer) => self.taken.push((row.index, row.slot, buffer)),
                // Without `first` it was counted when the symbol began.
                None => drops.repair_no_buffer += u64::from(job.first),
            }
        }
    }

    fn code(
        &mut self,
        job: &CodeJob,
        later: &[CodeJob],
        actions: &Actions<B>,
        counters: &mut Coding,
    ) {
        let mut sources: Vec<Source<'_>> = recycle(core::mem::take(&mut self.sources));
        let own = slice(&actions.sources, &job.sources).iter();
        sources.extend(own.filter_map(|source| {
            Some(Source {
                position: source.position,
                payload: payload(source)?.into(),
            })
        }));
        let next = later
            .iter()
            .flat_map(|job| slice(&actions.sources, &job.sources))
            .filter_map(payload);
        let mut rows: Vec<Row<'_>> = recycle(core::mem::take(&mut self.rows));
        for (index, _, buffer) in &mut self.taken {
            let symbol = buffer
                .octets_mut()
                .and_then(|o| o.get_mut(usize::from(RESERVE)..));
            if let Some(symbol) = symbol {
                rows.push(Row {
                    index: *index,
                    symbol,
                });
            }
        }
        counters.code_sources += sources.len() as u64;
        counters.code_rows += rows.len() as u64;
        let job = Scheme::from_number(job.scheme)
            .and_then(|s| EncodeJob::new(s, &mut rows, &sources, job.first).ok());
        match job {
            Some(mut job) => self.engine.encode_one(&mut job, next),
            None => counters.code_refused += 1,
        }
        self.rows = recycle(rows);
        self.sources = recycle(sources);
    }
}

/// The UDP payload of a source; `None` if the frame has no such octets.
fn payload<B: Buffer>(source: &SourceRef<B>) -> Option<&[u8]> {
    let from = usize::from(source.off);
    source
        .buf
        .octets()
        .get(from..from + usize::from(source.len))
}

/// A range of the core's, which is within bounds unless the core erred.
pub(crate) fn slice<'a, T>(all: &'a [T], range: &Range<u32>) -> &'a [T] {
    let (start, end) = (usize::try_from(range.start), usize::try_from(range.end));
    match (start, end) {
        (Ok(start), Ok(end)) => all.get(start..end).unwrap_or_default(),
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::buffer::heap::{HeapBuf, HeapPool};
    use crem_core::actions::Row as CoreRow;

    fn source(position: u8, payload: &[u8]) -> SourceRef<HeapBuf> {
        let frame = [&[0xee; 42], payload].concat();
        let len = u16::try_from(payload.len()).unwrap();
        SourceRef {
            position,
            buf: HeapBuf::new(&frame),
            off: 42,
            len,
        }
    }

    fn symbol(slots: &mut Slots<HeapBuf>, slot: SlotId) -> Vec<u8> {
        let buffer = slots.finish(slot).unwrap();
        buffer.octets()[usize::from(RESERVE)..].to_vec()
    }

    #[test]
    fn jobs_in_two_steps_make_the_symbol_of_one() {
        let engine = Engine::scalar();
        let (pool, mut slots) = (HeapPool::default(), Slots::new(4));
        let names: Vec<SlotId> = slots.names().collect();
        let mut actions = Actions::default();
        actions
            .sources
            .extend([source(0, b"abcd"), source(1, b"efghij"), source(2, b"k")]);
        let row = |index, n: usize| CoreRow {
            index,
            slot: names[n],
        };
        actions
            .rows
            .extend([row(0, 0), row(3, 1), row(0, 2), row(3, 3)]);
        let job = |first, sources, rows| CodeJob {
            scheme: 1,
            t: 12,
            first,
            sources,
            rows,
        };
        actions.code.push(job(true, 0..2, 0..2));
        actions.code.push(job(false, 2..3, 0..2));
        actions.code.push(job(true, 0..3, 2..4));
        let (mut counters, mut drops) = (Coding::default(), Drops::default());
        let mut coder = Coder::new(engine);
        coder.run(&actions, &mut slots, &pool, &mut counters, &mut drops);
        for (two_steps, one_step) in [(0, 2), (1, 3)] {
            let (a, b) = (
                symbol(&mut slots, names[two_steps]),
                symbol(&mut slots, names[one_step]),
            );
            assert_eq!(a, b);
            assert!(a.iter().any(|o| *o != 0));
        }
        assert_eq!(
            (
                counters.code_jobs,
                counters.code_sources,
                counters.code_rows
            ),
            (3, 6, 6)
        );
        assert_eq!((counters.code_refused, drops), (0, Drops::default()));
    }

    /// The symbols are those of each job alone, however its packets and those of later jobs mix.
    #[test]
    fn jobs_of_a_burst_do_not_disturb_each_other() {
        let octets: Vec<u8> = (0..3000u32).map(|n| ((n * n) >> 5) as u8).collect();
        let packets: Vec<_> = (0..40u8)
            .map(|n| {
                source(
                    n % 10,
                    &octets[usize::from(n) * 7..][..2600 - usize::from(n) * 60],
                )
            })
            .collect();
        for engine in [Engine::scalar(), Engine::detect()] {
            let symbols = |jobs: &[usize]| {
                let (pool, mut slots) = (HeapPool::default(), Slots::new(4));
                let names: Vec<SlotId> = slots.names().collect();
                let mut actions = Actions::default();
                actions.sources.extend(packets.iter().cloned());
                for (n, &job) in jobs.iter().enumerate() {
                    let (n, first) = (n as u32, job as u32 * 10);
                    actions.rows.push(CoreRow {
                        index: 2,
                        slot: names[n as usize],
                    });
                    actions.code.push(CodeJob {
                        scheme: 1,
                        t: 2700,
                        first: true,
                        sources: first..first + 10,
                        rows: n..n + 1,
                    });
                }
                let (mut counters, mut drops) = (Coding::default(), Drops::default());
                Coder::new(engine).run(&actions, &mut slots, &pool, &mut counters, &mut drops);
                assert_eq!((counters.code_refused, drops), (0, Drops::default()));
                let made = names.iter().take(jobs.len());
                made.map(|name| symbol(&mut slots, *name))
                    .collect::<Vec<_>>()
            };
            let together = symbols(&[0, 1, 2, 3]);
            for (job, made) in together.iter().enumerate() {
                assert_eq!(*made, symbols(&[job])[0], "job {job}");
            }
        }
    }

    #[test]
    fn without_buffers_the_symbols_are_given_up_and_counted_once() {
        let (pool, mut slots) = (HeapPool::default(), Slots::new(1));
        pool.empty.set(true);
        let name = slots.names().next().unwrap();
        let mut actions = Actions::default();
        actions
            .sources
            .extend([source(0, b"abcd"), source(1, b"ef")]);
        actions.rows.push(CoreRow {
            index: 0,
            slot: name,
        });
        for (first, sources) in [(true, 0..1), (false, 1..2)] {
            actions.code.push(CodeJob {
                scheme: 1,
                t: 12,
                first,
                sources,
                rows: 0..1,
            });
        }
        let (mut counters, mut drops) = (Coding::default(), Drops::default());
        Coder::new(Engine::scalar()).run(&actions, &mut slots, &pool, &mut counters, &mut drops);
        assert_eq!(drops.repair_no_buffer, 1);
        assert!(slots.finish(name).is_none());
    }
}
