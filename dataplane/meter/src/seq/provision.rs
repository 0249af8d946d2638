//! Which connections have their sequence observed (section 3 of the sequence draft), and what whoever
//! provisions them has to state. Nothing here looks at packets.

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;

use crem_wire::Qpn;

use super::Window;
use crate::Prefix;
use crate::key::Words;
use crate::scope::Observation;

/// The record key of a connection at one Observation Point, without the epoch (section 4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConnectionKey {
    /// Source address of the requests.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Destination QP.
    pub qp: Qpn,
    /// Partition key.
    pub pkey: u16,
    /// VLAN or VXLAN context: the namespace (AMB-TENANT).
    pub context: u64,
}

impl ConnectionKey {
    /// The key in words, equal exactly if the keys are.
    pub(crate) fn words(&self) -> Words {
        let rest = u64::from(self.qp.get()) << 32 | u64::from(self.pkey) << 8;
        Words::new(&self.source, &self.destination, [rest, self.context])
    }

    /// That of the connection that a packet is of, if it is a request.
    #[inline]
    pub(crate) const fn of(packet: &Observation) -> Self {
        Self {
            source: packet.source,
            destination: packet.destination,
            qp: packet.bth.dest_qp,
            pkey: packet.bth.pkey,
            context: packet.context,
        }
    }

    /// The words of the key that [`Self::of`] makes, without making it.
    #[inline(always)]
    pub(crate) fn words_of(packet: &Observation) -> Words {
        let rest = u64::from(packet.bth.dest_qp.get()) << 32 | u64::from(packet.bth.pkey) << 8;
        Words::new(&packet.source, &packet.destination, [rest, packet.context])
    }
}

/// What provisioning has to establish before a connection may be observed; nothing of it can be seen
/// from the packets (section 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Statement {
    /// The connection carries only SEND and WRITE requests (opcodes 0x00 to 0x0B), by what the
    /// endpoints do and not by a filter.
    pub only_send_and_write: bool,
    /// The Observation Point sees all paths of the stream, and addresses, QP, partition key and context
    /// name one connection.
    pub complete_and_unambiguous: bool,
    /// Most packets per second that the connection can send.
    pub packets_per_second: u64,
    /// Longest time between a packet and its last retransmission.
    pub longest_retry: Duration,
}

/// A connection, or all connections of a kind, whose sequence is observed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Provision {
    /// Source addresses of the requests.
    pub source: Prefix,
    /// Destination addresses.
    pub destination: Prefix,
    /// Destination QP, or any but the management QPs 0 and 1.
    pub qp: Option<Qpn>,
    /// Partition key, or any.
    pub pkey: Option<u16>,
    /// VLAN or VXLAN context as [`crem_wire::frame::Parsed::context`] numbers it, or any.
    pub context: Option<u64>,
    /// W, 1 ..= 2^22 positions.
    pub window: u32,
    /// Names the generation of the connection, if something independent of the packets does
    /// (AMB-SEQ-GEN). A changed one closes the epoch.
    pub generation: Option<u64>,
    /// What is stated about the connection.
    pub statement: Statement,
}

/// Why a connection may not be observed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProvisionError {
    /// W is not in 1 ..= 2^22.
    Window(u32),
    /// The restriction to SEND and WRITE is not stated.
    Operations,
    /// Complete capture or an unambiguous key is not stated.
    Coverage,
    /// So many packets may lie between a packet and its retransmission, half the PSN space or more
    /// (AMB-SEQ-HALF).
    HalfSpace(u64),
    /// More provisions than [`super::ObserverConfig::MAX_PROVISIONS`].
    TooMany(usize),
    /// A generation is given for more than one connection.
    Generation,
}

impl fmt::Display for ProvisionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Window(w) => write!(f, "window of {w} positions: expected 1 to 4194304"),
            Self::Operations => {
                f.write_str("not stated that only SEND and WRITE requests are used")
            }
            Self::Coverage => {
                f.write_str("not stated that all paths are seen and the key names one connection")
            }
            Self::HalfSpace(packets) => write!(
                f,
                "a retransmission may come {packets} packets late: less than 8388608 is needed"
            ),
            Self::TooMany(count) => write!(f, "{count} provisions: at most 4096"),
            Self::Generation => {
                f.write_str("a generation needs one source, destination, QP, key and context")
            }
        }
    }
}

impl core::error::Error for ProvisionError {}

impl Provision {
    /// Whether everything that the profile demands is stated.
    ///
    /// # Errors
    /// The first thing that is not.
    pub fn check(&self) -> Result<(), ProvisionError> {
        let statement = &self.statement;
        if self.window == 0 || self.window > Window::MAX_WIDTH {
            return Err(ProvisionError::Window(self.window));
        }
        if !statement.only_send_and_write {
            return Err(ProvisionError::Operations);
        }
        if !statement.complete_and_unambiguous {
            return Err(ProvisionError::Coverage);
        }
        let late = u128::from(statement.packets_per_second) * statement.longest_retry.as_nanos()
            / 1_000_000_000;
        if late >= 1 << 23 {
            let late = u64::try_from(late).unwrap_or(u64::MAX);
            return Err(ProvisionError::HalfSpace(late));
        }
        let one = self.source.is_host()
            && self.destination.is_host()
            && self.qp.is_some()
            && self.pkey.is_some()
            && self.context.is_some();
        if self.generation.is_some() && !one {
            return Err(ProvisionError::Generation);
        }
        Ok(())
    }

    /// Whether it speaks of this connection.
    pub fn covers(&self, key: &ConnectionKey) -> bool {
        self.qp.map_or(key.qp.get() > 1, |qp| qp == key.qp)
            && self.pkey.is_none_or(|pkey| pkey == key.pkey)
            && self.context.is_none_or(|context| context == key.context)
            && self.source.contains(key.source)
            && self.destination.contains(key.destination)
    }
}
