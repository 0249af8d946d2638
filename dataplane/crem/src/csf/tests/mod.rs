//! Tests of the sender function against a scripted peer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod adaptation;
mod addresses;
mod admission;
mod blocks;
mod datagrams;
mod early;
mod elsewhere;
mod learning;
mod lengths;
mod negotiation;
mod path_report;
mod properties;
mod requests;
mod responses;
mod rig;
mod silence;
mod table;
