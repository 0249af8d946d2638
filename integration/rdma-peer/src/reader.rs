//! The asking end of READ: several requests under way, every octet of the answers checked, and asked
//! again from the first missing response packet on.

use crem_wire::roce::{Class, NakCode, Reth, Syndrome};

use crate::config::{Endpoint, Transfer, Tuning};
use crate::machine::Machine;
use crate::pattern::Pattern;
use crate::plan::Plan;
use crate::report::Report;
use crate::requester::{BASE_ADDRESS, RKEY};
use crate::timing::{MessageTimes, Rtt};
use crate::wire::{Body, Incoming, Read, Writer, read};

/// Least time between two congestion notifications, in nanoseconds.
const CNP_INTERVAL: u64 = 50_000;

/// Reads a transfer from the responder.
#[derive(Debug)]
pub struct Reader {
    endpoint: Endpoint,
    transfer: Transfer,
    tuning: Tuning,
    plan: Plan,
    pattern: Pattern,
    writer: Writer,
    rtt: Rtt,
    times: MessageTimes,
    /// Response packet that comes next in order.
    expected: u64,
    /// Response packets asked for: the PSN of the next request.
    asked: u64,
    /// First response packet never asked for.
    fresh: u64,
    total: Option<u64>,
    /// Asked again because of a gap at `expected`; further ones are part of it.
    recovering: bool,
    cnp_due: bool,
    last_cnp: Option<u64>,
    deadline: Option<u64>,
    started: Option<u64>,
    finished: Option<u64>,
    last_at: u64,
    report: Report,
}

impl Reader {
    /// A reader that has asked for nothing.
    pub fn new(endpoint: Endpoint, transfer: Transfer, tuning: Tuning) -> Self {
        let plan = Plan::new(&transfer);
        let pattern = Pattern::new(transfer.seed);
        Self {
            endpoint,
            transfer,
            tuning,
            plan,
            pattern,
            writer: Writer::new(endpoint, pattern),
            rtt: Rtt::new(tuning.rtt_ns),
            times: MessageTimes::default(),
            expected: 0,
            asked: 0,
            fresh: 0,
            total: transfer
                .messages
                .map(|m| m.saturating_mul(plan.per_message)),
            recovering: false,
            cnp_due: false,
            last_cnp: None,
            deadline: None,
            started: None,
            finished: None,
            last_at: 0,
            report: Report::default(),
        }
    }

    /// The response packet to ask from, if window and total allow.
    fn candidate(&self) -> Option<u64> {
        let limit = self.expected + self.tuning.window.max(self.plan.per_message);
        (self.asked < limit && self.total.is_none_or(|total| self.asked < total))
            .then_some(self.asked)
    }

    fn settle_total(&mut self, now: u64) {
        let over = self
            .started
            .is_some_and(|start| now >= start + self.transfer.duration_ns);
        if self.total.is_none() && over {
            self.total = Some(self.fresh);
        }
    }

    /// A request for the rest of the message that packet `number` is in.
    fn ask(&mut self, now: u64, number: u64, out: &mut Vec<u8>) {
        let packet = self.plan.packet(number);
        let message_end = (packet.message + 1) * self.plan.message_octets();
        let reth = Reth {
            virtual_address: BASE_ADDRESS + packet.offset,
            rkey: RKEY,
            dma_length: (message_end - packet.offset) as u32,
        };
        let body = Body {
            reth: Some(reth),
            ..Body::default()
        };
        let opcode = self.plan.opcode(packet.place);
        self.writer
            .packet(opcode, self.plan.psn(number), true, &body, out);
        self.started.get_or_insert(now);
        self.report.packets_sent += 1;
        self.asked = (packet.message + 1) * self.plan.per_message;
        if number < self.fresh {
            self.report.packets_resent += 1;
        } else {
            self.times.start(now);
            self.rtt.sent(number, now);
        }
        self.fresh = self.fresh.max(self.asked);
        let timeout = self.rtt.timeout();
        self.deadline.get_or_insert(now + timeout);
    }

