//! The restore check: takes request packets out of captures of real traffic, gets their payloads back
//! by decoding and their headers from other frames, and compares octet by octet. What restores is
//! product code; here is only the bookkeeping around it.

mod blocks;
mod check;
mod report;
mod streams;

use std::path::Path;

use crem_fec::Engine;
use crem_wire::frame::ParseConfig;

use crate::pcap::{Capture, PcapError};
pub use check::{BURSTS, check_run};
pub use report::{BurstResult, FileResult, OneNeighbour, Report};
pub use streams::{Found, Kinds, Packet, Run, find_runs};

/// Positions of a block.
pub const K: u8 = 32;

/// Runs the check over one capture file.
///
/// # Errors
/// The file cannot be read.
pub fn check_file(
    path: &Path,
    config: &ParseConfig,
    kinds: Kinds,
) -> Result<FileResult, PcapError> {
    let capture = Capture::read(path)?;
    let name = path
        .file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy();
    Ok(check_capture(&name, &capture, config, kinds))
}

/// Runs the check over a capture in memory; `name` goes into the result.
pub fn check_capture(
    name: &str,
    capture: &Capture,
    config: &ParseConfig,
    kinds: Kinds,
) -> FileResult {
    let frames: Vec<&[u8]> = capture.frames().collect();
    let found = find_runs(&frames, config, kinds);
    let mut result = FileResult {
        file: name.to_owned(),
        frames: frames.len(),
        cut: capture.cut(),
        source_packets: found.runs.iter().map(|run| run.packets.len()).sum(),
        streams: found.streams,
        runs: found.runs.len(),
        corrupt: found.corrupt,
        bursts: BURSTS
            .iter()
            .map(|&burst| BurstResult {
                burst,
                ..BurstResult::default()
            })
            .collect(),
    };
    let engine = Engine::detect();
    for run in &found.runs {
        check_run(&engine, run, config, &mut result.bursts);
    }
    result
}
