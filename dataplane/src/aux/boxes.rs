//! Mode `bypass` and the relays of all segments: what the timers and drivers of `operate` decide and do, around the
//! documents that come into force. Orders to the workers are the applier's.

use std::io;

use crem_api::state::{BypassStatus, FailureStatus};
use crem_api::{Document, Mode, OnFailure, Segment};
use crem_core::time::Instant;

use crate::operate::bypass::{Change, State, Timer};
use crate::operate::relay::{BypassRelay, Position, driver};

/// What time it is on the workers' clock.
pub type Now = Box<dyn Fn() -> Instant + Send + Sync>;

/// Why the mode in force is not the document's.
const OVER: &str = "the time of mode bypass is over";
const NOT_BACK: &str =
    "the time of mode bypass is over, and the document has not what the mode before takes";

/// One segment's.
struct One {
    id: String,
    timer: Timer,
    relay: Box<dyn BypassRelay>,
    /// Where the relay was sent last; `None` if it did not go, or there is none.
    position: Option<Position>,
    on_failure: OnFailure,
    reason: Option<String>,
    off: Option<&'static str>,
}

/// All of them, in the order of the document.
pub(super) struct Boxes {
    all: Vec<One>,
    now: Now,
}

impl Boxes {
    /// For the document that the process was started with. Relays stay where they are until
    /// [`begin`](Self::begin).
    pub(super) fn new(document: &Document, now: Now) -> Self {
        let at = now();
        let one = |(id, segment): (&crem_api::SegmentId, &Segment)| {
            let one = One {
                id: id.as_str().to_owned(),
                timer: Timer::new(segment, at),
                relay: driver(&segment.bypass.relay),
                position: None,
                on_failure: segment.on_failure,
                reason: segment.bypass.reason.clone(),
                off: None,
            };
            if segment.mode == Mode::Bypass {
                one.tell_begin(segment);
            }
            if segment.on_failure == OnFailure::Wire && !one.relay.is_present() {
                tracing::warn!(
                    segment = %id,
                    "on_failure is wire, but there is no relay: without this process nothing passes"
                );
            }
            one
        };
        Self {
            all: document.segments.iter().map(one).collect(),
            now,
        }
    }

    /// Frames are forwarded: relays let them come through here, unless they are to stay away.
    pub(super) fn begin(&mut self) {
        for one in &mut self.all {
            one.arm();
            let on = matches!(one.timer.state(), State::On { .. });
            one.go(if on { Position::Wire } else { Position::Inline });
        }
    }

    /// The process ends in order.
    pub(super) fn end(&mut self) {
        for one in &mut self.all {
            one.go(one.on_failure.into());
        }
    }

    /// The process lives.
    pub(super) fn beat(&mut self) {
        for one in &mut self.all {
            if let Err(error) = one.relay.beat() {
                tracing::error!(segment = %one.id, "the bypass relay does not hear: {error}");
            }
        }
    }

    /// `wanted` is about to come into force: timers go on from it, and relays whose bypass ends come in first.
    pub(super) fn before(&mut self, running: &Document, wanted: &Document) {
        let now = (self.now)();
        let segments = running.segments.values().zip(wanted.segments.values());
        for (one, (old, new)) in self.all.iter_mut().zip(segments) {
            let before = one.timer.in_force(old.mode);
            one.reason.clone_from(&new.bypass.reason);
            if one.on_failure != new.on_failure {
                one.on_failure = new.on_failure;
                one.arm();
            }
            let change = one.timer.on_document(new, before, now);
            if new.mode != Mode::Bypass || change == Change::Begun {
                one.off = None;
            }
            match change {
                Change::Begun => one.tell_begin(new),
                Change::Ended => {
                    one.go(Position::Inline);
                    tracing::warn!(segment = %one.id, "bypass ended by a document: {}", new.mode.name());
                }
                Change::None => {}
            }
        }
    }

    /// The workers have it: relays whose bypass has begun join the ports.
    pub(super) fn after(&mut self) {
        for one in &mut self.all {
            let on = matches!(one.timer.state(), State::On { .. });
            if on && one.position != Some(Position::Wire) {
                one.go(Position::Wire);
            }
        }
    }

    /// A segment as it is in force.
    pub(super) fn in_force(&self, number: usize, segment: &Segment) -> Segment {
        let mut segment = segment.clone();
        if let Some(one) = self.all.get(number) {
            segment.mode = one.timer.in_force(segment.mode);
        }
        segment
    }

    /// Segments whose time in bypass is over, and what comes back.
    pub(super) fn due(&self) -> Vec<(usize, Mode)> {
        let now = (self.now)();
        let over = |(number, one): (usize, &One)| one.timer.is_over(now).map(|then| (number, then));
        self.all.iter().enumerate().filter_map(over).collect()
    }

    /// Mode `then` is about to be in force; it is what was before if that is possible.
    pub(super) fn come_back(&mut self, number: usize, then: Mode, possible: bool) {
        let Some(one) = self.all.get_mut(number) else {
            return;
        };
        one.timer.come_back(then);
        one.off = Some(if possible { OVER } else { NOT_BACK });
        one.go(Position::Inline);
        tracing::warn!(
            segment = %one.id, reason = one.reason.as_deref(), mode = then.name(), possible,
            "the time of mode bypass is over"
        );
    }

    /// Why the mode of a segment is not the document's.
    pub(super) fn off_reason(&self, number: usize) -> Option<&'static str> {
        self.all.get(number)?.off
    }

    /// What the status says of a segment, and until when bypass lasts.
    pub(super) fn about(&self, number: usize) -> (Option<(BypassStatus, Instant)>, FailureStatus) {
        let Some(one) = self.all.get(number) else {
            return (None, FailureStatus::default());
        };
        let then = match one.timer.state() {
            State::Off => None,
            State::On { then, .. } | State::Over { then } => Some(then),
        };
        let bypass = then.map(|then| {
            let status = BypassStatus {
                relay: one.relay_name().to_owned(),
                ends_in_s: 0,
                then: then.name().to_owned(),
                reason: one.reason.clone().unwrap_or_default(),
            };
            (status, one.timer.until().unwrap_or(Instant(0)))
        });
        let in_effect = if one.relay.is_present() {
            one.on_failure
        } else {
            OnFailure::Block
        };
        let failure = FailureStatus {
            wanted: one.on_failure.name().to_owned(),
            in_effect: in_effect.name().to_owned(),
        };
        (bypass, failure)
    }
}

impl One {
    fn go(&mut self, position: Position) {
        if !self.relay.is_present() {
            return;
        }
        let moved = self.relay.set(position);
        self.position = moved.is_ok().then_some(position);
        self.tell("go where it was sent", moved);
    }

    fn arm(&mut self) {
        if self.relay.is_present() {
            let armed = self.relay.arm(self.on_failure.into());
            self.tell("take what to do when the process fails", armed);
        }
    }

    fn tell(&self, what: &str, done: io::Result<()>) {
        if let Err(error) = done {
            tracing::error!(segment = %self.id, "the bypass relay did not {what}: {error}");
        }
    }

    fn relay_name(&self) -> &'static str {
        match self.position {
            _ if !self.relay.is_present() => "none",
            Some(position) => position.name(),
            None => "failed",
        }
    }

    /// For the record.
    fn tell_begin(&self, segment: &Segment) {
        tracing::warn!(
            segment = %self.id, reason = segment.bypass.reason.as_deref(), seconds = segment.bypass.duration_s,
            relay = self.relay.is_present(), "bypass begins"
        );
    }
}
