//! Delivery toward the LAN in arrival order: what the receiver function gives back is put among the
//! frames of the same burst that it never saw.

use crem_core::actions::Delivery;
use crem_core::packet::Desc;

use crate::buffer::Buffer;

/// A frame of a burst from the WAN that goes on to the LAN.
#[derive(Debug)]
pub enum Arrival<B> {
    /// It is nothing to the receiver function.
    Plain(B),
    /// The receiver function got it as the description with this index.
    Flow(usize),
    /// Sent on.
    Gone,
}

/// Appends to `out` everything that leaves now: `delivered` in its order, and each plain frame before the
/// first delivered frame that arrived after it.
pub fn merge<B: Buffer>(
    arrivals: &mut Vec<Arrival<B>>,
    descs: &[Desc<B>],
    delivered: &mut Vec<(Delivery, B)>,
    out: &mut Vec<B>,
) {
    let mut next = 0;
    for (_, frame) in delivered.drain(..) {
        let rest = arrivals.get(next..).unwrap_or_default();
        let is_it = |a: &Arrival<B>| match a {
            Arrival::Flow(index) => descs.get(*index).is_some_and(|d| d.buf.is_same(&frame)),
            Arrival::Plain(_) | Arrival::Gone => false,
        };
        // Frames that were held before, and restored ones, are none of this burst.
        if let Some(ahead) = rest.iter().position(is_it) {
            take_plain(
                arrivals.get_mut(next..next + ahead).unwrap_or_default(),
                out,
            );
            next += ahead + 1;
        }
        out.push(frame);
    }
    take_plain(arrivals.get_mut(next..).unwrap_or_default(), out);
    arrivals.clear();
}

fn take_plain<B>(arrivals: &mut [Arrival<B>], out: &mut Vec<B>) {
    for arrival in arrivals {
        if let Arrival::Plain(frame) = core::mem::replace(arrival, Arrival::Gone) {
            out.push(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::buffer::heap::HeapBuf;
    use crem_core::packet::{Namespace, PsnSpace, StreamKey};
    use crem_wire::{Psn, Qpn};

    fn frame(number: u8) -> HeapBuf {
        HeapBuf::new(&[number; 60])
    }

    fn desc(buf: &HeapBuf) -> Desc<HeapBuf> {
        let key = StreamKey {
            namespace: Namespace(0),
            source: "10.0.0.1".parse().unwrap(),
            destination: "10.0.0.2".parse().unwrap(),
            qp: Qpn::new(1),
            space: PsnSpace::Requests,
        };
        Desc {
            key,
            psn: Psn::new(0),
            opcode: 4,
            payload_len: 16,
            payload_off: 42,
            mtu_seen: None,
            read_length: None,
            ce: false,
            dscp: 0,
            buf: buf.clone(),
        }
    }

    /// Plain frames are even, flow frames odd; `delivered` names what the function gives back.
    fn run(burst: &[u8], delivered: &[u8]) -> Vec<u8> {
        let frames: Vec<HeapBuf> = burst.iter().map(|n| frame(*n)).collect();
        let mut descs = Vec::new();
        let mut arrivals = Vec::new();
        for (number, frame) in burst.iter().zip(&frames) {
            if number % 2 == 0 {
                arrivals.push(Arrival::Plain(frame.clone()));
            } else {
                arrivals.push(Arrival::Flow(descs.len()));
                descs.push(desc(frame));
            }
        }
        let find = |n: &u8| {
            burst
                .iter()
                .position(|b| b == n)
                .map(|at| frames[at].clone())
        };
        let mut delivered = delivered
            .iter()
            .map(|n| (Delivery::Source, find(n).unwrap_or_else(|| frame(*n))))
            .collect();
        let mut out = Vec::new();
        merge(&mut arrivals, &descs, &mut delivered, &mut out);
        out.iter().map(|f| f.octets()[0]).collect()
    }

    #[test]
    fn nothing_held_is_nothing_moved() {
        assert_eq!(run(&[1, 2, 3, 4, 6, 5], &[1, 3, 5]), [1, 2, 3, 4, 6, 5]);
        assert_eq!(run(&[2, 4], &[]), [2, 4]);
        assert_eq!(run(&[], &[9]), [9]);
    }

    // shows: QOS-CNP-03
    #[test]
    fn plain_frames_pass_those_that_are_held() {
        assert_eq!(run(&[1, 2, 3, 4], &[]), [2, 4]);
        assert_eq!(run(&[1, 2, 3, 4, 5], &[1]), [1, 2, 4]);
    }

    #[test]
    fn earlier_held_and_restored_frames_come_first_in_the_given_order() {
        // 101 was held before and 103 is restored; 3 follows them.
        assert_eq!(run(&[2, 3, 4], &[101, 103, 3]), [101, 103, 2, 3, 4]);
    }
}
