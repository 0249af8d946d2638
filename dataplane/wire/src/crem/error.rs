//! Why a CREM datagram is discarded.

use core::fmt;

/// Why a datagram is discarded; one counter each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ParseError {
    /// Shorter than the common header.
    Short,
    /// Unknown Version.
    Version,
    /// Unknown Type.
    Type,
    /// Length differs from the datagram or from what the fields imply (AMB-LENGTH).
    Length,
    /// Flow ID zero where one is assigned, or another value in HELLO and PATH_REPORT (AMB-FLOWID0).
    FlowId,
    /// Flags that contradict each other, the scheme or the Symbol Length (AMB-INFO, AMB-COPY).
    Flags,
    /// Unknown FEC scheme.
    Scheme,
    /// k is zero.
    BlockLength,
    /// A Repair Index outside its scheme's range (AMB-KM, AMB-COPY).
    Index,
    /// A Repair Session ID or Request ID that is zero where it must not be, or the reverse
    /// (AMB-REQID0).
    Session,
    /// Symbol Length zero without INFO.
    SymbolLength,
    /// A bit at or beyond k, an empty set, or a lost position that is absent (AMB-BITPAD, AMB-EMPTY).
    Bitmap,
    /// AF is neither 4 nor 6.
    AddressFamily,
    /// Flow Kind zero.
    FlowKind,
    /// A count that is zero or too large (AMB-RANGE, AMB-METHOD).
    Count,
    /// Unknown measurement method (AMB-METHOD).
    Method,
}

impl ParseError {
    /// Every reason, in the order of [`ParseError::index`].
    pub const ALL: [Self; 16] = [
        Self::Short,
        Self::Version,
        Self::Type,
        Self::Length,
        Self::FlowId,
        Self::Flags,
        Self::Scheme,
        Self::BlockLength,
        Self::Index,
        Self::Session,
        Self::SymbolLength,
        Self::Bitmap,
        Self::AddressFamily,
        Self::FlowKind,
        Self::Count,
        Self::Method,
    ];

    /// Position in [`ParseError::ALL`], for an array of counters.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// A short stable name, as counters use it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Version => "version",
            Self::Type => "type",
            Self::Length => "length",
            Self::FlowId => "flow_id",
            Self::Flags => "flags",
            Self::Scheme => "scheme",
            Self::BlockLength => "k",
            Self::Index => "index",
            Self::Session => "session",
            Self::SymbolLength => "symbol_length",
            Self::Bitmap => "bitmap",
            Self::AddressFamily => "af",
            Self::FlowKind => "flow_kind",
            Self::Count => "count",
            Self::Method => "method",
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CREM message discarded: {}", self.name())
    }
}

impl core::error::Error for ParseError {}
