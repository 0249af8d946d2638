//! What the processes of the gateway and their users tell each other: the one typed config document
//! ([`Document`]), the state documents ([`state`]), and the versioned local protocol between processes
//! ([`protocol`], [`client`]), the documents of the REST API ([`rest`]); and what two documents differ in ([`diff`]). No handler, no decision and no socket server lives here.
//!
//! A document is written in TOML or JSON with identical keys. Reading it reports every problem at once,
//! each with a JSON pointer, what was found there and what was expected.
#![forbid(unsafe_code)]

mod addressing;
pub mod capture;
mod check;
pub mod client;
mod confinement;
mod control_frames;
pub mod diff;
mod document;
pub mod fleet;
mod impact;
pub mod ipfix;
mod link;
mod load;
mod management;
mod names;
mod net;
mod operation;
mod policy;
pub mod protocol;
pub mod read;
pub mod rest;
#[cfg(feature = "openapi")]
pub mod schema;
mod segment;
pub mod socket;
pub mod state;
mod syslog;
mod vxlan;

pub use addressing::{Addressing, ManagementInterface, ManagementRoute};
pub use confinement::Confinement;
pub use control_frames::{ControlFrames, ControlPolicy};
pub use document::{Document, FORMAT_VERSION};
pub use impact::{Change, Impact, changes, largest};
pub use link::{LinkFec, LinkSettings, Pause};
pub use load::{Syntax, from_value, load, parse, to_value, value_of};
pub use management::{ApiClient, Management, ManagementTls};
pub use names::{Dns, Ntp, Preferred};
pub use net::{MacAddr, NotAnAddress, Prefix};
pub use operation::{Bypass, LinkPropagation, OnFailure, Propagation, Relay};
pub use policy::{Hold, Limits, Policy, RestoredEcn};
pub use read::{Code, Invalid, Issue};
pub use segment::{Device, Empty, Inband, Mode, Peer, Segment, SegmentId, Side};
pub use syslog::{SyslogLevel, SyslogServer, SyslogTransport};
pub use vxlan::Vxlan;
