//! Strict parsing of CREM datagrams: what is returned satisfies every rule that needs no state. Rules
//! that need the flow, the block or a configuration belong to the core.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::registry::{
    COMMON_HEADER_LEN, HELLO_ACK_LEN, MAX_HOPS, MessageType, Method, REPAIR_FIXED_LEN, Scheme,
    VERSION, flags,
};
use super::{
    BlockRequest, Close, FlowDescriptor, Hello, HelloAck, HopEntry, Limits, LossReport, Message,
    ParamAck, ParamUpdate, ParseError, PathReport, PsnRange, RangeRequest, Ranges, RepairHeader,
};
use crate::mutate;
use crate::{Bitmap, ConfigId, FlowId, Psn, Qpn, RequestId};

/// A datagram that passed every check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Parsed<'a> {
    /// REPAIR: the header, and the symbol in place (empty with INFO).
    Repair(RepairHeader, &'a [u8]),
    /// Any other message.
    Message(Message),
}

/// Parses the UDP payload of a datagram on the CREM port.
///
/// # Errors
/// The first rule that the datagram breaks. Reserved fields and undefined flags are ignored
/// (AMB-RESERVED, AMB-FLAGS).
pub fn parse(datagram: &[u8]) -> Result<Parsed<'_>, ParseError> {
    let (header, body) = datagram
        .split_first_chunk::<COMMON_HEADER_LEN>()
        .ok_or(ParseError::Short)?;
    if header[0] >> 4 != VERSION {
        return Err(ParseError::Version);
    }
    let kind = MessageType::from_code(header[0] & 0x0f).ok_or(ParseError::Type)?;
    if usize::from(u16::from_be_bytes([header[2], header[3]])) != datagram.len() {
        return Err(ParseError::Length);
    }
    let flag = header[1];
    let id = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    let Some(flow) = FlowId::new(id) else {
        return match kind {
            MessageType::Hello => hello(body).map(Parsed::Message),
            MessageType::PathReport => path_report(flag, body).map(Parsed::Message),
            _ => Err(ParseError::FlowId),
        };
    };
    let message = match kind {
        MessageType::Hello | MessageType::PathReport => return Err(ParseError::FlowId),
        MessageType::Repair => return repair(flow, flag, body),
        MessageType::HelloAck => hello_ack(flow, body)?,
        MessageType::ParamUpdate => param_update(flow, body)?,
        MessageType::ParamAck => param_ack(flow, body)?,
        MessageType::RepairRequest if flag & flags::REQUEST_RANGES != 0 => {
            range_request(flow, flag, body)?
        }
        MessageType::RepairRequest => block_request(flow, flag, body)?,
        MessageType::LossReport => loss_report(flow, body)?,
        MessageType::Close => close(flow, body)?,
    };
    Ok(Parsed::Message(message))
}

/// Type and Flow ID of a datagram on the CREM port as they stand there, for whoever passes it on to where
/// it is parsed. `None` for what is too short, of another version or of no known type.
pub fn peek(datagram: &[u8]) -> Option<(MessageType, Option<FlowId>)> {
    let [first, _, _, _, id @ ..] = datagram.first_chunk::<COMMON_HEADER_LEN>()?;
    let kind = MessageType::from_code(first & 0x0f).filter(|_| first >> 4 == VERSION)?;
    Some((kind, FlowId::new(u32::from_be_bytes(*id))))
}

/// Takes octets off the front of a message body.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], ParseError> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(ParseError::Length)?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(ParseError::Length)?;
        self.0 = rest;
        Ok(*head)
    }

    fn u16(&mut self) -> Result<u16, ParseError> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, ParseError> {
        self.array().map(u32::from_be_bytes)
    }

    /// A word with the PSN in its three leading octets, and the octet behind (AMB-PACK248).
    fn psn_and_octet(&mut self) -> Result<(Psn, u8), ParseError> {
        let word = self.u32()?;
        Ok((Psn::new(word >> 8), word as u8))
    }

    fn end(self) -> Result<(), ParseError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(ParseError::Length)
        }
    }
}

fn exact<const N: usize>(body: &[u8]) -> Result<&[u8; N], ParseError> {
    body.try_into().map_err(|_| ParseError::Length)
}

fn repair(flow: FlowId, flag: u8, body: &[u8]) -> Result<Parsed<'_>, ParseError> {
    let mut reader = Reader(body);
    let [config, scheme, k, index] = reader.array()?;
    let (block_start, _reserved) = reader.psn_and_octet()?;
    let session = RequestId::new(reader.u16()?);
    let symbol_length = reader.u16()?;
    if k == 0 {
        return Err(ParseError::BlockLength);
    }
    let words = Bitmap::wire_len(k);
    let retx = flag & flags::REPAIR_RETX != 0;
    let bitmaps = if retx { 2 * words } else { words };
    if body.len() != REPAIR_FIXED_LEN - COMMON_HEADER_LEN + bitmaps + usize::from(symbol_length) {
        return Err(ParseError::Length);
    }
    let present = Bitmap::from_wire(reader.take(words)?, k).ok_or(ParseError::Bitmap)?;
    let lost = if retx {
        Some(Bitmap::from_wire(reader.take(words)?, k).ok_or(ParseError::Bitmap)?)
    } else {
        None
    };
    let header = RepairHeader {
        flow,
        last: flag & flags::REPAIR_LAST != 0,
        info: flag & flags::REPAIR_INFO != 0,
        config: ConfigId(config),
        scheme,
        k,
        index,
        block_start,
        session,
        symbol_length,
        present,
        lost,
    };
    check_repair(&header)?;
    Ok(Parsed::Repair(header, reader.0))
}

