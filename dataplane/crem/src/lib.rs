//! The CREM protocol, sans-IO: the sender function (`csf`), the receiver function (`crf`) and what they
//! share. Time and packets are arguments, decisions are return values. No clock, socket, mbuf, thread
//! or payload octet is touched here.
#![cfg_attr(not(any(feature = "std", test)), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod actions;
pub mod bucket;
pub mod config;
pub mod counters;
#[cfg(feature = "coverage")]
pub mod coverage;
#[cfg(not(feature = "coverage"))]
mod coverage;
pub mod crf;
pub mod csf;
pub mod events;
pub mod histogram;
pub mod learn;
pub mod memory;
pub mod monitor;
#[cfg(feature = "mutate")]
pub mod mutate;
#[cfg(not(feature = "mutate"))]
mod mutate;
pub mod packet;
pub mod plan;
pub mod policy;
pub mod reporter;
pub mod rng;
pub mod rtt;
pub mod table;
pub mod time;
pub mod timer;
