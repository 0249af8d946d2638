//! Management of a gateway: the history of its config document, changes that are confirmed or rolled back,
//! the REST API, and what it tells of the data plane.
//!
//! [`commit`] decides and has no clock, file or socket; [`store`] keeps and decides nothing; [`engine`] is
//! the one thread that joins them; [`view`] is what readers see. No frame is forwarded here, and whatever
//! happens to this process, the data plane goes on with the document that it has.
#![forbid(unsafe_code)]

pub mod access;
pub mod audit;
pub mod captures;
pub mod clock;
pub mod commit;
pub mod digest;
pub mod echo;
pub mod engine;
pub mod enrol;
pub mod host;
pub mod http;
pub mod journal;
pub mod link;
pub mod lldp;
pub mod metrics;
pub mod peers;
pub mod plan;
pub mod plane;
pub mod problem;
pub mod run;
pub mod serve;
pub mod store;
pub mod support;
pub mod syslog;
pub mod tls;
pub mod view;
pub mod watcher;
