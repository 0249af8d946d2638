//! The events of a scenario in order of time.

use std::time::{Duration, Instant};

use super::spec::{Event, Host, Part};

/// The events that are still to come.
pub(crate) struct Script {
    acts: Vec<(Instant, Act)>,
    /// The last thing after which protection is to come back.
    pub(crate) restarted: Option<Restart>,
}

/// What protection is to come back after.
#[derive(Clone, Copy)]
pub(crate) struct Restart {
    /// When it was there: a gateway said that it is ready, a value was set.
    pub(crate) at: Instant,
    /// The gateway that started anew, if one did: what counts is when it forwards its first frame.
    pub(crate) gateway: Option<Host>,
}

/// A process of a gateway goes, or comes back.
#[derive(Clone, Copy)]
pub(crate) struct Act {
    /// Which gateway.
    pub(crate) host: Host,
    /// Which process.
    pub(crate) process: Part,
    /// It comes back.
    pub(crate) start: bool,
    /// It goes because this worker is stuck.
    pub(crate) stuck: Option<u16>,
}

impl Script {
    /// The script of `events` for flows that begin at `start`.
    pub(crate) fn new(events: &[Event], start: Instant) -> Self {
        let mut acts = Vec::new();
        for event in events {
            let gone = start + Duration::from_millis(event.at_ms);
            let back = gone + Duration::from_millis(event.restart_after_ms);
            let host = event.kill;
            let act = |start| Act {
                host,
                process: event.process,
                start,
                stuck: event.stuck_worker,
            };
            acts.push((gone, act(false)));
            acts.push((back, act(true)));
        }
        acts.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        Self {
            acts,
            restarted: None,
        }
    }

    /// The next act if its time has come.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Act> {
        self.acts.pop_if(|(at, _)| *at <= now).map(|(_, act)| act)
    }

    /// Whether nothing is to come.
    pub(crate) fn is_over(&self) -> bool {
        self.acts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_kills_and_restarts_in_order() {
        let start = Instant::now();
        let event = |at_ms, kill| Event {
            at_ms,
            kill,
            process: Part::Dataplane,
            stuck_worker: None,
            restart_after_ms: 100,
        };
        let mut script = Script::new(&[event(500, Host::B), event(50, Host::A)], start);
        let mut seen = Vec::new();
        while let Some(act) = script.due(start + Duration::from_millis(550)) {
            seen.push((act.host, act.start));
        }
        assert_eq!(seen, [(Host::A, false), (Host::A, true), (Host::B, false)]);
        assert!(!script.is_over());
        let last = script.due(start + Duration::from_millis(600));
        assert!(last.is_some_and(|act| act.start) && script.is_over());
    }
}
