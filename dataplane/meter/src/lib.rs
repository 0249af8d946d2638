//! Metering for IPFIX: which packets are RoCEv2 by configuration (`scope`), where they were seen
//! (`point`), the observation of single packets with selection (`packet`, `select`), aggregate flows
//! (`flow`) and the bounded observer of packet sequence numbers (`seq`); `meter` puts them together for
//! one worker. Records come out through a [`Sink`]; how they look on the wire is decided elsewhere.
//!
//! Nothing here has a clock, a socket or a thread: time is an argument, UTC in nanoseconds (see [`Utc`]).
//! Memory is taken at construction; a packet costs no allocation.
#![cfg_attr(not(any(feature = "std", test)), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(feature = "mutate")]
pub mod mutate;
#[cfg(not(feature = "mutate"))]
mod mutate;
pub mod seq;
mod time;

pub use time::Utc;
