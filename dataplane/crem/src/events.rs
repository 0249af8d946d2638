//! What happened to flows and peers, for logs and status. Events inform; no decision hangs on them.

use core::net::SocketAddr;
use crem_wire::ConfigId;

use crate::memory::of_queue;
use crate::packet::StreamKey;
use crate::policy::LossClass;
use crate::time::Duration;

/// Why a flow is not protected. What an operator reads of it are [`Unprotected::name`] and
/// [`Unprotected::values`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unprotected {
    /// Too few packets seen so far.
    BelowThreshold {
        /// New source packets seen.
        seen: u32,
        /// New source packets that a flow has to show.
        needed: u32,
    },
    /// Waits for the HELLO pacing.
    HelloPacing,
    /// Busier flows use up the reports that the box can take (AMB-SCALE).
    ReportBudget,
    /// HELLO is on its way and not answered yet.
    NoHelloAck {
        /// HELLOs sent so far.
        sent: u8,
        /// HELLOs that are sent at most.
        of: u8,
    },
    /// The first configuration waits for its acknowledgment.
    AwaitingParameters,
    /// No peer is configured for its destination and interception is allowed to nobody.
    NoPeer,
    /// The peer does not answer HELLO for any flow.
    PeerDead,
    /// This flow's HELLOs were not answered although the peer answers others: it waits before the next
    /// try (AMB-REFUSE).
    NegativeCache,
    /// The peer does not answer HELLOs of this Flow Kind (AMB-READRESP).
    KindUnknown,
    /// The limits of both sides have no common ground (AMB-LIMITS).
    Limits,
    /// The symbol that the flow needs does not fit the path MTU (AMB-TMTU).
    Mtu {
        /// Path MTU the flow would need, octets.
        needed: u16,
        /// Path MTU there is, octets.
        available: u16,
    },
    /// Symbols of the length that the flow needs were found not to reach the peer, while sources do: the path
    /// carries less than the configured MTU says (AMB-TMTU).
    PathMtu {
        /// IP packet that such a message needs, octets.
        needed: u16,
        /// The longest IP packet of the flow's own of late, octets.
        carried: u16,
    },
    /// The peer did not acknowledge, or refused, the parameters.
    Parameters,
    /// The peer sent CLOSE with this reason.
    ClosedByPeer(u16),
    /// No LOSS_REPORT while packets flow: redundancy is off, a new HELLO is out (AMB-LRSEQ).
    NoReports,
    /// An equal (source, destination, QP) in another namespace is protected (AMB-TENANT).
    NamespaceConflict,
    /// Datagram service or another transport without one PSN sequence per flow (AMB-OPCODES).
    Datagram,
    /// Monitor mode: flows are watched and nothing is sent.
    Monitor,
    /// The RDMA MTU turned out to differ from the announced one.
    MtuChanged,
    /// The circuit breaker is open, or ended the binding (AMB-CBRETRY).
    Breaker,
    /// The QP was reused or the PSN jumped beyond 2^22 (AMB-QPREUSE).
    QpReuse,
    /// No packets for the idle time.
    Idle,
    /// The flow table was full and this flow the least recently used.
    TableFull,
    /// Passthrough mode or shutdown.
    Off,
}

