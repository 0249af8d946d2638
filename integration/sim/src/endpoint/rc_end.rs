//! RC endpoints at their place in a world: what to send comes from a [`Workload`], packets are translated,
//! and what arrives is checked against what can have been sent.

use super::rc::{
    Body, Operation, Packet as RcPacket, Place, QpError, Requester, RequesterConfig, Responder,
    ResponderConfig,
};
use super::{Completion, Endpoint, Failure, Output};
use crate::packet::{Ack, Conn, Content, Packet, Role, opcode};
use crate::rng::Rng;
use crate::{Duration, Instant};
use crem_wire::Psn;

/// DSCP of everything that an endpoint sends.
const DSCP: u8 = 26;
/// Packets that leave in one call at most.
const BURST: usize = 64;

/// What the application at a requester asks for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Workload {
    /// When the first message is posted.
    pub start: Instant,
    /// Messages in all.
    pub messages: u32,
    /// Messages open at once.
    pub outstanding: u32,
    /// Smallest message, octets, at least 1.
    pub min_octets: u32,
    /// Largest message; sizes in between are drawn with a uniform logarithm.
    pub max_octets: u32,
    /// Share of READs; the others are WRITEs.
    pub reads: f64,
    /// Mean pause before a message; zero posts the next at once.
    pub pause: Duration,
}

impl Workload {
    fn draw(&self, rng: &mut Rng) -> (Operation, u32) {
        let (low, high) = (self.min_octets.max(1), self.max_octets.max(1));
        let octets = rng.log_between(f64::from(low), f64::from(high.max(low)) + 0.5);
        let read = rng.chance(self.reads);
        let operation = if read {
            Operation::Read
        } else {
            Operation::Write
        };
        (operation, octets as u32)
    }
}

/// A requester with its application.
#[derive(Debug)]
pub struct RequesterEnd {
    conn: Conn,
    requester: Requester,
    workload: Workload,
    rng: Rng,
    posted: u32,
    next_post: Instant,
    next_burst: Instant,
    batch: Duration,
}

impl RequesterEnd {
    /// A requester that will do `workload`; `seed` determines sizes, kinds and pauses.
    pub fn new(conn: Conn, config: RequesterConfig, workload: Workload, seed: u64) -> Self {
        Self {
            conn,
            requester: Requester::new(config),
            workload,
            rng: Rng::new(seed),
            posted: 0,
            next_post: workload.start,
            next_burst: Instant(0),
            batch: config.batch,
        }
    }

    /// The requester itself, for its figures.
    pub fn requester(&self) -> &Requester {
        &self.requester
    }

    fn may_post(&self) -> bool {
        self.posted < self.workload.messages
            && (self.requester.open() as u32) < self.workload.outstanding.max(1)
    }

    fn post(&mut self, now: Instant) {
        while self.may_post() && self.next_post <= now {
            let (operation, octets) = self.workload.draw(&mut self.rng);
            self.requester.post(now, operation, octets);
            self.posted += 1;
            let pause = self.rng.exponential(self.workload.pause.as_nanos() as f64);
            self.next_post = now + Duration::from_nanos(pause as u64);
        }
    }

    fn finish(&mut self, out: &mut Output) {
        while let Some(done) = self.requester.completion() {
            out.completed.push(Completion {
                message: done.message as u32,
                octets: done.octets.into(),
                took: done.done.since(done.posted),
            });
        }
        out.failed = out.failed.or(self.requester.error().map(failure));
    }
}

impl Endpoint for RequesterEnd {
    fn on_packet(&mut self, now: Instant, packet: &Packet, out: &mut Output) {
        let Some(inner) = inward(self.conn, packet) else {
            out.failed = wrong(packet).or(out.failed);
            return;
        };
        self.requester.on_packet(now, &inner);
        self.finish(out);
    }

    fn on_timer(&mut self, now: Instant, out: &mut Output) {
        self.post(now);
        self.requester.on_timeout(now);
        if self.requester.next_send().is_some_and(|at| at <= now) {
            self.next_burst = now + self.batch;
            for _ in 0..BURST {
                let Some(packet) = self.requester.send(now) else {
                    break;
                };
                out.send.push(outward(self.conn, Role::Responder, &packet));
            }
        }
        self.finish(out);
    }

