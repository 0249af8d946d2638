//! Where records go, and what they are.

use core::net::IpAddr;

use crem_wire::roce::Bth;

use crate::Utc;
use crate::flow::FlowRecord;
use crate::point::{Direction, Place};
use crate::seq::SequenceRecord;

/// One observed packet (packet-observation profile, section 4.2 of the BTH draft).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketRecord {
    /// observationPointId.
    pub point: u64,
    /// observationTimeNanoseconds.
    pub time: Utc,
    /// Source address.
    pub source: IpAddr,
    /// Destination address, of the same family.
    pub destination: IpAddr,
    /// UDP source port.
    pub source_port: u16,
    /// UDP destination port.
    pub destination_port: u16,
    /// ipClassOfService, ECN included.
    pub tos: u8,
    /// flowDirection.
    pub direction: Direction,
    /// selectionSequenceId; `None` without a Selection Process (AMB-BTH-SELNONE).
    pub selection: Option<u64>,
    /// The BTH as it was.
    pub bth: Bth,
}

/// Takes records in the order of observation. A record that is not taken is lost to this sink, and the
/// meter that made it counts it.
pub trait Sink {
    /// Takes the record of a packet; `false` if there is no room.
    fn packet(&mut self, record: &PacketRecord) -> bool;
    /// Takes the record of an aggregate flow seen at this place; `false` if there is no room.
    fn flow(&mut self, place: Place, record: &FlowRecord) -> bool;
    /// Takes the snapshot of an epoch; `false` if there is no room.
    fn sequence(&mut self, record: &SequenceRecord) -> bool;
}

/// A record of any kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// One packet.
    Packet(PacketRecord),
    /// An aggregate flow.
    Flow(FlowRecord),
    /// A snapshot of an epoch.
    Sequence(SequenceRecord),
}
