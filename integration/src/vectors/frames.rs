//! Recognising frames: the fields of RoCEv2 packets, or why a frame is none.

use crem_wire::frame::{Class, ParseConfig, Parsed, VXLAN_PORT, parse};
use crem_wire::roce::{Bth, Reth};
use serde::Deserialize;
use serde_json::Value;

use super::case::{Address, Hex, Tally, equal};

#[derive(Deserialize)]
struct Case {
    frame: Hex,
    vxlan_configured: bool,
    recognised: bool,
    reason: String,
    #[serde(flatten)]
    fields: Option<Fields>,
}

#[derive(Deserialize)]
struct Fields {
    vlans: Vec<(u16, u16)>,
    vni: Option<u32>,
    ip: u8,
    src: Address,
    dst: Address,
    tos: u8,
    sport: u16,
    bth: BthFields,
    opcode_class: String,
    udp_payload_len: u16,
    reth: Option<(u64, u32, u32)>,
}

#[derive(Deserialize)]
struct BthFields {
    opcode: u8,
    octet1: u8,
    pkey: u16,
    octet4: u8,
    dest_qp: u32,
    octet8: u8,
    psn: u32,
}

pub(super) fn run(document: &Value, tally: &mut Tally) -> &'static [&'static str] {
    // shows: CREM-BLOCK-06, QOS-CNP-01, QOS-PFC-02, QOS-VLAN-01, QOS-HDR-01, QOS-VXLAN-01
    // shows: QOS-MTU-05, A17-01, A17-03
    // shows: BTH-IE-02, BTH-IE-04, BTH-PARSE-01, BTH-PARSE-02, BTH-PARSE-03, BTH-PARSE-05, BTH-PARSE-06, BTH-PARSE-07
    // shows: BTH-PARSE-09, BTH-PARSE-10, BTH-PARSE-11, BTH-PARSE-12
    tally.each(document, "frames", |case: Case| {
        let vxlan_port = case.vxlan_configured.then_some(VXLAN_PORT);
        let parsed = parse(
            &case.frame.0,
            &ParseConfig {
                crem_port: None,
                vxlan_port,
            },
        );
        match (parsed.class, &case.fields) {
            (Class::Roce(bth), Some(fields)) if case.recognised => {
                check(&parsed, &bth, fields, parsed.payload(&case.frame.0))
            }
            (Class::Other(reason), _) => {
                equal("recognised", case.recognised, false)?;
                equal("reason", case.reason.as_str(), reason.name())
            }
            (class, _) => Err(format!("recognised {}, found {class:?}", case.recognised)),
        }
    });
    &["frames"]
}

fn check(parsed: &Parsed, bth: &Bth, fields: &Fields, payload: &[u8]) -> Result<(), String> {
    let link = match &parsed.tunnel {
        Some(tunnel) => Some(tunnel.link),
        None => parsed.link,
    };
    let tags: Option<Vec<(u16, u16)>> = link.map(|link| {
        link.tags
            .as_slice()
            .iter()
            .map(|tag| (tag.tpid, tag.tci))
            .collect()
    });
    equal("VLAN tags", Some(&fields.vlans), tags.as_ref())?;
    equal("VNI", fields.vni, parsed.tunnel.map(|tunnel| tunnel.vni))?;
    let ip = parsed.ip.ok_or("no IP header")?;
    let udp = parsed.udp.ok_or("no UDP header")?;
    equal(
        "IP version",
        fields.ip,
        if ip.source.is_ipv4() { 4 } else { 6 },
    )?;
    equal("source", fields.src.0, ip.source)?;
    equal("destination", fields.dst.0, ip.destination)?;
    equal("TOS", fields.tos, ip.tos)?;
    equal("source port", fields.sport, udp.source)?;
    equal("payload octets", fields.udp_payload_len, udp.payload_len)?;
    equal(
        "payload",
        usize::from(fields.udp_payload_len),
        payload.len(),
    )?;
    check_bth(bth, &fields.bth)?;
    equal(
        "opcode class",
        fields.opcode_class.as_str(),
        bth.opcode.class().name(),
    )?;
    let offset = bth.opcode.ext().and_then(|ext| ext.reth);
    let reth = offset.and_then(|offset| Reth::parse(payload.get(usize::from(offset)..)?));
    equal(
        "RETH",
        fields.reth,
        reth.map(|reth| (reth.virtual_address, reth.rkey, reth.dma_length)),
    )
}

fn check_bth(bth: &Bth, fields: &BthFields) -> Result<(), String> {
    equal("opcode", fields.opcode, bth.opcode.0)?;
    equal("octet 1", fields.octet1, bth.octet1)?;
    equal("partition key", fields.pkey, bth.pkey)?;
    equal("octet 4", fields.octet4, bth.octet4)?;
    equal("destination QP", fields.dest_qp, bth.dest_qp.get())?;
    equal("octet 8", fields.octet8, bth.octet8)?;
    equal("PSN", fields.psn, bth.psn.get())
}
