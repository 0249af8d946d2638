//! What the fleet agent decides: which document a gateway is to have ([`layers`]), whose turn it is to change
//! ([`store`]), whether the box is as well after a change as it was before ([`health`]), and what to do next
//! ([`machine`]); and the messages of etcd's JSON gateway ([`wire`]). Time, files and connections are arguments:
//! nothing here does I/O, which is the business of the process `crem-gateway fleet`.
#![forbid(unsafe_code)]

pub mod health;
pub mod keys;
pub mod layers;
pub mod machine;
pub mod memory;
pub mod settings;
pub mod status;
pub mod store;
pub mod wire;

pub use machine::{Action, Input, Machine};
pub use settings::Settings;
