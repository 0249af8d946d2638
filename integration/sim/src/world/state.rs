//! What flows cost in memory, by the gateways' own account: looked at again and again while a world with a
//! limit runs.

use super::{BEGIN, World};
use crate::{Duration, Instant};

/// From one look to the next.
const PAUSE: Duration = Duration::from_millis(50);

/// What was seen when every flow was there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Looks at which it was, at the sender function of side 0 and the receiver function of side 1.
    pub looks: [u64; 2],
    /// The most octets of state a flow, packets aside.
    pub octets: [u64; 2],
    /// When to look again.
    next: Duration,
}

impl World {
    /// Looks at the state of flows if it is time.
    pub(super) fn look_at_state(&mut self) {
        let Some(limit) = self.scenario.state_limit else {
            return;
        };
        if self.now < next(&self.state) {
            return;
        }
        self.state.next = self.now.since(BEGIN) + PAUSE;
        let [near, far] = &self.sides;
        let (Some(near), Some(far)) = (&near.gateway, &far.gateway) else {
            return;
        };
        let all = self.scenario.connections.len() as u64;
        for (place, memory) in [near.csf.memory(), far.crf.memory()]
            .into_iter()
            .enumerate()
        {
            if memory.flows < all {
                continue;
            }
            let octets = memory.state_per_flow();
            self.state.looks[place] += 1;
            self.state.octets[place] = self.state.octets[place].max(octets);
            self.violations.require(self.now, octets <= limit, || {
                format!("{octets} octets of state a flow, {limit} allowed: {memory:?}")
            });
        }
    }

    /// At the end every flow has to be protected, and must have been looked at.
    pub(super) fn state_is_known(&mut self, protected: usize) {
        if self.scenario.state_limit.is_none() {
            return;
        }
        let all = self.scenario.connections.len();
        self.violations.require(self.now, protected == all, || {
            format!("{protected} of {all} flows are protected")
        });
        let looks = self.state.looks;
        self.violations.require(self.now, !looks.contains(&0), || {
            format!("never were all {all} flows there: {looks:?}")
        });
    }
}

fn next(state: &State) -> Instant {
    BEGIN + state.next
}
