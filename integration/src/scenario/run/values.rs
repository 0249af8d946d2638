//! Values of documents that change while the flows run: set at a gateway, or in the store of a fleet.

use std::time::{Duration, Instant};

use super::Stage;
use crate::scenario::Failure;
use crate::scenario::changes::set_value;
use crate::scenario::gateway::Gateway;
use crate::scenario::report::RunReport;
use crate::scenario::script::{Restart, Script};
use crate::scenario::spec::Set;

impl<'a> Stage<'a> {
    /// Values to set, last first.
    pub(super) fn sets(&self, start: Instant) -> Vec<(Instant, &'a Set)> {
        let sets = self.scenario.set.iter();
        let mut sets: Vec<_> = sets
            .map(|set| (start + Duration::from_millis(set.at_ms), set))
            .collect();
        sets.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        sets
    }

    /// What is done to the fleet; tells whether all of it is done.
    pub(super) fn step_fleet(&mut self) -> Result<bool, Failure> {
        let gateways = &self.gateways;
        let restored = || gateways.iter().map(Gateway::restored).sum();
        match &mut self.fleet {
            Some(fleet) => fleet.step(restored),
            None => Ok(true),
        }
    }

    /// Protection is to come back after each: what was seen before does not count.
    pub(super) fn do_sets(
        &self,
        sets: &mut Vec<(Instant, &Set)>,
        script: &mut Script,
        report: &mut RunReport,
    ) -> Result<(), Failure> {
        while let Some((_, set)) = sets.pop_if(|(at, _)| *at <= Instant::now()) {
            let mut gateways = self.gateways.iter().filter(|g| g.host == set.at);
            let gateway = gateways
                .next()
                .ok_or("a value for a gateway that is not there")?;
            report.set += u64::from(set_value(gateway, set)?);
            script.restarted = Some(Restart {
                at: Instant::now(),
                gateway: None,
            });
            for flow in &mut report.flows {
                flow.forget_return();
            }
        }
        Ok(())
    }
}
