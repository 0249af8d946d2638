//! What a Path Reporter counts.

use crate::counters::counters;

counters! {
    /// Counters of one [`Reporter`](super::Reporter).
    ReporterCounters {
        /// Dropped packets told to it.
        drops,
        /// Packets lost in marking periods told to it.
        marked_losses,
        /// Marking periods told to it.
        periods,
        /// Drops and periods of flows from outside the domain; not reported.
        outside_domain,
        /// Flows forgotten for want of room while something about them was still to be told.
        flows_evicted,
        /// Losses that were never reported because their flow was forgotten.
        losses_forgotten,
        /// PSNs of drops left out of reports: lists were full or the message would exceed the path MTU.
        psns_left_out,
        /// Reports made.
        reports,
        /// Reports that had to wait for the rate limit of their flow or port.
        reports_delayed,
        /// Reports whose lists of PSNs were cut.
        reports_truncated,
        /// Reports dropped because nobody polled.
        transmit_dropped,
        /// Reports of other nodes taken in to be sent with ours.
        merged,
        /// Reports of other nodes not merged: not of a node on the list, another destination, or no room.
        not_merged,
        /// Marking periods folded into a later one because too many waited.
        periods_folded,
    }
}
