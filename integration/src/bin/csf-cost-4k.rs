//! `csf-cost-4k`: prints what a source packet of 4 KiB costs the sender function in nanoseconds, protocol and
//! coding of two symbols a block of 32 together, over 64 flows. Packets lie in as many buffers as a pool has
//! and are used in turn, as by a device, so they are mostly not in a cache. Forwarding is not in it. The best
//! of many rounds: what others do on the machine is not our cost.
#![forbid(unsafe_code)]

#[path = "../../../dataplane/crem/tests/support/scripted.rs"]
#[allow(clippy::expect_used, dead_code, reason = "shared with tests")]
mod scripted;

use std::process::ExitCode;
use std::time::Instant;

use crem_fec::{EncodeJob, Engine, Row, Scheme, Source};
use scripted::Scripted;

const FLOWS: usize = 64;
const BLOCK: u8 = 32;
/// A payload of 4096 octets with BTH and ICRC, and the length in front of it in the symbol.
const PAYLOAD: usize = 4096 + 16;
const SYMBOL: usize = PAYLOAD + 2;
const ROUNDS: usize = 96;
/// Blocks of a flow in memory: with 64 flows 8,192 packets, as many as a pool has frames by default.
const BLOCKS: usize = 4;

struct Flow {
    csf: Scripted,
    blocks: Vec<Vec<Vec<u8>>>,
    next: usize,
    symbols: [Vec<u8>; 2],
}

impl Flow {
    fn new(number: usize) -> Self {
        let packet = |n: u8| vec![n ^ number as u8; PAYLOAD];
        Self {
            csf: Scripted::new(BLOCK.into(), 2),
            blocks: vec![(0..BLOCK).map(packet).collect(); BLOCKS],
            next: 0,
            symbols: [vec![0; SYMBOL], vec![0; SYMBOL]],
        }
    }

    /// A burst that is a block. `false` if it cannot be coded.
    fn burst(&mut self, engine: Engine) -> bool {
        self.csf.burst();
        self.next = (self.next + 1) % BLOCKS;
        let packets = self.blocks.get(self.next).into_iter().flatten();
        let sources: Vec<Source<'_>> = (0..BLOCK)
            .zip(packets)
            .map(|(position, packet)| Source {
                position,
                payload: packet.as_slice().into(),
            })
            .collect();
        let [first, second] = &mut self.symbols;
        let row = |index, symbol| Row { index, symbol };
        let mut rows = [row(0, first.as_mut_slice()), row(1, second.as_mut_slice())];
        match EncodeJob::new(Scheme::Cauchy, &mut rows, &sources, true) {
            Ok(job) => engine.encode(&mut [job]),
            Err(_) => return false,
        }
        true
    }
}

fn main() -> ExitCode {
    let engine = Engine::detect();
    let mut flows: Vec<Flow> = (0..FLOWS).map(Flow::new).collect();
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        if !flows.iter_mut().all(|flow| flow.burst(engine)) {
            eprintln!("csf-cost-4k: the coder refused a block");
            return ExitCode::FAILURE;
        }
        let packets = (FLOWS * usize::from(BLOCK)) as f64;
        best = best.min(start.elapsed().as_nanos() as f64 / packets);
    }
    println!("{best:.1}");
    ExitCode::SUCCESS
}
