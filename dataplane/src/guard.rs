//! What a panic in protocol or coding leaves behind: plain forwarding. The state that panicked is
//! dropped, the frames of the burst go out, and after a while protection begins anew, a few times at
//! most.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crem_core::config::CoreConfig;
use crem_core::time::Instant;

use crate::buffer::{Buffer, Platform};
use crate::order::Arrival;
use crate::protect::Protection;
use crate::segment::Segment;

/// Time in plain forwarding after a panic.
const PAUSE: Duration = Duration::from_secs(10);
/// Panics after which protection stays off.
const CHANCES: u32 = 3;

/// Makes protection from nothing; `None` if that fails.
pub type Remake<P> = Box<dyn FnMut() -> Option<Protection<P>> + Send>;

/// Has panics told in one line each. To look names up for a backtrace takes seconds, in which the worker would stand
/// still and the watchdog end the process.
pub fn tell_panics_briefly() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        tracing::error!("thread {}: {panic}", thread.name().unwrap_or("?"));
    }));
}

/// Where a segment stands after panics.
pub struct Guard<P: Platform> {
    remake: Option<Remake<P>>,
    /// The configuration of mode `monitor`.
    watch: Option<Box<CoreConfig>>,
    failures: u32,
    again_at: Option<Instant>,
    /// When a fault is asked for.
    fault_at: Option<Instant>,
}

impl<P: Platform> Guard<P> {
    /// Nothing happened yet. Without `remake` the segment is in passthrough by its document.
    pub fn new(remake: Option<Remake<P>>) -> Self {
        Self {
            remake,
            watch: None,
            failures: 0,
            again_at: None,
            fault_at: None,
        }
    }

    /// Panics once its time has come, where a fault was asked for.
    #[allow(clippy::panic, reason = "it is what is asked for")]
    pub(crate) fn fault(&mut self, now: Instant) {
        if self.fault_at.take_if(|at| *at <= now).is_some() {
            panic!("a fault that was asked for");
        }
    }

    /// Takes what makes protection from now on, and keeps count of the panics.
    pub(crate) fn replace(&mut self, remake: Option<Remake<P>>) {
        self.remake = remake;
    }

    /// Protection from nothing; `None` where there is to be none.
    pub(crate) fn make(&mut self) -> Option<Protection<P>> {
        self.remake.as_mut().and_then(|remake| remake())
    }

    /// Takes what flows are watched with from now on.
    pub(crate) fn watch_with(&mut self, core: Option<CoreConfig>) {
        self.watch = core.map(Box::new);
    }

    /// What flows are to be watched with; `None` where none are.
    pub(crate) fn watched(&self) -> Option<&CoreConfig> {
        self.watch.as_deref()
    }

    fn failed(&mut self, now: Instant) {
        self.failures += 1;
        self.again_at = (self.failures < CHANCES).then(|| now + PAUSE);
    }

    /// Whether the document wants protection.
    pub fn is_wanted(&self) -> bool {
        self.remake.is_some()
    }

    /// Why protection is off although the document wants it.
    pub fn reason(&self) -> Option<&'static str> {
        match (self.failures, self.again_at) {
            (0, _) => None,
            (_, Some(_)) => Some("a panic in protocol or coding; begins anew after 10 s"),
            (_, None) => Some("repeated panics in protocol or coding"),
        }
    }
}

impl<P: Platform> Segment<P> {
    /// Asks for a panic with the first packets of flows that come from the WAN after `at`.
    pub fn with_fault(mut self, at: Option<Instant>) -> Self {
        self.guard.fault_at = at;
        self
    }

    /// Runs a step that may involve the protocol functions. A panic in it ends protection, not
    /// forwarding.
    pub(crate) fn guarded<R: Default>(
        &mut self,
        now: Instant,
        f: impl FnOnce(&mut Self) -> R,
    ) -> R {
        // What a panic may leave half done are queues of frames, each of them valid, and protection
        // itself, which is dropped.
        match catch_unwind(AssertUnwindSafe(|| f(self))) {
            Ok(result) => result,
            Err(_) => {
                self.recover(now);
                R::default()
            }
        }
    }

    fn recover(&mut self, now: Instant) {
        self.counters.coding.panics += 1;
        self.guard.failed(now);
        if let Some(team) = &self.team {
            team.directory.leave_all(team.place.index);
        }
        if let Some(mut failed) = self.protection.take() {
            let (saved, lost) = failed.rescue(now);
            self.counters.drops.held_lost += lost;
            let is_of_burst = |frame: &P::Buf| self.descs.iter().any(|d| d.buf.is_same(frame));
            let earlier = saved.into_iter().filter(|frame| !is_of_burst(frame));
            self.to_lan.extend(earlier);
            // Nobody knows what state it is in: not even its end may harm.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(failed)));
        }
        self.end_watch();
        self.look_for_flows();
        self.pass_arrivals();
        self.descs.clear();
        self.mail.clear();
        self.send_both();
    }

    /// Sends on a burst from the WAN as it came.
    pub(crate) fn pass_arrivals(&mut self) {
        for arrival in self.arrivals.drain(..) {
            match arrival {
                Arrival::Plain(frame) => self.to_lan.push(frame),
                Arrival::Flow(index) => {
                    self.to_lan
                        .extend(self.descs.get(index).map(|d| d.buf.clone()));
                }
                Arrival::Gone => {}
            }
        }
    }

    /// Begins protection anew when its time has come.
    pub(crate) fn rearm(&mut self, now: Instant) {
        if self.guard.again_at.is_none_or(|at| at > now) {
            return;
        }
        self.guard.again_at = None;
        self.equip();
    }
}
