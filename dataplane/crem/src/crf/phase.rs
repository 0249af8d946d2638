//! Where the recovery of a block or gap stands, as a table over (phase, event): first wait, two coded
//! rounds, fallback, left to the RDMA transport (CREM, Coded Retransmission and Fallback; AMB-ROUNDS,
//! AMB-FBCHOICE, AMB-ICRCFAIL). When an event occurs is decided elsewhere.

use crate::coverage;

/// The state of recovery.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Phase {
    /// Not asked yet: sources or ordinary symbols may still come.
    Watching,
    /// This many coded rounds have been asked for, 1 or more.
    Asked(u8),
    /// Copies were asked for, the last attempt.
    Copies,
    /// Copies were asked for after a decode failed its check; one repetition is left.
    Poisoned,
}

/// What happens to a recovery.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Event {
    /// The wait of this phase is over and something is still missing.
    Due,
    /// The answer was block information alone: the round does not count.
    InfoOnly,
    /// A decode failed its check although its sources are good.
    Corrupt,
    /// Something that was missing turned out to have been damaged on the way: more is missing now.
    MoreMissing,
}

#[cfg(feature = "coverage")]
impl Event {
    /// All events.
    pub(crate) const ALL: [Self; 4] = [Self::Due, Self::InfoOnly, Self::Corrupt, Self::MoreMissing];

    /// Why this event cannot meet `phase`; `None` if it can.
    pub(crate) const fn impossible_in(self, phase: Phase) -> Option<&'static str> {
        match (phase, self) {
            (Phase::Watching, Self::InfoOnly) => Some("nothing was asked for, so nothing answers"),
            _ => None,
        }
    }
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Act {
    /// Nothing.
    Nothing,
    /// Send a request for coded retransmission.
    Ask,
    /// Send a request with the FALLBACK flag.
    AskCopies,
    /// Give up: leave it to the RDMA transport.
    Leave,
}

/// What can be asked for in a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Means {
    /// Coded rounds allowed; zero if the scheme has no coded retransmission.
    pub(crate) rounds: u8,
    /// Scheme 0 is common and the operator allows the fallback.
    pub(crate) copies: bool,
}

impl Phase {
    /// The next phase and what to do, for every (phase, event).
    pub(crate) fn on(self, event: Event, means: Means) -> (Self, Act) {
        use Act::{AskCopies, Leave, Nothing};
        coverage::pair(coverage::Table::Recovery, self.row(), event as usize);
        match (self, event) {
            (Self::Watching, Event::Due) => Self::next_round(0, means),
            (Self::Watching, Event::InfoOnly) => (self, Nothing),
            (Self::Watching, Event::MoreMissing) => (self, Nothing),
            (Self::Asked(done), Event::Due) => Self::next_round(done, means),
            (Self::Asked(1), Event::InfoOnly) => (Self::Watching, Nothing),
            (Self::Asked(done), Event::InfoOnly) => (Self::Asked(done - 1), Nothing),
            (Self::Asked(_), Event::MoreMissing) => (self, Nothing),
            (Self::Watching | Self::Asked(_), Event::Corrupt) if means.copies => {
                (Self::Poisoned, AskCopies)
            }
            (Self::Watching | Self::Asked(_), Event::Corrupt) => (self, Leave),
            (Self::Copies, Event::Due | Event::Corrupt) => (self, Leave),
            (Self::Copies, Event::InfoOnly | Event::MoreMissing) => (self, Nothing),
            (Self::Poisoned, Event::Due) => (Self::Copies, AskCopies),
            (Self::Poisoned, Event::Corrupt) => (self, Leave),
            (Self::Poisoned, Event::InfoOnly | Event::MoreMissing) => (self, Nothing),
        }
    }

    /// Its row in the table; rounds beyond the second stand with the second.
    const fn row(self) -> usize {
        match self {
            Self::Watching => 0,
            Self::Asked(1) => 1,
            Self::Asked(_) => 2,
            Self::Copies => 3,
            Self::Poisoned => 4,
        }
    }

