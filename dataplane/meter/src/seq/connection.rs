//! What an observer knows of one connection, beside the counters of its epoch.

use super::ConnectionKey;
use crate::Utc;

/// Where a connection stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// The context is not in use.
    Free,
    /// No epoch; a request starts one.
    Idle,
    /// An epoch, with the place of its counters.
    Active(u32),
    /// The profile was violated: nothing is counted until the connection is provisioned again.
    Disabled,
}

/// One connection.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) key: ConnectionKey,
    pub(crate) state: State,
    /// W of the provision that covers it.
    pub(crate) window: u32,
    /// The generation that this provision names.
    pub(crate) generation: Option<u64>,
    /// The provisions by which this is so, see [`super::Observer::set_provisions`].
    pub(crate) version: u32,
    /// Where capture faults of its addresses are counted.
    pub(crate) pair: u16,
    /// Capture faults that it knows of.
    pub(crate) faults: u32,
    /// The session that its epoch is for.
    pub(crate) session: u32,
    /// Number of the epoch.
    pub(crate) epoch: u64,
    /// Ordinary reports of the epoch so far.
    pub(crate) reports: u64,
    /// When the next one is due.
    pub(crate) next_report: Utc,
}

impl Context {
    pub(crate) fn new(key: ConnectionKey) -> Self {
        Self {
            key,
            state: State::Idle,
            window: 1,
            generation: None,
            version: 0,
            pair: 0,
            faults: 0,
            session: 0,
            epoch: 0,
            reports: 0,
            next_report: Utc(0),
        }
    }
}
