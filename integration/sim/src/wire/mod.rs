//! The messages between gateways as the draft's formats have them, read by code of the simulator's own:
//! nothing here uses the product's codec, so that a mistake in it does not hide itself.

mod cursor;
mod read;
mod seen;
#[cfg(test)]
mod tests;

pub(crate) use read::{Fault, received, sent};
pub(crate) use seen::{Form, Repair, Seen};
