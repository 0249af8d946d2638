//! Mode `bypass`: it begins with a document, ends by itself after a time, and then the mode before it is in force
//! again, although the document still says otherwise. What is done in the meantime, and the relay, are elsewhere.

use core::time::Duration;

use crem_api::{Bypass, Mode, Segment};
use crem_core::time::Instant;

/// Mode `bypass` of one segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The document says another mode.
    Off,
    /// In force.
    On {
        /// Since when.
        since: Instant,
        /// What comes back.
        then: Mode,
    },
    /// The time is over, and the mode before is in force.
    Over {
        /// That mode.
        then: Mode,
    },
}

/// What a step of [`Timer`] changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Nothing.
    None,
    /// Bypass is in force from now on.
    Begun,
    /// Another mode is, since the document says so.
    Ended,
}

/// The bypass timer of one segment.
#[derive(Clone, Debug)]
pub struct Timer {
    state: State,
    wanted: Bypass,
}

impl Timer {
    /// For the document that the process was started with. There is nothing to come back to but to forward.
    pub fn new(segment: &Segment, now: Instant) -> Self {
        let since = now;
        let state = match segment.mode {
            Mode::Bypass => State::On {
                since,
                then: Mode::Passthrough,
            },
            _ => State::Off,
        };
        Self {
            state,
            wanted: segment.bypass.clone(),
        }
    }

    /// A document comes into force after one of mode `before`. The same bypass again goes on or stays over; another
    /// duration counts from its beginning, and any change of the table begins it anew once it is over.
    pub fn on_document(&mut self, segment: &Segment, before: Mode, now: Instant) -> Change {
        let other = self.wanted != segment.bypass;
        self.wanted = segment.bypass.clone();
        let bypass = segment.mode == Mode::Bypass;
        let (next, change) = match self.state {
            State::Off if bypass => (
                State::On {
                    since: now,
                    then: before,
                },
                Change::Begun,
            ),
            State::Over { then } if bypass && other => {
                (State::On { since: now, then }, Change::Begun)
            }
            State::On { .. } if !bypass => (State::Off, Change::Ended),
            State::Over { .. } if !bypass => (State::Off, Change::None),
            state => (state, Change::None),
        };
        self.state = next;
        change
    }

    /// The mode to come back to, if the time is over now.
    pub fn is_over(&self, now: Instant) -> Option<Mode> {
        match self.state {
            State::On { since, then } if now.since(since) >= self.duration() => Some(then),
            _ => None,
        }
    }

    /// Bypass is no more in force: `then` is.
    pub fn come_back(&mut self, then: Mode) {
        self.state = State::Over { then };
    }

    /// The mode in force where the document says `wanted`.
    pub fn in_force(&self, wanted: Mode) -> Mode {
        match self.state {
            State::Over { then } => then,
            State::Off | State::On { .. } => wanted,
        }
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// When it ends or would have ended, if it is in force.
    pub fn until(&self) -> Option<Instant> {
        match self.state {
            State::On { since, .. } => Some(since + self.duration()),
            State::Off | State::Over { .. } => None,
        }
    }

    fn duration(&self) -> Duration {
        Duration::from_secs(self.wanted.duration_s.into())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crem_api::{Syntax, parse};

    fn segment(mode: Mode, duration_s: u32, reason: &str) -> Segment {
        let text = format!(
            r#"
            version = 1
            [segments.a]
            mode = "{}"
            crem_port = 4801
            path_mtu = 4500
            lan = {{ vdev = "net_null0" }}
            wan = {{ vdev = "net_null1" }}
            served = {{ "10.0.1.0/24" = {{}} }}
            allowed_peers = {{ "10.0.2.0/24" = {{}} }}
            inband = {{ address = "192.0.2.1/24" }}
            bypass = {{ duration_s = {duration_s}{reason} }}
            "#,
            mode.name()
        );
        let document = parse(&text, Syntax::Toml).unwrap();
        document.segments.into_values().next().unwrap()
    }

    const fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000_000)
    }

    fn on(duration_s: u32) -> Segment {
        segment(Mode::Bypass, duration_s, "")
    }

    #[test]
    fn the_mode_before_comes_back_when_the_time_is_over() {
        let mut timer = Timer::new(&segment(Mode::Active, 60, ""), at(0));
        assert_eq!(
            timer.on_document(&on(60), Mode::Active, at(5)),
            Change::Begun
        );
        assert_eq!(timer.in_force(Mode::Bypass), Mode::Bypass);
        assert_eq!((timer.is_over(at(64)), timer.until()), (None, Some(at(65))));
        assert_eq!(timer.is_over(at(65)), Some(Mode::Active));
        timer.come_back(Mode::Active);
        assert_eq!(timer.in_force(Mode::Bypass), Mode::Active);
        assert_eq!((timer.is_over(at(900)), timer.until()), (None, None));
        // The same document again, with something else changed, does not take it out again.
        let same = timer.on_document(&on(60), Mode::Bypass, at(900));
        assert_eq!(
            (same, timer.in_force(Mode::Bypass)),
            (Change::None, Mode::Active)
        );
        // One that asks for it does.
        let again = timer.on_document(
            &segment(Mode::Bypass, 60, ", reason = \"cable\""),
            Mode::Bypass,
            at(901),
        );
        assert_eq!(
            (again, timer.in_force(Mode::Bypass)),
            (Change::Begun, Mode::Bypass)
        );
        assert_eq!(timer.is_over(at(961)), Some(Mode::Active));
    }

    #[test]
    fn a_longer_time_counts_from_the_beginning_and_another_mode_ends_it() {
        let mut timer = Timer::new(&segment(Mode::Monitor, 60, ""), at(0));
        timer.on_document(&on(60), Mode::Monitor, at(0));
        assert_eq!(
            timer.on_document(&on(100), Mode::Bypass, at(50)),
            Change::None
        );
        assert_eq!(
            (timer.is_over(at(99)), timer.is_over(at(100))),
            (None, Some(Mode::Monitor))
        );
        let other = segment(Mode::Block, 100, "");
        assert_eq!(
            timer.on_document(&other, Mode::Bypass, at(70)),
            Change::Ended
        );
        assert_eq!(
            (timer.state(), timer.in_force(Mode::Block)),
            (State::Off, Mode::Block)
        );
        assert_eq!(timer.is_over(at(1_000)), None);
    }

    #[test]
    fn what_begins_in_bypass_comes_back_to_forwarding() {
        let timer = Timer::new(&on(10), at(3));
        assert_eq!(timer.in_force(Mode::Bypass), Mode::Bypass);
        assert_eq!(timer.is_over(at(13)), Some(Mode::Passthrough));
    }
}
