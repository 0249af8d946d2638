//! IPFIX without sockets: see the modules.
#![forbid(unsafe_code)]
