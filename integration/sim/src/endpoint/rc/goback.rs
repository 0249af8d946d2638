//! Going back N: after a loss everything from the missing packet on is sent again. An out of order READ
//! response makes the requester ask again from the first missing one.

use crem_core::time::{Duration, Instant};

use super::book::Book;
use super::packet::{Body, Packet, Place};
use super::requester::{Figures, QpError};
use super::sequence::Serial;

#[derive(Debug)]
pub(super) struct GoBack {
    next: Serial,
    /// First serial never sent.
    front: Serial,
    progress: Instant,
    /// The first missing READ response that was asked for again.
    asked: Option<Serial>,
    /// A READ was asked for again from here, and no answer to an earlier attempt is under way: its
    /// first response must say FIRST or ONLY.
    restarted: Option<Serial>,
    /// What is sent now is sent again for the first time in a while.
    strict: bool,
    /// When it went back last.
    went_back: Option<Instant>,
    /// Answers to an earlier attempt may still come for this long.
    settle: Duration,
    /// The way back keeps the order: what comes after a gap shows a loss.
    ordered: bool,
}

impl GoBack {
    pub(super) fn new(first: Serial, settle: Duration, ordered: bool) -> Self {
        Self {
            next: first,
            front: first,
            progress: Instant(0),
            asked: None,
            restarted: None,
            strict: true,
            went_back: None,
            settle,
            ordered,
        }
    }

    pub(super) fn ready(&self, book: &Book, window: u32) -> bool {
        self.next < book.end && self.next < book.una + u64::from(window)
    }

    pub(super) fn send(
        &mut self,
        now: Instant,
        book: &mut Book,
        window: u32,
        figures: &mut Figures,
    ) -> Option<Packet> {
        if !self.ready(book, window) {
            return None;
        }
        let serial = self.next;
        let (packet, next) = book.packet(serial, Serial::MAX)?;
        if book.una == self.front {
            self.progress = now;
        }
        if serial < self.front {
            figures.again += 1;
            if matches!(packet.body, Body::ReadRequest(_)) {
                figures.reads_again += 1;
                self.restarted = self.strict.then_some(serial);
            }
        }
        self.next = next;
        self.front = self.front.max(next);
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
            Body::ReadResponse(place) => self.on_response(now, serial, place, book, figures),
            Body::Ack | Body::Nak => {
                let all = self.acknowledge(now, serial, book);
                if (body == Body::Nak && serial >= book.una) || !all {
                    self.go_back(now, book, figures);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn on_response(
        &mut self,
        now: Instant,
        serial: Serial,
        place: Place,
        book: &mut Book,
        figures: &mut Figures,
    ) -> Result<(), QpError> {
        if serial < book.una {
            return Ok(());
        }
        if serial >= self.front {
            return Err(QpError::Unsolicited);
        }
        if !self.acknowledge(now, serial, book) {
            self.go_back(now, book, figures);
            return Ok(());
        }
        match book.at(serial) {
            Some(message) if message.is_read() => {}
            _ => return Err(QpError::Unsolicited),
        }
        if self.restarted == Some(serial) && !matches!(place, Place::First | Place::Only) {
            return Err(QpError::OpcodeSequence);
        }
        self.restarted = self.restarted.filter(|at| *at > serial);
        self.progress_to(now, serial + 1, book);
        Ok(())
    }

    /// Everything before `serial` is acknowledged; false where a READ has not been answered up to there.
    fn acknowledge(&mut self, now: Instant, serial: Serial, book: &mut Book) -> bool {
        let serial = serial.min(self.front);
        let mut una = book.una;
        while una < serial {
            match book.at(una) {
                Some(message) if !message.is_read() => una = message.end().min(serial),
                _ => break,
            }
        }
        if una > book.una {
            self.progress_to(now, una, book);
        }
        una >= serial
    }

    fn progress_to(&mut self, now: Instant, serial: Serial, book: &mut Book) {
        book.advance(now, serial);
        self.progress = now;
        if serial > self.next {
            // What was sent before it went back has arrived after all, and answers to it are under way.
            self.strict = false;
        }
        self.next = self.next.max(serial);
        self.asked = self.asked.filter(|at| *at >= serial);
    }

    /// Once per gap.
    fn go_back(&mut self, now: Instant, book: &Book, figures: &mut Figures) {
        if self.asked == Some(book.una) {
            return;
        }
        self.asked = Some(book.una);
        self.restart(now, book.una);
        figures.repairs += 1;
    }

    fn restart(&mut self, now: Instant, una: Serial) {
        let earlier = self.went_back.replace(now);
        let settled = earlier.is_none_or(|at| now.since(at) > self.settle);
        self.strict = settled && self.ordered;
        self.restarted = None;
        self.next = una;
    }

    pub(super) fn waiting_since(&self, book: &Book) -> Option<Instant> {
        (book.una < self.front).then_some(self.progress)
    }

    pub(super) fn on_timeout(&mut self, now: Instant, book: &Book) -> bool {
        if book.una >= self.front {
            return false;
        }
        self.restart(now, book.una);
        // The answers may be merely late.
        self.strict = false;
        self.progress = now;
        self.asked = None;
        true
    }
}
