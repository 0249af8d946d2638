//! What the sender function counts.

use crate::counters::counters;

counters! {
    /// Counters of one [`Csf`](super::Csf).
    CsfCounters {
        /// Packets handed in.
        packets,
        /// Packets with a new PSN.
        sources_new,
        /// Packets at or behind the highest PSN: transport retransmissions, duplicates, late ones.
        sources_behind,
        /// Runs of repeated packets that began before a repair can have arrived: RNIC timeout too short.
        early_retransmissions,
        /// Late packets that still found their position in the open block (AMB-UPGAP).
        sources_late_kept,
        /// New packets that became part of a block.
        sources_protected,
        /// Packets larger than T - 2, left out of their block (AMB-OVERSIZE).
        sources_oversize,
        /// Packets left out of their block because retention was full.
        sources_no_room,
        /// Packets of response streams while these are switched off.
        responses_ignored,
        /// Packets of datagram service, which is never protected (AMB-OPCODES).
        datagrams,
        /// Notes of datagram traffic given up for newer ones.
        datagrams_evicted,
        /// Packets seen in passthrough mode.
        passthrough,
        /// Flows that lost their place in the report budget to busier ones (AMB-SCALE).
        flows_displaced,
        /// READ requests whose DMA Length is beyond what RDMA allows; taken as one PSN.
        read_length_invalid,
        /// Forward jumps beyond four blocks: the open block ended early (AMB-NEWPSN).
        psn_jumps,
        /// QPs taken as reused: a jump of 2^22 PSNs or more (AMB-QPREUSE).
        qp_reused,
        /// Flows given up because the flow table was full.
        flows_evicted,
        /// Packets of flows that found no room in the flow table.
        flows_no_room,
        /// Flows closed after the idle time.
        flows_idle,
        /// Flows not offered because an equal triple of another namespace is protected (AMB-TENANT).
        namespace_conflicts,
        /// Flows not offered because the symbols do not fit the path MTU (AMB-TMTU).
        mtu_too_small,
        /// Symbols sent only to find out whether messages of their length arrive.
        mtu_probes,
        /// Flows given up because none of their symbols arrived while their sources did.
        mtu_refuted,
        /// HELLOs sent, retransmissions included.
        hello_sent,
        /// HELLO exchanges that ended without an answer.
        hello_unanswered,
        /// HELLO_ACKs accepted.
        hello_ack_bound,
        /// HELLO_ACKs without an outstanding HELLO of that nonce, kind, family and MTU (AMB-NONCE).
        hello_ack_unmatched,
        /// HELLO_ACKs from an address that is not allowed as a peer.
        hello_ack_forbidden,
        /// HELLO_ACKs with limits of no use (AMB-LIMITS).
        hello_ack_unusable,
        /// HELLO_ACKs that assign a Flow ID in use.
        hello_ack_duplicate_id,
        /// PARAM_UPDATEs sent, retransmissions included.
        param_update_sent,
        /// Configurations acknowledged.
        param_accepted,
        /// Configurations refused.
        param_refused,
        /// PARAM_ACKs for no pending configuration.
        param_ack_unmatched,
        /// Flows given up because PARAM_UPDATE stayed unanswered.
        param_unanswered,
        /// Blocks closed with all their positions covered.
        blocks_full,
        /// Blocks closed at a burst end.
        blocks_burst_end,
        /// Blocks closed by a jump or a reset.
        blocks_cut,
        /// Blocks closed with m > 0 for which no ordinary symbol was sent: tokens, octets or slots.
        blocks_bare,
        /// Blocks that got fewer symbols for want of packet tokens (AMB-EARLYM).
        blocks_token_limited,
        /// Blocks that got fewer symbols for want of octets (AMB-RATECAP).
        blocks_octet_limited,
        /// Blocks left without ordinary symbols since the CRF cannot hold more (AMB-OPENBLOCKS).
        blocks_skipped,
        /// Symbols that found no free slot.
        no_slot,
        /// Ordinary symbols sent.
        symbols_ordinary,
        /// Symbols that were begun while their block was open, and not sent.
        symbols_vain,
        /// Coded retransmission symbols sent.
        symbols_coded,
        /// Source Copies sent.
        symbols_copy,
        /// INFO answers sent.
        info_sent,
        /// Unsolicited INFO sent (AMB-TAILINFO).
        tail_info_sent,
        /// Block-form requests.
        requests_block,
        /// Range-form requests.
        requests_range,
        /// Requests, per block, answered.
        requests_answered,
        /// Requests, per block, dropped since one was answered less than an SRTT ago (AMB-ONEPERRTT).
        requests_too_soon,
        /// Requests, per block or run of PSNs, for what is no longer held (AMB-UNHELD).
        requests_unheld,
        /// Requests whose k, scheme or Config ID is not the block's.
        requests_mismatched,
        /// Requests kept until their block closes (AMB-OPENREQ).
        requests_deferred,
        /// Requests not answered because of the volume cap (AMB-VOLCAP).
        requests_volume_capped,
        /// Requests for copies while scheme 0 is not common.
        requests_no_copy,
        /// Requests of silent flows, not answered (AMB-LRSEQ).
        requests_silent,
        /// Requests, per block, answered with INFO alone since the host has acknowledged all of it
        /// (AMB-ACKMAP).
        requests_acknowledged,
        /// Ranges beyond what one request may name here.
        ranges_dropped,
        /// Answers dropped for want of slots.
        answers_no_slot,
        /// Blocks given up for age (AMB-KEEP).
        retain_expired,
        /// Blocks given up for room: packets or octets.
        retain_evicted,
        /// Blocks given up 2^22 PSNs behind (AMB-BLOCKID).
        retain_distance,
        /// Packets let go of early because the host acknowledged them (AMB-ACKMAP).
        retain_acknowledged,
        /// Acknowledgments seen.
        acks,
        /// Acknowledgments that no flow is known to belong to, or that cannot be of the one believed.
        acks_unmatched,
        /// Messages of the connection manager seen.
        connection_messages,
        /// Connections that were seen to begin.
        connections_opened,
        /// Connections that were seen to end.
        connections_closed,
        /// LOSS_REPORTs taken.
        loss_reports,
        /// LOSS_REPORTs that claim more received than expected.
        loss_reports_inconsistent,
        /// Reductions of m because REPAIR messages were CE marked.
        ce_reductions,
        /// Times that the losses of a path came to be taken for transmission losses (AMB-CLASSIFY).
        class_transmission,
        /// Times that marks on sources made the losses of a path congestion.
        class_marks,
        /// Times that growth of a reported queueing delay did.
        class_queue_delay,
        /// Times that reported queue overflow did.
        class_overflow,
        /// Times that loss which rose with our own repair did (AMB-POLICY).
        class_self_induced,
        /// Times that a path came to show neither loss nor congestion.
        class_clean,
        /// Source packets reported lost while the path was congested.
        lost_congestion,
        /// Source packets reported lost otherwise.
        lost_transmission,
        /// Reductions of m because more REPAIR messages than sources were lost (AMB-REPLOSSMUST).
        repair_loss_reductions,
        /// Raises of m taken back because loss rose with them (AMB-POLICY).
        raises_reverted,
        /// Circuit breakers of flows that opened (AMB-CBWIN).
        breaker_trips,
        /// Circuit breakers of flows that closed again.
        breaker_resumes,
        /// Flows closed with reason 4 (AMB-CBRESUME).
        breaker_closes,
        /// Circuit breakers of paths that opened, each for all its flows.
        path_breaker_trips,
        /// Requests, per block, not answered because a breaker is open.
        requests_broken,
        /// Flows that went silent: no LOSS_REPORT while packets flowed (AMB-LRSEQ).
        flows_silent,
        /// CLOSE sent.
        close_sent,
        /// CLOSE taken.
        close_received,
        /// PATH_REPORTs taken.
        path_reports,
        /// PATH_REPORTs from an address that is no configured reporter; discarded.
        path_reports_forbidden,
        /// PATH_REPORTs for a flow that is not bound here.
        path_reports_unknown_flow,
        /// PATH_REPORTs taken whose lists of dropped PSNs were cut.
        path_reports_truncated,
        /// Hop Entries of the PATH_REPORTs taken.
        path_entries,
        /// Hop Entries that were taken before (AMB-PRDUP).
        path_entries_duplicate,
        /// PSNs that Hop Entries call dropped.
        path_psns,
        /// Dropped PSNs that are in retained blocks of requests and of responses: counted for neither.
        path_psns_ambiguous,
        /// Dropped PSNs that no retained block carries.
        path_psns_unheld,
        /// Blocks with dropped packets for which as many symbols were sent as packets were dropped.
        path_blocks_covered,
        /// Blocks with dropped packets that the CRF had asked for, or an SRTT passed over, before all
        /// symbols were sent.
        path_blocks_late,
        /// Blocks with dropped packets that got no further symbols since m is 0 or reduced.
        path_blocks_refused,
        /// Blocks with dropped packets that were given up before symbols were sent.
        path_blocks_gone,
        /// Blocks with dropped packets given up because too many others of the flow waited.
        path_blocks_crowded,
        /// Ordinary symbols sent because a node reported drops; part of `symbols_ordinary`.
        path_symbols,
        /// Messages of an unknown (peer, Flow ID) (AMB-UNKFLOW, AMB-PEERADDR).
        unknown_flow,
        /// Messages that a sender function does not take.
        unexpected_message,
        /// Peers found dead.
        peers_dead,
        /// Flows not offered because the peer table was full.
        peers_no_room,
        /// Messages dropped because nobody polled.
        transmit_dropped,
        /// Events dropped because nobody polled.
        events_dropped,
    }
}
