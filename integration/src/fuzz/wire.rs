//! Parsers of octets from outside: frames with everything in them, CREM messages, rebuilding of headers.

use std::net::SocketAddr;

use crem_wire::crem::registry::Scheme;
use crem_wire::crem::{Parsed as Crem, parse as parse_message};
use crem_wire::frame::{
    self, Class, Mac, ParseConfig, Parsed, Tag, Tags, UdpFrame, VXLAN_PORT, VxlanHeader,
};
use crem_wire::rebuild::{NeighbourRef, RebuildPolicy};
use crem_wire::roce::{Aeth, Bth, Class as OpcodeClass, CmMessage, ImmDt, Opcode, Reth};
use crem_wire::{Psn, Qpn, icrc, ident};

use super::Reader;

const CREM_PORT: u16 = 50_000;

fn config(tunnels: bool) -> ParseConfig {
    ParseConfig {
        crem_port: Some(CREM_PORT),
        vxlan_port: tunnels.then_some(VXLAN_PORT),
    }
}

/// A frame to begin with: RoCEv2 with a right ICRC, in tags, over either family, in a tunnel or not.
fn template(reader: &mut Reader<'_>) -> Vec<u8> {
    let shape = reader.octet();
    let addresses = if shape & 1 == 0 {
        ["10.0.1.1:49152", "10.0.2.1:4791"]
    } else {
        ["[2001:db8::1]:49152", "[2001:db8::2]:4791"]
    };
    let [source, mut destination] = addresses.map(|text| {
        text.parse::<SocketAddr>()
            .unwrap_or_else(|_| unreachable!())
    });
    if shape & 2 != 0 && shape & 4 != 0 {
        destination.set_port(CREM_PORT);
    }
    let mut tags = Tags::NONE;
    for _ in 0..shape >> 3 & 3 {
        tags.push(Tag::vlan(reader.word()));
    }
    let headers = UdpFrame {
        destination_mac: Mac([2, 0, 0, 0, 0, 1]),
        source_mac: Mac([2, 0, 0, 0, 0, 2]),
        tags,
        source,
        destination,
        tos: reader.octet(),
        ttl: 64,
        ident: reader.word(),
        dont_fragment: true,
        udp_checksum: shape & 0x20 != 0,
    };
    let bth = Bth {
        opcode: Opcode(reader.octet()),
        octet1: reader.octet() & 0xf0,
        pkey: 0xffff,
        octet4: 0,
        dest_qp: Qpn::new(0x11),
        octet8: 0,
        psn: Psn::new(reader.long()),
    };
    let mut octets = vec![0; headers.header_len() + Bth::LEN + reader.below(80)];
    bth.write(octets.get_mut(headers.header_len()..).unwrap_or_default());
    headers.write(&mut octets);
    let parsed = frame::parse(&octets, &config(false));
    icrc::write_frame(&mut octets, &parsed);
    headers.write(&mut octets);
    if shape & 0xc0 != 0xc0 {
        return octets;
    }
    let mut outer = vec![0; headers.header_len() + VxlanHeader::LEN];
    let vni = reader.long() & 0xff_ffff;
    VxlanHeader { vni }.write(outer.get_mut(headers.header_len()..).unwrap_or_default());
    outer.extend_from_slice(&octets);
    let mut around = headers;
    around.destination.set_port(VXLAN_PORT);
    around.write(&mut outer);
    outer
}

/// All offsets lie in the frame, one after the other.
fn check(octets: &[u8], parsed: &Parsed) {
    let payload = parsed.payload(octets);
    if let (Some(ip), Some(udp)) = (&parsed.ip, &parsed.udp) {
        let end = usize::from(udp.payload_off) + usize::from(udp.payload_len);
        assert!(usize::from(ip.offset) + usize::from(ip.header_len) == usize::from(udp.offset));
        assert!(end <= ip.end() && ip.end() <= octets.len());
        assert_eq!(payload.len(), usize::from(udp.payload_len));
    }
    if let Some(tunnel) = &parsed.tunnel {
        assert!(
            parsed
                .ip
                .is_none_or(|ip| ip.offset > tunnel.udp.payload_off)
        );
    }
}

/// Reads a frame and everything that may be in it; one if it is RoCEv2.
///
/// # Panics
/// What must hold does not: what the fuzzer is looking for.
pub fn frame(data: &[u8]) -> u64 {
    let mut reader = Reader::new(data);
    let mut octets = if reader.once_in(4) {
        Vec::new()
    } else {
        template(&mut reader)
    };
    reader.damage(&mut octets);
    let mut roce = 0;
    for tunnels in [false, true] {
        let parsed = frame::parse(&octets, &config(tunnels));
        check(&octets, &parsed);
        if let Class::Roce(bth) = parsed.class {
            extensions(&bth, parsed.payload(&octets));
            roce = 1;
        }
        let right = icrc::verify_frame(&octets, &parsed);
        let mut other = octets.clone();
        frame::set_tos(&mut other, &parsed, 0xff);
        frame::set_outer_tos(&mut other, &parsed, 0xff);
        let again = frame::parse(&other, &config(tunnels));
        check(&other, &again);
        // TOS is outside the ICRC.
        assert_eq!(right, icrc::verify_frame(&other, &again));
    }
    roce
}

