//! One message from octets, with every rule that can be checked on the message alone, once as a sender
//! has to write it and once as a receiver has to take it. Rules that need to know what was said before are
//! those of `check::ledger`; what a message says is in `seen`.

use super::cursor::{Cursor, Manner};
use super::seen::{Form, Offer, Repair, Seen};

/// The rule that a message breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fault(pub(crate) &'static str);

/// Reads one message that a gateway sends, by every rule for senders; gives the Flow ID and what it says.
pub(crate) fn sent(octets: &[u8]) -> Result<(u32, Seen), Fault> {
    read(octets, Manner::Sent)
}

/// Reads one message as a receiver has to: reserved fields and undefined flags mean nothing (AMB-RESERVED,
/// AMB-FLAGS), and neither does what is answered with a status or judged by whoever knows the flow.
pub(crate) fn received(octets: &[u8]) -> Result<(u32, Seen), Fault> {
    read(octets, Manner::Received)
}

fn read(octets: &[u8], manner: Manner) -> Result<(u32, Seen), Fault> {
    let mut c = Cursor(octets, manner);
    let first = c.u8()?;
    let flags = c.u8()?;
    let length = c.u16()?;
    let flow = c.u32()?;
    require(first >> 4 == 1, "version is not 1")?;
    require(usize::from(length) == octets.len(), "Length is wrong")?;
    let kind = first & 0x0f;
    require((1..=9).contains(&kind), "unknown type")?;
    let defined = match kind {
        1 => 0xe0,
        6 => 0x30,
        8 => 0x80,
        _ => 0,
    };
    c.sender(flags & !defined == 0, "undefined flag set")?;
    let names_no_flow = kind == 2 || kind == 8;
    require(
        (flow == 0) == names_no_flow,
        "Flow ID zero or not against the rule",
    )?;
    let seen = match kind {
        1 => repair(&mut c, flags)?,
        2 => hello(&mut c)?,
        3 => hello_ack(&mut c)?,
        4 => param_update(&mut c)?,
        5 => param_ack(&mut c)?,
        6 if flags & 0x10 != 0 => range_request(&mut c, flags)?,
        6 => block_request(&mut c, flags)?,
        7 => loss_report(&mut c)?,
        8 => path_report(&mut c, flags)?,
        _ => close(&mut c)?,
    };
    c.end()?;
    Ok((flow, seen))
}

fn require(holds: bool, rule: &'static str) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(Fault(rule)) }
}

fn repair(c: &mut Cursor<'_>, flags: u8) -> Result<Seen, Fault> {
    let (retx, info) = (flags & 0x80 != 0, flags & 0x20 != 0);
    let (config, scheme, k, index) = (c.u8()?, c.u8()?, c.u8()?, c.u8()?);
    let start = c.u24()?;
    c.reserved(1)?;
    let (session, t) = (c.u16()?, c.u16()?);
    require(k > 0, "k is 0")?;
    require(scheme <= 2, "unknown scheme")?;
    require(!(retx && info), "INFO with RETX")?;
    let present = c.bitmap(k)?;
    let lost = if retx { c.bitmap(k)? } else { Vec::new() };
    let form = match (info, retx, scheme) {
        (true, ..) => Form::Info,
        (_, true, _) => Form::Coded,
        (_, _, 0) => Form::Copy,
        _ => Form::Ordinary,
    };
    match form {
        Form::Info => {
            require(t == 0, "INFO with a symbol")?;
            c.sender(index == 0, "INFO with a Repair Index")?;
        }
        Form::Coded => {
            require(scheme == 1, "coded retransmission with a scheme without")?;
            require(!lost.is_empty(), "empty lost set")?;
            let inside = lost.iter().all(|j| present.contains(j));
            require(inside, "lost set outside the present positions")?;
            require(session != 0, "coded retransmission without session")?;
        }
        Form::Copy => {
            require(present.contains(&index), "copy of an absent position")?;
            c.sender(session != 0, "copy without session")?;
        }
        Form::Ordinary => {
            require(!present.is_empty(), "symbol over nothing")?;
            require(session == 0, "ordinary symbol with a session")?;
        }
    }
    if scheme == 1 && form != Form::Info {
        let sum = u16::from(k) + u16::from(index);
        require(sum <= 255, "i + k above 255")?;
    }
    require(
        scheme != 2 || index == 0 || form == Form::Info,
        "XOR with an index",
    )?;
    if form != Form::Info {
        require(t > 0, "no symbol")?;
        c.sender(t > 2, "symbol shorter than its prefix")?;
    }
    c.octets(usize::from(t))?;
    Ok(Seen::Repair(Repair {
        form,
        config,
        scheme,
        k,
        index,
        start,
        session,
        t,
        present,
        lost,
    }))
}

