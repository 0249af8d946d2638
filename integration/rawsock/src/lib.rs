//! Raw Ethernet sockets in batches, for the programs that stand in for hosts and for the WAN.
//!
//! A [`RawSock`] is one AF_PACKET socket bound to one interface. The kernel never hands a packet socket
//! the frames it sent itself, and with [`Options::ignore_outgoing`] not those of others either. A VLAN
//! tag that the kernel took out of a frame is put back in its place. What frames mean is not known here.
#![forbid(unsafe_code)]

mod recv;
mod sock;
mod wait;

pub use recv::{Frame, RecvBatch};
pub use sock::{Error, Options, RawSock, Sent};
pub use wait::{StopFlag, precise_timers, sleep_ns, wait_readable};