    fn next_timer(&self) -> Option<Instant> {
        if self.requester.error().is_some() {
            return None;
        }
        let post = self.may_post().then_some(self.next_post);
        let send = self.requester.next_send().map(|at| at.max(self.next_burst));
        let times = [post, send, self.requester.next_timeout()];
        times.into_iter().flatten().min()
    }

    fn is_done(&self) -> bool {
        let idle = self.posted >= self.workload.messages && self.requester.open() == 0;
        idle || self.requester.error().is_some()
    }
}

/// A responder; the memory that it lets others read changes with every WRITE.
#[derive(Debug)]
pub struct ResponderEnd {
    conn: Conn,
    responder: Responder,
    next_burst: Instant,
    batch: Duration,
}

impl ResponderEnd {
    /// A responder that has seen nothing.
    pub fn new(conn: Conn, config: ResponderConfig) -> Self {
        Self {
            conn,
            responder: Responder::new(config),
            next_burst: Instant(0),
            batch: config.batch,
        }
    }

    /// The responder itself, for its figures.
    pub fn responder(&self) -> &Responder {
        &self.responder
    }

    fn send(&mut self, now: Instant, out: &mut Output) {
        for _ in 0..BURST {
            let Some(packet) = self.responder.send(now) else {
                break;
            };
            out.send.push(outward(self.conn, Role::Requester, &packet));
        }
        self.next_burst = now + self.batch;
    }
}

