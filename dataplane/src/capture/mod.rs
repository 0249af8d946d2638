//! Captures, the worker's part: a probe beside a port that copies what goes through it, as far as it is
//! wanted, into batches that another thread writes to a file. Without a capture a port pays one test per
//! burst. What is asked and how it ends is in `aux/capture.rs`, the file format in `pcapng.rs`.

pub mod pcapng;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crem_api::Side;
use crem_api::capture::CaptureKind;
use crem_core::time::{Duration, Instant};
use crem_wire::frame::{Class, ParseConfig, parse};

use crate::buffer::Buffer;

/// Octets of frames in a batch.
const BATCH_OCTETS: usize = 256 * 1024;
/// Frames in a batch.
const BATCH_FRAMES: usize = 2048;
/// Batches of one probe.
const BATCHES: usize = 8;
/// Longest time that a frame stays in a batch that is not full.
const LINGER: Duration = Duration::from_millis(100);

/// What all probes of a capture share.
#[derive(Debug)]
pub struct Budget {
    frames: AtomicU64,
    octets: AtomicU64,
    stop: AtomicBool,
    /// By interface.
    lost: [AtomicU64; 2],
}

impl Budget {
    /// For so many frames and octets.
    pub fn new(frames: u64, octets: u64) -> Arc<Self> {
        Arc::new(Self {
            frames: AtomicU64::new(frames),
            octets: AtomicU64::new(octets),
            stop: AtomicBool::new(false),
            lost: [const { AtomicU64::new(0) }; 2],
        })
    }

    /// Ends the capture: probes go within a turn of their workers.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Frames and octets that may still be kept.
    pub fn left(&self) -> (u64, u64) {
        let left = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (left(&self.frames), left(&self.octets))
    }

    /// Frames that found no batch, by interface of the file.
    pub fn lost(&self) -> [u64; 2] {
        [0, 1].map(|n| {
            self.lost
                .get(n)
                .map_or(0, |lost| lost.load(Ordering::Relaxed))
        })
    }

    fn lose(&self, interface: u32) {
        if let Some(lost) = self.lost.get(interface as usize) {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_over(&self) -> bool {
        let (frames, octets) = self.left();
        self.stop.load(Ordering::Relaxed) || frames == 0 || octets == 0
    }

    /// Takes one frame of so many octets out of it. `false` ends the capture: another frame does not fit.
    fn take(&self, octets: u64) -> bool {
        let relaxed = Ordering::Relaxed;
        let less = |left: u64| left.checked_sub(octets);
        if self.octets.fetch_update(relaxed, relaxed, less).is_err() {
            self.octets.store(0, relaxed);
            return false;
        }
        let one_less = |left: u64| left.checked_sub(1);
        self.frames.fetch_update(relaxed, relaxed, one_less).is_ok()
    }
}

/// Which frames are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Filter {
    /// Of this kind.
    pub kind: CaptureKind,
    /// CREM port of the segment.
    pub crem_port: u16,
    /// From or to this address, the outermost.
    pub address: Option<IpAddr>,
}

impl Filter {
    /// Whether the frame is wanted. Frames that cannot be taken apart are only wanted if all are.
    pub fn wants(&self, frame: &[u8]) -> bool {
        if (self.kind, self.address) == (CaptureKind::All, None) {
            return true;
        }
        let config = ParseConfig {
            crem_port: Some(self.crem_port),
            vxlan_port: None,
        };
        let parsed = parse(frame, &config);
        let kind = match self.kind {
            CaptureKind::All => true,
            CaptureKind::Roce => matches!(parsed.class, Class::Roce(_)),
            CaptureKind::Crem => parsed.class == Class::Crem,
        };
        let near = |address: IpAddr| {
            let ip = parsed.ip.as_ref();
            ip.is_some_and(|ip| ip.source == address || ip.destination == address)
        };
        kind && self.address.is_none_or(near)
    }
}

/// A frame in a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// When its burst was received or sent, by the worker's clock.
    pub at: Instant,
    /// Octets on the wire without FCS.
    pub original: u32,
    /// Octets kept.
    pub kept: u32,
    /// Sent by the gateway, else received.
    pub outbound: bool,
}

/// Frames on their way to the file.
#[derive(Debug)]
pub struct Batch {
    /// Number of the probe that fills it.
    pub probe: usize,
    entries: Vec<Entry>,
    octets: Vec<u8>,
}

impl Batch {
    fn new(probe: usize) -> Box<Self> {
        Box::new(Self {
            probe,
            entries: Vec::with_capacity(BATCH_FRAMES),
            octets: Vec::with_capacity(BATCH_OCTETS),
        })
    }

