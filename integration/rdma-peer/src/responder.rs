//! The far end: takes request packets in order, checks every octet, acknowledges, NAKs the first gap,
//! serves READs, and notifies the sender of CE marks.

use std::collections::{BTreeMap, VecDeque};

use crem_wire::roce::{Aeth, Class, NakCode, Opcode, Place, Reth, Syndrome};

use crate::config::{Endpoint, Operation, Transfer, Tuning};
use crate::machine::Machine;
use crate::pace::Pacer;
use crate::pattern::Pattern;
use crate::plan::{Plan, place};
use crate::report::Report;
use crate::requester::BASE_ADDRESS;
use crate::wire::{Body, Incoming, Read, Writer, read};

/// Least time between two congestion notifications, in nanoseconds.
const CNP_INTERVAL: u64 = 50_000;
/// "Credits not used" in an acknowledgment.
const NO_CREDITS: u8 = 31;
/// Packets kept beyond gaps with selective repeat.
const MAX_KEPT: usize = 1 << 16;

/// A packet kept beyond a gap.
#[derive(Debug)]
struct Kept {
    opcode: Opcode,
    ack_req: bool,
    reth: Option<Reth>,
    data: Vec<u8>,
}

/// A READ being answered: response packets from `next` up to `end`.
#[derive(Clone, Copy, Debug)]
struct ReadJob {
    first: u64,
    next: u64,
    end: u64,
    address: u64,
    octets: u64,
}

/// Receives a transfer.
#[derive(Debug)]
pub struct Responder {
    endpoint: Endpoint,
    transfer: Transfer,
    tuning: Tuning,
    plan: Plan,
    pattern: Pattern,
    writer: Writer,
    pacer: Pacer,
    /// Number of the packet that comes next in order.
    expected: u64,
    /// A NAK for `expected` is out.
    nak_out: bool,
    /// Completed messages.
    msn: u32,
    /// Where the next payload octet belongs, inside a message.
    cursor: Option<u64>,
    /// Octets of SEND messages so far.
    stream: u64,
    kept: BTreeMap<u64, Kept>,
    naks: VecDeque<u64>,
    ack_due: bool,
    cnp_due: bool,
    last_cnp: Option<u64>,
    reads: VecDeque<ReadJob>,
    /// First response packet never sent.
    fresh: u64,
    first_at: Option<u64>,
    last_at: u64,
    report: Report,
}

impl Responder {
    /// A responder that has seen nothing.
    pub fn new(endpoint: Endpoint, transfer: Transfer, tuning: Tuning) -> Self {
        let pattern = Pattern::new(transfer.seed);
        Self {
            endpoint,
            transfer,
            tuning,
            plan: Plan::new(&transfer),
            pattern,
            writer: Writer::new(endpoint, pattern),
            pacer: Pacer::new(tuning.rate_mbit, tuning.burst_ns, tuning.reaction_ns()),
            expected: 0,
            nak_out: false,
            msn: 0,
            cursor: None,
            stream: 0,
            kept: BTreeMap::new(),
            naks: VecDeque::new(),
            ack_due: false,
            cnp_due: false,
            last_cnp: None,
            reads: VecDeque::new(),
            fresh: 0,
            first_at: None,
            last_at: 0,
            report: Report::default(),
        }
    }

    fn on_request(&mut self, now: u64, packet: &Incoming<'_>) {
        self.report.packets_received += 1;
        if packet.ce {
            self.report.ce_marked += 1;
            let quiet = self.last_cnp.is_none_or(|at| now >= at + CNP_INTERVAL);
            self.cnp_due |= self.tuning.react_to_cnp && quiet;
        }
        let Some(number) = self.plan.number(packet.bth.psn, self.expected) else {
            self.report.protocol_errors += 1;
            return;
        };
        let (opcode, ack_req) = (packet.bth.opcode, packet.bth.ack_req());
        if number == self.expected {
            self.note_progress(now);
            self.take(opcode, ack_req, packet.reth, packet.data);
            self.nak_out = false;
            self.take_kept();
        } else if number > self.expected {
            self.report.out_of_order += 1;
            self.on_gap(number, packet);
        } else {
            self.report.duplicates += 1;
            self.on_duplicate(number, packet);
        }
    }

