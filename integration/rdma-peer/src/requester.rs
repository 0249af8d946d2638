//! The sending end of WRITE and SEND: a window of packets, go-back-N on NAK and on timeout.

use std::collections::VecDeque;

use crem_wire::Psn;
use crem_wire::roce::{Class, NakCode, Place, Reth, Syndrome};

use crate::config::{Endpoint, Operation, Transfer, Tuning};
use crate::machine::Machine;
use crate::pace::Pacer;
use crate::pattern::Pattern;
use crate::plan::Plan;
use crate::report::Report;
use crate::timing::{MessageTimes, Rtt};
use crate::wire::{Body, Incoming, Read, Writer, read};

/// Virtual address of stream offset 0.
pub(crate) const BASE_ADDRESS: u64 = 0x1000_0000_0000;
/// Remote key; there is one memory region.
pub(crate) const RKEY: u32 = 0x0001_cafe;
/// Sends a transfer and sees it acknowledged.
#[derive(Debug)]
pub struct Requester {
    endpoint: Endpoint,
    transfer: Transfer,
    tuning: Tuning,
    plan: Plan,
    writer: Writer,
    pacer: Pacer,
    rtt: Rtt,
    times: MessageTimes,
    /// First packet not acknowledged.
    unacked: u64,
    /// Next packet to send.
    next: u64,
    /// First packet never sent.
    fresh: u64,
    /// Packets in all, once known.
    total: Option<u64>,
    /// Selective repeat: packets to send again before any other.
    again: VecDeque<u64>,
    deadline: Option<u64>,
    started: Option<u64>,
    finished: Option<u64>,
    report: Report,
}

impl Requester {
    /// A requester that has sent nothing.
    pub fn new(endpoint: Endpoint, transfer: Transfer, tuning: Tuning) -> Self {
        let plan = Plan::new(&transfer);
        Self {
            endpoint,
            transfer,
            tuning,
            plan,
            writer: Writer::new(endpoint, Pattern::new(transfer.seed)),
            pacer: Pacer::new(tuning.rate_mbit, tuning.burst_ns, tuning.reaction_ns()),
            rtt: Rtt::new(tuning.rtt_ns),
            times: MessageTimes::default(),
            unacked: 0,
            next: 0,
            fresh: 0,
            total: transfer
                .messages
                .map(|m| m.saturating_mul(plan.per_message)),
            again: VecDeque::new(),
            deadline: None,
            started: None,
            finished: None,
            report: Report::default(),
        }
    }

    /// The packet that goes next if window and total allow one.
    fn candidate(&self) -> Option<u64> {
        if let Some(&number) = self.again.front() {
            return Some(number);
        }
        let limit = self.unacked + self.tuning.window;
        (self.next < limit && self.total.is_none_or(|total| self.next < total)).then_some(self.next)
    }

    /// With a duration instead of a count: once it is over, the messages begun are the last.
    fn settle_total(&mut self, now: u64) {
        let over = self
            .started
            .is_some_and(|start| now >= start + self.transfer.duration_ns);
        if self.total.is_none() && over {
            self.total = Some(self.fresh.next_multiple_of(self.plan.per_message));
        }
    }

    fn build(&mut self, number: u64, out: &mut Vec<u8>) {
        let packet = self.plan.packet(number);
        let starts = matches!(packet.place, Place::First | Place::Only);
        let reth = (self.transfer.operation == Operation::Write && starts).then(|| Reth {
            virtual_address: BASE_ADDRESS + packet.offset,
            rkey: RKEY,
            dma_length: self.transfer.message_octets,
        });
        let body = Body {
            reth,
            aeth: None,
            data: Some((packet.offset, packet.octets)),
        };
        let ack_req = self.asks(number, packet.place);
        self.writer.packet(
            self.plan.opcode(packet.place),
            self.plan.psn(number),
            ack_req,
            &body,
            out,
        );
    }

    /// Whether a packet asks for an acknowledgment.
    fn asks(&self, number: u64, place: Place) -> bool {
        let every = self.tuning.ack_every.max(1);
        let fills_window = number + 1 == self.unacked + self.tuning.window;
        matches!(place, Place::Last | Place::Only)
            || (number + 1).is_multiple_of(every)
            || fills_window
    }