    /// The frames in order, each with what was kept of it.
    pub fn frames(&self) -> impl Iterator<Item = (&Entry, &[u8])> {
        let mut rest = &self.octets[..];
        self.entries.iter().map(move |entry| {
            let (kept, more) = rest.split_at(rest.len().min(entry.kept as usize));
            rest = more;
            (entry, kept)
        })
    }

    fn has_room(&self, octets: usize) -> bool {
        self.entries.len() < BATCH_FRAMES && octets <= BATCH_OCTETS - self.octets.len()
    }

    fn push(&mut self, entry: Entry, octets: &[u8]) {
        self.entries.push(entry);
        self.octets.extend_from_slice(octets);
    }
}

/// What the writing thread holds of a probe: the way back for its batches.
#[derive(Debug)]
pub struct Return(SyncSender<Box<Batch>>);

impl Return {
    /// Gives a batch back, empty.
    pub fn give(&self, mut batch: Box<Batch>) {
        batch.entries.clear();
        batch.octets.clear();
        // A probe that has gone takes none.
        let _ = self.0.try_send(batch);
    }
}

/// Copies frames of one port on one worker.
#[derive(Debug)]
pub struct Probe {
    interface: u32,
    filter: Filter,
    snap: usize,
    budget: Arc<Budget>,
    now: Instant,
    current: Option<Box<Batch>>,
    full: SyncSender<Box<Batch>>,
    spare: Receiver<Box<Batch>>,
}

impl Probe {
    /// A probe with its number in the capture and that of its port among the file's interfaces, 0 or 1. It
    /// keeps `snap` octets of each frame and hands batches over by `full`. All memory is taken here.
    pub fn new(
        (number, interface): (usize, u32),
        filter: Filter,
        snap: usize,
        budget: Arc<Budget>,
        full: SyncSender<Box<Batch>>,
    ) -> (Self, Return) {
        let (give, spare) = sync_channel(BATCHES);
        for _ in 0..BATCHES {
            // There is room for all.
            let _ = give.try_send(Batch::new(number));
        }
        let probe = Self {
            interface,
            filter,
            snap,
            budget,
            now: Instant(0),
            current: None,
            full,
            spare,
        };
        (probe, Return(give))
    }

    /// Tells the time; hands over what has waited for long. `false`: the capture is over, and the probe is
    /// to be dropped.
    pub fn tick(&mut self, now: Instant) -> bool {
        self.now = now;
        let first = self
            .current
            .as_ref()
            .and_then(|batch| batch.entries.first());
        if first.is_some_and(|entry| now.since(entry.at) >= LINGER) {
            self.hand_over();
        }
        !self.budget.is_over()
    }

    /// Looks at frames that the port received.
    pub fn received<B: Buffer>(&mut self, frames: &[B]) {
        self.see(frames, false);
    }

    /// Looks at frames that the port took for sending.
    pub fn sent<B: Buffer>(&mut self, frames: &[B]) {
        self.see(frames, true);
    }

    fn see<B: Buffer>(&mut self, frames: &[B], outbound: bool) {
        for frame in frames {
            let octets = frame.octets();
            if self.budget.is_over() {
                return;
            }
            if self.filter.wants(octets) {
                self.keep(octets, outbound);
            }
        }
    }

    fn keep(&mut self, octets: &[u8], outbound: bool) {
        let kept = &octets[..octets.len().min(self.snap)];
        let entry = Entry {
            at: self.now,
            original: u32::try_from(octets.len()).unwrap_or(u32::MAX),
            kept: u32::try_from(kept.len()).unwrap_or(u32::MAX),
            outbound,
        };
        // The second time with another batch.
        for _ in 0..2 {
            if self.current.is_none() {
                self.current = self.spare.try_recv().ok();
            }
            let Some(batch) = &mut self.current else {
                self.budget.lose(self.interface);
                return;
            };
            if batch.has_room(kept.len()) {
                if self.budget.take(u64::from(entry.kept)) {
                    batch.push(entry, kept);
                }
                return;
            }
            self.hand_over();
        }
    }

    /// There is always room: no more batches exist than places.
    fn hand_over(&mut self) {
        if let Some(batch) = self.current.take_if(|batch| !batch.entries.is_empty()) {
            let _ = self.full.try_send(batch);
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.hand_over();
    }
}

/// Places that `probes` probes need on their common way to the file.
pub const fn places(probes: usize) -> usize {
    probes * BATCHES
}

/// A probe on its way to its port.
#[derive(Debug)]
pub struct NewProbe {
    /// Segment, in the order of the document.
    pub segment: usize,
    /// Port.
    pub side: Side,
    /// The probe.
    pub probe: Box<Probe>,
}

#[cfg(test)]
mod tests;
