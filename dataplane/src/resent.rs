//! Whether a packet that a host sent again is the one it sent before: the comparison that the receiver
//! function asks for before it fills a hole in a resent run. Octets only; no decision lives here.

use crem_core::crf::Payload;

use crate::buffer::Buffer;

/// Octets of the invariant CRC at the end of the payload.
const ICRC: usize = 4;
/// BTH octet with the congestion marks, which the network may change.
const MARKS: usize = 4;
/// BTH octet with the acknowledgment request, which a host may change when it sends a packet again.
const ACK_REQUEST: usize = 8;

/// Whether the UDP payloads are equal but for the congestion marks and the acknowledgment request of
/// the BTH, and for the ICRC, which covers the latter and the IPv4 Identification (AMB-RETXDIFF).
pub fn is_resent<B: Buffer>(a: &Payload<'_, B>, b: &Payload<'_, B>) -> bool {
    let (Some(a), Some(b)) = (octets(a), octets(b)) else {
        return false;
    };
    let (Some((head_a, rest_a)), Some((head_b, rest_b))) = (
        a.split_first_chunk::<{ ACK_REQUEST + 1 }>(),
        b.split_first_chunk::<{ ACK_REQUEST + 1 }>(),
    ) else {
        return false;
    };
    let body = |rest: &[u8]| rest.len().checked_sub(ICRC);
    let bth = |head: &[u8; ACK_REQUEST + 1]| {
        let mut head = *head;
        head[MARKS] = 0;
        head[ACK_REQUEST] &= 0x7f;
        head
    };
    let (Some(end_a), Some(end_b)) = (body(rest_a), body(rest_b)) else {
        return false;
    };
    bth(head_a) == bth(head_b) && rest_a.get(..end_a) == rest_b.get(..end_b)
}

fn octets<'a, B: Buffer>(payload: &Payload<'a, B>) -> Option<&'a [u8]> {
    let start = usize::from(payload.off);
    payload
        .buf
        .octets()
        .get(start..start + usize::from(payload.len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::heap::HeapBuf;

    fn same(a: &[u8], b: &[u8]) -> bool {
        let (a, b) = (HeapBuf::new(a), HeapBuf::new(b));
        let payload = |buf| Payload {
            buf,
            off: 2,
            len: 30,
        };
        is_resent(&payload(&a), &payload(&b))
    }

    #[test]
    fn only_what_a_resent_packet_may_change_is_ignored() {
        let frame: Vec<u8> = (0..32).collect();
        for at in 0..32 {
            let mut other = frame.clone();
            other[at] ^= 0x80;
            let ignored = at < 2 || at == 2 + MARKS || at == 2 + ACK_REQUEST || at >= 28;
            assert_eq!(same(&frame, &other), ignored, "octet {at}");
        }
        let mut other = frame.clone();
        other[2 + ACK_REQUEST] ^= 0x01;
        assert!(!same(&frame, &other), "only the top bit is the request");
        assert!(!same(&frame, &frame[..31]), "shorter than stated");
        assert!(same(&frame, &frame));
    }
}
