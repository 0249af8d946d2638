//! Erasure coding for CREM: GF(2^8), Cauchy Reed-Solomon, XOR and source copy; encoding over any set of
//! sources and decoding by rank from any mix of symbols. Buffers belong to the caller. Packets, time,
//! flows and the decision what to code live above.
//!
//! [`Engine`] is the entry: [`Engine::encode`] runs a burst of [`EncodeJob`]s, [`Engine::decode`]
//! solves one [`DecodeJob`]. [`rank`] tells from coefficients alone whether a decode can succeed.
#![cfg_attr(not(any(feature = "std", test)), no_std)]
#![deny(unsafe_code)]

extern crate alloc;

mod arch;
pub mod cauchy;
mod combine;
mod decode;
mod eliminate;
mod encode;
mod engine;
pub mod gf;
#[cfg(feature = "mutate")]
pub mod mutate;
#[cfg(not(feature = "mutate"))]
mod mutate;
mod payload;
mod rank;
mod recycle;
mod scheme;
mod set;
mod solve;

#[cfg(feature = "peers")]
pub use arch::peers;
pub use decode::{DecodeError, DecodeJob, Decoded, MIN_PAYLOAD, Outcome, Scratch, Symbol};
pub use encode::{EncodeError, EncodeJob, PREFIX, Row};
pub use engine::{Engine, Isa, IsaError};
pub use payload::{Payload, Source};
pub use rank::{Equation, RankSolver, rank};
pub use recycle::recycle;
pub use scheme::Scheme;
pub use set::PositionSet;
