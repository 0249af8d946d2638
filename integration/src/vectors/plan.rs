//! The protocol's arithmetic: responses, ranges, READ spans, bitmaps, parameters, sizes.

use crem_core::plan::{
    Answer, Family, Request, common_limits, max_symbol_length, may_use, named_positions,
    param_status, path_mtu_needed, read_span, respond, suggested_m, vxlan_overhead,
};
use crem_wire::crem::{Limits, ParamUpdate, PsnRange};
use crem_wire::{Bitmap, ConfigId, FlowId, Psn};
use serde::Deserialize;
use serde_json::Value;

use super::case::{Hex, Positions, Tally, equal, hex};

#[derive(Deserialize)]
struct Plan {
    k: u8,
    scheme: u8,
    present: Positions,
    used: Positions,
    lost: Positions,
    held: u8,
    suggested_m: u8,
    fallback: bool,
    action: String,
    count: usize,
    indices: Positions,
    #[serde(rename = "L")]
    set: Positions,
}

#[derive(Deserialize)]
struct RangeMap {
    blocks: Vec<Block>,
    ranges: Vec<(u32, u8)>,
    result: Vec<Touched>,
}

#[derive(Deserialize)]
struct Block {
    start: u32,
    k: u8,
    present: Positions,
}

#[derive(Deserialize, PartialEq, Debug)]
struct Touched {
    start: u32,
    lost: Positions,
    absent: Positions,
}

#[derive(Deserialize)]
struct Read {
    psn: u32,
    dma_length: u32,
    rdma_mtu: u16,
    psn_count: u32,
    first_absent: u32,
    absent_count: u32,
    next_psn: u32,
}

#[derive(Deserialize)]
struct BitmapCase {
    k: u8,
    positions: Positions,
    hex: Hex,
}

#[derive(Deserialize)]
struct Effective {
    block_start: u32,
    effective_psn: u32,
    ack_received: bool,
    may_use: bool,
}

#[derive(Deserialize)]
struct Suggested {
    #[serde(rename = "X")]
    lost: u8,
    r: u8,
    p: f64,
    m_s: u8,
}

#[derive(Deserialize)]
struct Status {
    scheme: u8,
    k: u8,
    m: u8,
    #[serde(rename = "T")]
    t: u16,
    resources: bool,
    status: u8,
}

#[derive(Deserialize)]
struct LimitsCase {
    schemes: u16,
    max_k: u8,
    max_m: u8,
    max_t: u16,
}

#[derive(Deserialize)]
struct Mtu {
    path_mtu: u16,
    ip: u8,
    k: u8,
    vxlan: Option<u8>,
    max_t: u16,
}

pub(super) fn run(document: &Value, tally: &mut Tally) -> &'static [&'static str] {
    // shows: CREM-REQ-05, CREM-RSP-01, CREM-RSP-02, CREM-RSP-03, CREM-FEC-14, AMB-CLAMP
    tally.each(document, "plans", plan);
    // shows: CREM-BLOCK-01, CREM-REQ-08
    tally.each(document, "range_maps", range_map);
    // shows: CREM-BLOCK-05, CREM-BLOCK-12, AMB-READ0
    tally.each(document, "reads", read);
    // shows: CREM-MSG-10
    tally.each(document, "bitmaps", |case: BitmapCase| {
        let mut wire = vec![0; Bitmap::wire_len(case.k)];
        case.positions.0.write_wire(case.k, &mut wire);
        equal("octets", hex(&case.hex.0), hex(&wire))?;
        equal(
            "positions",
            Some(case.positions.0),
            Bitmap::from_wire(&case.hex.0, case.k),
        )
    });
    // shows: CREM-PARAM-05, CREM-PARAM-06
    tally.each(document, "effective_psn", |case: Effective| {
        let found = may_use(
            Psn::new(case.block_start),
            Psn::new(case.effective_psn),
            case.ack_received,
        );
        equal("may_use", case.may_use, found)
    });
    // shows: CREM-REQ-02, CREM-REQ-03, CREM-REQ-04
    tally.each(document, "suggested_m", |case: Suggested| {
        equal(
            "suggested M",
            case.m_s,
            suggested_m(case.lost, case.r, case.p),
        )
    });
    let limits = document
        .get("limits")
        .and_then(|limits| LimitsCase::deserialize(limits).ok());
    // shows: CREM-MSG-20, AMB-STATUS
    tally.each(document, "param_status", |case: Status| {
        status(&case, limits.as_ref().ok_or("the file has no limits")?)
    });
    // shows: CREM-OPS-01, QOS-MTU-03
    tally.each(document, "mtu", mtu);
    &[
        "plans",
        "range_maps",
        "reads",
        "bitmaps",
        "effective_psn",
        "suggested_m",
        "param_status",
        "mtu",
    ]
}

