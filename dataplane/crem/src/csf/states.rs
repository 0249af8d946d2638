//! The negotiation of one flow as a table: for every state and every input the next state and what has
//! to be done. Nothing is done here.

/// Where a flow stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// Too few packets so far.
    Observing,
    /// Waits for the HELLO pacing, or for a dead peer.
    Queued,
    /// HELLO is out.
    Hello,
    /// Bound; the first configuration is out.
    Params,
    /// A configuration is acknowledged.
    Active,
    /// Bound, but no reports come: redundancy is off, a new HELLO waits for its turn.
    SilentQueued,
    /// As before, and the new HELLO is out.
    SilentHello,
    /// Refused or closed; tries again later.
    HeldOff,
}

/// What can happen to a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Input {
    /// It has shown enough new packets.
    Threshold,
    /// Pacing and peer allow a HELLO.
    Grant,
    /// A HELLO_ACK with usable limits.
    Ack,
    /// A HELLO_ACK with limits of no use.
    AckUnusable,
    /// Eight HELLOs unanswered, and the peer answers nobody.
    NoAnswer,
    /// Eight HELLOs unanswered, but the peer answers others.
    Refused,
    /// PARAM_ACK: accepted.
    Accepted,
    /// PARAM_ACK: refused for size or resources; a smaller one was not yet tried.
    TooLarge,
    /// PARAM_ACK: refused otherwise, or again.
    Rejected,
    /// Eight PARAM_UPDATEs unanswered.
    NoParamAck,
    /// No report for too long while packets flow.
    Silence,
    /// A report.
    Report,
    /// Silent for so long that the binding is given up.
    SilenceOver,
    /// Busier flows need its place in the report budget.
    Displaced,
    /// What the flow carries cannot be protected, or must not be for a while.
    GiveUp,
    /// CLOSE from the peer.
    PeerClose,
    /// QP reused, PSN jumped, or the RDMA MTU is another.
    Reset,
    /// No packets for the idle time.
    Idle,
    /// The wait of `HeldOff` is over and packets come.
    RetryDue,
    /// Shutdown, passthrough, or evicted.
    Off,
    /// The circuit breaker gave up (AMB-CBRESUME).
    BreakerOver,
}

#[cfg(feature = "coverage")]
impl Input {
    /// All inputs, in the order of the table's columns.
    pub(crate) const ALL: [Self; 21] = [
        Self::Threshold,
        Self::Grant,
        Self::Ack,
        Self::AckUnusable,
        Self::NoAnswer,
        Self::Refused,
        Self::Accepted,
        Self::TooLarge,
        Self::Rejected,
        Self::NoParamAck,
        Self::Silence,
        Self::Report,
        Self::SilenceOver,
        Self::Displaced,
        Self::GiveUp,
        Self::PeerClose,
        Self::Reset,
        Self::Idle,
        Self::RetryDue,
        Self::Off,
        Self::BreakerOver,
    ];

    /// The states that this input meets, and why it meets no other; `None` where it meets all.
    const fn meets(self) -> Option<(&'static [State], &'static str)> {
        use State::{Active, HeldOff, Hello, Observing, Params, Queued, SilentHello, SilentQueued};
        Some(match self {
            Self::Threshold => (
                &[Observing],
                "packets are counted toward the threshold only while a flow is observed",
            ),
            Self::Grant => (
                &[Queued, SilentQueued],
                "only a flow that waits for HELLO is granted one",
            ),
            Self::Ack | Self::AckUnusable | Self::NoAnswer | Self::Refused => (
                &[Hello, SilentHello],
                "an answer is found by the nonce of a HELLO that is out, and its timer ends with it",
            ),
            Self::Accepted | Self::TooLarge | Self::Rejected => (
                &[Params, Active],
                "only what is announced is answered, and silence withdraws it",
            ),
            Self::NoParamAck => (
                &[Params, Active],
                "the timer of PARAM_UPDATE runs in these states only",
            ),
            Self::Silence | Self::GiveUp | Self::BreakerOver => (
                &[Active],
                "reports, configuration and breaker are watched only while a flow is active",
            ),
            Self::Report | Self::PeerClose => (
                &[Params, Active, SilentQueued, SilentHello],
                "the message is matched by the Flow ID of a binding",
            ),
            Self::SilenceOver => (
                &[SilentQueued, SilentHello],
                "only a silent binding is given up for silence",
            ),
            Self::Displaced => (
                &[Hello, Params, Active, SilentQueued, SilentHello],
                "only what has a place in the report budget loses it",
            ),
            Self::RetryDue => (&[HeldOff], "only a flow that is held off waits to retry"),
            Self::Reset | Self::Idle | Self::Off => return None,
        })
    }

