//! What a message or silence means for the binding of a flow, as a table over (state, event) (CREM,
//! Capability Negotiation and CLOSE; AMB-HELLODUP, AMB-HELLONEW, AMB-CLOSE). Carrying it out is done
//! elsewhere.

use crate::coverage;

/// The state of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Life {
    /// No Flow ID is assigned.
    Unknown,
    /// Flow IDs were offered, none sent a PARAM_UPDATE that was accepted.
    Offered,
    /// A Flow ID is bound.
    Bound,
    /// A Flow ID is bound, and others were offered to the same CSF.
    Rebinding,
}

/// What happens to a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum LifeEvent {
    /// HELLO with the CSF, nonce and descriptor of a Flow ID that is assigned.
    HelloAgain,
    /// HELLO with a new nonce.
    HelloNew,
    /// HELLO with a new nonce, from another address than the bound CSF's.
    HelloStranger,
    /// PARAM_UPDATE with the bound Flow ID.
    UpdateBound,
    /// PARAM_UPDATE with an offered Flow ID.
    UpdateOffered,
    /// CLOSE of the bound Flow ID.
    CloseBound,
    /// CLOSE of an offered Flow ID.
    CloseOffered,
    /// Nothing was heard for the idle time.
    Idle,
}

#[cfg(feature = "coverage")]
impl Life {
    /// All states.
    pub(crate) const ALL: [Self; 4] = [Self::Unknown, Self::Offered, Self::Bound, Self::Rebinding];
}

#[cfg(feature = "coverage")]
impl LifeEvent {
    /// All events.
    pub(crate) const ALL: [Self; 8] = [
        Self::HelloAgain,
        Self::HelloNew,
        Self::HelloStranger,
        Self::UpdateBound,
        Self::UpdateOffered,
        Self::CloseBound,
        Self::CloseOffered,
        Self::Idle,
    ];

    /// Why this event cannot meet `life`; `None` if it can.
    pub(crate) const fn impossible_in(self, life: Life) -> Option<&'static str> {
        match (life, self) {
            (Life::Unknown, Self::HelloNew) => None,
            (Life::Unknown, _) => Some("no Flow ID is assigned that a message could name"),
            (Life::Offered, Self::UpdateBound | Self::CloseBound) => Some("nothing is bound"),
            (Life::Offered, Self::HelloStranger) => {
                Some("nothing is bound, so nobody is a stranger")
            }
            (Life::Bound, Self::UpdateOffered | Self::CloseOffered) => Some("nothing is offered"),
            _ => None,
        }
    }
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum LifeAct {
    /// Nothing.
    Ignore,
    /// Assign another Flow ID and answer.
    Offer,
    /// Answer as before.
    AnswerAgain,
    /// Take the parameters and answer.
    Configure,
    /// Take the parameters; if they are accepted this Flow ID is bound and a bound one ends.
    Bind,
    /// End the binding; offers stay.
    Unbind,
    /// Withdraw the offer.
    Withdraw,
    /// End everything.
    Drop,
}

impl Life {
    /// What to do, for every (state, event). Pairs that cannot occur are ignored.
    pub(crate) fn on(self, event: LifeEvent) -> LifeAct {
        use LifeEvent as E;
        coverage::pair(coverage::Table::Life, self as usize, event as usize);
        match (self, event) {
            (Self::Unknown, E::HelloNew) => LifeAct::Offer,
            (
                Self::Unknown,
                E::HelloAgain
                | E::HelloStranger
                | E::UpdateBound
                | E::UpdateOffered
                | E::CloseBound
                | E::CloseOffered
                | E::Idle,
            ) => LifeAct::Ignore,
            // Nothing is bound yet, so nobody is a stranger.
            (Self::Offered, E::HelloNew | E::HelloStranger) => LifeAct::Offer,
            (Self::Offered, E::HelloAgain) => LifeAct::AnswerAgain,
            (Self::Offered, E::UpdateOffered) => LifeAct::Bind,
            (Self::Offered, E::UpdateBound | E::CloseBound) => LifeAct::Ignore,
            (Self::Offered, E::CloseOffered) => LifeAct::Withdraw,
            (Self::Offered, E::Idle) => LifeAct::Drop,
            (Self::Bound | Self::Rebinding, E::HelloNew) => LifeAct::Offer,
            (Self::Bound | Self::Rebinding, E::HelloAgain) => LifeAct::AnswerAgain,
            (Self::Bound | Self::Rebinding, E::HelloStranger) => LifeAct::Ignore,
            (Self::Bound | Self::Rebinding, E::UpdateBound) => LifeAct::Configure,
            (Self::Bound, E::UpdateOffered | E::CloseOffered) => LifeAct::Ignore,
            (Self::Rebinding, E::UpdateOffered) => LifeAct::Bind,
            (Self::Rebinding, E::CloseOffered) => LifeAct::Withdraw,
            (Self::Bound | Self::Rebinding, E::CloseBound) => LifeAct::Unbind,
            (Self::Bound | Self::Rebinding, E::Idle) => LifeAct::Drop,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_complete() {
        use LifeAct::*;
        let events = [
            LifeEvent::HelloAgain,
            LifeEvent::HelloNew,
            LifeEvent::HelloStranger,
            LifeEvent::UpdateBound,
            LifeEvent::UpdateOffered,
            LifeEvent::CloseBound,
            LifeEvent::CloseOffered,
            LifeEvent::Idle,
        ];
        let table = [
            (
                Life::Unknown,
                [
                    Ignore, Offer, Ignore, Ignore, Ignore, Ignore, Ignore, Ignore,
                ],
            ),
            (
                Life::Offered,
                [
                    AnswerAgain,
                    Offer,
                    Offer,
                    Ignore,
                    Bind,
                    Ignore,
                    Withdraw,
                    Drop,
                ],
            ),
            (
                Life::Bound,
                [
                    AnswerAgain,
                    Offer,
                    Ignore,
                    Configure,
                    Ignore,
                    Unbind,
                    Ignore,
                    Drop,
                ],
            ),
            (
                Life::Rebinding,
                [
                    AnswerAgain,
                    Offer,
                    Ignore,
                    Configure,
                    Bind,
                    Unbind,
                    Withdraw,
                    Drop,
                ],
            ),
        ];
        for (life, acts) in table {
            for (event, act) in events.into_iter().zip(acts) {
                assert_eq!(life.on(event), act, "{life:?} {event:?}");
            }
        }
    }
}
