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

pub mod flow;
mod hash;
mod key;
mod meter;
#[cfg(feature = "mutate")]
pub mod mutate;
#[cfg(not(feature = "mutate"))]
mod mutate;
mod packet;
pub mod point;
mod prefix;
pub mod scope;
pub mod select;
pub mod seq;
mod sink;
mod time;
mod wheel;

pub use hash::bob;
pub use meter::{Meter, MeterCounters, MeterError, PointConfig, Revision};
pub use packet::{PacketConfig, PacketCounters, PacketObserver};
pub use prefix::{Encapsulation, NotAPrefix, Prefix};
pub use sink::{PacketRecord, Record, Sink};
pub use time::Utc;
