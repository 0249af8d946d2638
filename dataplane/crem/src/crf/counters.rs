//! What the receiver function counts. Counting only; nothing is decided from these.

use crate::counters::counters;
use crate::histogram::Histogram;

/// How long frames waited, since the receiver function was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CrfTimes {
    /// Time for which a frame was held behind a gap, nanoseconds.
    pub hold_ns: Histogram,
    /// Time from when a packet was seen to be missing until it was restored, nanoseconds.
    pub recovery_ns: Histogram,
}

counters! {
    /// Counters of the receiver function, since it was made.
    CrfCounters {
        /// Source packets of protected streams that arrived.
        sources,
        /// Packets that passed because their stream is not protected.
        passed,
        /// Packets that passed because an equal flow of another namespace is protected (AMB-TENANT).
        namespace_conflicts,
        /// Source packets that filled a gap after packets beyond it had arrived.
        late_sources,
        /// Source packets whose PSN had arrived, or had been restored, before.
        repeated_sources,
        /// Source packets so far from the stream's PSNs that they were passed without being tracked.
        stray_sources,
        /// Times a stream was tracked anew after its PSNs jumped.
        jumps,
        /// Source packets that were held behind a gap.
        held,
        /// Acknowledgments that were held behind responses to their queue pair (AMB-READRESP).
        acknowledgments_held,
        /// Times a hold ended by time.
        holds_expired,
        /// Times a hold ended early because the host went back to before what was held.
        holds_overtaken,
        /// Times a hold ended early because a bound was reached.
        holds_cut,
        /// Restored packets delivered.
        restored,
        /// Of those, by ordinary symbols alone.
        restored_ordinary,
        /// Of those, with the help of coded retransmissions.
        restored_coded,
        /// Of those, by source copies.
        restored_copy,
        /// Restored packets that came after packets beyond them had left, or after their host had gone back
        /// to before them: recovered too late for a receiver that takes packets in order.
        restored_late,
        /// Runs that a host sent again although everything before them had been delivered in order.
        resent_needlessly,
        /// Packets missing in runs that the transport sent again, filled with the copies held.
        replayed,
        /// READ and atomic requests, between hosts with protected responses, that ask for PSNs again.
        requests_reissued,
        /// Second answers to READs that were seen to begin: beyond what was answered before, responses are
        /// restored again (AMB-READRESP).
        second_answers,
        /// Missing responses left to the RDMA transport because they were asked for again, or because no
        /// answer could come within 2 SRTT (AMB-READRESP).
        responses_given_up,
        /// Restored responses not delivered: asked for again, or missed more than 2 SRTT ago (AMB-READRESP).
        responses_stale,
        /// Restored responses not delivered because something beyond them had left, from which the
        /// requester knows that they are missing and may have asked again (AMB-READRESP).
        responses_late,
        /// Restored packets that arrived after all, sooner than the host can have sent them again:
        /// restored before they were lost.
        restored_early,
        /// Restored packets that were no longer needed.
        restored_unneeded,
        /// Blocks that were opened.
        blocks_opened,
        /// Blocks in which nothing is missing any more.
        blocks_completed,
        /// Blocks given up because Max Open Blocks or the memory bound was reached.
        blocks_evicted,
        /// Times a flow gave up older PSNs because there was no memory left to note newer ones in.
        windows_cut,
        /// Blocks that were left to the RDMA transport.
        blocks_left,
        /// Block descriptions dropped because another one of the same positions prevailed
        /// (AMB-BLOCKCONF).
        blocks_conflicting,
        /// Lost positions left to the RDMA transport.
        positions_left,
        /// Runs of missing PSNs given up for want of room before anybody said whether they carried packets.
        gaps_evicted,
        /// Runs of missing PSNs that were asked for again, since the host repeated what is around them.
        gaps_reopened,
        /// Decode jobs handed out.
        decodes,
        /// Decodes repeated with a check of the sources (AMB-ICRCFAIL).
        decodes_checked,
        /// Restored packets that failed their check.
        decodes_corrupt,
        /// Known sources that failed their ICRC in a checked decode.
        corrupt_sources,
        /// Restored positions for which no received packet could lend its headers.
        no_neighbour,
        /// Restored positions for which the caller had no buffer.
        no_buffer,
        /// REPAIR messages of bound flows.
        repairs,
        /// REPAIRs with ordinary symbols that were taken.
        symbols_ordinary,
        /// REPAIRs with coded retransmissions that were taken.
        symbols_coded,
        /// REPAIRs with source copies that were taken.
        symbols_copy,
        /// INFO messages.
        infos,
        /// REPAIRs of blocks in which nothing was missing.
        repairs_unneeded,
        /// REPAIRs with a symbol that was held already or would not add to the block.
        repairs_redundant,
        /// REPAIRs whose Config ID is unknown, or whose scheme, T or k does not fit it (AMB-UNKCFG).
        repairs_unknown_config,
        /// REPAIRs that contradict themselves (AMB-EMPTY, AMB-BITPAD).
        repairs_invalid,
        /// REPAIRs of blocks far from the stream's PSNs.
        repairs_out_of_range,
        /// REPAIRs that could not be kept because the memory bound was reached.
        repairs_no_memory,
        /// REPAIR_REQUESTs in block form.
        requests_block,
        /// REPAIR_REQUESTs in PSN-range form.
        requests_range,
        /// REPAIR_REQUESTs with the FALLBACK flag, of either form.
        requests_fallback,
        /// REPAIR_REQUESTs that no answer came for in time.
        requests_unanswered,
        /// LOSS_REPORTs.
        reports,
        /// HELLOs answered with a new Flow ID.
        hellos_accepted,
        /// HELLOs answered as before (AMB-HELLODUP).
        hellos_repeated,
        /// HELLOs not answered: peer not allowed, kind, limits or bounds (AMB-REFUSE).
        hellos_refused,
        /// HELLOs not answered because the flow is bound to another CSF (AMB-HELLONEW).
        hellos_of_strangers,
        /// Flows not accepted because of the bound of the table or the report budget.
        flows_refused_full,
        /// Flows that were only offered and gave way to newer ones at one of these bounds.
        offers_evicted,
        /// PARAM_UPDATEs acknowledged.
        params_accepted,
        /// PARAM_UPDATEs refused by status.
        params_refused,
        /// CLOSEs received.
        closes_received,
        /// CLOSEs sent.
        closes_sent,
        /// Bindings dropped because nothing was heard (AMB-CLOSE).
        idle_releases,
        /// Messages with an unknown Flow ID (AMB-UNKFLOW).
        unknown_flow,
        /// Messages of a bound flow from another address or port (AMB-PEERADDR).
        wrong_peer,
        /// Messages of a type that is not for a receiver function.
        unexpected_messages,
        /// Kept source packets given up early because a bound was reached.
        sources_evicted,
        /// Messages dropped because nobody polled for them.
        transmits_dropped,
    }
}
