//! Selective repeat: the responder tells what arrived beyond a gap, and only what is missing is sent
//! again. A packet counts as lost once one that was sent later, by more than the tolerated reordering,
//! has arrived, or when its own time is over.

use std::collections::VecDeque;

use crem_core::time::{Duration, Instant};

use super::book::Book;
use super::packet::{Body, Packet};
use super::requester::{Figures, QpError};
use super::sequence::{Serial, unwrap_psn};

/// Values of the ring besides the time of sending.
const NOT_SENT: u64 = 0;
const LOST: u64 = u64::MAX - 1;
const ARRIVED: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct Sent {
    serial: Serial,
    /// Serial after the span, of a READ.
    until: Serial,
    at: Instant,
}

#[derive(Debug)]
pub(super) struct Selective {
    next: Serial,
    /// Per serial of the window: when it was sent last, or one of the values above.
    ring: Vec<u64>,
    /// WRITE packets in the order of sending.
    sent: VecDeque<Sent>,
    /// READ requests in the order of sending.
    reads: VecDeque<Sent>,
    /// What is to be sent again.
    again: VecDeque<Sent>,
    reorder: Duration,
    /// When the latest packet that is known to have arrived was sent.
    newest: u64,
    /// Everything before has arrived at the responder.
    cumulative: Serial,
    /// The run beyond a gap that was told last.
    run: (Serial, Serial),
    /// Serial after the latest READ response.
    answered: Serial,
}

impl Selective {
    pub(super) fn new(first: Serial, window: u32, reorder: Duration) -> Self {
        Self {
            next: first,
            ring: vec![NOT_SENT; (window as usize + 1).next_power_of_two()],
            sent: VecDeque::with_capacity(window as usize),
            reads: VecDeque::new(),
            again: VecDeque::new(),
            reorder,
            newest: 0,
            cumulative: first,
            run: (first, first),
            answered: first,
        }
    }

    fn slot(&mut self, serial: Serial) -> &mut u64 {
        let index = serial as usize & (self.ring.len() - 1);
        &mut self.ring[index]
    }

    fn state(&self, serial: Serial) -> u64 {
        self.ring[serial as usize & (self.ring.len() - 1)]
    }

    pub(super) fn ready(&self, book: &Book, window: u32) -> bool {
        !self.again.is_empty() || (self.next < book.end && self.next < book.una + u64::from(window))
    }

    pub(super) fn send(
        &mut self,
        now: Instant,
        book: &mut Book,
        window: u32,
        figures: &mut Figures,
    ) -> Option<Packet> {
        while let Some(lost) = self.again.pop_front() {
            if self.missing(&lost, book.una) {
                figures.again += 1;
                return self.emit(now, lost.serial.max(book.una), lost.until, book, figures);
            }
        }
        if self.next >= book.end || self.next >= book.una + u64::from(window) {
            return None;
        }
        self.emit(now, self.next, Serial::MAX, book, figures)
    }

    /// Whether something of what was sent has not arrived.
    fn missing(&self, sent: &Sent, una: Serial) -> bool {
        (sent.serial.max(una)..sent.until).any(|s| self.state(s) != ARRIVED)
    }

    fn emit(
        &mut self,
        now: Instant,
        serial: Serial,
        until: Serial,
        book: &mut Book,
        figures: &mut Figures,
    ) -> Option<Packet> {
        let (packet, next) = book.packet(serial, until)?;
        let sent = Sent {
            serial,
            until: next,
            at: now,
        };
        if matches!(packet.body, Body::ReadRequest(_)) {
            if serial < self.next {
                figures.reads_again += 1;
            } else {
                // A span may be longer than the window, which is what the ring holds.
                let span = (next - serial).min(self.ring.len() as u64);
                (serial..serial + span).for_each(|s| *self.slot(s) = NOT_SENT);
            }
            self.reads.push_back(sent);
        } else {
            *self.slot(serial) = now.0;
            self.sent.push_back(sent);
        }
        self.next = self.next.max(next);
        Some(packet)
    }

    pub(super) fn on_packet(
        &mut self,
        now: Instant,
        serial: Serial,
        body: Body,
        book: &mut Book,
        figures: &mut Figures,
    ) -> Result<(), QpError> {
        match body {
            Body::ReadResponse(_) => self.on_response(serial, book)?,
            Body::Ack | Body::Nak => self.cumulate(serial),
            Body::Sack { from, to } => {
                self.cumulate(serial);
                let from = unwrap_psn(from, serial);
                self.on_run(from, unwrap_psn(to, from), book);
            }
            _ => return Ok(()),
        }
        self.advance(now, book);
        self.find_lost(book, figures);
        Ok(())
    }

