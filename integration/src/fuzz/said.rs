//! What a peer may say to the sender function, messages of every kind with fields of any value; and what
//! the receiver function may say.

use std::net::IpAddr;

use crem_core::learn::{Direction, Managed};
use crem_core::packet::Namespace;
use crem_wire::crem::{
    BlockRequest, Close, FlowDescriptor, HelloAck, HopEntry, Limits, LossReport, Message, ParamAck,
    PathReport, PsnRange, RangeRequest,
};
use crem_wire::roce::{CmMessage, CommId};
use crem_wire::{ConfigId, FlowId, Qpn, RequestId};

use super::Reader;
use super::reader::request_id;

/// Anything that a peer may say about this flow, with fields of any value; PSNs are mostly near `near`.
pub(super) fn any_message(reader: &mut Reader<'_>, flow: FlowId, near: u32, nonce: u64) -> Message {
    match reader.octet() % 8 {
        0 => Message::RangeRequest(RangeRequest {
            flow,
            fallback: reader.once_in(4),
            request: request_id(reader.word()),
            ranges: (0..reader.octet() % 8)
                .map(|_| PsnRange {
                    start: reader.psn(near),
                    count: reader.octet().max(1),
                })
                .collect(),
        }),
        1 => Message::PathReport(PathReport {
            truncated: reader.once_in(2),
            method: reader.octet() % 3 + 1,
            flow: FlowDescriptor {
                source: IpAddr::from([10, 0, 1, 1]),
                destination: IpAddr::from([10, 0, 2, 1]),
                qp: Qpn::new(u32::from(reader.octet() % 4)),
            },
            hops: (0..reader.octet() % 4)
                .map(|_| HopEntry {
                    node: u32::from(reader.octet() % 3),
                    period: u32::from(reader.octet()),
                    lost: u32::from(reader.octet()),
                    queue_delay_change_us: i32::from(reader.word()) - 30_000,
                    cause: reader.octet() % 4,
                    dropped: (0..reader.octet() % 8).map(|_| reader.psn(near)).collect(),
                })
                .collect(),
        }),
        2 => Message::Close(Close {
            flow,
            reason: u16::from(reader.octet()) % 6,
        }),
        3 => Message::LossReport(LossReport {
            flow,
            interval_us: reader.long(),
            expected: reader.long(),
            received: reader.long(),
            restored: reader.long(),
            incomplete_blocks: reader.long(),
            ce_marked: reader.long(),
            repairs_received: reader.long(),
            repairs_ce_marked: reader.long(),
        }),
        4 => Message::ParamAck(ParamAck {
            flow,
            config: ConfigId(reader.octet() % 6),
            status: reader.octet() % 5,
        }),
        5 => Message::HelloAck(HelloAck {
            flow,
            kind: reader.octet(),
            af: reader.octet(),
            limits: Limits {
                schemes: reader.word(),
                max_k: reader.octet(),
                max_m: reader.octet(),
                max_t: reader.word(),
            },
            rdma_mtu: reader.word(),
            nonce,
            max_open_blocks: reader.word(),
        }),
        _ => Message::BlockRequest(BlockRequest {
            flow,
            fallback: reader.once_in(2),
            config: ConfigId(reader.octet() % 6),
            scheme: reader.octet() % 3,
            k: reader.octet().max(1),
            held: reader.octet(),
            block_start: reader.psn(near),
            suggested: reader.octet(),
            request: request_id(reader.word()),
            lost: reader.bitmap(),
        }),
    }
}

/// A report of some losses, now and then with marks.
pub(super) fn likely_report(reader: &mut Reader<'_>, flow: FlowId) -> LossReport {
    let expected = u32::from(reader.octet()) * 8;
    let lost = u32::from(reader.octet()) % (expected / 8 + 1);
    let received = expected - lost;
    LossReport {
        flow,
        interval_us: 10_000 + u32::from(reader.word()),
        expected,
        received,
        restored: lost,
        incomplete_blocks: 0,
        ce_marked: if reader.once_in(4) { received / 8 } else { 0 },
        repairs_received: u32::from(reader.octet()),
        repairs_ce_marked: u32::from(reader.once_in(16)),
    }
}

/// A message of the connection manager between the two hosts, of few connections.
pub(super) fn any_managed(reader: &mut Reader<'_>) -> Managed {
    let hosts = [IpAddr::from([10, 0, 1, 1]), IpAddr::from([10, 0, 2, 1])];
    let forth = usize::from(reader.once_in(2));
    let (local, remote) = (
        CommId(u32::from(reader.octet() % 3)),
        CommId(u32::from(reader.octet() % 3)),
    );
    let (qp, first) = (Qpn::new(u32::from(reader.octet() % 4)), reader.psn(0));
    let message = match reader.octet() % 6 {
        0 => CmMessage::Request {
            local,
            qp,
            first,
            mtu: Some(256 << (reader.octet() % 5)),
        },
        1 => CmMessage::Reply {
            local,
            remote,
            qp,
            first,
        },
        2 => CmMessage::Ready { local, remote },
        3 => CmMessage::Reject { local, remote },
        4 => CmMessage::Disconnect { local, remote, qp },
        _ => CmMessage::Disconnected { local, remote },
    };
    let way = Direction {
        namespace: Namespace(0),
        from: hosts[forth],
        to: hosts[1 - forth],
    };
    Managed { way, message }
}

/// What a message of the receiver function gives to go on with.
pub(super) enum Answer {
    /// A flow has this ID.
    Bound(FlowId),
    /// Repair is asked for under this ID.
    Asks(RequestId),
}

/// Holds a message of the receiver function against the rules for it.
pub(super) fn check_answer(message: &Message) -> Option<Answer> {
    match message {
        Message::HelloAck(ack) => return Some(Answer::Bound(ack.flow)),
        Message::BlockRequest(request) => {
            assert!(usize::from(request.suggested) <= request.lost.len());
            return Some(Answer::Asks(request.request));
        }
        Message::RangeRequest(request) => {
            let later = request.ranges.iter().skip(1);
            let ascending = request
                .ranges
                .iter()
                .zip(later)
                .all(|(a, b)| b.start.distance_from(a.start) >= i32::from(a.count));
            assert!(ascending, "{:?}", request.ranges);
            return Some(Answer::Asks(request.request));
        }
        Message::LossReport(r) => {
            assert!(r.received <= r.expected && r.ce_marked <= r.received);
        }
        Message::ParamAck(_) | Message::Close(_) => {}
        other => panic!("not a receiver's message: {other:?}"),
    }
    None
}
