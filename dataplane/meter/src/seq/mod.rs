//! The bounded observer of packet sequence numbers (the sequence draft): `window` labels positions,
//! `epoch` counts, `connection` is the life of one provisioned connection, `provision` says which
//! connections there are, and `observer` holds them all for one collector session at one Observation
//! Point.

mod epoch;
mod flags;
mod window;

pub use epoch::{Counts, Epoch, Step};
pub use flags::Flags;
pub use window::{Label, Window};
