//! Experiments: the same endpoints over the same path with and without the pair of gateways, measured.
//! They run without octets, in bursts as a polling data plane sees them, and allocate nothing for a
//! packet. Correctness under all circumstances is checked elsewhere in this crate; here are figures.

pub mod classify;
pub mod curves;
mod flow;
pub mod gates;
pub mod overload;
mod pair;
mod report;
mod settings;
mod station;
pub mod streams;
mod svg;
#[cfg(test)]
mod tests;
mod wire;
mod writes;

pub use flow::{Flow, Sink, Traffic};
pub use pair::{Pair, PairConfig, Protection, roomy};
pub use report::{Check, Report, on_threads};
pub use settings::{Options, Scheme};
pub use wire::{Port, Tally};
pub use writes::{MTU, WriteCell, WriteResult};
