//! What coding alone takes with payloads that come from memory: nothing is received, sent or decided, the
//! order is the best there is. No sender function can take less, so it is the measure for what the pipeline
//! adds, on whatever machine this runs.

use crem_dataplane::buffer::Buffer;
use crem_dataplane::dpdk::Frame;
use crem_dpdk::{Mempool, rdtsc};
use crem_fec::{EncodeJob, Engine, Row, Scheme, Source};
use serde_json::{Value, json};

use crate::gateway::HEADERS;
use crate::packets::Noise;
use crate::timing::{Cost, Meter};

/// Packets that are coded in one go, as the sender function does with those of a burst.
const RUN: u8 = 8;
/// Packets of a block.
const BLOCK: u8 = 32;
/// How often all packets are coded.
const ROUNDS: usize = 3;

/// What a packet takes.
#[derive(Clone, Debug)]
pub struct Alone {
    /// In words.
    pub title: String,
    /// Octets of RDMA payload of each packet.
    pub payload: usize,
    /// What it took.
    pub cost: Cost,
}

impl Alone {
    /// Gigabits of RDMA payload a second.
    pub fn gigabits(&self, tsc_per_ns: f64) -> f64 {
        (self.payload * 8) as f64 * tsc_per_ns / self.cost.mean
    }

    /// The report's line.
    pub fn line(&self, tsc_per_ns: f64) -> String {
        format!(
            "{:40} {:8.1} ns {:8.1} cycles/packet (best tenth {:6.1}) {:7.1} Gbit/s  limit of this machine",
            self.title,
            self.cost.mean / tsc_per_ns,
            self.cost.mean,
            self.cost.least,
            self.gigabits(tsc_per_ns),
        )
    }

    /// For other programs.
    pub fn to_json(&self, tsc_per_ns: f64) -> Value {
        json!({
            "title": self.title,
            "payload": self.payload,
            "cycles_per_packet": self.cost.mean,
            "cycles_per_packet_best_tenth": self.cost.least,
            "gbit_per_s": self.gigabits(tsc_per_ns),
        })
    }
}

/// Codes packets of `payload` octets of RDMA payload that lie in `count` frames of `pool` in any order, into
/// `m` symbols for each block; with `m` of 1 it is their XOR.
///
/// # Errors
/// What does not fit, in words.
pub fn measure(pool: &Mempool, payload: usize, m: u8, count: usize) -> Result<Alone, String> {
    // BTH and ICRC are coded too, and a symbol begins with the length.
    let octets = 12 + payload + 4;
    let mut frames = Vec::with_capacity(count);
    for _ in 0..count {
        let mut frame = Frame::from(pool.alloc().ok_or("the pool is too small")?);
        let len = u16::try_from(HEADERS + octets).map_err(|e| e.to_string())?;
        frame
            .append(len)
            .ok_or("a frame is too long for its buffer")?;
        frames.push(frame);
    }
    Noise::new(5).shuffle(&mut frames);
    let engine = Engine::detect();
    let mut symbols: Vec<Vec<u8>> = (0..m).map(|_| vec![0; octets + 2]).collect();
    let mut meter = Meter::default();
    for _ in 0..ROUNDS {
        round(&engine, &frames, &mut symbols, &mut meter)?;
    }
    Ok(Alone {
        title: format!("coding alone {}KiB m={m}", payload >> 10),
        payload,
        cost: Meter::cost(core::iter::once(&meter)),
    })
}

/// Codes every packet once.
fn round(
    engine: &Engine,
    frames: &[Frame],
    symbols: &mut [Vec<u8>],
    meter: &mut Meter,
) -> Result<(), String> {
    let scheme = if symbols.len() == 1 {
        Scheme::Xor
    } else {
        Scheme::Cauchy
    };
    let mut rest = frames;
    while rest.len() >= 2 * usize::from(BLOCK) {
        let begun = meter.begin();
        for first in (0..BLOCK).step_by(usize::from(RUN)) {
            let from = rdtsc();
            let (run, later) = rest.split_at(RUN.into());
            let sources: Vec<_> = (first..).zip(run).map(source).collect();
            let mut rows: Vec<Row<'_>> = (0..)
                .zip(symbols.iter_mut())
                .map(|(index, symbol)| Row { index, symbol })
                .collect();
            let mut job = EncodeJob::new(scheme, &mut rows, &sources, first == 0)
                .map_err(|e| e.to_string())?;
            engine.encode_one(&mut job, later.iter().take(RUN.into()).map(coded));
            meter.turn(rdtsc() - from, RUN.into());
            rest = later;
        }
        meter.end(&begun, BLOCK.into());
    }
    Ok(())
}

/// The UDP payload.
fn coded(frame: &Frame) -> &[u8] {
    frame.octets().get(HEADERS..).unwrap_or_default()
}

/// A packet at its position.
fn source((position, frame): (u8, &Frame)) -> Source<'_> {
    Source {
        position,
        payload: coded(frame).into(),
    }
}
