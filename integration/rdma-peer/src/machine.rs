//! What the program around an endpoint calls.

use crate::report::Report;

/// One end of a connection. Times are nanoseconds of the caller's clock.
pub trait Machine {
    /// A frame arrived. Anything that is not for this end is ignored.
    fn on_frame(&mut self, now: u64, frame: &[u8]);

    /// Writes the next frame to send at `now` into `out`; false if there is none now.
    fn poll_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> bool;

    /// Lets timers run that are due at `now`.
    fn on_timeout(&mut self, now: u64);

    /// When to call again if nothing arrives; a time in the past means at once.
    fn next_wake(&self) -> Option<u64>;

    /// Whether everything this end has to do is done.
    fn done(&self) -> bool;

    /// What happened so far.
    fn report(&self, now: u64) -> Report;
}
