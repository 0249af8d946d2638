//! Erasure coding: field products, coefficients, symbols, decoding.

use std::collections::BTreeMap;

use crem_fec::{
    DecodeJob, EncodeJob, Engine, Equation, Outcome, Payload, PositionSet, Row, Scheme, Scratch,
    Source, Symbol, cauchy, gf,
};
use crem_wire::Bitmap;
use serde::Deserialize;
use serde_json::Value;

use super::case::{Hex, Positions, Tally, equal, hex};

#[derive(Deserialize)]
struct Case {
    k: u8,
    #[serde(rename = "T")]
    t: usize,
    present: Positions,
    present_bitmap: Hex,
    payloads: BTreeMap<u8, Hex>,
    repairs: Vec<Repair>,
    #[serde(default)]
    decode: Vec<Decode>,
}

#[derive(Deserialize)]
struct Repair {
    scheme: u8,
    index: u8,
    #[serde(rename = "L")]
    set: Positions,
    #[serde(rename = "L_bitmap")]
    bitmap: Hex,
    symbol: Hex,
}

#[derive(Deserialize)]
struct Decode {
    lost: Positions,
    r#use: Vec<usize>,
    complete: bool,
    rank: usize,
    recovered: Positions,
}

pub(super) fn run(document: &Value, tally: &mut Tally) -> &'static [&'static str] {
    let engine = match Engine::from_env() {
        Ok(engine) => engine,
        Err(error) => {
            tally.check(|| "CREM_FEC_ISA".to_owned(), Err(error.to_string()));
            return &["coefficients", "products", "cases"];
        }
    };
    // shows: CREM-FEC-05
    tally.each(
        document,
        "coefficients",
        |(i, j, expected): (u8, u8, Option<u8>)| {
            equal("coefficient", expected, cauchy::coefficient(i, j))
        },
    );
    // shows: CREM-FEC-04
    tally.each(document, "products", |(a, b, expected): (u8, u8, u8)| {
        equal("product", expected, gf::mul(a, b))
    });
    // shows: CREM-SYM-01, CREM-SYM-03, CREM-SYM-04, CREM-BLOCK-04, CREM-FEC-03, CREM-FEC-07
    // shows: CREM-FEC-08, CREM-FEC-09, CREM-FEC-10, CREM-FEC-13, CREM-RECV-02, CREM-RSP-08
    // shows: CREM-RSP-09
    tally.each_with(document, "cases", |tally, label, case: Case| {
        tally.check(
            || format!("{label}: present bitmap"),
            bitmap(&case.present, case.k, &case.present_bitmap),
        );
        for (n, repair) in case.repairs.iter().enumerate() {
            tally.check(
                || format!("{label}: repairs[{n}] bitmap"),
                bitmap(&repair.set, case.k, &repair.bitmap),
            );
            tally.check(
                || format!("{label}: repairs[{n}]"),
                encode(&engine, &case, repair),
            );
        }
        for (n, decode) in case.decode.iter().enumerate() {
            tally.check(
                || format!("{label}: decode[{n}]"),
                solve(&engine, &case, decode),
            );
        }
    });
    &["coefficients", "products", "cases"]
}

fn bitmap(positions: &Positions, k: u8, expected: &Hex) -> Result<(), String> {
    let mut wire = vec![0; Bitmap::wire_len(k)];
    positions.0.write_wire(k, &mut wire);
    equal("bitmap", hex(&expected.0), hex(&wire))?;
    equal(
        "bitmap read back",
        Some(positions.0),
        Bitmap::from_wire(&expected.0, k),
    )
}

fn sources(case: &Case, keep: impl Fn(u8) -> bool) -> Vec<Source<'_>> {
    let kept = case
        .payloads
        .iter()
        .filter(|(position, _)| keep(**position));
    kept.map(|(&position, payload)| Source {
        position,
        payload: payload.0[..].into(),
    })
    .collect()
}

fn scheme(number: u8) -> Result<Scheme, String> {
    Scheme::from_number(number).ok_or_else(|| format!("scheme {number} is not known"))
}

fn encode(engine: &Engine, case: &Case, repair: &Repair) -> Result<(), String> {
    let sources = sources(case, |position| repair.set.0.contains(position));
    let mut symbol = vec![0x55; case.t];
    let mut rows = [Row {
        index: repair.index,
        symbol: &mut symbol,
    }];
    let job = EncodeJob::new(scheme(repair.scheme)?, &mut rows, &sources, true)
        .map_err(|e| e.to_string())?;
    engine.encode(&mut [job]);
    equal("symbol", hex(&repair.symbol.0), hex(&symbol))
}

fn solve(engine: &Engine, case: &Case, decode: &Decode) -> Result<(), String> {
    let sources = sources(case, |position| !decode.lost.0.contains(position));
    let mut symbols = Vec::new();
    for &n in &decode.r#use {
        let repair = case.repairs.get(n).ok_or("no such repair")?;
        let set = PositionSet::from_words(repair.set.0.words());
        let equation = Equation {
            scheme: scheme(repair.scheme)?,
            index: repair.index,
            set,
        };
        symbols.push(Symbol {
            equation,
            octets: Payload::Whole(&repair.symbol.0),
        });
    }
    let unknown = PositionSet::from_words(decode.lost.0.words());
    // The vectors use payloads shorter than any RoCEv2 packet.
    let job = DecodeJob {
        t: case.t,
        min_payload: 0,
        sources: &sources,
        symbols: &symbols,
        unknown,
    };
    let mut scratch = Scratch::new(255, case.t);
    let decoded = engine
        .decode(&job, &mut scratch)
        .map_err(|error| error.to_string())?;
    equal("rank", decode.rank, decoded.rank())?;
    equal(
        "rank without octets",
        decode.rank,
        crem_fec::rank(symbols.iter().map(|s| s.equation), unknown),
    )?;
    equal("complete", decode.complete, decoded.is_complete())?;
    let mut recovered = Bitmap::EMPTY;
    for (position, outcome) in decoded.outcomes() {
        match outcome {
            Outcome::Undetermined => {}
            Outcome::BadSymbol => return Err(format!("position {position}: bad symbol")),
            Outcome::Restored(payload) => {
                let expected = case.payloads.get(&position).map(|payload| hex(&payload.0));
                equal(&format!("payload {position}"), expected, Some(hex(payload)))?;
                recovered.insert(position);
            }
        }
    }
    equal("recovered", decode.recovered.0, recovered)
}
