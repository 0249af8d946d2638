//! Scenarios: two hosts, two gateways and a WAN in network namespaces, a transfer between the hosts, and
//! what has to hold of it. The programs that take part are separate processes; this module builds the
//! world around them, watches, and judges. Protocol knowledge lives in the product crates.

mod api;
mod bounds;
mod changes;
mod check;
mod control_dies;
mod demo;
mod ends;
mod fleet;
mod gateway;
mod guest;
mod intruder;
mod ledger;
mod links;
mod machine;
mod metering;
mod monitored;
mod process;
mod report;
mod router;
mod run;
mod script;
mod sense;
mod spec;
mod tap;
mod tcp;
mod topology;
mod tunnel;
mod watch;

pub use check::{Finding, check};
pub use demo::demo;
pub use process::Programs;
pub use report::{Outcome, RunReport, print, save};
pub use run::{Context, run, run_all_modes};
pub use spec::{Mode, Scenario};
pub use topology::remove_leftovers;

/// What stops a scenario from being carried out, as opposed to one that is carried out and fails.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