    /// Books a packet as sent.
    fn note_sent(&mut self, now: u64, number: u64) {
        self.started.get_or_insert(now);
        self.report.packets_sent += 1;
        if number < self.fresh {
            self.report.packets_resent += 1;
        } else {
            self.fresh = number + 1;
            let place = self.plan.packet(number).place;
            if matches!(place, Place::First | Place::Only) {
                self.times.start(now);
            }
            if self.asks(number, place) {
                self.rtt.sent(number, now);
            }
        }
        if self.again.front() == Some(&number) {
            self.again.pop_front();
        } else {
            self.next = number + 1;
        }
        let timeout = self.rtt.timeout();
        self.deadline.get_or_insert(now + timeout);
    }

    /// Everything before packet `number` is at the far end.
    fn advance(&mut self, now: u64, number: u64) {
        if number <= self.unacked || number > self.fresh {
            return;
        }
        self.rtt.acknowledged(number, now);
        let done = |n: u64| n / self.plan.per_message;
        for _ in done(self.unacked)..done(number) {
            self.report.messages += 1;
            self.report.octets += self.plan.message_octets();
            self.times.complete(now);
        }
        self.unacked = number;
        self.next = self.next.max(number);
        self.again.retain(|&n| n >= number);
        self.deadline = (number < self.fresh).then(|| now + self.rtt.timeout());
        if Some(number) == self.total {
            self.finished = Some(now);
        }
    }

    /// Sends everything from the first unacknowledged packet on again.
    fn go_back(&mut self) {
        self.rtt.resent(self.unacked);
        self.again.clear();
        self.next = self.unacked;
    }

    fn on_nak(&mut self, now: u64, psn: Psn) {
        self.report.naks_received += 1;
        let Some(number) = self.plan.number(psn, self.unacked) else {
            return;
        };
        if number < self.unacked || number >= self.fresh {
            return;
        }
        if self.tuning.selective_repeat {
            if !self.again.contains(&number) {
                self.rtt.resent(number);
                self.again.push_back(number);
            }
            return;
        }
        self.advance(now, number);
        self.go_back();
        self.deadline = Some(now + self.rtt.timeout());
    }

    fn on_packet(&mut self, now: u64, packet: &Incoming<'_>) {
        match (packet.bth.opcode.class(), packet.aeth.map(|a| a.kind())) {
            (Class::Ack, Some(Syndrome::Ack(_))) => {
                self.report.acks_received += 1;
                if let Some(number) = self.plan.number(packet.bth.psn, self.unacked) {
                    self.advance(now, number + 1);
                }
            }
            (Class::Ack, Some(Syndrome::Nak(NakCode::PsnSequence))) => {
                self.on_nak(now, packet.bth.psn);
            }
            (Class::Cnp, _) => {
                self.report.cnps_received += 1;
                if self.tuning.react_to_cnp {
                    self.pacer.on_cnp(now);
                }
            }
            _ => self.report.protocol_errors += 1,
        }
    }
}

impl Machine for Requester {
    fn on_frame(&mut self, now: u64, frame: &[u8]) {
        match read(&self.endpoint, frame) {
            Read::Foreign => {}
            Read::Bad => self.report.icrc_errors += 1,
            Read::Packet(packet) => self.on_packet(now, &packet),
        }
    }

    fn poll_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> bool {
        self.settle_total(now);
        let Some(number) = self.candidate().filter(|_| self.pacer.ready(now)) else {
            return false;
        };
        self.build(number, out);
        self.pacer.sent(now, out.len());
        self.note_sent(now, number);
        true
    }

    fn on_timeout(&mut self, now: u64) {
        self.settle_total(now);
        if self.total == Some(self.unacked) {
            self.finished.get_or_insert(now);
        }
        if self.deadline.is_some_and(|at| at <= now) {
            self.report.timeouts += 1;
            self.go_back();
            self.deadline = Some(now + self.rtt.timeout());
        }
    }

    fn next_wake(&self) -> Option<u64> {
        let send = self.candidate().map(|_| self.pacer.next());
        [send, self.deadline].into_iter().flatten().min()
    }

    fn done(&self) -> bool {
        self.finished.is_some()
    }

    fn report(&self, now: u64) -> Report {
        let mut report = self.report.clone();
        report.completed = self.done();
        if let Some(start) = self.started {
            report.set_time(self.finished.unwrap_or(now).saturating_sub(start));
        }
        report.rtt_us = self.rtt.measured().unwrap_or(0) / 1_000;
        report.rate_mbit = self.pacer.rate_mbit();
        let (median, high, largest) = self.times.summary();
        report.message_us = [median, high, largest];
        report
    }
}
