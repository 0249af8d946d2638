//! Information Elements: their types (RFC 7011 section 6, RFC 5610), the registered ones that we use
//! (`iana`), the ones of the two drafts, which have no registered number yet (`private`), and the mapping
//! of those to a Private Enterprise Number. Values on the wire are in `value`.

mod iana;
mod mapping;
mod private;

pub use iana::{IANA, id};
pub use mapping::{Mapping, MappingError};
pub use private::{PRIVATE, Private};

/// Abstract data types, with their numbers in RFC 5610.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum DataType {
    /// Octets.
    OctetArray = 0,
    /// 0 ..= 255.
    Unsigned8 = 1,
    /// Two octets.
    Unsigned16 = 2,
    /// Four octets.
    Unsigned32 = 3,
    /// Eight octets.
    Unsigned64 = 4,
    /// -128 ..= 127.
    Signed8 = 5,
    /// Two octets.
    Signed16 = 6,
    /// Four octets.
    Signed32 = 7,
    /// Eight octets.
    Signed64 = 8,
    /// IEEE 754, single.
    Float32 = 9,
    /// IEEE 754, double.
    Float64 = 10,
    /// 1 for true, 2 for false.
    Boolean = 11,
    /// Six octets.
    MacAddress = 12,
    /// UTF-8.
    String = 13,
    /// Seconds since 1970.
    DateTimeSeconds = 14,
    /// Milliseconds since 1970.
    DateTimeMilliseconds = 15,
    /// NTP time, to the microsecond.
    DateTimeMicroseconds = 16,
    /// NTP time, to the nanosecond.
    DateTimeNanoseconds = 17,
    /// Four octets.
    Ipv4Address = 18,
    /// Sixteen octets.
    Ipv6Address = 19,
    /// A list (RFC 6313); kept as octets.
    BasicList = 20,
    /// A list (RFC 6313); kept as octets.
    SubTemplateList = 21,
    /// A list (RFC 6313); kept as octets.
    SubTemplateMultiList = 22,
}

impl DataType {
    /// Octets of a value that is not reduced; `None` for types of any length.
    pub const fn size(self) -> Option<u16> {
        Some(match self {
            Self::Unsigned8 | Self::Signed8 | Self::Boolean => 1,
            Self::Unsigned16 | Self::Signed16 => 2,
            Self::Unsigned32
            | Self::Signed32
            | Self::Float32
            | Self::DateTimeSeconds
            | Self::Ipv4Address => 4,
            Self::MacAddress => 6,
            Self::Unsigned64
            | Self::Signed64
            | Self::Float64
            | Self::DateTimeMilliseconds
            | Self::DateTimeMicroseconds
            | Self::DateTimeNanoseconds => 8,
            Self::Ipv6Address => 16,
            Self::OctetArray
            | Self::String
            | Self::BasicList
            | Self::SubTemplateList
            | Self::SubTemplateMultiList => return None,
        })
    }

    /// Whether a field of this type may have this length in a template (RFC 7011 sections 3.2, 6.2):
    /// integers may be shorter, a double may be a single, times and addresses may not.
    pub const fn fits(self, length: u16) -> bool {
        let Some(size) = self.size() else {
            return true;
        };
        match self {
            Self::Unsigned16
            | Self::Unsigned32
            | Self::Unsigned64
            | Self::Signed16
            | Self::Signed32
            | Self::Signed64 => length > 0 && length <= size,
            Self::Float64 => length == 4 || length == 8,
            _ => length == size,
        }
    }

    /// Its name in RFC 7012.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OctetArray => "octetArray",
            Self::Unsigned8 => "unsigned8",
            Self::Unsigned16 => "unsigned16",
            Self::Unsigned32 => "unsigned32",
            Self::Unsigned64 => "unsigned64",
            Self::Signed8 => "signed8",
            Self::Signed16 => "signed16",
            Self::Signed32 => "signed32",
            Self::Signed64 => "signed64",
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::Boolean => "boolean",
            Self::MacAddress => "macAddress",
            Self::String => "string",
            Self::DateTimeSeconds => "dateTimeSeconds",
            Self::DateTimeMilliseconds => "dateTimeMilliseconds",
            Self::DateTimeMicroseconds => "dateTimeMicroseconds",
            Self::DateTimeNanoseconds => "dateTimeNanoseconds",
            Self::Ipv4Address => "ipv4Address",
            Self::Ipv6Address => "ipv6Address",
            Self::BasicList => "basicList",
            Self::SubTemplateList => "subTemplateList",
            Self::SubTemplateMultiList => "subTemplateMultiList",
        }
    }
}

/// Data type semantics, with their numbers in RFC 5610.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Semantics {
    /// None in particular.
    Default = 0,
    /// A measured amount.
    Quantity = 1,
    /// A counter since some start.
    TotalCounter = 2,
    /// A counter since the last report.
    DeltaCounter = 3,
    /// A number without arithmetic.
    Identifier = 4,
    /// Bits.
    Flags = 5,
}

impl Semantics {
    /// Its name in RFC 7012.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Quantity => "quantity",
            Self::TotalCounter => "totalCounter",
            Self::DeltaCounter => "deltaCounter",
            Self::Identifier => "identifier",
            Self::Flags => "flags",
        }
    }
}

/// Units, with their numbers in RFC 5610.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum Units {
    /// None, also for positions of the sequence.
    None = 0,
    /// Octets.
    Octets = 2,
    /// Packets.
    Packets = 3,
    /// Flows.
    Flows = 4,
    /// Seconds.
    Seconds = 5,
    /// Milliseconds.
    Milliseconds = 6,
    /// Microseconds.
    Microseconds = 7,
    /// Nanoseconds.
    Nanoseconds = 8,
    /// Messages.
    Messages = 10,
}

impl Units {
    /// Its name in the registry.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Octets => "octets",
            Self::Packets => "packets",
            Self::Flows => "flows",
            Self::Seconds => "seconds",
            Self::Milliseconds => "milliseconds",
            Self::Microseconds => "microseconds",
            Self::Nanoseconds => "nanoseconds",
            Self::Messages => "messages",
        }
    }
}

/// A definition of an Information Element, without the number a private one is mapped to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Definition {
    /// Name.
    pub name: &'static str,
    /// Type.
    pub data_type: DataType,
    /// Semantics.
    pub semantics: Semantics,
    /// Unit.
    pub units: Units,
    /// Largest value, if it is less than the type has.
    pub max: Option<u64>,
    /// One sentence.
    pub description: &'static str,
}
