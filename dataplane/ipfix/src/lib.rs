//! IPFIX without sockets, clocks or threads: Information Elements and their mapping (`element`), values,
//! templates, the profiles of the two drafts (`profile`), exporter sessions (`session`), the decoder
//! (`decode`) and a collector that checks what it gets (`collect`). What is observed is decided in
//! `crem-meter`; octets are carried by `crem-ipfix-io`.
#![forbid(unsafe_code)]

pub mod collect;
pub mod decode;
pub mod element;
#[cfg(feature = "mutate")]
pub mod mutate;
#[cfg(not(feature = "mutate"))]
mod mutate;
pub mod profile;
pub mod session;
pub mod template;
pub mod value;
