//! What messages say, in the simulator's own types.

/// What a REPAIR is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Form {
    /// Ordinary symbol.
    Ordinary,
    /// Coded retransmission.
    Coded,
    /// Source Copy.
    Copy,
    /// Block information.
    Info,
}

/// A REPAIR without its symbol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Repair {
    pub(crate) form: Form,
    pub(crate) config: u8,
    pub(crate) scheme: u8,
    pub(crate) k: u8,
    pub(crate) index: u8,
    pub(crate) start: u32,
    pub(crate) session: u16,
    pub(crate) t: u16,
    pub(crate) present: Vec<u8>,
    pub(crate) lost: Vec<u8>,
}

/// What HELLO and HELLO_ACK have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offer {
    pub(crate) kind: u8,
    pub(crate) af: u8,
    pub(crate) schemes: u16,
    pub(crate) max_k: u8,
    pub(crate) max_m: u8,
    pub(crate) max_t: u16,
    pub(crate) mtu: u16,
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    Repair(Repair),
    Hello {
        offer: Offer,
        nonce: u64,
        source: Vec<u8>,
        destination: Vec<u8>,
        qp: u32,
    },
    HelloAck {
        offer: Offer,
        nonce: u64,
        max_open_blocks: u16,
    },
    ParamUpdate {
        config: u8,
        scheme: u8,
        k: u8,
        m: u8,
        t: u16,
        effective: u32,
    },
    ParamAck {
        config: u8,
        status: u8,
    },
    BlockRequest {
        fallback: bool,
        config: u8,
        scheme: u8,
        k: u8,
        held: u8,
        start: u32,
        suggested: u8,
        request: u16,
        lost: Vec<u8>,
    },
    RangeRequest {
        fallback: bool,
        request: u16,
        ranges: Vec<(u32, u8)>,
    },
    LossReport {
        interval_us: u32,
        expected: u32,
        received: u32,
        restored: u32,
        incomplete: u32,
        ce: u32,
        repairs: u32,
        repairs_ce: u32,
    },
    PathReport {
        method: u8,
        hops: u8,
        dropped: u32,
        truncated: bool,
    },
    Close {
        reason: u16,
    },
}

impl Seen {
    /// Whether it carries what a request for repair asked for.
    pub(crate) fn is_answer(&self) -> bool {
        let Self::Repair(repair) = self else {
            return false;
        };
        matches!(repair.form, Form::Coded | Form::Copy)
    }

    /// The name of its type, the two forms of requests apart.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Repair(repair) => match repair.form {
                Form::Ordinary => "REPAIR ordinary",
                Form::Coded => "REPAIR coded retransmission",
                Form::Copy => "REPAIR source copy",
                Form::Info => "REPAIR information",
            },
            Self::Hello { .. } => "HELLO",
            Self::HelloAck { .. } => "HELLO_ACK",
            Self::ParamUpdate { .. } => "PARAM_UPDATE",
            Self::ParamAck { .. } => "PARAM_ACK",
            Self::BlockRequest { .. } => "REPAIR_REQUEST block",
            Self::RangeRequest { .. } => "REPAIR_REQUEST ranges",
            Self::LossReport { .. } => "LOSS_REPORT",
            Self::PathReport { .. } => "PATH_REPORT",
            Self::Close { .. } => "CLOSE",
        }
    }
}
