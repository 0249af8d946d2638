//! IPFIX over sockets and files: exporters to collectors (`exporter`), a collector's listeners
//! (`collector`), records from the data plane (`service`), the exporting process as a whole (`process`)
//! with its status socket (`status`) and names (`resolve`), the collecting process (`collecting`), TLS 1.3 with mutual authentication (`tls`), and
//! waiting for all of them in one thread (`wait`). What messages look like and what they mean is decided
//! in `crem-ipfix`.
//!
//! DTLS is not implemented: UDP belongs on a network of its own (RFC 7011 section 11.5). SCTP needs a
//! kernel that has it.
#![forbid(unsafe_code)]

mod collecting;
mod collector;
mod exporter;
mod link;
mod process;
mod resolve;
mod service;
mod status;
mod tls;
mod wait;

pub use collecting::{CollectFailure, CollectOptions, CollectTls, Collected, Output, run_collect};
pub use collector::{
    Collector, CollectorConfig, CollectorCounters, CollectorEvent, Listen, ListenError, Peer,
    read_file,
};
pub use exporter::{
    Destination, EndReason, Exporter, ExporterConfig, ExporterCounters, ExporterError,
    ExporterEvent,
};
pub use link::probe_sctp;
pub use process::{ExportFailure, ExportOptions, run_export};
pub use service::{MAX_BATCH, Service, ServiceCounters, connect_to};
pub use tls::{Authorised, TlsError, TlsFiles, fingerprint};
pub use wait::{Interest, wait};
