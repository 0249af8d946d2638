//! Collecting: the rules of section 7 of the sequence draft (`epochs`), sequence reports as they are
//! read from records (`report`), and a collector of one Transport Session that puts them together with
//! the decoder (`session`). Messages are cut out of a stream in `frames`; results as JSON are in `json`.

mod epochs;
mod frames;
pub mod json;
mod report;
mod session;

pub use epochs::{EpochLimits, Epochs, Outcome, Stored, Verdict};
pub use frames::Deframer;
pub use report::{NotAReport, Report, ReportKey};
pub use session::{CollectCounters, CollectorSession, Event, Issue};
