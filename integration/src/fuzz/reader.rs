//! Octets that a fuzzer gave, read from the front as whatever is wanted; behind the end there are zeros.

use crem_wire::{Bitmap, FlowId, Psn, RequestId};

/// A Flow ID; 0 is none.
pub(super) fn flow_id(value: u32) -> FlowId {
    FlowId::new(value.max(1)).unwrap_or_else(|| unreachable!())
}

/// A Request ID; 0 is none.
pub(super) fn request_id(value: u16) -> RequestId {
    RequestId::new(value.max(1)).unwrap_or_else(|| unreachable!())
}

pub(super) struct Reader<'d>(&'d [u8]);

impl<'d> Reader<'d> {
    pub(super) fn new(data: &'d [u8]) -> Self {
        Self(data)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn octet(&mut self) -> u8 {
        match self.0.split_first() {
            Some((&octet, rest)) => {
                self.0 = rest;
                octet
            }
            None => 0,
        }
    }

    pub(super) fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.octet(), self.octet()])
    }

    pub(super) fn long(&mut self) -> u32 {
        u32::from(self.word()) << 16 | u32::from(self.word())
    }

    /// A number below `limit`.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        usize::from(self.word()) % limit.max(1)
    }

    /// True once in `n` times.
    pub(super) fn once_in(&mut self, n: u8) -> bool {
        self.octet().is_multiple_of(n)
    }

    /// One of these.
    pub(super) fn pick<'l, T>(&mut self, list: &'l [T]) -> Option<&'l T> {
        let place = self.below(list.len());
        list.get(place)
    }

    /// What is left.
    pub(super) fn rest(&mut self) -> &'d [u8] {
        std::mem::take(&mut self.0)
    }

    /// A set of positions below 40, now and then of any.
    pub(super) fn bitmap(&mut self) -> Bitmap {
        if self.once_in(16) {
            let word = u64::from(self.long()) << 32 | u64::from(self.long());
            return Bitmap::from_words([word, !word, word.rotate_left(7), word]);
        }
        (0..self.octet() % 6).map(|_| self.octet() % 40).collect()
    }

    /// A PSN near `near`, now and then any.
    pub(super) fn psn(&mut self, near: u32) -> Psn {
        if self.once_in(32) {
            return Psn::new(self.long());
        }
        Psn::new(near).add(i32::from(self.octet()) - 128)
    }

    /// Overwrites some octets of `frame`.
    pub(super) fn damage(&mut self, frame: &mut Vec<u8>) {
        for _ in 0..self.octet() % 6 {
            let (at, value) = (self.below(frame.len()), self.octet());
            if let Some(octet) = frame.get_mut(at) {
                *octet = value;
            }
        }
        if self.once_in(8) {
            frame.truncate(self.below(frame.len() + 1));
        }
        if self.once_in(8) {
            frame.extend_from_slice(self.rest());
        }
    }
}
