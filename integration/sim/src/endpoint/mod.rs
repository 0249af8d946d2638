//! The RDMA endpoints: what a requester or responder does with packets and time. One module for each
//! kind of transport; where endpoints stand and how packets reach them is the world's business.

pub mod rc;
pub mod rc_end;

use crate::packet::Packet;
use crate::{Duration, Instant};

/// One end of a connection. Two calls with equal arguments in equal state do equal things: randomness
/// comes from what the endpoint was made with.
pub trait Endpoint {
    /// A packet arrived; it may be damaged, repeated, late, or never sent by the peer in this form.
    fn on_packet(&mut self, now: Instant, packet: &Packet, out: &mut Output);

    /// The time of [`Endpoint::next_timer`] has come. A sender paces itself with this: it may send
    /// several packets in one call, which then leave its interface back to back.
    fn on_timer(&mut self, now: Instant, out: &mut Output);

    /// When [`Endpoint::on_timer`] is to be called next, if ever. Asked after every call.
    fn next_timer(&self) -> Option<Instant>;

    /// Whether it has nothing left to do.
    fn is_done(&self) -> bool;
}

/// What an endpoint asks for. The world owns one and empties it after every call.
#[derive(Debug, Default)]
pub struct Output {
    /// Packets that leave the host now, in this order.
    pub send: Vec<Packet>,
    /// Messages completed.
    pub completed: Vec<Completion>,
    /// What the transport does not survive: the QP goes to the error state, the run fails.
    pub failed: Option<Failure>,
    /// Packets that carried something new to the application.
    pub useful: u64,
}

impl Output {
    /// Empties it, keeping the capacity.
    pub fn clear(&mut self) {
        self.send.clear();
        self.completed.clear();
        self.failed = None;
        self.useful = 0;
    }
}

/// A message that the requester knows to be completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Number of the message at its connection.
    pub message: u32,
    /// Octets of application data.
    pub octets: u64,
    /// From posting to completion.
    pub took: Duration,
}

/// Why a QP fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Retries are exhausted.
    RetryExceeded,
    /// A packet in sequence is impossible in this place: opcode, length or message number.
    InvalidRequest,
    /// Data of a READ or WRITE is not what was to arrive.
    WrongData,
}
