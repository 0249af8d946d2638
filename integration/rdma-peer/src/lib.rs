//! A software endpoint of a reliable connection that speaks real RoCEv2 frames: requester and
//! responder of WRITE and SEND, requester and responder of READ. Time and frames are arguments;
//! `main.rs` is the socket around it.
//!
//! It behaves like an adapter with go-back-N: the responder takes packets in order only and sends one
//! NAK at the first gap; the requester goes back to the PSN the NAK names at once. The data is a known
//! pattern, and the far end checks every octet.
#![forbid(unsafe_code)]

pub mod config;
mod fleet;
mod machine;
pub mod pace;
pub mod pattern;
pub mod plan;
mod reader;
pub mod report;
mod requester;
mod responder;
mod timing;
pub mod wire;

pub use config::{Endpoint, Operation, Transfer, Tuning};
pub use fleet::Fleet;
pub use machine::Machine;
pub use reader::Reader;
pub use report::Report;
pub use requester::Requester;
pub use responder::Responder;
