//! What is done to those who stand beside the gateways while the flows run: exporting processes and
//! collectors, and the stranger on the path.

use std::time::{Duration, Instant};

use crem_api::state::Role;

use super::Stage;
use crate::scenario::Failure;
use crate::scenario::gateway::Gateway;
use crate::scenario::metering::Deed;
use crate::scenario::spec::Host;

impl Stage<'_> {
    /// What happens to the export of gateways, last first.
    pub(super) fn deeds(&self, start: Instant) -> Vec<(Instant, Host, Deed)> {
        let events = self.scenario.metering.iter().flat_map(|m| &m.event);
        let mut deeds: Vec<_> = events
            .map(|event| {
                (
                    start + Duration::from_millis(event.at_ms),
                    event.at,
                    event.does,
                )
            })
            .collect();
        deeds.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
        deeds
    }

    pub(super) fn do_deeds(
        &mut self,
        deeds: &mut Vec<(Instant, Host, Deed)>,
    ) -> Result<(), Failure> {
        while let Some((_, host, deed)) = deeds.pop_if(|(at, ..)| *at <= Instant::now()) {
            let mut sites = self.sites.iter_mut();
            let site = sites.find(|site| site.host == host);
            let site = site.ok_or("an event names a gateway that is not there")?;
            site.act(deed, &self.world, &self.context.programs)?;
        }
        Ok(())
    }

    /// It learns a Flow ID that is in use, as who listens on the path would.
    pub(super) fn tell_intruder(&self) {
        let (Some(intruder), Some(stranger)) = (&self.intruder, self.scenario.intruder) else {
            return;
        };
        let gateways = self.gateways.iter().filter(|g| g.host == stranger.at);
        let flows = gateways.flat_map(Gateway::flows);
        let restored = flows.filter(|flow| flow.role == Role::Crf);
        if let Some(id) = restored.filter_map(|flow| flow.flow_id).next() {
            intruder.tell(id);
        }
    }
}