/// The rules on the fields of a REPAIR whose length is right.
fn check_repair(header: &RepairHeader) -> Result<(), ParseError> {
    let scheme = Scheme::from_code(header.scheme).ok_or(ParseError::Scheme)?;
    if header.info {
        // Block information only: no symbol, no coded retransmission; index, session and bitmap are
        // free, a block may even have no source at all.
        return if header.lost.is_some() || header.symbol_length != 0 {
            Err(ParseError::Flags)
        } else {
            Ok(())
        };
    }
    if header.symbol_length == 0 {
        return Err(ParseError::SymbolLength);
    }
    if header.present.is_empty() {
        return Err(ParseError::Bitmap);
    }
    match &header.lost {
        Some(_) if scheme != Scheme::CauchyRs => return Err(ParseError::Flags),
        Some(lost) if lost.is_empty() || !header.present.contains_all(lost) => {
            return Err(ParseError::Bitmap);
        }
        // An ordinary symbol has no session, an answer has one; a copy may have either (AMB-COPY).
        lost if scheme != Scheme::SourceCopy && lost.is_some() != header.session.is_some() => {
            return Err(ParseError::Session);
        }
        _ => {}
    }
    let index_fits = match scheme {
        Scheme::SourceCopy => header.present.contains(header.index),
        Scheme::CauchyRs => {
            u16::from(header.index) + u16::from(header.k)
                <= 255 + u16::from(mutate::has(mutate::Fault::Message))
        }
        Scheme::Xor => header.index == 0,
    };
    if index_fits {
        Ok(())
    } else {
        Err(ParseError::Index)
    }
}

/// The twelve octets that HELLO and HELLO_ACK share (AMB-ACK12).
struct Offer {
    kind: u8,
    af: u8,
    limits: Limits,
    rdma_mtu: u16,
}

fn offer(reader: &mut Reader<'_>) -> Result<Offer, ParseError> {
    let [kind, af] = reader.array()?;
    let schemes = reader.u16()?;
    let [max_k, max_m] = reader.array()?;
    let max_t = reader.u16()?;
    let rdma_mtu = reader.u16()?;
    let _reserved = reader.u16()?;
    Ok(Offer {
        kind,
        af,
        limits: Limits {
            schemes,
            max_k,
            max_m,
            max_t,
        },
        rdma_mtu,
    })
}

fn check_offer(offer: &Offer) -> Result<(), ParseError> {
    if offer.kind == 0 {
        return Err(ParseError::FlowKind);
    }
    if offer.af == 4 || offer.af == 6 {
        Ok(())
    } else {
        Err(ParseError::AddressFamily)
    }
}

/// Two addresses of one family, then the Flow Label with the QP number; its upper octet is ignored
/// (AMB-LABEL).
fn descriptor(af: u8, reader: &mut Reader<'_>) -> Result<FlowDescriptor, ParseError> {
    let mut address = || -> Result<IpAddr, ParseError> {
        match af {
            4 => reader.array::<4>().map(IpAddr::from),
            6 => reader.array::<16>().map(IpAddr::from),
            _ => Err(ParseError::AddressFamily),
        }
    };
    let (source, destination) = (address()?, address()?);
    Ok(FlowDescriptor {
        source,
        destination,
        qp: Qpn::new(reader.u32()?),
    })
}

fn hello(body: &[u8]) -> Result<Message, ParseError> {
    let mut reader = Reader(body);
    let offer = offer(&mut reader)?;
    check_offer(&offer)?;
    let nonce = u64::from_be_bytes(reader.array()?);
    let flow = descriptor(offer.af, &mut reader)?;
    reader.end()?;
    let Offer {
        kind,
        limits,
        rdma_mtu,
        ..
    } = offer;
    Ok(Message::Hello(Hello {
        kind,
        limits,
        rdma_mtu,
        nonce,
        flow,
    }))
}

fn hello_ack(flow: FlowId, body: &[u8]) -> Result<Message, ParseError> {
    let body: &[u8; HELLO_ACK_LEN - COMMON_HEADER_LEN] = exact(body)?;
    let mut reader = Reader(body);
    let offer = offer(&mut reader)?;
    check_offer(&offer)?;
    let nonce = u64::from_be_bytes(reader.array()?);
    let max_open_blocks = reader.u16()?;
    let Offer {
        kind,
        af,
        limits,
        rdma_mtu,
    } = offer;
    Ok(Message::HelloAck(HelloAck {
        flow,
        kind,
        af,
        limits,
        rdma_mtu,
        nonce,
        max_open_blocks,
    }))
}