    /// Why this input cannot meet `state`; `None` if it can.
    pub(crate) fn impossible_in(self, state: State) -> Option<&'static str> {
        let (states, why) = self.meets()?;
        (!states.contains(&state)).then_some(why)
    }
}

/// What has to be done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Effect {
    /// Nothing.
    Ignore,
    /// Take the place in the queue for HELLO.
    Enqueue,
    /// Send the first HELLO with a new nonce.
    SendHello,
    /// Bind the answer (in place of an older binding) and send the first PARAM_UPDATE.
    Bind,
    /// Release the binding just offered with CLOSE 0, and an older one; wait before the next try.
    CloseOffer,
    /// Note that this HELLO failed.
    HelloFailed,
    /// The first configuration may be used.
    Activate,
    /// A further configuration may be used.
    Switch,
    /// Try the first configuration once smaller.
    Smaller,
    /// Forget the refused configuration, keep the current one.
    KeepParams,
    /// CLOSE with the reason that goes with it; wait before the next try.
    CloseParams,
    /// CLOSE 4; wait for long before the next try.
    CloseBreaker,
    /// Stop redundancy and retransmission.
    GoSilent,
    /// Reports are back: go on with the old binding.
    Resume,
    /// CLOSE 0 for the binding; another HELLO may follow.
    Release,
    /// Drop the binding; wait before the next try.
    DropBinding,
    /// CLOSE where bound, forget what was learned, start over.
    Restart,
    /// CLOSE where bound, forget the flow.
    Remove,
}

impl State {
    /// All states, in the order of the table's rows.
    pub const ALL: [Self; 8] = [
        Self::Observing,
        Self::Queued,
        Self::Hello,
        Self::Params,
        Self::Active,
        Self::SilentQueued,
        Self::SilentHello,
        Self::HeldOff,
    ];

    /// Whether a HELLO waits for its answer.
    pub(super) const fn hello_out(self) -> bool {
        matches!(self, Self::Hello | Self::SilentHello)
    }

    /// Whether the flow is bound to a Flow ID.
    pub(super) const fn is_bound(self) -> bool {
        matches!(
            self,
            Self::Params | Self::Active | Self::SilentQueued | Self::SilentHello
        )
    }
}

type Row = [(State, Effect); 21];

