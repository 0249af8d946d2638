//! What the test programs of the project share: the vectors runner, the restore check, scenarios.
//! Product code does not live here.
#![forbid(unsafe_code)]

pub mod conformance;
pub mod fuzz;
pub mod fuzz_fec;
pub mod pcap;
pub mod relay;
pub mod restore;
pub mod scenario;
pub mod vectors;
