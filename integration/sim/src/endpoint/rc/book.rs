//! The messages of one queue pair: their PSNs, the packets they are made of, when they complete.

use std::collections::VecDeque;

use crem_core::time::Instant;

use super::packet::{Body, Packet, Place, content_of};
use super::sequence::{Serial, psn_of};

/// What a message does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
}

/// A message that has completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Number of the message on its queue pair, from 0.
    pub message: u64,
    /// What it did.
    pub operation: Operation,
    /// Its octets.
    pub octets: u32,
    /// When it was posted.
    pub posted: Instant,
    /// When it completed.
    pub done: Instant,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    number: u64,
    pub(super) operation: Operation,
    pub(super) first: Serial,
    pub(super) count: u64,
    pub(super) octets: u32,
    posted: Instant,
    /// The READ request is known to have arrived.
    pub(super) request_arrived: bool,
}

impl Message {
    pub(super) fn end(&self) -> Serial {
        self.first + self.count
    }

    pub(super) fn is_read(&self) -> bool {
        self.operation == Operation::Read
    }
}

/// The messages that have not completed, in PSN order.
#[derive(Debug)]
pub(super) struct Book {
    mtu: u16,
    messages: VecDeque<Message>,
    /// Index of the message looked up last.
    hint: usize,
    posted: u64,
    /// First serial that no message has yet.
    pub(super) end: Serial,
    /// First serial that is not done.
    pub(super) una: Serial,
    done: VecDeque<Completion>,
    ack_every: u64,
}

impl Book {
    pub(super) fn new(mtu: u16, first: Serial, ack_every: u32) -> Self {
        Self {
            mtu,
            messages: VecDeque::new(),
            hint: 0,
            posted: 0,
            end: first,
            una: first,
            done: VecDeque::new(),
            ack_every: u64::from(ack_every.max(1)),
        }
    }

    pub(super) fn post(&mut self, now: Instant, operation: Operation, octets: u32) -> u64 {
        let count = u64::from(octets.div_ceil(u32::from(self.mtu)).max(1));
        self.messages.push_back(Message {
            number: self.posted,
            operation,
            first: self.end,
            count,
            octets,
            posted: now,
            request_arrived: false,
        });
        self.end += count;
        self.posted += 1;
        self.posted - 1
    }

    /// The message that holds `serial`, if it has not completed.
    pub(super) fn at(&mut self, serial: Serial) -> Option<&mut Message> {
        for index in [self.hint, self.hint + 1] {
            if self.messages.get(index).is_some_and(|m| holds(m, serial)) {
                self.hint = index;
                return self.messages.get_mut(index);
            }
        }
        let index = self.messages.partition_point(|m| m.end() <= serial);
        self.hint = index;
        self.messages
            .get_mut(index)
            .filter(|message| holds(message, serial))
    }

    /// The packet to send for `serial`, and the serial after it. A READ is asked for up to `until`, or to
    /// its end.
    pub(super) fn packet(&mut self, serial: Serial, until: Serial) -> Option<(Packet, Serial)> {
        let (mtu, every) = (self.mtu, self.ack_every);
        let message = *self.at(serial)?;
        let index = serial - message.first;
        let offset = index * u64::from(mtu);
        if message.is_read() {
            let end = until.min(message.end());
            let span = u64::from(message.octets)
                .min((end - message.first) * u64::from(mtu))
                .saturating_sub(offset);
            let packet = Packet {
                psn: psn_of(serial),
                body: Body::ReadRequest(span as u32),
                payload: 0,
                // Its octets name the span.
                content: content_of(serial, span, false),
                ack_req: false,
            };
            return Some((packet, end));
        }
        let rest = u64::from(message.octets).saturating_sub(offset);
        let packet = Packet {
            psn: psn_of(serial),
            body: Body::Write(Place::of(index, message.count)),
            payload: rest.min(u64::from(mtu)) as u16,
            content: content_of(serial, 0, false),
            ack_req: index + 1 == message.count || serial.is_multiple_of(every),
        };
        Some((packet, serial + 1))
    }

    /// Everything before `serial` is done.
    pub(super) fn advance(&mut self, now: Instant, serial: Serial) {
        self.una = self.una.max(serial);
        while let Some(message) = self.messages.front().filter(|m| m.end() <= self.una) {
            self.done.push_back(Completion {
                message: message.number,
                operation: message.operation,
                octets: message.octets,
                posted: message.posted,
                done: now,
            });
            self.messages.pop_front();
            self.hint = self.hint.saturating_sub(1);
        }
    }

    /// Messages that have not completed.
    pub(super) fn open(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn completion(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }
}

fn holds(message: &Message, serial: Serial) -> bool {
    message.first <= serial && serial < message.end()
}
