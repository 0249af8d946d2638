//! A port whose device is memory: what arrives was put there, what is sent is kept until the other end has
//! taken a copy. It deals in mbufs as a network adapter's driver does: each received frame is replaced by
//! an empty one from the pool, and frames that are sent are freed when later ones are.

use std::collections::VecDeque;

use crem_dataplane::buffer::{BURST, Platform, Port};
use crem_dataplane::dpdk::{Frame, FramePool};
use crem_dpdk::{Batch, Mempool};

/// Transmit descriptors.
const DESCRIPTORS: usize = 512;

/// A frame that arrives at a moment.
#[derive(Debug)]
pub struct Arriving {
    /// When, nanoseconds of simulated time.
    pub at: u64,
    /// It is a packet of a host, not a message between gateways.
    pub is_source: bool,
    /// The frame.
    pub frame: Frame,
}

/// The device behind a port, as seen from the other side.
#[derive(Debug)]
pub struct Lane {
    /// The present moment.
    pub now: u64,
    /// What arrives, in order of time.
    pub arriving: VecDeque<Arriving>,
    /// Packets of hosts taken so far.
    pub sources_taken: u64,
    /// Empty frames for what arrives next.
    pub fresh: VecDeque<Frame>,
    /// References to frames sent, for the other end to copy, each with the moment.
    pub sent: Vec<(u64, Frame)>,
    /// Frames sent, the last ones: the device frees a frame when later ones need its descriptor.
    done: VecDeque<Frame>,
    /// Nobody is at the other end.
    pub is_sink: bool,
    /// Counter readings at each call of `send`, with the frames sent until then; empty unless wanted.
    pub marks: Option<Vec<(u64, usize)>>,
    /// The counter's reading when each packet of a host was received; nothing unless wanted.
    pub received: Option<Vec<u64>>,
    /// Of `done`, the last ones, which the other end has not seen yet.
    unseen: usize,
    pool: Mempool,
    refill: Batch<BURST>,
}

impl Lane {
    /// Nothing arrives and nothing was sent. Empty frames come from `pool`.
    pub fn new(pool: &Mempool, is_sink: bool) -> Self {
        Self {
            now: 0,
            arriving: VecDeque::new(),
            sources_taken: 0,
            fresh: VecDeque::new(),
            sent: Vec::with_capacity(1 << 16),
            done: VecDeque::with_capacity(2 * DESCRIPTORS),
            unseen: 0,
            is_sink,
            marks: None,
            received: None,
            pool: pool.clone(),
            refill: Batch::new(),
        }
    }

    /// Whether a frame can be received at this moment.
    pub fn is_due(&self) -> bool {
        self.arriving.front().is_some_and(|a| a.at <= self.now)
    }

    /// An empty frame for what arrives next.
    pub fn empty(&mut self) -> Option<Frame> {
        let kept = self.fresh.pop_front();
        kept.or_else(|| self.pool.alloc().map(Frame::from))
    }

    fn receive_due(&mut self, into: &mut Vec<Frame>) {
        let before = into.len();
        while into.len() - before < BURST && self.is_due() {
            let Some(arriving) = self.arriving.pop_front() else {
                break;
            };
            self.sources_taken += u64::from(arriving.is_source);
            into.push(arriving.frame);
        }
        let count = into.len() - before;
        if let Some(received) = &mut self.received {
            received.extend(core::iter::repeat_n(crem_dpdk::rdtsc(), count));
        }
        if count > 0 && self.pool.alloc_bulk(&mut self.refill, count) {
            self.fresh.extend(self.refill.drain().map(Frame::from));
        }
    }

    fn take(&mut self, frames: &mut Vec<Frame>) {
        let full = (self.done.len() + frames.len()).saturating_sub(DESCRIPTORS);
        self.done.drain(..full.min(self.done.len()));
        if !self.is_sink {
            self.unseen += frames.len();
        }
        self.done.extend(frames.drain(..));
        if let Some(marks) = &mut self.marks {
            marks.push((crem_dpdk::rdtsc(), self.sent.len() + self.unseen));
        }
    }

    /// Takes references to what was sent for the other end. Must be called before the descriptors have
    /// gone round, outside of what is measured.
    pub fn note_sent(&mut self) {
        let from = self.done.len() - self.unseen;
        let now = self.now;
        let unseen = self.done.range(from..).cloned();
        self.sent.extend(unseen.map(|frame| (now, frame)));
        self.unseen = 0;
    }
}

impl Port<Frame> for Lane {
    fn receive(&mut self, into: &mut Vec<Frame>) {
        self.receive_due(into);
    }

    fn send(&mut self, frames: &mut Vec<Frame>) {
        if !frames.is_empty() {
            self.take(frames);
        }
    }
}

/// mbufs and memory ports.
#[derive(Debug)]
pub struct Memory;

impl Platform for Memory {
    type Buf = Frame;
    type Pool = FramePool;
    type Port = Lane;
}
