//! A deterministic simulator of CREM: hosts, gateways and the networks between them in virtual time,
//! everything from one seed, checkers on every step. The protocol functions are the product's
//! (`crem-core`, `crem-fec`, `crem-wire`); the rest is the simulator's own.
//!
//! * `scenario` what a world is made of; `world` the world and the loop that lets it run;
//! * `packet` what travels between hosts; `endpoint` who sends and receives it;
//! * `net` what links do to it; `event` what is on its way;
//! * `gateway`, `coder`, `frame` what stands around the protocol functions;
//! * `wire` messages, read without the product's codec; `check` the checkers;
//! * `coverage` what occurred; `runner` many worlds and their report; `rng` randomness.
#![forbid(unsafe_code)]

mod check;
mod coder;
pub mod coverage;
pub mod endpoint;
mod event;
pub mod experiments;
pub mod frame;
mod gateway;
pub mod net;
pub mod packet;
pub mod rng;
pub mod runner;
pub mod scenario;
mod wire;
pub mod world;

pub use crem_core::time::{Duration, Instant};
