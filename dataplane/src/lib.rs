//! The data plane of the gateway: pipeline stages, workers, the in-band station, the auxiliary thread.
//!
//! One worker runs each segment to completion ([`worker`]): it takes bursts from both ports, decides
//! what each frame is ([`classify`]), forwards, lets the protocol functions of `crem-core` see sources
//! and messages, runs the coding they ask for through `crem-fec`, and sends repair into the room that is
//! left. Whatever may block (rtnetlink, the status socket, signals) is on the auxiliary thread ([`aux`]).
//!
//! What does not live here: protocol decisions (`crem-core`), octet layouts (`crem-wire`), coding
//! (`crem-fec`), REST, TLS, and files but the config document
//! and captures ([`capture`]).
#![forbid(unsafe_code)]

pub mod apply;
pub mod aux;
pub mod buffer;
pub mod capture;
pub mod classify;
pub mod code;
pub mod control_frames;
pub mod core_config;
pub mod counters;
mod crew;
mod describe;
pub mod dpdk;
pub mod emit;
mod flows;
pub mod guard;
pub mod inband;
mod leave;
mod line;
pub mod listing;
pub mod machine;
mod memory;
mod messages;
pub mod metering;
mod neighbours;
mod numa;
pub mod operate;
pub mod order;
mod overheard;
pub mod protect;
pub mod rate;
mod report;
pub mod resent;
pub mod restore;
pub mod segment;
mod sending;
pub mod slots;
pub mod snapshot;
pub mod start;
pub mod team;
pub mod times;
mod told;
pub mod tx;
mod watch;
pub mod worker;

#[cfg(test)]
mod pipeline_tests;
