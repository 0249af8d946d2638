//! IPFIX without sockets, clocks or threads: Information Elements and their mapping (`element`), values,
//! templates, the profiles of the two drafts (`profile`), exporter sessions (`session`), the decoder
//! (`decode`), a collector that checks what it gets (`collect`), records on their way from the data
//! plane to the exporting process (`handover`), and what both are told by the config
//! document (`plan`). What is observed is decided in `crem-meter`; octets are carried by `crem-ipfix-io`.
#![forbid(unsafe_code)]

pub mod collect;
pub mod decode;
pub mod element;
pub mod handover;
#[cfg(feature = "mutate")]
pub mod mutate;
#[cfg(not(feature = "mutate"))]
mod mutate;
pub mod plan;
pub mod profile;
pub mod session;
pub mod template;
pub mod value;
