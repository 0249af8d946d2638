//! The elements of the two drafts, which have no registered numbers (AMB-BTH-NAME: partition key and
//! destination QP are shared by both).

use super::DataType::{self, *};
use super::Semantics::{self, *};
use super::{Definition, Units};

macro_rules! private {
    ($($(#[$doc:meta])* $variant:ident $name:literal $data_type:ident $semantics:ident $units:ident $max:expr, $text:literal;)*) => {
        /// An element of the drafts.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum Private {
            $($(#[$doc])* $variant,)*
        }

        /// The definitions, in the order of [`Private`].
        pub const PRIVATE: &[(Private, Definition)] = &[
            $((Private::$variant, definition($name, $data_type, $semantics, Units::$units, $max, $text)),)*
        ];
    };
}

const fn definition(
    name: &'static str,
    data_type: DataType,
    semantics: Semantics,
    units: Units,
    max: Option<u64>,
    description: &'static str,
) -> Definition {
    Definition {
        name,
        data_type,
        semantics,
        units,
        max,
        description,
    }
}

/// Largest 24-bit value.
const U24: Option<u64> = Some(0x00ff_ffff);

private! {
    /// rocev2BthOpcode
    Opcode "rocev2BthOpcode" Unsigned8 Identifier None None,
        "Octet 0 of the BTH as it was, known or not.";
    /// rocev2BthPartitionKey
    PartitionKey "rocev2BthPartitionKey" Unsigned16 Identifier None None,
        "Partition key, octets 2 and 3 of the BTH.";
    /// rocev2BthDestinationQp
    DestinationQp "rocev2BthDestinationQp" Unsigned32 Identifier None U24,
        "Destination QP, octets 5 to 7 of the BTH; a number of the destination only.";
    /// rocev2BthPacketSequenceNumber
    PacketSequenceNumber "rocev2BthPacketSequenceNumber" Unsigned32 Default None U24,
        "PSN, octets 9 to 11 of the BTH; by itself it shows neither loss nor order.";
    /// rocev2BthOctetAtOffset1
    OctetAtOffset1 "rocev2BthOctetAtOffset1" Unsigned8 Default None None,
        "Octet 1 of the BTH as it was: solicited event, migration request, pad count, version.";
    /// rocev2BthOctetAtOffset4
    OctetAtOffset4 "rocev2BthOctetAtOffset4" Unsigned8 Default None None,
        "Octet 4 of the BTH as it was; its F and B bits are unused on RoCEv2 and are not ECN.";
    /// rocev2BthOctetAtOffset8
    OctetAtOffset8 "rocev2BthOctetAtOffset8" Unsigned8 Default None None,
        "Octet 8 of the BTH as it was: acknowledge request and reserved bits.";
    /// rdmaSequenceEpochId
    EpochId "rdmaSequenceEpochId" Unsigned64 Identifier None None,
        "Number of an epoch, rising in the order of first reports, not used again in a session.";
    /// rdmaSequenceReportId
    ReportId "rdmaSequenceReportId" Unsigned64 Identifier None None,
        "Number of a report in its epoch, from 1.";
    /// rdmaSequenceWindow
    Window "rdmaSequenceWindow" Unsigned32 Quantity None Some(1 << 22),
        "Positions that are retained, the same throughout an epoch.";
    /// rdmaSequenceFlags
    Flags "rdmaSequenceFlags" Unsigned16 Flags None None,
        "Qualifications: final 1, profile violation 2, capture discontinuity 4, state exhaustion 8, serial discontinuity 16, generation unverified 32.";
    /// skippedPsnTotalCount
    Skipped "skippedPsnTotalCount" Unsigned64 TotalCounter None None,
        "Positions that became pending by an advance over them.";
    /// filledPsnTotalCount
    Filled "filledPsnTotalCount" Unsigned64 TotalCounter None None,
        "Pending positions that were seen while retained.";
    /// expiredPsnTotalCount
    Expired "expiredPsnTotalCount" Unsigned64 TotalCounter None None,
        "Pending positions that left the retained window by its advance.";
    /// abandonedPsnTotalCount
    Abandoned "abandonedPsnTotalCount" Unsigned64 TotalCounter None None,
        "Positions that were pending when the epoch closed.";
    /// pendingPsnCount
    Pending "pendingPsnCount" Unsigned32 Quantity None None,
        "Positions that are pending now.";
    /// repeatedPsnTotalCount
    Repeated "repeatedPsnTotalCount" Unsigned64 TotalCounter Packets None,
        "Packets at a retained position that was seen before.";
    /// requestPacketTotalCount
    Requests "requestPacketTotalCount" Unsigned64 TotalCounter Packets None,
        "All requests that are accounted to the epoch.";
    /// unclassifiedLatePacketTotalCount
    UnclassifiedLate "unclassifiedLatePacketTotalCount" Unsigned64 TotalCounter Packets None,
        "Packets at positions that are not retained any more, or lie before the first.";
}

impl Private {
    /// How many there are.
    pub const COUNT: usize = PRIVATE.len();

    /// Its definition.
    pub const fn definition(self) -> &'static Definition {
        &PRIVATE[self as usize].1
    }

    /// Whether only the sequence profile has it.
    pub fn is_sequence(self) -> bool {
        self >= Self::EpochId
    }

    /// The element of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        PRIVATE
            .iter()
            .find(|(_, definition)| definition.name == name)
            .map(|(element, _)| *element)
    }
}