/// The twelve octets that HELLO and HELLO_ACK begin with.
fn offer(c: &mut Cursor<'_>) -> Result<Offer, Fault> {
    let (kind, af, schemes) = (c.u8()?, c.u8()?, c.u16()?);
    let (max_k, max_m, max_t, mtu) = (c.u8()?, c.u8()?, c.u16()?, c.u16()?);
    c.reserved(2)?;
    require(kind != 0, "Flow Kind 0")?;
    require(af == 4 || af == 6, "unknown address family")?;
    c.sender(kind == 1 || kind == 0xc1, "unknown Flow Kind")?;
    c.sender(schemes & !0b111 == 0, "undefined scheme offered")?;
    Ok(Offer {
        kind,
        af,
        schemes,
        max_k,
        max_m,
        max_t,
        mtu,
    })
}

fn hello(c: &mut Cursor<'_>) -> Result<Seen, Fault> {
    let offer = offer(c)?;
    let nonce = c.field(8)?;
    let size = if offer.af == 4 { 4 } else { 16 };
    let source = c.octets(size)?.to_vec();
    let destination = c.octets(size)?.to_vec();
    c.reserved(1)?;
    let qp = c.u24()?;
    c.sender(offer.schemes & 0b10 != 0, "scheme 1 not supported")?;
    c.sender(offer.max_k > 0, "Max k is 0")?;
    let of_rdma = offer.mtu.is_power_of_two() && (256..=4096).contains(&offer.mtu);
    c.sender(of_rdma, "no RDMA MTU")?;
    Ok(Seen::Hello {
        offer,
        nonce,
        source,
        destination,
        qp,
    })
}

fn hello_ack(c: &mut Cursor<'_>) -> Result<Seen, Fault> {
    let offer = offer(c)?;
    let nonce = c.field(8)?;
    let max_open_blocks = c.u16()?;
    c.reserved(2)?;
    Ok(Seen::HelloAck {
        offer,
        nonce,
        max_open_blocks,
    })
}

fn param_update(c: &mut Cursor<'_>) -> Result<Seen, Fault> {
    let (config, scheme, k, m, t) = (c.u8()?, c.u8()?, c.u8()?, c.u8()?, c.u16()?);
    c.reserved(2)?;
    let effective = c.u24()?;
    c.reserved(1)?;
    // Whoever gets impossible parameters answers with a status (AMB-STATUS).
    c.sender(scheme == 1 || scheme == 2, "no block scheme")?;
    c.sender(k > 0, "k is 0")?;
    c.sender(u16::from(k) + u16::from(m) <= 256, "m - 1 + k above 255")?;
    c.sender(scheme == 1 || m <= 1, "XOR with more than one symbol")?;
    Ok(Seen::ParamUpdate {
        config,
        scheme,
        k,
        m,
        t,
        effective,
    })
}

fn param_ack(c: &mut Cursor<'_>) -> Result<Seen, Fault> {
    let (config, status) = (c.u8()?, c.u8()?);
    c.reserved(2)?;
    c.sender(status <= 3, "unknown status")?;
    Ok(Seen::ParamAck { config, status })
}