fn extensions(bth: &Bth, payload: &[u8]) {
    let octets = bth.to_octets();
    assert_eq!(Some(octets.as_slice()), payload.get(..Bth::LEN));
    let _ = (bth.mtu_seen(payload.len()), bth.payload_len(payload.len()));
    let Some(ext) = bth.opcode.ext() else {
        assert_eq!(bth.opcode.class(), OpcodeClass::Other);
        return;
    };
    let at = |offset: Option<u8>| offset.and_then(|o| payload.get(usize::from(o)..));
    if let Some(reth) = at(ext.reth).and_then(Reth::parse) {
        let span = reth.read_span(256);
        assert!(span >= 1 && u64::from(span) * 256 >= u64::from(reth.dma_length));
    }
    let _ = at(ext.aeth).and_then(Aeth::parse).map(|aeth| aeth.kind());
    let _ = at(ext.immdt).and_then(ImmDt::parse);
}

/// Messages to begin with, one of each kind and form.
const MESSAGES: &[&str] = &[
    "1100001cf5ed77dc01010c020000640000000004aaa0000001020304",
    "11800020f5ed77dc01010c020000640000070004aaa00000a800000001020304",
    "11200018f5ed77dc01010c000000640000070000aaa00000",
    "16000018f5ed77dc01010c01c8ea5d02061f0000a8000000",
    "16100014f5ed77dc2638000224610403d8d39e01",
    "1200002800000000010400032004044c0400000066e1327851a58f16d707b4051c462cac00000123",
    "13000020f5ed77dc010400032004044c040000004ed24e8777cfb06700400000",
    "14000014f5ed77dc0101200204260000001000ff",
    "1500000cf5ed77dc01000000",
    "17000028f5ed77dc00004e2000000064000000620000000200000001000000030000000500000000",
    "1800003400000000030104005a7095783aaef069000000550000000100000002\
     00000003fffffffc010200000000000700000008",
    "1900000cf5ed77dc00010000",
];

/// Reads a CREM message; one if it is a good one, which then has to mean the same when written again.
///
/// # Panics
/// What must hold does not: what the fuzzer is looking for.
pub fn message(data: &[u8]) -> u64 {
    let mut reader = Reader::new(data);
    let mut octets = Vec::new();
    if !reader.once_in(4)
        && let Some(hex) = reader.pick(MESSAGES)
    {
        let digits: Vec<u8> = hex
            .chars()
            .filter_map(|c| c.to_digit(16))
            .map(|d| d as u8)
            .collect();
        octets.extend(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]));
    }
    reader.damage(&mut octets);
    if reader.once_in(2)
        && let Some(length) = octets.get_mut(2..4)
    {
        // A Length that agrees gets further.
        length.copy_from_slice(&[0, 0]);
        let all = (octets.len() as u16).to_be_bytes();
        octets[2..4].copy_from_slice(&all);
    }
    let Ok(parsed) = parse_message(&octets) else {
        return 0;
    };
    let again = match &parsed {
        Crem::Repair(header, symbol) => {
            assert!(header.k >= 1 && Scheme::from_code(header.scheme).is_some());
            assert_eq!(symbol.len(), usize::from(header.symbol_length));
            let mut out = vec![0; header.encoded_len()];
            assert_eq!(header.encode(&mut out), out.len());
            out.extend_from_slice(symbol);
            out
        }
        Crem::Message(message) => {
            let mut out = Vec::new();
            message.encode(&mut out);
            assert_eq!(out.len(), message.encoded_len());
            out
        }
    };
    assert_eq!(again.len(), octets.len());
    assert_eq!(parse_message(&again).as_ref(), Ok(&parsed));
    1
}

/// Reads a datagram to queue pair 1; one if it has a message of the connection manager.
///
/// # Panics
/// What must hold does not: what the fuzzer is looking for.
pub fn management(data: &[u8]) -> u64 {
    /// BTH and DETH, the header of the management datagram, its data, ICRC.
    const PARTS: [usize; 4] = [20, 24, 232, 4];
    let mut reader = Reader::new(data);
    let mut payload = vec![0; PARTS.iter().sum()];
    payload[0] = Opcode::UD_SEND_ONLY.0;
    payload[7] = 1;
    payload[20..24].copy_from_slice(&[1, 7, 2, 3]);
    payload[37] = 0x10 + reader.octet() % 8;
    for octet in &mut payload[44..276] {
        *octet = reader.octet();
    }
    reader.damage(&mut payload);
    let found = CmMessage::parse(&payload);
    if let Some(CmMessage::Request { mtu: Some(mtu), .. }) = found {
        assert!([256, 512, 1024, 2048, 4096].contains(&mtu));
    }
    u64::from(found.is_some())
}

/// Rebuilds the headers around any payload from any neighbours; one if a packet came out, whose ICRC
/// then has to be right.
///
/// # Panics
/// What must hold does not: what the fuzzer is looking for.
pub fn rebuild(data: &[u8]) -> u64 {
    let mut reader = Reader::new(data);
    let policy = RebuildPolicy {
        parse: config(reader.once_in(2)),
        ..RebuildPolicy::default()
    };
    let lost = template(&mut reader);
    let payload = frame::parse(&lost, &policy.parse).payload(&lost).to_vec();
    let mut before = lost.clone();
    let mut after = lost;
    if reader.once_in(2) {
        reader.damage(&mut before);
    }
    let psns = [Psn::new(reader.long()), Psn::new(reader.long())];
    reader.damage(&mut after);
    let mut out = vec![0; 400];
    let near = |frame, psn| Some(NeighbourRef { frame, psn });
    let found = crem_wire::rebuild::rebuild(
        &payload,
        near(&before, psns[0]),
        near(&after, psns[1]),
        &policy,
        &mut out,
    );
    let _ = ident::solve(&before, reader.below(100));
    let Ok(rebuilt) = found else { return 0 };
    let packet = out.get(..rebuilt.len).unwrap_or_default();
    let parsed = frame::parse(packet, &policy.parse);
    assert!(icrc::verify_frame(packet, &parsed));
    assert_eq!(parsed.payload(packet), payload);
    assert!(!parsed.ce());
    1
}
