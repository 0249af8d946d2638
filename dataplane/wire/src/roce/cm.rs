//! Messages of the connection manager as they pass on queue pair 1: the fields that name a connection's
//! queue pairs, their first PSNs and their RDMA MTU (AMB-ACKMAP, AMB-RDMAMTU). Everything else of them is
//! left unread, and nothing is written.

use super::{Bth, ICRC_LEN, Opcode};
use crate::{Psn, Qpn};

/// Octets of a management datagram.
const MAD_LEN: usize = 256;
/// Octets of its header, the same for all classes.
const MAD_HEADER_LEN: usize = 24;
/// Octets between BTH and management datagram.
const DETH_LEN: usize = 8;
/// Base Version of management datagrams.
const BASE_VERSION: u8 = 1;
/// Management Class of communication management.
const CLASS_CM: u8 = 0x07;
/// The version of that class.
const CLASS_VERSION: u8 = 2;
/// The only method of that class, Send.
const METHOD_SEND: u8 = 0x03;

/// A Communication ID: names a connection at one of its ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CommId(pub u32);

/// A message of the connection manager. `local` is the Communication ID of its sender, `remote` that of
/// its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CmMessage {
    /// REQ: the active side asks for a connection.
    Request {
        /// Communication ID of the active side.
        local: CommId,
        /// Queue pair of the active side.
        qp: Qpn,
        /// First PSN of the requests toward that queue pair.
        first: Psn,
        /// RDMA MTU of the primary path, octets; `None` for a reserved value.
        mtu: Option<u16>,
    },
    /// REP: the passive side agrees.
    Reply {
        /// Communication ID of the passive side.
        local: CommId,
        /// Communication ID of the active side.
        remote: CommId,
        /// Queue pair of the passive side.
        qp: Qpn,
        /// First PSN of the requests toward that queue pair.
        first: Psn,
    },
    /// RTU: the active side is ready.
    Ready {
        /// Communication ID of the active side.
        local: CommId,
        /// Communication ID of the passive side.
        remote: CommId,
    },
    /// REJ: either side refuses.
    Reject {
        /// Communication ID of the sender, 0 if it has none.
        local: CommId,
        /// Communication ID of the receiver, 0 if it is not known.
        remote: CommId,
    },
    /// DREQ: either side ends the connection.
    Disconnect {
        /// Communication ID of the sender.
        local: CommId,
        /// Communication ID of the receiver.
        remote: CommId,
        /// Queue pair of the receiver.
        qp: Qpn,
    },
    /// DREP: the answer to DREQ.
    Disconnected {
        /// Communication ID of the sender.
        local: CommId,
        /// Communication ID of the receiver.
        remote: CommId,
    },
}

impl CmMessage {
    /// The message that a UDP payload (BTH to ICRC) carries; `None` if it is no datagram to queue pair 1
    /// with a complete message of the connection manager, or one of another kind.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let bth = Bth::parse(payload)?;
        if bth.opcode != Opcode::UD_SEND_ONLY || bth.dest_qp != Qpn::CM {
            return None;
        }
        let body = payload.get(Bth::LEN + DETH_LEN..)?;
        let mad = body.get(..body.len().checked_sub(ICRC_LEN)?)?;
        Self::parse_mad(mad.first_chunk::<MAD_LEN>()?)
    }

    fn parse_mad(mad: &[u8; MAD_LEN]) -> Option<Self> {
        let (header, data) = mad.split_first_chunk::<MAD_HEADER_LEN>()?;
        if header[..4] != [BASE_VERSION, CLASS_CM, CLASS_VERSION, METHOD_SEND] {
            return None;
        }
        let local = CommId(word(data, 0)?);
        let remote = CommId(word(data, 4)?);
        Some(match u16::from_be_bytes([header[16], header[17]]) {
            0x0010 => Self::Request {
                local,
                qp: Qpn::new(upper24(data, 32)?),
                first: Psn::new(upper24(data, 44)?),
                mtu: mtu(*data.get(50)? >> 4),
            },
            0x0012 => Self::Reject { local, remote },
            0x0013 => Self::Reply {
                local,
                remote,
                qp: Qpn::new(upper24(data, 12)?),
                first: Psn::new(upper24(data, 20)?),
            },
            0x0014 => Self::Ready { local, remote },
            0x0015 => Self::Disconnect {
                local,
                remote,
                qp: Qpn::new(upper24(data, 8)?),
            },
            0x0016 => Self::Disconnected { local, remote },
            _ => return None,
        })
    }
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..)?
        .first_chunk::<4>()
        .map(|octets| u32::from_be_bytes(*octets))
}

/// The upper three octets of a word: queue pairs and PSNs share theirs with another field.
fn upper24(data: &[u8], at: usize) -> Option<u32> {
    word(data, at).map(|word| word >> 8)
}

