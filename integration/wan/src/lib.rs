//! An emulated WAN link between two Ethernet segments: delay, jitter, rate with a tail-drop queue and
//! ECN marking, loss, reordering, duplication, corruption; as a Path Reporter it tells sources what it
//! dropped. The [`Impairer`] takes time and frames as
//! arguments and touches no socket or clock; `main.rs` is the input and output around it.
//!
//! Every random decision is a function of the seed, the direction and the frame's position in its
//! direction, so a run with the same frames in the same order makes the same decisions.
#![forbid(unsafe_code)]

pub mod class;
pub mod config;
mod draw;
pub mod impairer;
mod loss;
mod node;
pub mod report;

pub use class::{Class, frame_hash};
pub use config::{Config, DirectionConfig, NodeConfig};
pub use impairer::{Impairer, Side};
pub use report::{DirectionReport, Fate, LogEntry, Report};