fn param_update(flow: FlowId, body: &[u8]) -> Result<Message, ParseError> {
    let mut reader = Reader(body);
    let [config, scheme, k, m] = reader.array()?;
    let t = reader.u16()?;
    let _reserved = reader.u16()?;
    let (effective, _reserved) = reader.psn_and_octet()?;
    reader.end()?;
    // Impossible parameters are answered with a status (AMB-STATUS), not discarded.
    Ok(Message::ParamUpdate(ParamUpdate {
        flow,
        config: ConfigId(config),
        scheme,
        k,
        m,
        t,
        effective,
    }))
}

fn param_ack(flow: FlowId, body: &[u8]) -> Result<Message, ParseError> {
    let &[config, status, _, _] = exact(body)?;
    Ok(Message::ParamAck(ParamAck {
        flow,
        config: ConfigId(config),
        status,
    }))
}

fn block_request(flow: FlowId, flag: u8, body: &[u8]) -> Result<Message, ParseError> {
    let mut reader = Reader(body);
    let [config, scheme, k, held] = reader.array()?;
    let (block_start, suggested) = reader.psn_and_octet()?;
    let request = RequestId::new(reader.u16()?);
    let _reserved = reader.u16()?;
    if k == 0 {
        return Err(ParseError::BlockLength);
    }
    let words = reader.take(Bitmap::wire_len(k))?;
    reader.end()?;
    Scheme::from_code(scheme).ok_or(ParseError::Scheme)?;
    let lost = Bitmap::from_wire(words, k)
        .filter(|set| !set.is_empty())
        .ok_or(ParseError::Bitmap)?;
    Ok(Message::BlockRequest(BlockRequest {
        flow,
        fallback: flag & flags::REQUEST_FALLBACK != 0,
        config: ConfigId(config),
        scheme,
        k,
        held,
        block_start,
        suggested,
        request: request.ok_or(ParseError::Session)?,
        lost,
    }))
}

fn range_request(flow: FlowId, flag: u8, body: &[u8]) -> Result<Message, ParseError> {
    let mut reader = Reader(body);
    let request = RequestId::new(reader.u16()?);
    let count = usize::from(reader.u16()?);
    if reader.0.len() != 4 * count {
        return Err(ParseError::Length);
    }
    if count == 0 {
        return Err(ParseError::Count);
    }
    let mut ranges = Ranges::new();
    for _ in 0..count {
        let (start, count) = reader.psn_and_octet()?;
        if count == 0 {
            return Err(ParseError::Count);
        }
        ranges.push(PsnRange { start, count });
    }
    let fallback = flag & flags::REQUEST_FALLBACK != 0;
    let request = request.ok_or(ParseError::Session)?;
    Ok(Message::RangeRequest(RangeRequest {
        flow,
        fallback,
        request,
        ranges,
    }))
}

fn loss_report(flow: FlowId, body: &[u8]) -> Result<Message, ParseError> {
    let body: &[u8; 32] = exact(body)?;
    let word = |i: usize| {
        u32::from_be_bytes([
            body[4 * i],
            body[4 * i + 1],
            body[4 * i + 2],
            body[4 * i + 3],
        ])
    };
    Ok(Message::LossReport(LossReport {
        flow,
        interval_us: word(0),
        expected: word(1),
        received: word(2),
        restored: word(3),
        incomplete_blocks: word(4),
        ce_marked: word(5),
        repairs_received: word(6),
        repairs_ce_marked: word(7),
    }))
}

fn path_report(flag: u8, body: &[u8]) -> Result<Message, ParseError> {
    let mut reader = Reader(body);
    let [method, count, af, _reserved] = reader.array()?;
    Method::from_code(method).ok_or(ParseError::Method)?;
    let count = usize::from(count);
    if count == 0 || count > MAX_HOPS {
        return Err(ParseError::Count);
    }
    let flow = descriptor(af, &mut reader)?;
    let mut hops = Vec::with_capacity(count);
    for _ in 0..count {
        hops.push(hop(&mut reader)?);
    }
    reader.end()?;
    Ok(Message::PathReport(PathReport {
        truncated: flag & flags::PATH_TRUNCATED != 0,
        method,
        flow,
        hops,
    }))
}

fn hop(reader: &mut Reader<'_>) -> Result<HopEntry, ParseError> {
    let (node, period, lost) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let queue_delay_change_us = i32::from_be_bytes(reader.array()?);
    let [cause, psn_count, _, _] = reader.array()?;
    let words = reader.take(4 * usize::from(psn_count))?;
    // Here the reserved octet comes first; `Psn::new` drops it (AMB-PRPSN).
    let dropped = words
        .as_chunks::<4>()
        .0
        .iter()
        .map(|word| Psn::new(u32::from_be_bytes(*word)))
        .collect();
    Ok(HopEntry {
        node,
        period,
        lost,
        queue_delay_change_us,
        cause,
        dropped,
    })
}

fn close(flow: FlowId, body: &[u8]) -> Result<Message, ParseError> {
    let &[high, low, _, _] = exact(body)?;
    Ok(Message::Close(Close {
        flow,
        reason: u16::from_be_bytes([high, low]),
    }))
}
