//! A source that sends at its rate whatever happens: it takes no acknowledgment and repeats nothing.

use crem_core::time::Instant;

use super::packet::{Body, Packet, Place, content_of};
use super::sequence::{Serial, psn_of};

/// An open-loop source of WRITE packets.
#[derive(Clone, Debug)]
pub struct OpenSource {
    next: Serial,
    at: Instant,
    /// Fraction of a nanosecond that `at` is behind.
    rest: f64,
    gap_ns: f64,
    mtu: u16,
    message: u64,
}

impl OpenSource {
    /// Sends from `start` on, packets of `mtu` octets every `gap_ns`, `message` packets to a WRITE.
    pub fn new(start: Instant, first: Serial, mtu: u16, gap_ns: f64, message: u64) -> Self {
        Self {
            next: first,
            at: start,
            rest: 0.0,
            gap_ns,
            mtu,
            message: message.max(1),
        }
    }

    /// When the next packet is due.
    pub fn next_send(&self) -> Instant {
        self.at
    }

    /// Time between packets from now on.
    pub fn set_gap(&mut self, gap_ns: f64) {
        self.gap_ns = gap_ns;
    }

    /// Serial of the next packet.
    pub fn next_serial(&self) -> Serial {
        self.next
    }

    /// The packet that is due at `now`.
    pub fn send(&mut self, now: Instant) -> Option<Packet> {
        if self.at > now {
            return None;
        }
        let step = self.gap_ns + self.rest;
        self.rest = step.fract();
        self.at = Instant(self.at.0 + step as u64);
        let serial = self.next;
        self.next += 1;
        let index = serial % self.message;
        Some(Packet {
            psn: psn_of(serial),
            body: Body::Write(Place::of(index, self.message)),
            payload: self.mtu,
            content: content_of(serial, 0, false),
            ack_req: index + 1 == self.message,
        })
    }
}
