//! CREM messages: valid ones in both directions, malformed ones by verdict.

use crem_wire::crem::registry::flags;
use crem_wire::crem::{
    BlockRequest, Close, FlowDescriptor, Hello, HelloAck, HopEntry, Limits, LossReport, Message,
    ParamAck, ParamUpdate, PathReport, PsnRange, RangeRequest, RepairHeader,
};
use crem_wire::crem::{Parsed, parse};
use crem_wire::{ConfigId, FlowId, Psn, Qpn, RequestId};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::case::{Address, Hex, Positions, Tally, equal, hex};

#[derive(Deserialize)]
struct Valid {
    r#type: String,
    hex: Hex,
    fields: Value,
}

#[derive(Deserialize)]
struct Malformed {
    hex: Hex,
    verdict: String,
}

pub(super) fn run(document: &Value, tally: &mut Tally) -> &'static [&'static str] {
    // shows: CREM-MSG-01, CREM-MSG-02, CREM-MSG-04, CREM-MSG-07, CREM-MSG-08, CREM-MSG-13
    // shows: CREM-MSG-18, CREM-MSG-19, CREM-MSG-20, CREM-MSG-21, CREM-MSG-22, CREM-MSG-24
    // shows: CREM-MSG-25, CREM-MSG-27, CREM-MSG-29
    tally.each(document, "valid", |case: Valid| {
        if case.r#type == "REPAIR" {
            repair(&case)
        } else {
            message(&case)
        }
    });
    // shows: CREM-MSG-03, CREM-MSG-06, CREM-MSG-12, CREM-MSG-14, CREM-MSG-28, CREM-FEC-06
    tally.each(document, "malformed", |case: Malformed| {
        let found = parse(&case.hex.0);
        let verdict = if found.is_ok() { "accept" } else { "discard" };
        equal("verdict", case.verdict.as_str(), verdict)
            .map_err(|what| format!("{what} ({found:?})"))
    });
    &["valid", "malformed"]
}

fn fields<T: DeserializeOwned>(case: &Valid) -> Result<T, String> {
    T::deserialize(&case.fields).map_err(|error| error.to_string())
}

fn flow(id: u32) -> Result<FlowId, String> {
    FlowId::new(id).ok_or_else(|| "Flow ID 0".to_owned())
}

fn request(id: u16) -> Result<RequestId, String> {
    RequestId::new(id).ok_or_else(|| "Request ID 0".to_owned())
}

#[derive(Deserialize)]
struct RepairFields {
    flow_id: u32,
    flags: u8,
    config_id: u8,
    scheme: u8,
    k: u8,
    index: u8,
    block_start: u32,
    session_id: u16,
    present: Positions,
    lost: Positions,
    symbol: Hex,
}

fn repair(case: &Valid) -> Result<(), String> {
    let fields: RepairFields = fields(case)?;
    let expected = RepairHeader {
        flow: flow(fields.flow_id)?,
        last: fields.flags & flags::REPAIR_LAST != 0,
        info: fields.flags & flags::REPAIR_INFO != 0,
        config: ConfigId(fields.config_id),
        scheme: fields.scheme,
        k: fields.k,
        index: fields.index,
        block_start: Psn::new(fields.block_start),
        session: RequestId::new(fields.session_id),
        symbol_length: fields.symbol.0.len() as u16,
        present: fields.present.0,
        lost: (fields.flags & flags::REPAIR_RETX != 0).then_some(fields.lost.0),
    };
    let (header, symbol) = match parse(&case.hex.0) {
        Ok(Parsed::Repair(header, symbol)) => (header, symbol),
        other => return Err(format!("not read as a REPAIR: {other:?}")),
    };
    equal("header", expected, header)?;
    equal("flags", fields.flags, header.flags())?;
    equal("symbol", hex(&fields.symbol.0), hex(symbol))?;
    let mut octets = vec![0; expected.encoded_len()];
    let written = expected.encode(&mut octets);
    equal("octets written", octets.len(), written)?;
    octets.extend_from_slice(&fields.symbol.0);
    equal("encoding", hex(&case.hex.0), hex(&octets))
}