fn block_request(c: &mut Cursor<'_>, flags: u8) -> Result<Seen, Fault> {
    let (config, scheme, k, held) = (c.u8()?, c.u8()?, c.u8()?, c.u8()?);
    let start = c.u24()?;
    let (suggested, request) = (c.u8()?, c.u16()?);
    c.reserved(2)?;
    require(k > 0, "k is 0")?;
    let lost = c.bitmap(k)?;
    require(request != 0, "Request ID 0")?;
    require(!lost.is_empty(), "request for nothing")?;
    require(scheme <= 2, "unknown scheme")?;
    let of_lost = usize::from(suggested) <= lost.len();
    c.sender(of_lost, "suggests more symbols than were lost")?;
    Ok(Seen::BlockRequest {
        fallback: flags & 0x20 != 0,
        config,
        scheme,
        k,
        held,
        start,
        suggested,
        request,
        lost,
    })
}

fn range_request(c: &mut Cursor<'_>, flags: u8) -> Result<Seen, Fault> {
    let (request, count) = (c.u16()?, c.u16()?);
    require(request != 0, "Request ID 0")?;
    require(count > 0, "no ranges")?;
    let mut ranges: Vec<(u32, u8)> = Vec::new();
    for _ in 0..count {
        let (start, length) = (c.u24()?, c.u8()?);
        require(length > 0, "empty range")?;
        if let Some((earlier, before)) = ranges.last() {
            // Ascending and disjoint, modulo 2^24; whoever gets others takes their union (AMB-RANGE).
            let gap = start.wrapping_sub(*earlier) & 0xff_ffff;
            let apart = gap >= u32::from(*before) && gap < 1 << 23;
            c.sender(apart, "ranges not ascending and disjoint")?;
        }
        ranges.push((start, length));
    }
    Ok(Seen::RangeRequest {
        fallback: flags & 0x20 != 0,
        request,
        ranges,
    })
}

fn loss_report(c: &mut Cursor<'_>) -> Result<Seen, Fault> {
    let mut words = [0; 8];
    for word in &mut words {
        *word = c.u32()?;
    }
    let [
        interval_us,
        expected,
        received,
        restored,
        incomplete,
        ce,
        repairs,
        repairs_ce,
    ] = words;
    c.sender(received <= expected, "more received than expected")?;
    c.sender(repairs_ce <= repairs, "more REPAIR marked than received")?;
    Ok(Seen::LossReport {
        interval_us,
        expected,
        received,
        restored,
        incomplete,
        ce,
        repairs,
        repairs_ce,
    })
}

fn path_report(c: &mut Cursor<'_>, flags: u8) -> Result<Seen, Fault> {
    let (method, hops, af) = (c.u8()?, c.u8()?, c.u8()?);
    c.reserved(1)?;
    require((1..=3).contains(&method), "unknown method")?;
    require((1..=16).contains(&hops), "no or too many hop entries")?;
    let size = match af {
        4 => 4,
        6 => 16,
        _ => return Err(Fault("unknown address family")),
    };
    c.octets(2 * size)?;
    c.reserved(1)?;
    c.u24()?;
    let mut dropped = 0;
    for _ in 0..hops {
        // Node, period, lost, queue delay change.
        c.octets(16)?;
        let (cause, count) = (c.u8()?, c.u8()?);
        c.reserved(2)?;
        c.sender(cause <= 2, "unknown cause")?;
        for _ in 0..count {
            c.reserved(1)?;
            c.u24()?;
        }
        dropped += u32::from(count);
    }
    Ok(Seen::PathReport {
        method,
        hops,
        dropped,
        truncated: flags & 0x80 != 0,
    })
}

fn close(c: &mut Cursor<'_>) -> Result<Seen, Fault> {
    let reason = c.u16()?;
    c.sender(reason <= 4, "unknown CLOSE reason")?;
    c.reserved(2)?;
    Ok(Seen::Close { reason })
}
