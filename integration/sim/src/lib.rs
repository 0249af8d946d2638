//! A deterministic simulator of CREM: hosts, gateways and the networks between them in virtual time,
//! everything from one seed, checkers on every step. The protocol functions are the product's
//! (`crem-core`, `crem-fec`, `crem-wire`); the rest is the simulator's own.
//!
//! * `packet` what travels between hosts; `endpoint` who sends and receives it;
//! * `net` what links do to it;
//! * `rng` randomness.
#![forbid(unsafe_code)]

pub mod endpoint;
pub mod experiments;
pub mod net;
pub mod packet;
pub mod rng;

pub use crem_core::time::{Duration, Instant};