fn message(case: &Valid) -> Result<(), String> {
    let expected = match case.r#type.as_str() {
        "HELLO" => hello(fields(case)?),
        "HELLO_ACK" => hello_ack(fields(case)?)?,
        "PARAM_UPDATE" => param_update(&fields(case)?)?,
        "PARAM_ACK" => param_ack(&fields(case)?)?,
        "REPAIR_REQUEST" => repair_request(fields(case)?)?,
        "LOSS_REPORT" => loss_report(&fields(case)?)?,
        "PATH_REPORT" => path_report(fields(case)?),
        "CLOSE" => close(&fields(case)?)?,
        other => return Err(format!("unknown type {other}")),
    };
    match parse(&case.hex.0) {
        Ok(Parsed::Message(found)) => equal("message", &expected, &found)?,
        other => return Err(format!("not read as {}: {other:?}", case.r#type)),
    }
    let mut octets = Vec::new();
    expected.encode(&mut octets);
    equal("encoding", hex(&case.hex.0), hex(&octets))?;
    equal("octets", octets.len(), expected.encoded_len())
}

#[derive(Deserialize)]
struct OfferFields {
    #[serde(default)]
    flow_id: u32,
    flow_kind: u8,
    af: u8,
    schemes: u16,
    max_k: u8,
    max_m: u8,
    max_t: u16,
    rdma_mtu: u16,
    nonce: u64,
}

impl OfferFields {
    fn limits(&self) -> Limits {
        Limits {
            schemes: self.schemes,
            max_k: self.max_k,
            max_m: self.max_m,
            max_t: self.max_t,
        }
    }
}

#[derive(Deserialize)]
struct DescriptorFields {
    src: Address,
    dst: Address,
    flow_label: u32,
}

impl DescriptorFields {
    fn descriptor(&self) -> FlowDescriptor {
        FlowDescriptor {
            source: self.src.0,
            destination: self.dst.0,
            qp: Qpn::new(self.flow_label),
        }
    }
}

#[derive(Deserialize)]
struct HelloFields {
    #[serde(flatten)]
    offer: OfferFields,
    #[serde(flatten)]
    flow: DescriptorFields,
}

fn hello(fields: HelloFields) -> Message {
    Message::Hello(Hello {
        kind: fields.offer.flow_kind,
        limits: fields.offer.limits(),
        rdma_mtu: fields.offer.rdma_mtu,
        nonce: fields.offer.nonce,
        flow: fields.flow.descriptor(),
    })
}

#[derive(Deserialize)]
struct HelloAckFields {
    #[serde(flatten)]
    offer: OfferFields,
    max_open_blocks: u16,
}

fn hello_ack(fields: HelloAckFields) -> Result<Message, String> {
    Ok(Message::HelloAck(HelloAck {
        flow: flow(fields.offer.flow_id)?,
        kind: fields.offer.flow_kind,
        af: fields.offer.af,
        limits: fields.offer.limits(),
        rdma_mtu: fields.offer.rdma_mtu,
        nonce: fields.offer.nonce,
        max_open_blocks: fields.max_open_blocks,
    }))
}

#[derive(Deserialize)]
struct ParamFields {
    flow_id: u32,
    config_id: u8,
    #[serde(default)]
    status: u8,
    #[serde(default)]
    scheme: u8,
    #[serde(default)]
    k: u8,
    #[serde(default)]
    m: u8,
    #[serde(default, rename = "T")]
    t: u16,
    #[serde(default)]
    effective_psn: u32,
}

fn param_update(fields: &ParamFields) -> Result<Message, String> {
    Ok(Message::ParamUpdate(ParamUpdate {
        flow: flow(fields.flow_id)?,
        config: ConfigId(fields.config_id),
        scheme: fields.scheme,
        k: fields.k,
        m: fields.m,
        t: fields.t,
        effective: Psn::new(fields.effective_psn),
    }))
}

fn param_ack(fields: &ParamFields) -> Result<Message, String> {
    let config = ConfigId(fields.config_id);
    Ok(Message::ParamAck(ParamAck {
        flow: flow(fields.flow_id)?,
        config,
        status: fields.status,
    }))
}

#[derive(Deserialize)]
struct RequestFields {
    flow_id: u32,
    flags: u8,
    config_id: u8,
    scheme: u8,
    k: u8,
    held: u8,
    block_start: u32,
    suggested_m: u8,
    request_id: u16,
    lost: Positions,
    ranges: Vec<(u32, u8)>,
}

fn repair_request(fields: RequestFields) -> Result<Message, String> {
    let flow = flow(fields.flow_id)?;
    let fallback = fields.flags & flags::REQUEST_FALLBACK != 0;
    let request = request(fields.request_id)?;
    if fields.flags & flags::REQUEST_RANGES != 0 {
        let range = |&(start, count): &(u32, u8)| PsnRange {
            start: Psn::new(start),
            count,
        };
        let ranges = fields.ranges.iter().map(range).collect();
        return Ok(Message::RangeRequest(RangeRequest {
            flow,
            fallback,
            request,
            ranges,
        }));
    }
    Ok(Message::BlockRequest(BlockRequest {
        flow,
        fallback,
        config: ConfigId(fields.config_id),
        scheme: fields.scheme,
        k: fields.k,
        held: fields.held,
        block_start: Psn::new(fields.block_start),
        suggested: fields.suggested_m,
        request,
        lost: fields.lost.0,
    }))
}

#[derive(Deserialize)]
struct LossFields {
    flow_id: u32,
    interval_us: u32,
    expected: u32,
    received: u32,
    restored: u32,
    incomplete_blocks: u32,
    ce_marked: u32,
    repairs_received: u32,
    repairs_ce_marked: u32,
}

fn loss_report(fields: &LossFields) -> Result<Message, String> {
    Ok(Message::LossReport(LossReport {
        flow: flow(fields.flow_id)?,
        interval_us: fields.interval_us,
        expected: fields.expected,
        received: fields.received,
        restored: fields.restored,
        incomplete_blocks: fields.incomplete_blocks,
        ce_marked: fields.ce_marked,
        repairs_received: fields.repairs_received,
        repairs_ce_marked: fields.repairs_ce_marked,
    }))
}

#[derive(Deserialize)]
struct PathFields {
    flags: u8,
    method: u8,
    #[serde(flatten)]
    flow: DescriptorFields,
    hops: Vec<HopFields>,
}

#[derive(Deserialize)]
struct HopFields {
    node_id: u32,
    period: u32,
    lost: u32,
    delay_change_us: i32,
    cause: u8,
    psns: Vec<u32>,
}

fn path_report(fields: PathFields) -> Message {
    let hop = |hop: &HopFields| HopEntry {
        node: hop.node_id,
        period: hop.period,
        lost: hop.lost,
        queue_delay_change_us: hop.delay_change_us,
        cause: hop.cause,
        dropped: hop.psns.iter().map(|&psn| Psn::new(psn)).collect(),
    };
    Message::PathReport(PathReport {
        truncated: fields.flags & flags::PATH_TRUNCATED != 0,
        method: fields.method,
        flow: fields.flow.descriptor(),
        hops: fields.hops.iter().map(hop).collect(),
    })
}

#[derive(Deserialize)]
struct CloseFields {
    flow_id: u32,
    reason: u16,
}

fn close(fields: &CloseFields) -> Result<Message, String> {
    Ok(Message::Close(Close {
        flow: flow(fields.flow_id)?,
        reason: fields.reason,
    }))
}