fn plan(case: Plan) -> Result<(), String> {
    let response = respond(&Request {
        scheme: case.scheme,
        k: case.k,
        present: case.present.0,
        used: case.used.0,
        named: case.lost.0,
        held: case.held,
        suggested: case.suggested_m,
        fallback: case.fallback,
    });
    let (action, indices, set) = match response.answer {
        Answer::Nothing => ("info", Bitmap::EMPTY, Bitmap::EMPTY),
        Answer::Coded { indices, set } => ("coded", indices, set),
        Answer::Copies(set) => ("copy", set, set),
    };
    equal("action", case.action.as_str(), action)?;
    equal("count", case.count, indices.len())?;
    equal("indices", case.indices.0, indices)?;
    equal("L", case.set.0, set)?;
    equal(
        "info",
        !case.present.0.contains_all(&case.lost.0),
        response.info,
    )
}

fn range_map(case: RangeMap) -> Result<(), String> {
    let ranges: Vec<PsnRange> = case
        .ranges
        .iter()
        .map(|&(start, count)| PsnRange {
            start: Psn::new(start),
            count,
        })
        .collect();
    let found: Vec<Touched> = case
        .blocks
        .iter()
        .filter_map(|block| {
            let named = named_positions(Psn::new(block.start), block.k, &block.present.0, &ranges)?;
            let (lost, absent) = (Positions(named.lost), Positions(named.absent));
            Some(Touched {
                start: block.start,
                lost,
                absent,
            })
        })
        .collect();
    equal("blocks", case.result, found)
}

fn read(case: Read) -> Result<(), String> {
    let span = read_span(Psn::new(case.psn), case.dma_length, case.rdma_mtu).ok_or("no span")?;
    equal("count", case.psn_count, span.count)?;
    equal("absent", case.absent_count, span.absent)?;
    equal("first absent", case.first_absent, span.first_absent.get())?;
    equal("next", case.next_psn, span.next.get())
}

fn status(case: &Status, limits: &LimitsCase) -> Result<(), String> {
    let own = Limits {
        schemes: limits.schemes,
        max_k: limits.max_k,
        max_m: limits.max_m,
        max_t: limits.max_t,
    };
    let update = ParamUpdate {
        flow: FlowId::new(1).ok_or("flow")?,
        config: ConfigId(0),
        scheme: case.scheme,
        k: case.k,
        m: case.m,
        t: case.t,
        effective: Psn::new(0),
    };
    let found = param_status(&update, &common_limits(&own, &own), case.resources);
    equal("status", case.status, found.code())
}

fn family(version: u8) -> Result<Family, String> {
    match version {
        4 => Ok(Family::V4),
        6 => Ok(Family::V6),
        _ => Err(format!("IP version {version}")),
    }
}

fn mtu(case: Mtu) -> Result<(), String> {
    let tunnel = case
        .vxlan
        .map(family)
        .transpose()?
        .map_or(0, vxlan_overhead);
    let ip = family(case.ip)?;
    equal(
        "T",
        case.max_t,
        max_symbol_length(case.path_mtu, ip, case.k, tunnel),
    )?;
    equal(
        "MTU for that T",
        u32::from(case.path_mtu),
        path_mtu_needed(case.max_t, ip, case.k, tunnel),
    )
}