    fn ask_again(&mut self, now: u64) {
        self.rtt.resent(self.expected);
        self.asked = self.expected;
        self.recovering = true;
        self.deadline = Some(now + self.rtt.timeout());
    }

    fn on_response(&mut self, now: u64, packet: &Incoming<'_>) {
        self.report.packets_received += 1;
        if packet.ce {
            self.report.ce_marked += 1;
            let quiet = self.last_cnp.is_none_or(|at| now >= at + CNP_INTERVAL);
            self.cnp_due |= self.tuning.react_to_cnp && quiet;
        }
        let Some(number) = self.plan.number(packet.bth.psn, self.expected) else {
            return;
        };
        if number >= self.fresh {
            self.report.protocol_errors += 1;
        } else if number < self.expected {
            self.report.duplicates += 1;
        } else if number > self.expected {
            self.report.out_of_order += 1;
            if !self.recovering {
                self.ask_again(now);
            }
        } else {
            self.take(now, number, packet.data);
        }
    }

    /// A response in order.
    fn take(&mut self, now: u64, number: u64, data: &[u8]) {
        let planned = self.plan.packet(number);
        if data.len() != planned.octets {
            self.report.protocol_errors += 1;
        }
        self.report.bytes_wrong += self.pattern.wrong(planned.offset, data);
        if self.expected > 0 {
            let gap = now.saturating_sub(self.last_at) / 1_000;
            self.report.longest_gap_us = self.report.longest_gap_us.max(gap);
        }
        self.last_at = now;
        self.report.octets += data.len() as u64;
        self.expected += 1;
        self.recovering = false;
        self.rtt.acknowledged(self.expected, now);
        self.deadline = (self.expected < self.fresh).then(|| now + self.rtt.timeout());
        if self.expected.is_multiple_of(self.plan.per_message) {
            self.report.messages += 1;
            self.times.complete(now);
        }
        if self.total == Some(self.expected) {
            self.finished = Some(now);
        }
    }

    fn on_nak(&mut self, now: u64) {
        self.report.naks_received += 1;
        // The responder misses a request; everything from the first missing response is asked again.
        if !self.recovering {
            self.ask_again(now);
        }
    }
}

impl Machine for Reader {
    fn on_frame(&mut self, now: u64, frame: &[u8]) {
        match read(&self.endpoint, frame) {
            Read::Foreign => {}
            Read::Bad => self.report.icrc_errors += 1,
            Read::Packet(packet) => {
                match (packet.bth.opcode.class(), packet.aeth.map(|a| a.kind())) {
                    (Class::Response, _) => self.on_response(now, &packet),
                    (Class::Ack, Some(Syndrome::Nak(NakCode::PsnSequence))) => self.on_nak(now),
                    (Class::Ack, Some(Syndrome::Ack(_))) => self.report.acks_received += 1,
                    (Class::Cnp, _) => self.report.cnps_received += 1,
                    _ => self.report.protocol_errors += 1,
                }
            }
        }
    }

    fn poll_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> bool {
        if self.cnp_due {
            self.cnp_due = false;
            self.last_cnp = Some(now);
            self.report.cnps_sent += 1;
            self.writer.cnp(out);
            return true;
        }
        self.settle_total(now);
        let Some(number) = self.candidate() else {
            return false;
        };
        self.ask(now, number, out);
        true
    }

    fn on_timeout(&mut self, now: u64) {
        self.settle_total(now);
        if self.total == Some(self.expected) {
            self.finished.get_or_insert(now);
        }
        if self.deadline.is_some_and(|at| at <= now) {
            self.report.timeouts += 1;
            self.ask_again(now);
        }
    }

    fn next_wake(&self) -> Option<u64> {
        if self.cnp_due || self.candidate().is_some() {
            return Some(0);
        }
        self.deadline
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
        let (median, high, largest) = self.times.summary();
        report.message_us = [median, high, largest];
        report
    }
}
