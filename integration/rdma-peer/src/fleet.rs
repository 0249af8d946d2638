//! Several queue pairs of one host: frames go to the one they are for, and those that have something to send
//! take turns at one rate, a run of packets each, as an adapter serves its queues. What a queue pair does is its
//! own business.

use crem_wire::Qpn;
use crem_wire::frame::{Class, ParseConfig, parse};

use crate::machine::Machine;
use crate::pace::Pacer;
use crate::report::Report;

/// Packets of one queue pair in a row, before the next packet that asks for an acknowledgment ends its turn:
/// what is left unacknowledged in a pause would time out.
const RUN: u32 = 16;

/// Queue pairs with consecutive numbers.
pub struct Fleet {
    machines: Vec<Box<dyn Machine>>,
    first: Qpn,
    pacer: Pacer,
    /// Whose turn it is, and how many packets it has sent in it.
    turn: usize,
    sent: u32,
}

impl Fleet {
    /// Queue pairs from `first` on. They have no rate of their own; `pacer` is that of all together.
    pub fn new(machines: Vec<Box<dyn Machine>>, first: Qpn, pacer: Pacer) -> Self {
        Self {
            machines,
            first,
            pacer,
            turn: 0,
            sent: 0,
        }
    }

    fn of(&mut self, qp: Qpn) -> Option<&mut Box<dyn Machine>> {
        let index = qp.get().checked_sub(self.first.get())?;
        self.machines.get_mut(usize::try_from(index).ok()?)
    }

    fn pass_turn(&mut self) {
        self.turn = (self.turn + 1) % self.machines.len().max(1);
        self.sent = 0;
    }
}

/// Whether nothing of a packet's kind is left waiting for an acknowledgment that nobody asked for.
fn may_end_run(frame: &[u8]) -> bool {
    match parse(frame, &ParseConfig::default()).class {
        Class::Roce(bth) => bth.ack_req() || bth.opcode.is_read_request(),
        _ => true,
    }
}

impl Machine for Fleet {
    fn on_frame(&mut self, now: u64, frame: &[u8]) {
        let Class::Roce(bth) = parse(frame, &ParseConfig::default()).class else {
            return;
        };
        if let Some(machine) = self.of(bth.dest_qp) {
            machine.on_frame(now, frame);
        }
    }

    fn poll_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> bool {
        if !self.pacer.ready(now) {
            return false;
        }
        for _ in 0..self.machines.len() {
            let machine = self.machines.get_mut(self.turn);
            if machine.is_some_and(|machine| machine.poll_transmit(now, out)) {
                self.pacer.sent(now, out.len());
                self.sent += 1;
                if self.sent >= RUN && may_end_run(out) {
                    self.pass_turn();
                }
                return true;
            }
            self.pass_turn();
        }
        false
    }

    fn on_timeout(&mut self, now: u64) {
        for machine in &mut self.machines {
            machine.on_timeout(now);
        }
    }

    fn next_wake(&self) -> Option<u64> {
        let wakes = self.machines.iter().filter_map(|m| m.next_wake());
        wakes.min().map(|at| at.max(self.pacer.next()))
    }

    fn done(&self) -> bool {
        self.machines.iter().all(|machine| machine.done())
    }

    fn report(&self, now: u64) -> Report {
        let mut reports = self.machines.iter().map(|machine| machine.report(now));
        let Some(mut all) = reports.next() else {
            return Report::default();
        };
        reports.for_each(|report| all.add(&report));
        all
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::config::{Endpoint, Operation, Transfer, Tuning};
    use crate::wire::tests::ends;
    use crate::{Requester, Responder};
    use crem_wire::Psn;

    fn fleets(count: u32) -> (Fleet, Fleet) {
        let (a, b) = ends(false);
        let transfer = |index: u32| Transfer {
            operation: Operation::Write,
            mtu: 1024,
            message_octets: 40 * 1024,
            messages: Some(2),
            duration_ns: 0,
            start_psn: Psn::new(5),
            seed: u64::from(index),
        };
        let shifted = |end: Endpoint, index: u32| Endpoint {
            local_qp: Qpn::new(end.local_qp.get() + index),
            peer_qp: Qpn::new(end.peer_qp.get() + index),
            ..end
        };
        let tuning = Tuning::default();
        let mut senders: Vec<Box<dyn Machine>> = Vec::new();
        let mut receivers: Vec<Box<dyn Machine>> = Vec::new();
        for index in 0..count {
            let (a, b) = (shifted(a, index), shifted(b, index));
            senders.push(Box::new(Requester::new(a, transfer(index), tuning)));
            receivers.push(Box::new(Responder::new(b, transfer(index), tuning)));
        }
        let pacer = || Pacer::new(0, 0, 1);
        (
            Fleet::new(senders, a.local_qp, pacer()),
            Fleet::new(receivers, b.local_qp, pacer()),
        )
    }

    #[test]
    fn every_queue_pair_gets_what_is_for_it_and_all_of_them_end() {
        let (mut near, mut far) = fleets(20);
        let (mut frame, mut owners) = (Vec::new(), Vec::new());
        for now in 0..200_000 {
            if near.poll_transmit(now, &mut frame) {
                let Class::Roce(bth) = parse(&frame, &ParseConfig::default()).class else {
                    unreachable!("the fleet speaks RoCEv2");
                };
                owners.push(bth.dest_qp.get());
                far.on_frame(now, &frame);
            }
            while far.poll_transmit(now, &mut frame) {
                near.on_frame(now, &frame);
            }
            if near.done() {
                break;
            }
        }
        let (sent, received) = (near.report(200_000), far.report(200_000));
        assert!(sent.completed && sent.messages == 40, "{sent:?}");
        assert_eq!((received.octets, received.bytes_wrong), (40 * 40 * 1024, 0));
        assert_eq!((sent.packets_sent, sent.packets_resent), (1_600, 0));
        // Runs of 16, and all of the pairs before the first one again.
        assert!(owners[..16].iter().all(|qp| *qp == owners[0]));
        let begun: std::collections::BTreeSet<_> = owners[..320].iter().collect();
        assert_eq!(begun.len(), 20);
    }

    #[test]
    fn one_rate_is_shared() {
        let (mut near, _) = fleets(4);
        near.pacer = Pacer::new(100, 0, 1);
        let mut frame = Vec::new();
        assert!(near.poll_transmit(1_000, &mut frame) && !near.poll_transmit(1_000, &mut frame));
        assert_eq!(near.next_wake(), Some(near.pacer.next()));
    }
}
