//! Messages that wait to be sent, in order. Some octets of the first may be gone already: a message that
//! was begun is finished or its session is over.

use std::collections::VecDeque;
use std::io;

use crem_ipfix::session::Totals;

use crate::link::Link;

/// The outbox of a session.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    octets: Vec<u8>,
    /// Octets in front that were sent.
    sent: usize,
    /// Where messages end in `octets`, and what they carry.
    ends: VecDeque<(usize, Totals)>,
}

impl Outbox {
    /// Octets that wait.
    pub(super) fn len(&self) -> usize {
        self.octets.len() - self.sent
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lets `write` append whole messages; `totals` tells what was written before and after.
    pub(super) fn append<S, R>(
        &mut self,
        session: &mut S,
        totals: impl Fn(&S) -> Totals,
        write: impl FnOnce(&mut S, &mut Vec<u8>) -> R,
    ) -> R {
        let before = totals(session);
        let result = write(session, &mut self.octets);
        let after = totals(session);
        if after.messages > before.messages {
            let carried = Totals {
                messages: after.messages - before.messages,
                records: after.records - before.records,
                octets: after.octets - before.octets,
            };
            self.ends.push_back((self.octets.len(), carried));
        }
        result
    }

    /// Sends what can be sent now. Returns whether anything was, and calls `done` for what is sent.
    pub(super) fn send(
        &mut self,
        link: &mut Link,
        mut done: impl FnMut(Totals),
    ) -> io::Result<bool> {
        let mut progress = false;
        while let Some(next) = self.next(link.is_by_message()) {
            let sent = link.send(&self.octets[next.clone()])?;
            if sent == 0 {
                break;
            }
            progress = true;
            self.advance(sent, &mut done);
        }
        self.compact();
        Ok(progress)
    }

    /// Gives up the first message, which the network refused.
    pub(super) fn skip_message(&mut self, done: impl FnMut(Totals)) {
        if let Some(next) = self.next(true) {
            self.advance(next.len(), done);
        }
        self.compact();
    }

    fn advance(&mut self, sent: usize, mut done: impl FnMut(Totals)) {
        self.sent += sent;
        while let Some((end, totals)) = self.ends.front()
            && *end <= self.sent
        {
            done(*totals);
            self.ends.pop_front();
        }
    }

    /// The octets to send next: all, or the first message.
    fn next(&self, by_message: bool) -> Option<std::ops::Range<usize>> {
        let rest = self
            .octets
            .get(self.sent..)
            .filter(|rest| !rest.is_empty())?;
        let length = match rest {
            [_, _, high, low, ..] if by_message => {
                usize::from(u16::from_be_bytes([*high, *low])).clamp(1, rest.len())
            }
            _ => rest.len(),
        };
        Some(self.sent..self.sent + length)
    }

    fn compact(&mut self) {
        if self.sent == self.octets.len() {
            self.octets.clear();
        } else if self.sent > self.octets.len() / 2 {
            self.octets.drain(..self.sent);
        } else {
            return;
        }
        for (end, _) in &mut self.ends {
            *end -= self.sent;
        }
        self.sent = 0;
    }

    /// What is in messages that were not sent.
    pub(super) fn unsent(&self) -> Totals {
        self.ends
            .iter()
            .fold(Totals::default(), |sum, (_, totals)| Totals {
                messages: sum.messages + totals.messages,
                records: sum.records + totals.records,
                octets: sum.octets + totals.octets,
            })
    }
}
