//! Alternate Marking (RFC 9341, RFC 9343; method 1): packets of a monitored flow carry a colour that changes
//! with every marking period, so two points on their way count the same packets without agreeing on single
//! ones. The difference of the counts of a period is what was lost between the points; packets with the
//! D mark are timed at both.
//!
//! [`MarkMeter`] counts at one point. [`MarkCompare`] is the downstream point: it has a meter of its own,
//! is handed the counts of the upstream one, and says what each period lost. How those counts travel is
//! the measured domain's business; they are plain values here.
//!
//! # What it needs
//!
//! * One marking period length in the domain, its boundaries at whole multiples of it since the epoch of the
//!   domain's clock, and the L mark set in odd periods.
//! * At both points `now` by that clock, wrong by less than a quarter of the period; packets late by less
//!   than a quarter too. A packet whose colour is not that of the running period belongs to the nearer
//!   neighbour of it, so the two errors together may take half a period (RFC 9341, the colour's safe zone).
//! * All packets of the flow to pass both points. A flow that moves to a path without the downstream point
//!   looks lost; counts of flows that this point never saw are therefore left alone.
//! * For the delay, the same clock error from one period to the next: only the change of the delay is told.

mod compare;
#[cfg(test)]
mod frames_tests;
mod meter;
#[cfg(test)]
mod tests;

pub use compare::{CompareCounters, MarkCompare, PeriodLoss};
pub use meter::{MarkMeter, MeterCounters, PeriodCount};

use crem_wire::altmark::FlowMonId;
use crem_wire::crem::FlowDescriptor;

use crate::time::Duration;

/// A flow as it is counted: the monitored flow's number in the option, and the RDMA flow within it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MarkedFlow {
    /// FlowMonID of the option.
    pub flow_mon_id: FlowMonId,
    /// Addresses and destination QP.
    pub flow: FlowDescriptor,
}

/// Knobs of a measurement point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AltMarkConfig {
    /// Length of a marking period; less than a microsecond counts as that.
    pub period: Duration,
    /// Flows that are counted at most.
    pub max_flows: u32,
    /// Periods that the downstream point waits for the counts of the upstream one.
    pub wait_periods: u32,
    /// Results kept for `poll` at most; further ones are dropped and counted.
    pub max_results: u32,
}

impl AltMarkConfig {
    /// The defaults for marking periods of this length.
    pub fn new(period: Duration) -> Self {
        Self {
            period,
            max_flows: 4_096,
            wait_periods: 4,
            max_results: 8_192,
        }
    }

    /// Length of a period in nanoseconds.
    fn nanos(&self) -> u64 {
        u64::try_from(self.period.as_nanos())
            .unwrap_or(u64::MAX)
            .max(1_000)
    }
}