    fn note_progress(&mut self, now: u64) {
        if self.first_at.is_none() {
            self.first_at = Some(now);
        } else {
            let gap = now.saturating_sub(self.last_at) / 1_000;
            self.report.longest_gap_us = self.report.longest_gap_us.max(gap);
        }
        self.last_at = now;
    }

    /// A packet in order.
    fn take(&mut self, opcode: Opcode, ack_req: bool, reth: Option<Reth>, data: &[u8]) {
        if opcode.is_read_request() {
            self.take_read(reth);
            return;
        }
        self.expected += 1;
        self.ack_due |= ack_req;
        let place = opcode.place();
        let starts = matches!(place, Some(Place::First | Place::Only));
        let write = opcode.0 >= Opcode::WRITE_FIRST.0;
        if starts {
            self.cursor = if write {
                reth.and_then(|r| r.virtual_address.checked_sub(BASE_ADDRESS))
            } else {
                Some(self.stream)
            };
        }
        let Some(offset) = self.cursor else {
            self.report.protocol_errors += 1;
            return;
        };
        self.report.bytes_wrong += self.pattern.wrong(offset, data);
        self.report.octets += data.len() as u64;
        self.cursor = Some(offset + data.len() as u64);
        if matches!(place, Some(Place::Last | Place::Only)) {
            self.stream = offset + data.len() as u64;
            self.cursor = None;
            self.complete();
        }
    }

    fn complete(&mut self) {
        self.msn = self.msn.wrapping_add(1);
        self.report.messages += 1;
    }

    fn take_read(&mut self, reth: Option<Reth>) {
        let Some(job) = reth.and_then(|reth| self.read_job(self.expected, &reth)) else {
            self.report.protocol_errors += 1;
            self.expected += 1;
            return;
        };
        self.expected = job.end;
        self.reads.push_back(job);
        self.complete();
    }

    fn read_job(&self, number: u64, reth: &Reth) -> Option<ReadJob> {
        let address = reth.virtual_address.checked_sub(BASE_ADDRESS)?;
        let end = number + u64::from(reth.read_span(self.transfer.mtu));
        let octets = u64::from(reth.dma_length);
        Some(ReadJob {
            first: number,
            next: number,
            end,
            address,
            octets,
        })
    }

    fn on_gap(&mut self, number: u64, packet: &Incoming<'_>) {
        if !self.tuning.selective_repeat {
            if !self.nak_out {
                self.naks.push_back(self.expected);
                self.nak_out = true;
            }
            return;
        }
        let highest = self
            .kept
            .last_key_value()
            .map_or(self.expected, |(&last, _)| last + 1);
        // Without `nak_out` the gap starts at `expected` itself; else it was named already.
        let from = if self.nak_out { highest } else { self.expected };
        self.naks
            .extend((from..number).filter(|n| !self.kept.contains_key(n)));
        self.nak_out = true;
        if self.kept.len() < MAX_KEPT {
            self.kept.entry(number).or_insert_with(|| Kept {
                opcode: packet.bth.opcode,
                ack_req: packet.bth.ack_req(),
                reth: packet.reth,
                data: packet.data.to_vec(),
            });
        }
    }

    /// Selective repeat: what was kept and is now in order.
    fn take_kept(&mut self) {
        while let Some(kept) = self.kept.remove(&self.expected) {
            self.take(kept.opcode, kept.ack_req, kept.reth, &kept.data);
        }
        // What is still kept lies beyond gaps that were named when they were seen.
        self.nak_out = !self.kept.is_empty();
    }

    fn on_duplicate(&mut self, number: u64, packet: &Incoming<'_>) {
        if packet.bth.opcode.is_read_request() {
            // Asked again: what was queued from there on will be asked again too.
            if let Some(job) = packet.reth.and_then(|reth| self.read_job(number, &reth)) {
                self.reads.retain(|read| read.first < number);
                for read in &mut self.reads {
                    read.end = read.end.min(number);
                }
                self.reads.push_back(job);
            }
        } else {
            self.ack_due = true;
        }
    }

