//! Collecting: the rules of section 7 of the sequence draft (`epochs`), sequence reports as they are
//! read from records (`report`), and a collector of one Transport Session that puts them together with
//! the decoder (`session`). Results as JSON are in `json`.

mod epochs;
mod report;

pub use epochs::{EpochLimits, Epochs, Outcome, Stored, Verdict};
pub use report::{NotAReport, Report, ReportKey};
