//! The numbers of the CREM registries: message types, flags, schemes, flow kinds, status codes,
//! reasons, methods, causes (CREM, IANA Considerations). Only numbers; what they mean for a message
//! is in `parse.rs`, what follows from them is decided elsewhere.

/// The only defined Version.
pub const VERSION: u8 = 1;
/// Octets of the common header: version and type, flags, Length, Flow ID.
pub const COMMON_HEADER_LEN: usize = 8;
/// Octets of a REPAIR message before its bitmaps, common header included.
pub const REPAIR_FIXED_LEN: usize = 20;
/// Octets of HELLO_ACK.
pub const HELLO_ACK_LEN: usize = 32;
/// Largest Entry Count of PATH_REPORT.
pub const MAX_HOPS: usize = 16;

/// Flags octet, by message type.
pub mod flags {
    /// REPAIR: coded retransmission, the Lost Source Bitmap is present.
    pub const REPAIR_RETX: u8 = 0x80;
    /// REPAIR: last symbol of this block in this round.
    pub const REPAIR_LAST: u8 = 0x40;
    /// REPAIR: block information only.
    pub const REPAIR_INFO: u8 = 0x20;
    /// REPAIR_REQUEST: asks for Source Copy symbols.
    pub const REQUEST_FALLBACK: u8 = 0x20;
    /// REPAIR_REQUEST: the PSN-range form.
    pub const REQUEST_RANGES: u8 = 0x10;
    /// PATH_REPORT: lists of dropped PSNs are cut.
    pub const PATH_TRUNCATED: u8 = 0x80;
}

macro_rules! registry {
    ($(#[$meta:meta])* $name:ident: $int:ty { $($(#[$vmeta:meta])* $variant:ident = $code:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum $name {
            $($(#[$vmeta])* $variant,)+
        }

        impl $name {
            /// Every registered value, ascending.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The number on the wire.
            pub const fn code(self) -> $int {
                match self {
                    $(Self::$variant => $code,)+
                }
            }

            /// The registered value with this number, if there is one.
            pub const fn from_code(code: $int) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

registry! {
    /// CREM Message Types (4 bits).
    MessageType: u8 {
        /// A repair symbol, or block information.
        Repair = 1,
        /// Offer to protect a flow.
        Hello = 2,
        /// Acceptance of the offer.
        HelloAck = 3,
        /// A new configuration.
        ParamUpdate = 4,
        /// Answer to a configuration.
        ParamAck = 5,
        /// Request for a coded retransmission or for copies.
        RepairRequest = 6,
        /// Receiver statistics.
        LossReport = 7,
        /// Report of an on-path node.
        PathReport = 8,
        /// Release of a flow.
        Close = 9,
    }
}

registry! {
    /// CREM FEC Schemes.
    Scheme: u8 {
        /// The source symbol itself.
        SourceCopy = 0,
        /// Cauchy Reed-Solomon over GF(2^8).
        CauchyRs = 1,
        /// One parity symbol.
        Xor = 2,
    }
}

impl Scheme {
    /// This scheme's bit in a Supported Schemes bitmap.
    pub const fn bit(self) -> u16 {
        1 << self.code()
    }
}

registry! {
    /// CREM Flow Kinds, and the private one for response streams (AMB-READRESP).
    FlowKind: u8 {
        /// RoCEv2 requests of one connection in one direction.
        RoceV2 = 1,
        /// READ and atomic responses, with the PSNs of the requests they answer; private use.
        RoceV2Responses = 0xc1,
    }
}

registry! {
    /// CREM PARAM_ACK Status Codes; an unknown non-zero code is a refusal too (AMB-STATUS).
    ParamStatus: u8 {
        /// The configuration may be used.
        Accepted = 0,
        /// Scheme unknown, not common, or no block code.
        UnsupportedScheme = 1,
        /// k, m or T is out of limits.
        LimitsExceeded = 2,
        /// No memory to decode it.
        ResourcesExhausted = 3,
    }
}

registry! {
    /// CREM CLOSE Reasons; an unknown one acts like 0 (AMB-CLOSE).
    CloseReason: u16 {
        /// Normal termination.
        Normal = 0,
        /// The flow ended.
        FlowEnded = 1,
        /// Parameter synchronization failed.
        SyncFailed = 2,
        /// Resources exhausted.
        ResourcesExhausted = 3,
        /// The circuit breaker was open for too long.
        CircuitBreaker = 4,
    }
}

registry! {
    /// CREM Measurement Methods.
    Method: u8 {
        /// Alternate Marking.
        AlternateMarking = 1,
        /// Clustered Alternate Marking.
        ClusteredAlternateMarking = 2,
        /// The node counted its own drops.
        NodeLocal = 3,
    }
}

registry! {
    /// CREM Loss Causes; read an octet with [`LossCause::of`].
    LossCause: u8 {
        /// Not known.
        Unknown = 0,
        /// A queue was full: congestion.
        QueueOverflow = 1,
        /// Damaged on the link.
        TransmissionError = 2,
    }
}

impl LossCause {
    /// The cause that an octet stands for; an unregistered one is [`LossCause::Unknown`]
    /// (AMB-METHOD).
    pub const fn of(octet: u8) -> Self {
        match Self::from_code(octet) {
            Some(cause) => cause,
            None => Self::Unknown,
        }
    }
}