/// The MTU that a path record's code stands for.
const fn mtu(code: u8) -> Option<u16> {
    match code {
        1 => Some(256),
        2 => Some(512),
        3 => Some(1024),
        4 => Some(2048),
        5 => Some(4096),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    /// A datagram to queue pair 1 with these words behind the header.
    fn datagram(attribute: u16, words: &[(usize, u32)]) -> Vec<u8> {
        let mut payload = vec![0; Bth::LEN + DETH_LEN + MAD_LEN + ICRC_LEN];
        payload[0] = Opcode::UD_SEND_ONLY.0;
        payload[7] = 1;
        let mad = &mut payload[Bth::LEN + DETH_LEN..];
        mad[..4].copy_from_slice(&[1, 7, 2, 3]);
        mad[16..18].copy_from_slice(&attribute.to_be_bytes());
        for (at, word) in words {
            let at = MAD_HEADER_LEN + at;
            mad[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        payload
    }

    #[test]
    fn fields_are_where_the_standard_puts_them() {
        let request = datagram(
            0x10,
            &[
                (0, 7),
                (32, 0x0000_31aa),
                (44, 0x791f_e6a7),
                (48, 0xffff_37f0),
            ],
        );
        let (local, remote) = (CommId(7), CommId(9));
        assert_eq!(
            CmMessage::parse(&request),
            Some(CmMessage::Request {
                local,
                qp: Qpn::new(0x31),
                first: Psn::new(0x79_1fe6),
                mtu: Some(1024),
            })
        );
        let ids = [
            (0, 7),
            (4, 9),
            (8, 0x0000_3200),
            (12, 0x0000_3300),
            (20, 0x8e0d_7b00),
        ];
        let of = |attribute| CmMessage::parse(&datagram(attribute, &ids));
        assert_eq!(of(0x12), Some(CmMessage::Reject { local, remote }));
        assert_eq!(
            of(0x13),
            Some(CmMessage::Reply {
                local,
                remote,
                qp: Qpn::new(0x33),
                first: Psn::new(0x8e_0d7b),
            })
        );
        assert_eq!(of(0x14), Some(CmMessage::Ready { local, remote }));
        let qp = Qpn::new(0x32);
        assert_eq!(of(0x15), Some(CmMessage::Disconnect { local, remote, qp }));
        assert_eq!(of(0x16), Some(CmMessage::Disconnected { local, remote }));
        assert_eq!((of(0x11), of(0x17)), (None, None));
    }

    /// From a connection that Soft-RoCE set up and ended.
    #[test]
    fn a_captured_connection_is_read() {
        let text = include_str!("../../testdata/cm_rping.txt");
        let messages: Vec<_> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| {
                let hex = line.rsplit(' ').next().unwrap();
                let octet = |n: usize| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap();
                let payload: Vec<u8> = (0..hex.len() / 2).map(octet).collect();
                CmMessage::parse(&payload).unwrap()
            })
            .collect();
        let (active, passive) = (CommId(0xbb34_192f), CommId(0x6df9_1bef));
        let qp = Qpn::new(0x31);
        let expected = [
            CmMessage::Request {
                local: active,
                qp,
                first: Psn::new(0x79_1fe6),
                mtu: Some(4096),
            },
            CmMessage::Reply {
                local: passive,
                remote: active,
                qp,
                first: Psn::new(0x8e_0d7b),
            },
            CmMessage::Ready {
                local: active,
                remote: passive,
            },
            CmMessage::Disconnect {
                local: active,
                remote: passive,
                qp,
            },
            CmMessage::Disconnected {
                local: passive,
                remote: active,
            },
        ];
        assert_eq!(messages, expected);
    }

    #[test]
    fn anything_else_is_no_message() {
        let good = datagram(0x14, &[]);
        assert!(CmMessage::parse(&good).is_some());
        // Opcode, queue pair, base version, class, class version, method.
        for at in [0, 7, 20, 21, 22, 23] {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            assert_eq!(CmMessage::parse(&bad), None, "{at}");
        }
        assert_eq!(CmMessage::parse(&good[..good.len() - 1]), None);
        let mut mtu = datagram(0x10, &[(48, 0xffff_67f0)]);
        assert!(matches!(
            CmMessage::parse(&mtu),
            Some(CmMessage::Request { mtu: None, .. })
        ));
        mtu[0] = 0x65;
        assert_eq!(CmMessage::parse(&mtu), None);
    }

    proptest! {
        #[test]
        fn arbitrary_octets_are_read_without_panic(mut octets in proptest::collection::vec(any::<u8>(), 0..300), is_mad: bool) {
            if is_mad && octets.len() > 40 {
                octets[0] = Opcode::UD_SEND_ONLY.0;
                octets[5..8].copy_from_slice(&[0, 0, 1]);
                octets[20..24].copy_from_slice(&[1, 7, 2, 3]);
                octets[36] = 0;
            }
            let _ = CmMessage::parse(&octets);
        }
    }
}
