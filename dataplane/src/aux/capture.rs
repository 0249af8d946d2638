//! Captures, the part that may block: takes requests, makes the file, sends probes to the workers, and writes
//! on a thread of its own what they bring. One capture at a time. What a probe does is in `capture/mod.rs`.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crem_api::capture::{CaptureEnd, CaptureRequest, CaptureState};
use crem_api::protocol::ErrorReply;
use crem_api::{Document, Invalid, Issue, Side};
use crem_dpdk::Clock;

use crate::capture::pcapng::{Packet, Writer};
use crate::capture::{Batch, Budget, Filter, NewProbe, Probe, Return, places};
use crate::metering::utc_offset;

/// Between two looks at the time while nothing comes; then the file is complete for readers.
const LOOK: Duration = Duration::from_millis(100);
/// How long workers may take to let go of their probes.
const LETTING_GO: Duration = Duration::from_secs(2);

/// Begins and ends captures.
#[derive(Debug)]
pub(super) struct Captures {
    workers: Vec<SyncSender<NewProbe>>,
    clock: Clock,
    last: Option<Capture>,
}

/// One capture, over or not.
#[derive(Debug)]
struct Capture {
    request: CaptureRequest,
    budget: Arc<Budget>,
    progress: Arc<Mutex<Progress>>,
    thread: Option<JoinHandle<()>>,
}

/// How far it has come.
#[derive(Clone, Debug, Default)]
struct Progress {
    frames: u64,
    octets: u64,
    asked_to_stop: bool,
    ended: Option<CaptureEnd>,
}

fn locked(progress: &Mutex<Progress>) -> std::sync::MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Captures {
    /// None yet.
    pub(super) fn new(workers: Vec<SyncSender<NewProbe>>, clock: Clock) -> Self {
        Self {
            workers,
            clock,
            last: None,
        }
    }

    /// How the one that runs, or else the last one, stands.
    pub(super) fn state(&self) -> CaptureState {
        let Some(capture) = &self.last else {
            return CaptureState::default();
        };
        let progress = locked(&capture.progress).clone();
        CaptureState {
            request: Some(capture.request.clone()),
            running: progress.ended.is_none(),
            frames: progress.frames,
            octets: progress.octets,
            lost: capture.budget.lost().into_iter().sum(),
            ended: progress.ended,
        }
    }

    /// Ends the one that runs; its last frames come within a fifth of a second.
    pub(super) fn stop(&mut self) -> CaptureState {
        if let Some(capture) = &self.last {
            locked(&capture.progress).asked_to_stop = true;
            capture.budget.stop();
        }
        self.state()
    }

    /// Ends the one that runs and waits for its file.
    pub(super) fn finish(&mut self) {
        self.stop();
        if let Some(thread) = self.last.as_mut().and_then(|capture| capture.thread.take())
            && thread.join().is_err()
        {
            tracing::error!("the thread of a capture panicked");
        }
    }

    /// Begins one on a segment of the document in force.
    ///
    /// # Errors
    /// Everything that is wrong with the request, or that another one runs.
    pub(super) fn start(
        &mut self,
        request: CaptureRequest,
        document: &Document,
    ) -> Result<CaptureState, ErrorReply> {
        let mut issues = request.problems();
        let mut segments = document.segments.iter().enumerate();
        let found = segments.find(|(_, (id, _))| id.as_str() == request.segment);
        if found.is_none() {
            let name = format!("{:?}", request.segment);
            let expected = "the id of a segment in the document in force";
            issues.push(Issue::new("/capture/start/segment", name, expected));
        }
        if self.state().running {
            let expected = "one capture at a time: stop it, or wait for its end";
            issues.push(Issue::new(
                "/capture/start",
                "a capture that runs",
                expected,
            ));
        }
        let (Some((number, (_, segment))), true) = (found, issues.is_empty()) else {
            return Err(ErrorReply::invalid(Invalid { issues }));
        };
        let filter = Filter {
            kind: request.kind,
            crem_port: segment.crem_port,
            address: request.address,
        };
        let file = open(&request).map_err(ErrorReply::invalid)?;
        let begun = self.begin(request, number, filter, file);
        begun.map_err(|e| ErrorReply::invalid(at_file(&e)))?;
        Ok(self.state())
    }

    fn begin(
        &mut self,
        request: CaptureRequest,
        segment: usize,
        filter: Filter,
        file: File,
    ) -> io::Result<()> {
        let mut sides = request.ports.clone();
        sides.sort_unstable();
        sides.dedup();
        let mut writer = Writer::new(BufWriter::new(file), "CREM gateway")?;
        for side in &sides {
            let port = match side {
                Side::Lan => "lan",
                Side::Wan => "wan",
            };
            let name = format!("{}/{port}", request.segment);
            writer.interface(&name, request.snap_octets)?;
        }
        writer.flush()?;
        let budget = Budget::new(request.max_frames, request.max_octets);
        let (full, batches) = sync_channel(places(self.workers.len() * sides.len()));
        let snap = usize::try_from(request.snap_octets).unwrap_or(usize::MAX);
        let (mut probes, mut returns) = (Vec::new(), Vec::new());
        for worker in &self.workers {
            for (interface, side) in (0..).zip(&sides) {
                let number = returns.len();
                let (budget, full) = (Arc::clone(&budget), full.clone());
                let (probe, back) = Probe::new((number, interface), filter, snap, budget, full);
                returns.push((interface, back));
                let probe = Box::new(probe);
                let new = NewProbe {
                    segment,
                    side: *side,
                    probe,
                };
                probes.push((worker, new));
            }
        }
        drop(full);
        let progress = Arc::default();
        let scribe = Scribe {
            writer,
            returns,
            offset: utc_offset(crem_core::time::Instant(self.clock.now_ns())),
            budget: Arc::clone(&budget),
            progress: Arc::clone(&progress),
            until: Instant::now() + Duration::from_secs(request.seconds.into()),
        };
        let thread = std::thread::Builder::new().name("crem-capture".to_owned());
        let thread = thread.spawn(move || scribe.run(&batches))?;
        for (worker, probe) in probes {
            // One that takes none is gone, or has taken none of earlier captures yet: then this one is
            // without its frames, and ends with it.
            if worker.try_send(probe).is_err() {
                tracing::warn!("a worker takes no probe: its frames are not in the capture");
            }
        }
        tracing::info!(file = %request.file.display(), "a capture begins");
        self.last = Some(Capture {
            request,
            budget,
            progress,
            thread: Some(thread),
        });
        Ok(())
    }
}

