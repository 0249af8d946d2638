//! RoCEv2 RC endpoints without octets, clock or socket: a requester and a responder that go back N or
//! repeat selectively, and a source that reacts to nothing. Time is an argument, packets are values.
//! What happens between two endpoints (links, gateways) is not here.

mod book;
mod dcqcn;
mod goback;
mod open;
mod packet;
mod requester;
mod responder;
mod selective;
mod sequence;

#[cfg(test)]
mod tests;

pub use book::{Completion, Operation};
pub use dcqcn::{CnpSource, Dcqcn, DcqcnConfig};
pub use open::OpenSource;
pub use packet::{Body, Packet, Place};
pub use requester::{Figures, QpError, Recovery, Requester, RequesterConfig};
pub use responder::{Responder, ResponderConfig, ResponderFigures};
pub use sequence::{Serial, unwrap_psn};