impl Endpoint for ResponderEnd {
    fn on_packet(&mut self, now: Instant, packet: &Packet, out: &mut Output) {
        let Some(inner) = inward(self.conn, packet) else {
            out.failed = wrong(packet).or(out.failed);
            return;
        };
        let before = self.responder.figures().unique;
        self.responder.on_packet(now, &inner, packet.ce);
        let new = self.responder.figures().unique - before;
        out.useful += new;
        if new > 0 && matches!(inner.body, Body::Write(Place::Last | Place::Only)) {
            self.responder.rewrite();
        }
        if self.responder.next_send() == Some(Instant(0)) {
            self.send(now, out);
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Output) {
        if self.responder.next_send().is_some_and(|at| at <= now) {
            self.send(now, out);
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        self.responder.next_send().map(|at| at.max(self.next_burst))
    }

    fn is_done(&self) -> bool {
        self.responder.next_send().is_none()
    }
}

fn failure(error: QpError) -> Failure {
    match error {
        QpError::RetriesExceeded => Failure::RetryExceeded,
        QpError::OpcodeSequence | QpError::Unsolicited => Failure::InvalidRequest,
    }
}

/// Bits of [`Content`] below the connection.
const CONTENT_BITS: u32 = 49;

fn outward(conn: Conn, to: Role, packet: &RcPacket) -> Packet {
    let (ack, read_length) = match packet.body {
        Body::Ack => (Ack::Positive, 0),
        Body::Nak => (Ack::SequenceError, 0),
        Body::Sack { from, to } => {
            let (from, to) = (Psn::new(from), Psn::new(to));
            (Ack::Selective { from, to }, 0)
        }
        Body::ReadRequest(octets) => (Ack::None, octets),
        _ => (Ack::None, 0),
    };
    Packet {
        content: Content(u64::from(conn.0) << CONTENT_BITS | packet.content),
        serial: 0,
        conn,
        to,
        psn: Psn::new(packet.psn),
        opcode: packet.opcode(),
        dscp: DSCP,
        ect: true,
        ce: false,
        damage: 0,
        payload_len: packet.udp_payload(),
        read_length,
        ack,
        tag: u32::from(packet.ack_req) << 16 | u32::from(packet.payload),
    }
}

/// The packet as the endpoint takes it; `None` if it does not: damaged, or not what can have been sent.
fn inward(conn: Conn, packet: &Packet) -> Option<RcPacket> {
    let body = match (packet.opcode, packet.ack) {
        (opcode::ACKNOWLEDGE, Ack::Positive) => Body::Ack,
        (opcode::ACKNOWLEDGE, Ack::SequenceError) => Body::Nak,
        (opcode::ACKNOWLEDGE, Ack::Selective { from, to }) => Body::Sack {
            from: from.get(),
            to: to.get(),
        },
        (opcode::CNP, _) => Body::Cnp,
        (opcode::READ_REQUEST, _) => Body::ReadRequest(packet.read_length),
        (opcode::WRITE_FIRST, _) => Body::Write(Place::First),
        (opcode::WRITE_MIDDLE, _) => Body::Write(Place::Middle),
        (opcode::WRITE_LAST, _) => Body::Write(Place::Last),
        (opcode::WRITE_ONLY, _) => Body::Write(Place::Only),
        (opcode::READ_RESPONSE_FIRST, _) => Body::ReadResponse(Place::First),
        (opcode::READ_RESPONSE_MIDDLE, _) => Body::ReadResponse(Place::Middle),
        (opcode::READ_RESPONSE_LAST, _) => Body::ReadResponse(Place::Last),
        (opcode::READ_RESPONSE_ONLY, _) => Body::ReadResponse(Place::Only),
        _ => return None,
    };
    let inner = RcPacket {
        psn: packet.psn.get(),
        body,
        payload: packet.tag as u16,
        content: packet.content.0 & ((1 << CONTENT_BITS) - 1),
        ack_req: packet.tag >> 16 & 1 == 1,
    };
    let carries = inner.is_request() || matches!(body, Body::ReadResponse(_));
    let own = packet.content.0 >> CONTENT_BITS == u64::from(conn.0);
    (packet.damage == 0 && (!carries || own && inner.is_consistent())).then_some(inner)
}

/// Why a packet that was not taken fails the queue pair, if it does: damage is only a loss.
fn wrong(packet: &Packet) -> Option<Failure> {
    (packet.damage == 0).then_some(Failure::WrongData)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::endpoint::rc::Recovery;

    fn ends(recovery: Recovery) -> (RequesterEnd, ResponderEnd) {
        let rtt = Duration::from_millis(1);
        let config = RequesterConfig::for_path(recovery, 1024, 10_000_000_000, rtt);
        let workload = Workload {
            start: Instant(1_000),
            messages: 50,
            outstanding: 4,
            min_octets: 1,
            max_octets: 100_000,
            reads: 0.5,
            pause: Duration::from_micros(20),
        };
        let conn = Conn(7);
        let responder = ResponderEnd::new(conn, ResponderConfig::facing(&config));
        (RequesterEnd::new(conn, config, workload, 3), responder)
    }

    /// Runs both until the requester is done; `spoil` may change what reaches the responder.
    fn run(recovery: Recovery, spoil: impl Fn(&mut Packet)) -> (u64, Option<Failure>) {
        let (mut a, mut b) = ends(recovery);
        let (mut to_a, mut to_b) = (Output::default(), Output::default());
        let (mut completed, mut failed) = (0, None);
        while !a.is_done() && failed.is_none() {
            let now = [a.next_timer(), b.next_timer()].into_iter().flatten().min();
            let now = now.unwrap();
            to_b.clear();
            a.on_timer(now, &mut to_b);
            to_a.clear();
            for packet in &mut to_b.send {
                spoil(packet);
                b.on_packet(now, packet, &mut to_a);
            }
            b.on_timer(now, &mut to_a);
            for packet in &to_a.send {
                a.on_packet(now, packet, &mut to_b);
            }
            completed += to_b.completed.len() as u64;
            failed = to_b.failed.or(to_a.failed);
        }
        (completed, failed)
    }

    #[test]
    fn a_workload_is_done_and_nothing_is_wrong() {
        for reorder in [None, Some(Duration::from_micros(5))] {
            let recovery =
                reorder.map_or(Recovery::GoBackN, |reorder| Recovery::Selective { reorder });
            assert_eq!(run(recovery, |_| {}), (50, None));
        }
    }

    #[test]
    fn data_of_another_packet_fails_the_queue_pair() {
        let swap = |packet: &mut Packet| {
            if packet.psn.get() == 40 {
                packet.content.0 += 2;
            }
        };
        assert_eq!(run(Recovery::GoBackN, swap).1, Some(Failure::WrongData));
    }
}
