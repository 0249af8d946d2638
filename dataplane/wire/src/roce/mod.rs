//! The RoCEv2 transport headers behind UDP: opcodes, BTH, and the extension headers that we read.
//! Finding them in a frame is `frame`'s work; what a packet means for a flow is the core's.

mod bth;
mod cm;
mod ext;
mod opcode;

pub use bth::Bth;
pub use cm::{CmMessage, CommId};
pub use ext::{Aeth, ImmDt, NakCode, Reth, Syndrome};
pub use opcode::{Class, Ext, Opcode, Place, Transport};

/// UDP destination port of RoCEv2.
pub const UDP_PORT: u16 = 4791;
/// Octets of the invariant CRC behind the payload.
pub const ICRC_LEN: usize = 4;
/// Octets of the smallest complete RoCEv2 UDP payload: BTH and ICRC.
pub const MIN_PAYLOAD: usize = Bth::LEN + ICRC_LEN;
