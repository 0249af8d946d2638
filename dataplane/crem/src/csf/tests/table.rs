//! The negotiation table: every pair of state and input against a second, compact writing of it, and the
//! properties that it must have whatever is changed in it.

use alloc::vec::Vec;

use crate::csf::states::{Effect, Input, State, transition};

const INPUTS: [Input; 21] = [
    Input::Threshold,
    Input::Grant,
    Input::Ack,
    Input::AckUnusable,
    Input::NoAnswer,
    Input::Refused,
    Input::Accepted,
    Input::TooLarge,
    Input::Rejected,
    Input::NoParamAck,
    Input::Silence,
    Input::Report,
    Input::SilenceOver,
    Input::Displaced,
    Input::GiveUp,
    Input::PeerClose,
    Input::Reset,
    Input::Idle,
    Input::RetryDue,
    Input::Off,
    Input::BreakerOver,
];

/// What is not listed leaves the state and does nothing.
const EXPECTED: &[(State, Input, State, Effect)] = {
    use Effect as E;
    use Input as I;
    use State as S;
    &[
        (S::Observing, I::Threshold, S::Queued, E::Enqueue),
        (S::Queued, I::Grant, S::Hello, E::SendHello),
        (S::Hello, I::Ack, S::Params, E::Bind),
        (S::Hello, I::AckUnusable, S::HeldOff, E::CloseOffer),
        (S::Hello, I::NoAnswer, S::Queued, E::HelloFailed),
        (S::Hello, I::Refused, S::HeldOff, E::HelloFailed),
        (S::Params, I::Accepted, S::Active, E::Activate),
        (S::Params, I::TooLarge, S::Params, E::Smaller),
        (S::Params, I::Rejected, S::HeldOff, E::CloseParams),
        (S::Params, I::NoParamAck, S::HeldOff, E::CloseParams),
        (S::Params, I::Displaced, S::Queued, E::Release),
        (S::Params, I::PeerClose, S::HeldOff, E::DropBinding),
        (S::Active, I::Accepted, S::Active, E::Switch),
        (S::Active, I::TooLarge, S::Active, E::KeepParams),
        (S::Active, I::Rejected, S::Active, E::KeepParams),
        (S::Active, I::NoParamAck, S::HeldOff, E::CloseParams),
        (S::Active, I::Silence, S::SilentQueued, E::GoSilent),
        (S::Active, I::Displaced, S::Queued, E::Release),
        (S::Active, I::GiveUp, S::HeldOff, E::CloseParams),
        (S::Active, I::BreakerOver, S::HeldOff, E::CloseBreaker),
        (S::Active, I::PeerClose, S::HeldOff, E::DropBinding),
        (S::SilentQueued, I::Grant, S::SilentHello, E::SendHello),
        (S::SilentQueued, I::Report, S::Active, E::Resume),
        (S::SilentQueued, I::SilenceOver, S::Queued, E::Release),
        (S::SilentQueued, I::Displaced, S::Queued, E::Release),
        (S::SilentQueued, I::PeerClose, S::HeldOff, E::DropBinding),
        (S::SilentHello, I::Ack, S::Params, E::Bind),
        (S::SilentHello, I::AckUnusable, S::HeldOff, E::CloseOffer),
        (S::SilentHello, I::NoAnswer, S::SilentQueued, E::HelloFailed),
        (S::SilentHello, I::Refused, S::SilentQueued, E::HelloFailed),
        (S::SilentHello, I::Report, S::Active, E::Resume),
        (S::SilentHello, I::SilenceOver, S::Hello, E::Release),
        (S::SilentHello, I::PeerClose, S::Hello, E::DropBinding),
        (S::HeldOff, I::RetryDue, S::Queued, E::Enqueue),
    ]
};

fn expected(state: State, input: Input) -> (State, Effect) {
    match input {
        Input::Idle | Input::Off => return (State::Observing, Effect::Remove),
        Input::Reset if state != State::HeldOff => return (State::Observing, Effect::Restart),
        _ => {}
    }
    EXPECTED
        .iter()
        .find(|row| (row.0, row.1) == (state, input))
        .map_or((state, Effect::Ignore), |row| (row.2, row.3))
}

#[test]
fn every_pair() {
    for (n, input) in INPUTS.into_iter().enumerate() {
        assert_eq!(
            input as usize, n,
            "the columns are in the order of the inputs"
        );
    }
    for (n, state) in State::ALL.into_iter().enumerate() {
        assert_eq!(state as usize, n, "the rows are in the order of the states");
        for input in INPUTS {
            assert_eq!(
                transition(state, input),
                expected(state, input),
                "{state:?} {input:?}"
            );
        }
    }
}

#[test]
fn hello_is_out_exactly_where_the_state_says_so() {
    for state in State::ALL {
        for input in INPUTS {
            let (next, effect) = transition(state, input);
            let begins = !state.hello_out() && next.hello_out();
            assert_eq!(begins, effect == Effect::SendHello, "{state:?} {input:?}");
            if state.hello_out() && !next.hello_out() {
                let ends = [
                    Effect::Bind,
                    Effect::CloseOffer,
                    Effect::HelloFailed,
                    Effect::Resume,
                    Effect::Restart,
                    Effect::Remove,
                ];
                assert!(
                    ends.contains(&effect),
                    "{state:?} {input:?} leaves a HELLO behind"
                );
            }
        }
    }
}

#[test]
fn a_binding_is_never_left_behind() {
    for state in State::ALL {
        for input in INPUTS {
            let (next, effect) = transition(state, input);
            if state.is_bound() && !next.is_bound() {
                let ends = [
                    Effect::CloseOffer,
                    Effect::CloseParams,
                    Effect::CloseBreaker,
                    Effect::Release,
                    Effect::DropBinding,
                    Effect::Restart,
                    Effect::Remove,
                ];
                assert!(ends.contains(&effect), "{state:?} {input:?}");
            }
            if !state.is_bound() && next.is_bound() {
                assert_eq!(effect, Effect::Bind, "{state:?} {input:?}");
            }
        }
    }
}

#[test]
fn protection_can_be_reached_from_everywhere() {
    for start in State::ALL {
        let mut reached = alloc::vec![start];
        let mut next = 0;
        while let Some(&state) = reached.get(next) {
            next += 1;
            let ahead: Vec<_> = INPUTS
                .into_iter()
                .map(|input| transition(state, input).0)
                .collect();
            for state in ahead {
                if !reached.contains(&state) {
                    reached.push(state);
                }
            }
        }
        assert!(reached.contains(&State::Active), "{start:?}");
    }
}
