//! DSCP and ECN: tunnel egress, the octet, REPAIR and restored packets.

use crem_wire::frame::{Ecn, decapsulate_ecn, repair_tos, restored_tos, tos};
use serde::Deserialize;
use serde_json::Value;

use super::case::{Tally, equal};

#[derive(Deserialize)]
struct Decap {
    inner: u8,
    outer: u8,
    result: Option<u8>,
}

#[derive(Deserialize)]
struct Octet {
    dscp: u8,
    ecn: u8,
    tos: u8,
}

#[derive(Deserialize)]
struct Repair {
    flow_tos: u8,
    repair_tos: u8,
    restored_tos: u8,
}

pub(super) fn run(document: &Value, tally: &mut Tally) -> &'static [&'static str] {
    // shows: QOS-VXLAN-05
    tally.each(document, "decap", |case: Decap| {
        let found = decapsulate_ecn(Ecn::of(case.inner), Ecn::of(case.outer));
        equal("codepoint", case.result, found.map(Ecn::bits))
    });
    // shows: QOS-DSCP-01, QOS-ECN-01
    tally.each(document, "tos", |case: Octet| {
        equal("octet", case.tos, tos(case.dscp, Ecn::of(case.ecn)))
    });
    // shows: QOS-DSCP-02, CREM-CC-04, CREM-CC-05, CREM-RECV-13
    tally.each(document, "repair", |case: Repair| {
        equal("REPAIR", case.repair_tos, repair_tos(case.flow_tos))?;
        equal(
            "restored",
            case.restored_tos,
            restored_tos(case.flow_tos, false),
        )
    });
    // "names" only spells the codepoints out.
    &["decap", "tos", "repair", "names"]
}
