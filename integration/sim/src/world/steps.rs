//! What happens at times of its own: restarts, other paths, other configurations.

use crem_core::csf::DatagramKey;
use crem_wire::Qpn;

use super::{BEGIN, World};
use crate::Instant;
use crate::gateway::Gateway;
use crate::net::path::Path;
use crate::rng::mix;
use crate::scenario::{Peer, Step};

impl World {
    /// When the next step is due.
    pub(super) fn next_step(&self) -> Option<Instant> {
        let step = self
            .scenario
            .steps
            .get(self.step)
            .map(|(at, _)| BEGIN + *at);
        [step, self.next_hostile].into_iter().flatten().min()
    }

    /// Whether everything that was to happen has.
    pub(super) fn steps_done(&self) -> bool {
        self.step >= self.scenario.steps.len()
    }

    pub(super) fn steps_due(&mut self) {
        if self.next_hostile.is_some_and(|at| at <= self.now) {
            self.hostility();
        }
        while let Some((at, step)) = self.scenario.steps.get(self.step) {
            if BEGIN + *at > self.now {
                return;
            }
            let step = step.clone();
            self.step += 1;
            (0..2).for_each(|side| self.note_reasons(side));
            self.take_step(step);
        }
    }

    fn take_step(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Restart { side, down } => self.restart(side, now + down),
            Step::Path(side, config) => self.sides[side].wan.path = Path::new(*config),
            Step::Outage(side, lasting) => {
                let loss = self.sides[side].wan.path.loss_mut();
                loss.set_outage(now, lasting);
            }
            Step::Configure(side, config) => {
                if let Some(gateway) = &mut self.sides[side].gateway {
                    gateway.set_config(now, *config);
                    self.settle(side);
                }
            }
            Step::Shortage(side, packets) => {
                if let Some(gateway) = &mut self.sides[side].gateway {
                    gateway.give_up(now, packets);
                    self.settle(side);
                }
            }
            Step::Close(side) => {
                if let Some(gateway) = &mut self.sides[side].gateway {
                    gateway.close(now);
                    self.settle(side);
                }
            }
            Step::Mute(side, names) => self.sides[side].muted = names,
            Step::Tamper(side, tampering) => self.sides[side].tampering = tampering,
            Step::Unplug(connection) => self.unplugged[connection] = true,
            Step::Datagrams(side, count) => self.datagrams(side, count),
            Step::Opens(connection) => self.opens(connection),
            Step::Ends(connection) => self.ends(connection),
        }
    }

    /// Hosts send datagrams: to a gateway they are names and numbers, and nothing of them is checked.
    fn datagrams(&mut self, side: usize, count: u32) {
        let key = self.streams.first().map(|stream| stream.key);
        let (Some(key), Some(gateway)) = (key, &mut self.sides[side].gateway) else {
            return;
        };
        for qp in (0..count).chain(0..count) {
            gateway.csf.on_datagram(
                self.now,
                DatagramKey {
                    namespace: key.namespace,
                    source: key.source,
                    destination: key.destination,
                    qp: Qpn::new(qp),
                },
            );
        }
        self.settle(side);
    }

    /// The gateway dies with everything that it holds.
    fn restart(&mut self, side: usize, up_at: Instant) {
        self.gather(side);
        let here = &mut self.sides[side];
        here.lives += 1;
        here.up_at = up_at;
        here.ledger.sender_restarts();
        here.delivery.forget();
        here.gateway = Self::make_gateway(&self.scenario, side, here.lives);
    }

    /// The gateway of a side in its `life`-th life.
    pub(super) fn make_gateway(
        scenario: &crate::scenario::Scenario,
        side: usize,
        life: u64,
    ) -> Option<Gateway> {
        if scenario.peers[side] == Peer::Nobody {
            return None;
        }
        let seed = mix(scenario.seed ^ mix(life * 2 + side as u64));
        let cfg = scenario.core[side].clone();
        let mut gateway = Gateway::new(cfg, scenario.slots, seed);
        gateway.decode_takes = scenario.decode_takes;
        Some(gateway)
    }
}