/// Rows in the order of [`State::ALL`], columns in the order of [`Input`].
#[rustfmt::skip]
const TABLE: [Row; 8] = {
    use Effect::{
        Activate, Bind, CloseBreaker, CloseOffer, CloseParams, DropBinding, Enqueue, GoSilent,
        HelloFailed, Ignore, KeepParams, Release, Remove, Restart, Resume, SendHello, Smaller, Switch,
    };
    use State::{Active, HeldOff, Hello, Observing, Params, Queued, SilentHello, SilentQueued};
    [
        // Observing
        [
            /* Threshold   */ (Queued, Enqueue),
            /* Grant       */ (Observing, Ignore),
            /* Ack         */ (Observing, Ignore),
            /* AckUnusable */ (Observing, Ignore),
            /* NoAnswer    */ (Observing, Ignore),
            /* Refused     */ (Observing, Ignore),
            /* Accepted    */ (Observing, Ignore),
            /* TooLarge    */ (Observing, Ignore),
            /* Rejected    */ (Observing, Ignore),
            /* NoParamAck  */ (Observing, Ignore),
            /* Silence     */ (Observing, Ignore),
            /* Report      */ (Observing, Ignore),
            /* SilenceOver */ (Observing, Ignore),
            /* Displaced   */ (Observing, Ignore),
            /* GiveUp      */ (Observing, Ignore),
            /* PeerClose   */ (Observing, Ignore),
            /* Reset       */ (Observing, Restart),
            /* Idle        */ (Observing, Remove),
            /* RetryDue    */ (Observing, Ignore),
            /* Off         */ (Observing, Remove),
            /* BreakerOver */ (Observing, Ignore),
        ],
        // Queued
        [
            /* Threshold   */ (Queued, Ignore),
            /* Grant       */ (Hello, SendHello),
            /* Ack         */ (Queued, Ignore),
            /* AckUnusable */ (Queued, Ignore),
            /* NoAnswer    */ (Queued, Ignore),
            /* Refused     */ (Queued, Ignore),
            /* Accepted    */ (Queued, Ignore),
            /* TooLarge    */ (Queued, Ignore),
            /* Rejected    */ (Queued, Ignore),
            /* NoParamAck  */ (Queued, Ignore),
            /* Silence     */ (Queued, Ignore),
            /* Report      */ (Queued, Ignore),
            /* SilenceOver */ (Queued, Ignore),
            /* Displaced   */ (Queued, Ignore),
            /* GiveUp      */ (Queued, Ignore),
            /* PeerClose   */ (Queued, Ignore),
            /* Reset       */ (Observing, Restart),
            /* Idle        */ (Observing, Remove),
            /* RetryDue    */ (Queued, Ignore),
            /* Off         */ (Observing, Remove),
            /* BreakerOver */ (Queued, Ignore),
        ],
        // Hello
        [
            /* Threshold   */ (Hello, Ignore),
            /* Grant       */ (Hello, Ignore),
            /* Ack         */ (Params, Bind),
            /* AckUnusable */ (HeldOff, CloseOffer),
            /* NoAnswer    */ (Queued, HelloFailed),
            /* Refused     */ (HeldOff, HelloFailed),
            /* Accepted    */ (Hello, Ignore),
            /* TooLarge    */ (Hello, Ignore),
            /* Rejected    */ (Hello, Ignore),
            /* NoParamAck  */ (Hello, Ignore),
            /* Silence     */ (Hello, Ignore),
            /* Report      */ (Hello, Ignore),
            /* SilenceOver */ (Hello, Ignore),
            /* Displaced   */ (Hello, Ignore),
            /* GiveUp      */ (Hello, Ignore),
            /* PeerClose   */ (Hello, Ignore),
            /* Reset       */ (Observing, Restart),
            /* Idle        */ (Observing, Remove),
            /* RetryDue    */ (Hello, Ignore),
            /* Off         */ (Observing, Remove),
            /* BreakerOver */ (Hello, Ignore),
        ],
        // Params
        [
            /* Threshold   */ (Params, Ignore),
            /* Grant       */ (Params, Ignore),
            /* Ack         */ (Params, Ignore),
            /* AckUnusable */ (Params, Ignore),
            /* NoAnswer    */ (Params, Ignore),
            /* Refused     */ (Params, Ignore),
            /* Accepted    */ (Active, Activate),
            /* TooLarge    */ (Params, Smaller),
            /* Rejected    */ (HeldOff, CloseParams),
            /* NoParamAck  */ (HeldOff, CloseParams),
            /* Silence     */ (Params, Ignore),
            /* Report      */ (Params, Ignore),
            /* SilenceOver */ (Params, Ignore),
            /* Displaced   */ (Queued, Release),
            /* GiveUp      */ (Params, Ignore),
            /* PeerClose   */ (HeldOff, DropBinding),
            /* Reset       */ (Observing, Restart),
            /* Idle        */ (Observing, Remove),
            /* RetryDue    */ (Params, Ignore),
            /* Off         */ (Observing, Remove),
            /* BreakerOver */ (Params, Ignore),
        ],
        // Active
        [
            /* Threshold   */ (Active, Ignore),
            /* Grant       */ (Active, Ignore),
            /* Ack         */ (Active, Ignore),
            /* AckUnusable */ (Active, Ignore),
            /* NoAnswer    */ (Active, Ignore),
            /* Refused     */ (Active, Ignore),
            /* Accepted    */ (Active, Switch),
            /* TooLarge    */ (Active, KeepParams),
            /* Rejected    */ (Active, KeepParams),
            /* NoParamAck  */ (HeldOff, CloseParams),
            /* Silence     */ (SilentQueued, GoSilent),
            /* Report      */ (Active, Ignore),
            /* SilenceOver */ (Active, Ignore),
            /* Displaced   */ (Queued, Release),
            /* GiveUp      */ (HeldOff, CloseParams),
            /* PeerClose   */ (HeldOff, DropBinding),
            /* Reset       */ (Observing, Restart),
            /* Idle        */ (Observing, Remove),
            /* RetryDue    */ (Active, Ignore),
            /* Off         */ (Observing, Remove),
            /* BreakerOver */ (HeldOff, CloseBreaker),
        ],
        // SilentQueued
        [
            /* Threshold   */ (SilentQueued, Ignore),
            /* Grant       */ (SilentHello, SendHello),
            /* Ack         */ (SilentQueued, Ignore),
            /* AckUnusable */ (SilentQueued, Ignore),
            /* NoAnswer    */ (SilentQueued, Ignore),
            /* Refused     */ (SilentQueued, Ignore),
            /* Accepted    */ (SilentQueued, Ignore),
            /* TooLarge    */ (SilentQueued, Ignore),
            /* Rejected    */ (SilentQueued, Ignore),
            /* NoParamAck  */ (SilentQueued, Ignore),
            /* Silence     */ (SilentQueued, Ignore),
            /* Report      */ (Active, Resume),
            /* SilenceOver */ (Queued, Release),
            /* Displaced   */ (Queued, Release),
            /* GiveUp      */ (SilentQueued, Ignore),
            /* PeerClose   */ (HeldOff, DropBinding),
            /* Reset       */ (Observing, Restart),
            /* Idle        */ (Observing, Remove),
            /* RetryDue    */ (SilentQueued, Ignore),
            /* Off         */ (Observing, Remove),
            /* BreakerOver */ (SilentQueued, Ignore),
        ],
        // SilentHello
        [
            /* Threshold   */ (SilentHello, Ignore),
            /* Grant       */ (SilentHello, Ignore),
            /* Ack         */ (Params, Bind),
            /* AckUnusable */ (HeldOff, CloseOffer),
            /* NoAnswer    */ (SilentQueued, HelloFailed),
            /* Refused     */ (SilentQueued, HelloFailed),
            /* Accepted    */ (SilentHello, Ignore),
            /* TooLarge    */ (SilentHello, Ignore),
            /* Rejected    */ (SilentHello, Ignore),
            /* NoParamAck  */ (SilentHello, Ignore),
            /* Silence     */ (SilentHello, Ignore),
            /* Report      */ (Active, Resume),
            /* SilenceOver */ (Hello, Release),
            /* Displaced   */ (SilentHello, Ignore),
            /* GiveUp      */ (SilentHello, Ignore),
            /* PeerClose   */ (Hello, DropBinding),
            /* Reset       */ (Observing, Restart),
            /* Idle        */ (Observing, Remove),
            /* RetryDue    */ (SilentHello, Ignore),
            /* Off         */ (Observing, Remove),
            /* BreakerOver */ (SilentHello, Ignore),
        ],
        // HeldOff
        [
            /* Threshold   */ (HeldOff, Ignore),
            /* Grant       */ (HeldOff, Ignore),
            /* Ack         */ (HeldOff, Ignore),
            /* AckUnusable */ (HeldOff, Ignore),
            /* NoAnswer    */ (HeldOff, Ignore),
            /* Refused     */ (HeldOff, Ignore),
            /* Accepted    */ (HeldOff, Ignore),
            /* TooLarge    */ (HeldOff, Ignore),
            /* Rejected    */ (HeldOff, Ignore),
            /* NoParamAck  */ (HeldOff, Ignore),
            /* Silence     */ (HeldOff, Ignore),
            /* Report      */ (HeldOff, Ignore),
            /* SilenceOver */ (HeldOff, Ignore),
            /* Displaced   */ (HeldOff, Ignore),
            /* GiveUp      */ (HeldOff, Ignore),
            /* PeerClose   */ (HeldOff, Ignore),
            /* Reset       */ (HeldOff, Ignore),
            /* Idle        */ (Observing, Remove),
            /* RetryDue    */ (Queued, Enqueue),
            /* Off         */ (Observing, Remove),
            /* BreakerOver */ (HeldOff, Ignore),
        ],
    ]
};

/// Next state and effect of `input` in `state`.
pub(super) const fn transition(state: State, input: Input) -> (State, Effect) {
    TABLE[state as usize][input as usize]
}

#[cfg(all(test, feature = "coverage"))]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_occur_does_nothing() {
        for (row, state) in State::ALL.into_iter().enumerate() {
            assert_eq!(state as usize, row);
            for (column, input) in Input::ALL.into_iter().enumerate() {
                assert_eq!(input as usize, column);
                if input.impossible_in(state).is_some() {
                    assert_eq!(
                        transition(state, input),
                        (state, Effect::Ignore),
                        "{state:?} {input:?}"
                    );
                }
            }
        }
    }
}
