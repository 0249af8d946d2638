//! The invariant CRC of whole frames, and solving for the IPv4 Identification of restored packets.

use std::net::SocketAddr;

use crem_wire::frame::{Mac, ParseConfig, Parsed, Tags, UdpFrame, VXLAN_PORT, parse};
use crem_wire::{icrc, ident, roce};
use serde::Deserialize;
use serde_json::Value;

use super::case::{Address, Hex, Tally, equal, hex};

#[derive(Deserialize)]
struct Case {
    frame: Hex,
    l3_offset: usize,
    l3_length: usize,
    icrc: Hex,
    valid: bool,
    #[serde(default)]
    mutations: Vec<Mutation>,
}

#[derive(Deserialize)]
struct Mutation {
    field: String,
    frame: Hex,
    valid: bool,
}

#[derive(Deserialize)]
struct Ident {
    src: Address,
    dst: Address,
    sport: u16,
    df: bool,
    payload: Hex,
    ident: Option<u16>,
    corrupt_payload: Hex,
    corrupt_ident: Option<u16>,
}

pub(super) fn run(document: &Value, tally: &mut Tally) -> &'static [&'static str] {
    // shows: QOS-ICRC-01, QOS-ICRC-02, QOS-ICRC-03, QOS-ICRC-04, QOS-CNP-05
    tally.each_with(document, "frames", |tally, label, case: Case| {
        tally.check(|| label.to_owned(), frame(&case));
        for mutation in &case.mutations {
            let found = icrc::verify_frame(&mutation.frame.0, &look(&mutation.frame.0));
            tally.check(
                || format!("{label}: {}", mutation.field),
                equal("valid", mutation.valid, found),
            );
        }
    });
    // shows: QOS-ICRC-04, AMB-IPID
    tally.each(document, "ident", |case: Ident| {
        equal("Identification", case.ident, solve(&case, &case.payload.0)?)?;
        equal(
            "of the corrupt payload",
            case.corrupt_ident,
            solve(&case, &case.corrupt_payload.0)?,
        )
    });
    &["frames", "ident"]
}

/// The Identification that makes the ICRC of this payload right.
fn solve(case: &Ident, payload: &[u8]) -> Result<Option<u16>, String> {
    let headers = UdpFrame {
        destination_mac: Mac::default(),
        source_mac: Mac::default(),
        tags: Tags::NONE,
        source: SocketAddr::new(case.src.0, case.sport),
        destination: SocketAddr::new(case.dst.0, roce::UDP_PORT),
        tos: 0,
        ttl: 64,
        ident: 0,
        dont_fragment: case.df,
        udp_checksum: false,
    };
    let mut frame = vec![0; headers.header_len()];
    frame.extend_from_slice(payload);
    headers.write(&mut frame).ok_or("no frame")?;
    let parsed = look(&frame);
    let (ip, udp) = parsed.ip.zip(parsed.udp).ok_or("no datagram found")?;
    Ok(ident::solve(
        &frame[usize::from(ip.offset)..],
        usize::from(udp.offset - ip.offset),
    ))
}

/// Some of the frames are inside VXLAN.
fn look(frame: &[u8]) -> Parsed {
    parse(
        frame,
        &ParseConfig {
            crem_port: None,
            vxlan_port: Some(VXLAN_PORT),
        },
    )
}

fn frame(case: &Case) -> Result<(), String> {
    let parsed = look(&case.frame.0);
    equal(
        "valid",
        case.valid,
        icrc::verify_frame(&case.frame.0, &parsed),
    )?;
    let ip = parsed.ip.ok_or("no IP header found")?;
    let udp = parsed.udp.ok_or("no UDP header found")?;
    equal("IP offset", case.l3_offset, usize::from(ip.offset))?;
    equal("IP length", case.l3_length, usize::from(ip.total_len))?;
    let packet = case
        .frame
        .0
        .get(case.l3_offset..ip.end())
        .ok_or("frame cut")?;
    let found = icrc::compute(packet, usize::from(udp.offset - ip.offset)).ok_or("no ICRC")?;
    if case.valid {
        equal("ICRC", hex(&case.icrc.0), hex(&found))?;
    }
    equal(
        "ICRC as sent",
        Some(&case.icrc.0[..]),
        packet.last_chunk::<4>().map(|icrc| &icrc[..]),
    )
}
