//! The threads of a gateway's workers: the first one runs on the thread that asks, each other one on a
//! thread and processor of its own. They begin each turn together, since simulated time has to be the same for
//! all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use crem_dpdk::thread::Affinity;
use crem_dpdk::{Clock, Eal, Registrar};

use crate::seat::{Batch, Seat};

/// Batches of turns for a worker.
struct Shift {
    seat: Box<Seat>,
    /// Workers at work, with this one.
    workers: u64,
    batches: Vec<Batch>,
    clock: Clock,
}

/// A thread for a worker that is not the first.
struct Thread {
    shifts: Sender<Shift>,
    back: Receiver<Box<Seat>>,
    thread: Option<JoinHandle<()>>,
}

/// Threads for all workers but the first.
pub struct Crew {
    threads: Vec<Thread>,
    pace: Arc<Pace>,
}

/// How far all workers are, together: turns begun by each, added up.
#[derive(Debug, Default)]
struct Pace(AtomicU64);

impl Pace {
    /// Waits until `workers` have begun as many turns as this one, which begins the next one.
    fn keep(&self, workers: u64, begun: &mut u64) {
        *begun += 1;
        self.0.fetch_add(1, Ordering::AcqRel);
        let mut looks = 0_u32;
        while self.0.load(Ordering::Acquire) < *begun * workers {
            looks += 1;
            // Should a processor be missing, the others have to get theirs.
            if looks.is_multiple_of(1 << 12) {
                std::thread::yield_now();
            }
            core::hint::spin_loop();
        }
    }
}

impl Crew {
    /// Nobody besides the calling thread.
    pub fn alone() -> Self {
        Self {
            threads: Vec::new(),
            pace: Arc::default(),
        }
    }

    /// Threads for `others` workers besides the one of the calling thread, which has `own`, the lowest
    /// processor if nothing is given.
    ///
    /// # Errors
    /// There are too few processors, or the thread cannot be had, in words.
    pub fn new(eal: &Eal, own: Option<u32>, others: usize) -> Result<Self, String> {
        let cpus = eal.original_affinity().cpus();
        let own = own.or(cpus.first().copied());
        let mut free = cpus.into_iter().filter(|cpu| Some(*cpu) != own);
        if let Some(own) = own {
            let bound = Affinity::of_cpu(own).and_then(|affinity| affinity.apply());
            bound.map_err(|e| e.to_string())?;
        }
        let mut crew = Self::alone();
        for _ in 0..others {
            let cpu = free.next().ok_or("there is no processor for each worker")?;
            let affinity = Affinity::of_cpu(cpu).map_err(|e| e.to_string())?;
            let thread = start(affinity, eal.registrar(), &crew.pace);
            crew.threads.push(thread.map_err(|e| e.to_string())?);
        }
        Ok(crew)
    }

    /// Workers that it has a thread for.
    pub fn workers(&self) -> usize {
        self.threads.len() + 1
    }

    /// Gives each worker its batches, all at once, and waits for all.
    ///
    /// # Errors
    /// A worker's thread ended.
    pub fn run(
        &self,
        seats: &mut Vec<Box<Seat>>,
        batches: &[Batch],
        clock: Clock,
    ) -> Result<(), String> {
        let others = seats.split_off(1.min(seats.len()));
        let count = others.len();
        if count > self.threads.len() {
            return Err(format!(
                "{} workers have no thread",
                count - self.threads.len()
            ));
        }
        let workers = count as u64 + 1;
        self.pace.0.store(0, Ordering::Release);
        for (thread, seat) in self.threads.iter().zip(others) {
            let shift = Shift {
                seat,
                workers,
                batches: batches.to_vec(),
                clock,
            };
            thread.shifts.send(shift).map_err(|_| "a thread ended")?;
        }
        if let Some(own) = seats.first_mut() {
            work(own, batches, &clock, &self.pace, workers);
        }
        for thread in self.threads.iter().take(count) {
            seats.push(thread.back.recv().map_err(|_| "a thread ended")?);
        }
        Ok(())
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for Thread { shifts, thread, .. } in &mut self.threads {
            // Nothing comes any more.
            *shifts = channel().0;
            if thread.take().is_some_and(|thread| thread.join().is_err()) {
                eprintln!("bench-dataplane: a worker's thread panicked");
            }
        }
    }
}

fn work(seat: &mut Seat, batches: &[Batch], clock: &Clock, pace: &Pace, workers: u64) {
    let mut begun = 0;
    for batch in batches {
        seat.run(*batch, clock, || {
            if workers > 1 {
                pace.keep(workers, &mut begun);
            }
        });
    }
}

fn start(affinity: Affinity, registrar: Registrar, pace: &Arc<Pace>) -> std::io::Result<Thread> {
    let (shifts, to_do) = channel::<Shift>();
    let (done, back) = channel();
    let pace = Arc::clone(pace);
    let run = move || {
        if let Err(e) = affinity.apply() {
            eprintln!("bench-dataplane: a worker runs where it can: {e}");
        }
        let lcore = registrar.register();
        if let Err(e) = &lcore {
            eprintln!("bench-dataplane: a worker has no cache of buffers: {e}");
        }
        while let Ok(mut shift) = to_do.recv() {
            let (seat, workers) = (&mut shift.seat, shift.workers);
            work(seat, &shift.batches, &shift.clock, &pace, workers);
            if done.send(shift.seat).is_err() {
                break;
            }
        }
    };
    let thread = std::thread::Builder::new()
        .name("worker".into())
        .spawn(run)?;
    Ok(Thread {
        shifts,
        back,
        thread: Some(thread),
    })
}