    fn cumulate(&mut self, serial: Serial) {
        let serial = serial.min(self.next);
        if serial > self.cumulative {
            let sent = self.state(serial - 1);
            if sent < LOST {
                self.newest = self.newest.max(sent);
            }
            self.cumulative = serial;
        }
    }

    /// `from .. to` have arrived beyond a gap.
    fn on_run(&mut self, from: Serial, to: Serial, book: &mut Book) {
        let start = if self.run.0 == from { self.run.1 } else { from };
        let to = to.min(self.next);
        self.run = (from, to);
        let mut serial = start.max(book.una);
        while serial < to {
            let Some(message) = book.at(serial) else {
                break;
            };
            if message.is_read() {
                message.request_arrived = true;
                serial = message.end();
                continue;
            }
            let end = message.end().min(to);
            for serial in serial..end {
                let sent = self.state(serial);
                if sent < LOST {
                    self.newest = self.newest.max(sent);
                }
                *self.slot(serial) = ARRIVED;
            }
            serial = end;
        }
    }

    fn on_response(&mut self, serial: Serial, book: &mut Book) -> Result<(), QpError> {
        if serial < book.una {
            return Ok(());
        }
        let first = match book.at(serial) {
            Some(message) if message.is_read() && serial < self.next => message.first,
            _ => return Err(QpError::Unsolicited),
        };
        // It is answered in order: every WRITE before it has arrived.
        self.cumulate(first);
        *self.slot(serial) = ARRIVED;
        let mut missing = self.answered.max(book.una);
        while missing < serial {
            let Some(message) = book.at(missing) else {
                break;
            };
            let (is_read, end) = (message.is_read(), message.end().min(serial));
            if is_read {
                self.again.push_back(Sent {
                    serial: missing,
                    until: end,
                    at: Instant(0),
                });
            }
            missing = end;
        }
        self.answered = self.answered.max(serial + 1);
        Ok(())
    }

    fn advance(&mut self, now: Instant, book: &mut Book) {
        let mut una = book.una;
        while una < self.next {
            if self.state(una) == ARRIVED {
                una += 1;
            } else if una < self.cumulative {
                match book.at(una) {
                    Some(message) if !message.is_read() => {
                        una = message.end().min(self.cumulative);
                    }
                    _ => break,
                }
            } else {
                break;
            }
        }
        if una > book.una {
            for serial in book.una..una {
                *self.slot(serial) = NOT_SENT;
            }
            book.advance(now, una);
        }
    }

    fn find_lost(&mut self, book: &mut Book, figures: &mut Figures) {
        let mut found = false;
        while let Some(head) = self.sent.front().copied() {
            let live = head.serial >= book.una && self.state(head.serial) == head.at.0;
            if live {
                if (head.at + self.reorder).0 >= self.newest {
                    break;
                }
                *self.slot(head.serial) = LOST;
                self.again.push_back(head);
                found = true;
            }
            self.sent.pop_front();
        }
        while let Some(head) = self.reads.front().copied() {
            if self.missing(&head, book.una) {
                let arrived = self.cumulative > head.serial
                    || book.at(head.serial).is_none_or(|m| m.request_arrived);
                if arrived || (head.at + self.reorder).0 >= self.newest {
                    break;
                }
                self.again.push_back(head);
                found = true;
            }
            self.reads.pop_front();
        }
        figures.repairs += u64::from(found);
    }

    pub(super) fn waiting_since(&self) -> Option<Instant> {
        let heads = [self.sent.front(), self.reads.front()];
        heads.into_iter().flatten().map(|sent| sent.at).min()
    }

    /// The oldest has waited too long: with it everything is sent again that was sent before `limit` and
    /// has not arrived. One timeout, however many packets.
    pub(super) fn on_timeout(&mut self, limit: Instant, book: &mut Book) -> bool {
        let mut found = false;
        while let Some(head) = self.sent.front().filter(|s| s.at <= limit).copied() {
            if head.serial >= book.una && self.state(head.serial) == head.at.0 {
                *self.slot(head.serial) = LOST;
                self.again.push_back(head);
                found = true;
            }
            self.sent.pop_front();
        }
        while let Some(head) = self.reads.front().filter(|s| s.at <= limit).copied() {
            if self.missing(&head, book.una) {
                self.again.push_back(head);
                found = true;
            }
            self.reads.pop_front();
        }
        found
    }
}