    const fn next_round(done: u8, means: Means) -> (Self, Act) {
        if done < means.rounds {
            (Self::Asked(done + 1), Act::Ask)
        } else if means.copies {
            (Self::Copies, Act::AskCopies)
        } else {
            (Self::Copies, Act::Leave)
        }
    }

    /// Whether a request is out.
    pub(crate) const fn is_asked(self) -> bool {
        !matches!(self, Self::Watching)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every (phase, event) pair with every set of means, as it is meant.
    #[test]
    fn table_is_complete() {
        use Act::{Ask, AskCopies, Leave, Nothing};
        use Event::{Corrupt, Due, InfoOnly, MoreMissing};
        use Phase::{Asked, Copies, Poisoned, Watching};
        let full = Means {
            rounds: 2,
            copies: true,
        };
        let coded = Means {
            copies: false,
            ..full
        };
        let plain = Means { rounds: 0, ..full };
        let none = Means {
            rounds: 0,
            copies: false,
        };
        let table = [
            (Watching, Due, full, Asked(1), Ask),
            (Watching, Due, coded, Asked(1), Ask),
            (Watching, Due, plain, Copies, AskCopies),
            (Watching, Due, none, Copies, Leave),
            (Asked(1), Due, full, Asked(2), Ask),
            (Asked(1), Due, coded, Asked(2), Ask),
            (Asked(1), Due, plain, Copies, AskCopies),
            (Asked(1), Due, none, Copies, Leave),
            (Asked(2), Due, full, Copies, AskCopies),
            (Asked(2), Due, coded, Copies, Leave),
            (Asked(2), Due, plain, Copies, AskCopies),
            (Asked(2), Due, none, Copies, Leave),
        ];
        for (phase, event, means, next, act) in table {
            assert_eq!(
                phase.on(event, means),
                (next, act),
                "{phase:?} {event:?} {means:?}"
            );
        }
        for means in [full, coded, plain, none] {
            let by_means = [
                (Copies, Due, Copies, Leave),
                (Poisoned, Due, Copies, AskCopies),
                (Watching, InfoOnly, Watching, Nothing),
                (Asked(1), InfoOnly, Watching, Nothing),
                (Asked(2), InfoOnly, Asked(1), Nothing),
                (Copies, InfoOnly, Copies, Nothing),
                (Poisoned, InfoOnly, Poisoned, Nothing),
                (Copies, Corrupt, Copies, Leave),
                (Poisoned, Corrupt, Poisoned, Leave),
                (Watching, MoreMissing, Watching, Nothing),
                (Asked(1), MoreMissing, Asked(1), Nothing),
                (Asked(2), MoreMissing, Asked(2), Nothing),
                (Copies, MoreMissing, Copies, Nothing),
                (Poisoned, MoreMissing, Poisoned, Nothing),
            ];
            for (phase, event, next, act) in by_means {
                assert_eq!(phase.on(event, means), (next, act), "{phase:?} {event:?}");
            }
            for phase in [Watching, Asked(1), Asked(2)] {
                let expected = if means.copies {
                    (Poisoned, AskCopies)
                } else {
                    (phase, Leave)
                };
                assert_eq!(phase.on(Corrupt, means), expected);
            }
        }
    }

    /// From every phase, waiting alone ends with leaving within rounds + 2 steps.
    #[test]
    fn effort_is_bounded() {
        for rounds in 0..4 {
            for copies in [false, true] {
                let means = Means { rounds, copies };
                let mut phase = Phase::Watching;
                let mut requests = 0;
                loop {
                    let (next, act) = phase.on(Event::Due, means);
                    phase = next;
                    match act {
                        Act::Leave => break,
                        _ => requests += 1,
                    }
                }
                assert_eq!(requests, rounds + u8::from(copies));
            }
        }
    }
}