/// Makes the file: never one that exists, and for the owner's eyes only, since it holds payloads.
fn open(request: &CaptureRequest) -> Result<File, Invalid> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(0o600);
    options.open(&request.file).map_err(|e| {
        let found = format!("{:?}: {e}", request.file);
        let expected = "a path in a directory that exists, of a file that does not";
        Invalid {
            issues: vec![Issue::new("/capture/start/file", found, expected)],
        }
    })
}

fn at_file(error: &io::Error) -> Invalid {
    let expected = "a file that can be written and a thread to write it";
    Invalid {
        issues: vec![Issue::new(
            "/capture/start/file",
            error.to_string(),
            expected,
        )],
    }
}

/// Writes the file.
struct Scribe {
    writer: Writer<BufWriter<File>>,
    /// Interface and way back of each probe.
    returns: Vec<(u32, Return)>,
    /// UTC less the workers' time, ns.
    offset: u64,
    budget: Arc<Budget>,
    progress: Arc<Mutex<Progress>>,
    until: Instant,
}

impl Scribe {
    fn run(mut self, batches: &Receiver<Box<Batch>>) {
        let written = self.write_all(batches).and_then(|in_time| {
            self.write_end()?;
            Ok(in_time)
        });
        self.budget.stop();
        let mut progress = locked(&self.progress);
        let ended = match written {
            Err(e) => CaptureEnd::Failed(e.to_string()),
            Ok(_) if progress.asked_to_stop => CaptureEnd::Stopped,
            Ok(false) => CaptureEnd::Time,
            Ok(true) if self.budget.left().0 == 0 => CaptureEnd::Frames,
            Ok(true) => CaptureEnd::Octets,
        };
        tracing::info!(frames = progress.frames, "a capture has ended: {ended:?}");
        progress.ended = Some(ended);
    }

    /// Writes what comes until all probes are gone; whether that was before the time was over.
    fn write_all(&mut self, batches: &Receiver<Box<Batch>>) -> io::Result<bool> {
        loop {
            match batches.recv_timeout(LOOK) {
                Ok(batch) => self.write(batch)?,
                Err(RecvTimeoutError::Timeout) => self.writer.flush()?,
                Err(RecvTimeoutError::Disconnected) => return Ok(Instant::now() < self.until),
            }
            let now = Instant::now();
            if now >= self.until {
                self.budget.stop();
            }
            if now >= self.until + LETTING_GO {
                return Ok(false);
            }
        }
    }

    fn write(&mut self, batch: Box<Batch>) -> io::Result<()> {
        let Some((interface, back)) = self.returns.get(batch.probe) else {
            return Ok(());
        };
        let (mut frames, mut octets) = (0, 0);
        for (entry, kept) in batch.frames() {
            self.writer.packet(&Packet {
                interface: *interface,
                at_ns: self.offset.saturating_add(entry.at.0),
                original: entry.original,
                octets: kept,
                outbound: entry.outbound,
            })?;
            (frames, octets) = (frames + 1, octets + kept.len() as u64);
        }
        back.give(batch);
        let mut progress = locked(&self.progress);
        progress.frames += frames;
        progress.octets += octets;
        Ok(())
    }

    fn write_end(&mut self) -> io::Result<()> {
        let now = utc_offset(crem_core::time::Instant(0));
        let interfaces = self.returns.iter().map(|(interface, _)| *interface).max();
        for (interface, lost) in (0..=interfaces.unwrap_or(0)).zip(self.budget.lost()) {
            self.writer.statistics(interface, now, lost)?;
        }
        self.writer.flush()
    }
}

#[cfg(test)]
mod tests;
