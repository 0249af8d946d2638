//! Bytes ↔ types: Ethernet, VLAN, IP, UDP, VXLAN, the RoCEv2 headers with their ICRC, rebuilding the
//! headers of a restored packet, and the nine CREM messages. No decisions live here.
#![cfg_attr(not(any(feature = "std", test)), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod altmark;
mod bitmap;
pub mod crem;
pub mod frame;
pub mod icrc;
pub mod ident;
#[cfg(feature = "mutate")]
pub mod mutate;
#[cfg(not(feature = "mutate"))]
mod mutate;
mod num;
pub mod rebuild;
pub mod roce;

pub use bitmap::Bitmap;
pub use num::{ConfigId, FlowId, Psn, Qpn, RequestId};