impl Unprotected {
    /// The reason as documents name it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::BelowThreshold { .. } => "below_threshold",
            Self::HelloPacing => "hello_pacing",
            Self::ReportBudget => "report_budget",
            Self::NoHelloAck { .. } => "no_hello_ack",
            Self::AwaitingParameters => "awaiting_parameters",
            Self::NoPeer => "no_peer",
            Self::PeerDead => "peer_dead",
            Self::NegativeCache => "negative_cache",
            Self::KindUnknown => "kind_not_known",
            Self::Limits => "limits",
            Self::Mtu { .. } => "mtu",
            Self::PathMtu { .. } => "path_mtu",
            Self::Parameters => "parameters",
            Self::ClosedByPeer(_) => "closed_by_peer",
            Self::NoReports => "no_reports",
            Self::Breaker => "breaker",
            Self::NamespaceConflict => "second_namespace",
            Self::Datagram => "datagram",
            Self::Monitor => "monitor",
            Self::MtuChanged => "mtu_changed",
            Self::QpReuse => "qp_reuse",
            Self::Idle => "idle",
            Self::TableFull => "table_full",
            Self::Off => "off",
        }
    }

    /// The numbers that belong to the reason, by name.
    pub fn values(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let two = |first: (_, u64), second| (Some(first), Some(second));
        let (first, second) = match *self {
            Self::BelowThreshold { seen, needed } => two(
                ("packets_seen", seen.into()),
                ("packets_needed", needed.into()),
            ),
            Self::NoHelloAck { sent, of } => {
                two(("hello_sent", sent.into()), ("hello_of", of.into()))
            }
            Self::Mtu { needed, available } => two(
                ("path_mtu_needed", needed.into()),
                ("path_mtu", available.into()),
            ),
            Self::PathMtu { needed, carried } => two(
                ("path_mtu_needed", needed.into()),
                ("path_mtu_carried", carried.into()),
            ),
            Self::ClosedByPeer(reason) => (Some(("close_reason", reason.into())), None),
            _ => (None, None),
        };
        first.into_iter().chain(second)
    }
}

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The flow's first configuration took force.
    FlowProtected(StreamKey),
    /// Protection of the flow ended or failed to start.
    FlowUnprotected(StreamKey, Unprotected),
    /// A further configuration was acknowledged.
    ConfigChanged {
        /// Flow.
        stream: StreamKey,
        /// Its Config ID.
        config: ConfigId,
        /// k.
        k: u8,
        /// m.
        m: u8,
        /// T.
        t: u16,
    },
    /// The losses of the path to a peer are taken for something else from now on.
    LossClassified {
        /// The peer that flows are bound to.
        peer: SocketAddr,
        /// What they are taken for.
        class: LossClass,
    },
    /// The circuit breaker of a flow opened: no redundancy, no coded retransmission.
    BreakerOpened(StreamKey),
    /// It closed again.
    BreakerClosed(StreamKey),
    /// The circuit breaker of the path to this peer opened, for all its flows.
    PathBreakerOpened(SocketAddr),
    /// It closed again.
    PathBreakerClosed(SocketAddr),
    /// A host sends again before a repair can have arrived: its adapter's timeout is too short.
    RetransmittedEarly {
        /// Flow.
        stream: StreamKey,
        /// How long after the first copy the second one came.
        after: Duration,
        /// Timeout that the adapter should have at least.
        raise_to: Duration,
    },
    /// HELLOs to this address remain unanswered.
    PeerDead(SocketAddr),
    /// The peer answers again.
    PeerAlive(SocketAddr),
}

/// A bounded queue of events: when full the oldest is given up and counted.
#[derive(Clone, Debug, Default)]
pub struct EventQueue {
    queue: alloc::collections::VecDeque<Event>,
    bound: usize,
    /// Events given up because nobody polled.
    pub dropped: u64,
}

impl EventQueue {
    /// A queue of at most `bound` events, at least one.
    pub fn new(bound: u32) -> Self {
        Self {
            queue: alloc::collections::VecDeque::new(),
            bound: bound.max(1) as usize,
            dropped: 0,
        }
    }

    /// Adds an event.
    pub fn push(&mut self, event: Event) {
        if self.queue.len() >= self.bound {
            self.queue.pop_front();
            self.dropped += 1;
        }
        self.queue.push_back(event);
    }

    /// Octets of memory.
    pub(crate) fn octets(&self) -> usize {
        of_queue(&self.queue)
    }

    /// Takes the oldest event.
    pub fn pop(&mut self) -> Option<Event> {
        self.queue.pop_front()
    }
}
