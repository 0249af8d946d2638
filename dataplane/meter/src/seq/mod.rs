//! The bounded observer of packet sequence numbers (the sequence draft): `window` labels positions,
//! `epoch` counts, `connection` is the life of one provisioned connection, `provision` says which
//! connections there are, and `observer` holds them all for one collector session at one Observation
//! Point.

mod config;
mod connection;
mod epoch;
mod flags;
mod observer;
mod provision;
mod window;

pub use config::{ObserverConfig, ObserverCounters, SequenceRecord};
pub use epoch::{Counts, Epoch, Step};
pub use flags::Flags;
pub use observer::Observer;
pub use provision::{ConnectionKey, Provision, ProvisionError, Statement};
pub use window::{Label, Window};