    fn acknowledgment(&mut self, kind: Syndrome, number: u64, out: &mut Vec<u8>) {
        let body = Body {
            aeth: Some(Aeth::new(kind, self.msn)),
            ..Body::default()
        };
        self.writer
            .packet(Opcode::ACK, self.plan.psn(number), false, &body, out);
    }

    /// Everything but READ responses, which are paced.
    fn poll_control(&mut self, now: u64, out: &mut Vec<u8>) -> bool {
        if let Some(number) = self.naks.pop_front() {
            self.report.naks_sent += 1;
            self.acknowledgment(Syndrome::Nak(NakCode::PsnSequence), number, out);
            return true;
        }
        if self.ack_due && self.expected > 0 {
            self.ack_due = false;
            self.report.acks_sent += 1;
            self.acknowledgment(Syndrome::Ack(NO_CREDITS), self.expected - 1, out);
            return true;
        }
        if self.cnp_due {
            self.cnp_due = false;
            self.last_cnp = Some(now);
            self.report.cnps_sent += 1;
            self.writer.cnp(out);
            return true;
        }
        false
    }

    fn poll_response(&mut self, now: u64, out: &mut Vec<u8>) -> bool {
        while self.reads.front().is_some_and(|job| job.next >= job.end) {
            self.reads.pop_front();
        }
        if !self.pacer.ready(now) {
            return false;
        }
        let msn = self.msn;
        let Some(job) = self.reads.front_mut() else {
            return false;
        };
        let mtu = u64::from(self.transfer.mtu);
        let within = (job.next - job.first) * mtu;
        let octets = job.octets.saturating_sub(within).min(mtu);
        let place = place(job.next == job.first, within + octets >= job.octets);
        let (number, offset) = (job.next, job.address + within);
        job.next += 1;
        let aeth = (place != Place::Middle).then(|| Aeth::new(Syndrome::Ack(NO_CREDITS), msn));
        let body = Body {
            reth: None,
            aeth,
            data: Some((offset, octets as usize)),
        };
        self.writer.packet(
            response_opcode(place),
            self.plan.psn(number),
            false,
            &body,
            out,
        );
        self.pacer.sent(now, out.len());
        self.report.packets_sent += 1;
        if number < self.fresh {
            self.report.packets_resent += 1;
        }
        self.fresh = self.fresh.max(number + 1);
        true
    }
}

fn response_opcode(place: Place) -> Opcode {
    match place {
        Place::First => Opcode::READ_RESPONSE_FIRST,
        Place::Middle => Opcode::READ_RESPONSE_MIDDLE,
        Place::Last => Opcode::READ_RESPONSE_LAST,
        Place::Only => Opcode::READ_RESPONSE_ONLY,
    }
}

impl Machine for Responder {
    fn on_frame(&mut self, now: u64, frame: &[u8]) {
        match read(&self.endpoint, frame) {
            Read::Foreign => {}
            Read::Bad => self.report.icrc_errors += 1,
            Read::Packet(packet) => match packet.bth.opcode.class() {
                Class::Request => self.on_request(now, &packet),
                Class::Cnp => {
                    self.report.cnps_received += 1;
                    if self.tuning.react_to_cnp {
                        self.pacer.on_cnp(now);
                    }
                }
                _ => self.report.protocol_errors += 1,
            },
        }
    }

    fn poll_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> bool {
        self.poll_control(now, out) || self.poll_response(now, out)
    }

    fn on_timeout(&mut self, _now: u64) {}

    fn next_wake(&self) -> Option<u64> {
        if self.ack_due || self.cnp_due || !self.naks.is_empty() {
            return Some(0);
        }
        (!self.reads.is_empty()).then(|| self.pacer.next())
    }

    fn done(&self) -> bool {
        let messages = self.transfer.messages;
        messages.is_some_and(|m| self.report.messages >= m) && self.reads.is_empty()
    }

    fn report(&self, _now: u64) -> Report {
        let mut report = self.report.clone();
        report.completed = self.done();
        if self.transfer.operation != Operation::Read
            && let Some(first) = self.first_at
        {
            report.set_time(self.last_at.saturating_sub(first));
        }
        report.rate_mbit = self.pacer.rate_mbit();
        report
    }
}
