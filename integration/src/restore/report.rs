//! What the restore check counts, and how it is printed.

use std::fmt;

use crem_wire::rebuild::Identification;
use serde::Serialize;

use super::check::Verdict;

/// Reasons that are kept by name.
const MAX_REASONS: usize = 8;

/// Packets that had a received packet on one side only: a solved Identification is believed less
/// readily there, so a refusal is no fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct OneNeighbour {
    /// Packets removed.
    pub packets: usize,
    /// Restored, equal to the original.
    pub restored: usize,
    /// Of these, with a solved Identification.
    pub identification_solved: usize,
    /// Left to the transport.
    pub refused: usize,
}

/// Results of one burst length.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct BurstResult {
    /// Packets removed at once.
    pub burst: usize,
    /// Packets removed that had a received packet on both sides.
    pub packets: usize,
    /// Restored, equal to the original octet by octet.
    pub restored: usize,
    /// Of these, with an Identification that no neighbour has, solved from the ICRC.
    pub identification_solved: usize,
    /// Restored but different: the one thing that must never happen, however many neighbours.
    pub wrong: usize,
    /// Not restored although both neighbours were there.
    pub failed: usize,
    /// Packets with one neighbour, counted apart.
    pub one_neighbour: OneNeighbour,
    /// Packets of runs that were lost whole: no headers, so nothing is restored.
    pub no_neighbour: usize,
    /// The first few reasons of failures and differences.
    pub reasons: Vec<String>,
}

impl BurstResult {
    pub(super) fn count(&mut self, verdict: &Verdict, neighbours: usize) {
        let solved = usize::from(*verdict == Verdict::Equal(Identification::Solved));
        if let Verdict::Different(offset) = verdict {
            self.wrong += 1;
            self.reason(&format!("differs at octet {offset}"));
        }
        match neighbours {
            0 => self.no_neighbour += 1,
            1 => {
                self.one_neighbour.packets += 1;
                self.one_neighbour.identification_solved += solved;
                match verdict {
                    Verdict::Equal(_) => self.one_neighbour.restored += 1,
                    Verdict::Refused(_) => self.one_neighbour.refused += 1,
                    Verdict::Different(_) => {}
                }
            }
            _ => {
                self.packets += 1;
                self.identification_solved += solved;
                match verdict {
                    Verdict::Equal(_) => self.restored += 1,
                    Verdict::Refused(reason) => {
                        self.failed += 1;
                        self.reason(reason);
                    }
                    Verdict::Different(_) => {}
                }
            }
        }
    }

    /// Counts packets that should have been restored and could not even be tried.
    pub(super) fn fail(&mut self, packets: usize, reason: &str) {
        self.packets += packets;
        self.failed += packets;
        self.reason(reason);
    }

    fn reason(&mut self, reason: &str) {
        if self.reasons.len() < MAX_REASONS && !self.reasons.iter().any(|known| known == reason) {
            self.reasons.push(reason.to_owned());
        }
    }

    fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.restored += other.restored;
        self.identification_solved += other.identification_solved;
        self.wrong += other.wrong;
        self.failed += other.failed;
        self.no_neighbour += other.no_neighbour;
        self.one_neighbour.packets += other.one_neighbour.packets;
        self.one_neighbour.restored += other.one_neighbour.restored;
        self.one_neighbour.identification_solved += other.one_neighbour.identification_solved;
        self.one_neighbour.refused += other.one_neighbour.refused;
        for reason in &other.reasons {
            self.reason(reason);
        }
    }
}

/// Results of one capture.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FileResult {
    /// File name.
    pub file: String,
    /// Complete frames in it.
    pub frames: usize,
    /// Frames left out because they were cut when captured.
    pub cut: usize,
    /// Source packets.
    pub source_packets: usize,
    /// Streams.
    pub streams: usize,
    /// Runs of ascending PSNs.
    pub runs: usize,
    /// Source packets left out because their ICRC is wrong as captured.
    pub corrupt: usize,
    /// Results by burst length.
    pub bursts: Vec<BurstResult>,
}

impl FileResult {
    /// All burst lengths together.
    pub fn total(&self) -> BurstResult {
        sum(self.bursts.iter())
    }
}

fn sum<'b>(results: impl Iterator<Item = &'b BurstResult>) -> BurstResult {
    results.fold(BurstResult::default(), |mut all, one| {
        all.add(one);
        all
    })
}

/// Results of all captures.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Report {
    /// By file.
    pub files: Vec<FileResult>,
}

impl Report {
    /// All files and burst lengths together.
    pub fn total(&self) -> BurstResult {
        sum(self.files.iter().flat_map(|file| &file.bursts))
    }

    /// Nothing wrong, and every packet with two neighbours restored.
    pub fn is_ok(&self) -> bool {
        let total = self.total();
        total.wrong == 0 && total.failed == 0 && total.restored == total.packets
    }

    /// The report as a JSON document.
    pub fn to_json(&self) -> serde_json::Value {
        let total = self.total();
        serde_json::json!({ "ok": self.is_ok(), "k": super::K, "total": total, "files": self.files })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<40} {:>7} {:>8} {:>8} {:>8} {:>6} {:>6} {:>14} {:>7}",
            "capture",
            "sources",
            "removed",
            "restored",
            "solved",
            "failed",
            "wrong",
            "one neighbour",
            "none"
        )?;
        for file in &self.files {
            let total = file.total();
            let one = &total.one_neighbour;
            writeln!(
                f,
                "{:<40} {:>7} {:>8} {:>8} {:>8} {:>6} {:>6} {:>14} {:>7}",
                file.file,
                file.source_packets,
                total.packets,
                total.restored,
                total.identification_solved,
                total.failed,
                total.wrong,
                format!("{}/{}", one.restored, one.packets),
                total.no_neighbour,
            )?;
            for reason in &total.reasons {
                writeln!(f, "    {reason}")?;
            }
        }
        let total = self.total();
        let one = &total.one_neighbour;
        writeln!(
            f,
            "one neighbour only, counted apart: packets={} restored={} identification_solved={} refused={}; no neighbour: {}",
            one.packets, one.restored, one.identification_solved, one.refused, total.no_neighbour
        )?;
        write!(
            f,
            "restore: {} packets={} restored={} identification_solved={} wrong={}",
            if self.is_ok() { "ok" } else { "FAILED" },
            total.packets,
            total.restored,
            total.identification_solved,
            total.wrong
        )
    }
}
