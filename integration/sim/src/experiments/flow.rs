//! A flow of an experiment: an RC connection in a closed loop, or an open-loop source with a sink that
//! counts what arrived for the first time.

use std::net::IpAddr;

use crem_core::packet::{Desc, Namespace, PktBuf, PsnSpace, StreamKey};
use crem_wire::{Psn, Qpn};

use crate::Instant;
use crate::endpoint::rc::{
    Body, Completion, OpenSource, Operation, Packet, Place, Requester, Responder, Serial,
    unwrap_psn,
};

/// A frame without octets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// What its headers say.
    pub packet: Packet,
    /// ECN CE.
    pub ce: bool,
    /// Number of its flow.
    pub flow: u16,
}

impl PktBuf for Frame {}

/// PSNs whose packets are remembered, to stand for restored ones.
const REMEMBERED: usize = 1 << 20;

/// Counts what arrives, each serial once.
#[derive(Clone, Debug, Default)]
pub struct Sink {
    seen: Vec<u64>,
    highest: Serial,
    /// Serials that arrived.
    pub unique: u64,
}

impl Sink {
    fn take(&mut self, psn: u32) {
        let serial = unwrap_psn(psn, self.highest);
        self.highest = self.highest.max(serial);
        let word = (serial / 64) as usize;
        if word >= self.seen.len() {
            self.seen.resize(word + 1024, 0);
        }
        let bit = 1 << (serial % 64);
        self.unique += u64::from(self.seen[word] & bit == 0);
        self.seen[word] |= bit;
    }

    /// How many of `from .. to` arrived.
    pub fn arrived(&self, from: Serial, to: Serial) -> u64 {
        let has = |s: &Serial| {
            let word = self.seen.get((s / 64) as usize).copied().unwrap_or(0);
            word >> (s % 64) & 1 == 1
        };
        (from..to).filter(has).count() as u64
    }
}

/// Who sends and who receives.
#[derive(Debug)]
pub enum Traffic {
    /// WRITEs of `octets` on a connection, `outstanding` at a time, `messages` in all.
    Writes {
        /// Sends.
        requester: Box<Requester>,
        /// Receives.
        responder: Box<Responder>,
        /// Octets of a message.
        octets: u32,
        /// Messages open at a time.
        outstanding: u32,
        /// Messages still to post.
        messages: u64,
    },
    /// Packets at a rate, whatever happens.
    Open {
        /// Sends.
        source: OpenSource,
        /// Receives.
        sink: Sink,
        /// Nothing is sent from then on.
        until: Instant,
    },
}

/// A flow.
#[derive(Debug)]
pub struct Flow {
    pub(super) key: StreamKey,
    /// The ends.
    pub traffic: Traffic,
    sent: Vec<Packet>,
    top: Serial,
    /// Messages completed.
    pub completions: Vec<Completion>,
}

/// The stream of the flow with this number.
pub(super) fn key(number: u16) -> StreamKey {
    StreamKey {
        namespace: Namespace(0),
        source: IpAddr::from([10, 0, 1, 1]),
        destination: IpAddr::from([10, 0, 2, 1]),
        qp: Qpn::new(u32::from(number) + 1),
        space: PsnSpace::Requests,
    }
}

impl Flow {
    /// The flow with this number.
    pub fn new(number: u16, traffic: Traffic) -> Self {
        let empty = Packet {
            psn: 0,
            body: Body::Cnp,
            payload: 0,
            content: 0,
            ack_req: false,
        };
        Self {
            key: key(number),
            traffic,
            sent: vec![empty; REMEMBERED],
            top: 0,
            completions: Vec::new(),
        }
    }

    /// Serial after the highest that was sent.
    pub fn top(&self) -> Serial {
        self.top
    }

    pub(super) fn next_event(&self) -> Option<Instant> {
        match &self.traffic {
            Traffic::Writes {
                requester,
                outstanding,
                messages,
                ..
            } => {
                if *messages > 0 && (requester.open() as u32) < *outstanding {
                    return Some(Instant(0));
                }
                let times = [requester.next_send(), requester.next_timeout()];
                times.into_iter().flatten().min()
            }
            Traffic::Open { source, until, .. } => Some(source.next_send()).filter(|at| at < until),
        }
    }

    pub(super) fn on_time(&mut self, now: Instant) {
        if let Traffic::Writes {
            requester,
            octets,
            outstanding,
            messages,
            ..
        } = &mut self.traffic
        {
            while *messages > 0 && (requester.open() as u32) < *outstanding {
                requester.post(now, Operation::Write, *octets);
                *messages -= 1;
            }
            requester.on_timeout(now);
        }
    }

    pub(super) fn send(&mut self, now: Instant) -> Option<Packet> {
        let packet = match &mut self.traffic {
            Traffic::Writes { requester, .. } => requester.send(now),
            Traffic::Open { source, until, .. } if source.next_send() < *until => source.send(now),
            Traffic::Open { .. } => None,
        }?;
        let serial = unwrap_psn(packet.psn, self.top);
        self.top = self.top.max(serial + 1);
        self.sent[serial as usize & (REMEMBERED - 1)] = packet;
        Some(packet)
    }

    /// What was sent with this PSN last.
    pub(super) fn sent(&self, psn: Psn) -> Packet {
        let serial = unwrap_psn(psn.get(), self.top);
        self.sent[serial as usize & (REMEMBERED - 1)]
    }

    pub(super) fn receive(&mut self, now: Instant, frame: &Frame) {
        match &mut self.traffic {
            Traffic::Writes { responder, .. } => responder.on_packet(now, &frame.packet, frame.ce),
            Traffic::Open { sink, .. } => sink.take(frame.packet.psn),
        }
    }

    /// The next packet of the responder.
    pub(super) fn answer(&mut self, now: Instant) -> Option<Packet> {
        match &mut self.traffic {
            Traffic::Writes { responder, .. } => responder.send(now),
            Traffic::Open { .. } => None,
        }
    }

    pub(super) fn on_answer(&mut self, now: Instant, packet: &Packet) {
        if let Traffic::Writes { requester, .. } = &mut self.traffic {
            requester.on_packet(now, packet);
            while let Some(done) = requester.completion() {
                self.completions.push(done);
            }
        }
    }

    pub(super) fn desc(&self, frame: Frame) -> Desc<Frame> {
        let packet = &frame.packet;
        let whole = matches!(packet.body, Body::Write(Place::First | Place::Middle));
        Desc {
            key: self.key,
            psn: Psn::new(packet.psn),
            opcode: packet.opcode(),
            payload_len: packet.udp_payload(),
            payload_off: 42,
            mtu_seen: whole.then_some(packet.payload),
            read_length: None,
            ce: frame.ce,
            dscp: 26,
            buf: frame,
        }
    }
}
