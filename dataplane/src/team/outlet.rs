//! What a worker sees as a port: a queue of its own, or, where the port has fewer queues than there are
//! workers, a ring to the worker that has one.

use super::is_marked;
use super::ring::{Gives, Ring, ring};
use crate::buffer::{Buffer, Port};

/// A frame on its way to the worker that sends it.
#[derive(Debug)]
pub struct Relayed<B> {
    /// The frame.
    pub frame: B,
    /// It was restored here, which metering at the other worker tells apart.
    pub restored: bool,
}

/// A port of a worker.
#[derive(Debug)]
pub enum Outlet<D, B> {
    /// A queue of its own, both ways.
    Queue(D),
    /// It receives nothing, and what it sends goes by another worker's queue.
    Relay {
        /// To that worker.
        ring: Gives<Relayed<B>>,
        /// Restored frames of this turn.
        marks: Vec<B>,
    },
}

/// A relay, and the end that the other worker takes from.
pub fn relay<D, B>() -> (Outlet<D, B>, super::Takes<Relayed<B>>) {
    let (gives, takes): Ring<Relayed<B>> = ring();
    let relay = Outlet::Relay {
        ring: gives,
        marks: Vec::new(),
    };
    (relay, takes)
}

impl<B: Buffer, D: Port<B>> Port<B> for Outlet<D, B> {
    fn receive(&mut self, into: &mut Vec<B>) {
        if let Outlet::Queue(device) = self {
            device.receive(into);
        }
    }

    fn send(&mut self, frames: &mut Vec<B>) {
        match self {
            Outlet::Queue(device) => device.send(frames),
            Outlet::Relay { ring, marks } => {
                let room = ring.room().min(frames.len());
                for frame in frames.drain(..room) {
                    let restored = is_marked(marks, &frame);
                    // There is room: it was counted.
                    let _ = ring.give(Relayed { frame, restored });
                }
            }
        }
    }

    fn mark_restored(&mut self, restored: &[B]) {
        if let Outlet::Relay { marks, .. } = self {
            marks.clear();
            marks.extend_from_slice(restored);
        }
    }

    fn device_drops(&self) -> u64 {
        match self {
            Outlet::Queue(device) => device.device_drops(),
            Outlet::Relay { .. } => 0,
        }
    }

    fn missed(&self) -> u64 {
        match self {
            Outlet::Queue(device) => device.missed(),
            Outlet::Relay { .. } => 0,
        }
    }

    fn link_up(&self) -> bool {
        match self {
            Outlet::Queue(device) => device.link_up(),
            Outlet::Relay { .. } => true,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::buffer::heap::{HeapBuf, HeapPort};

    #[test]
    fn a_relay_takes_what_there_is_room_for_in_order_and_tells_restored_frames() {
        let (mut relay, mut takes) = relay::<HeapPort, HeapBuf>();
        let frames: Vec<HeapBuf> = (0..3).map(|n| HeapBuf::new(&[n; 60])).collect();
        relay.mark_restored(&frames[1..2]);
        relay.send(&mut frames.clone());
        relay.mark_restored(&[]);
        relay.send(&mut frames[1..2].to_vec());
        let seen: Vec<(u8, bool)> = std::iter::from_fn(|| takes.take())
            .map(|r| (r.frame.octets()[0], r.restored))
            .collect();
        assert_eq!(seen, [(0, false), (1, true), (2, false), (1, false)]);
        let mut many: Vec<HeapBuf> = (0..3000).map(|_| HeapBuf::new(&[9; 60])).collect();
        relay.send(&mut many);
        assert_eq!(many.len(), 3000 - 2048);
        let mut none = Vec::new();
        relay.receive(&mut none);
        assert!(none.is_empty());
    }
}
