//! What an endpoint saw and did.

use serde::{Deserialize, Serialize};

/// Counts of one end; those that its role does not have stay 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Everything asked for was done.
    pub completed: bool,
    /// Messages done: acknowledged, received or read in full.
    pub messages: u64,
    /// Payload octets of these, or received in order.
    pub octets: u64,
    /// Octets received that were not the pattern's.
    pub bytes_wrong: u64,
    /// From the first packet sent to the last acknowledgment, in seconds.
    pub seconds: f64,
    /// `octets` over `seconds`, in Mbit/s.
    pub goodput_mbit: f64,
    /// Message times in microseconds: median, 99th percentile, largest.
    pub message_us: [u32; 3],
    /// Data packets sent (requests, or READ responses), first time or again.
    pub packets_sent: u64,
    /// Of these, sent again by the transport.
    pub packets_resent: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// NAKs received.
    pub naks_received: u64,
    /// NAKs sent.
    pub naks_sent: u64,
    /// Acknowledgments received.
    pub acks_received: u64,
    /// Acknowledgments sent.
    pub acks_sent: u64,
    /// Data packets received for this end with a right ICRC.
    pub packets_received: u64,
    /// Of these, seen before.
    pub duplicates: u64,
    /// Of these, beyond a gap.
    pub out_of_order: u64,
    /// Of these, marked CE.
    pub ce_marked: u64,
    /// Congestion notifications received.
    pub cnps_received: u64,
    /// Congestion notifications sent.
    pub cnps_sent: u64,
    /// Frames for this end whose ICRC was wrong; ignored.
    pub icrc_errors: u64,
    /// Packets in order that made no sense where they stood.
    pub protocol_errors: u64,
    /// Longest time between two packets in order, in microseconds.
    pub longest_gap_us: u64,
    /// Measured round-trip time in microseconds.
    pub rtt_us: u64,
    /// Sending rate at the end in Mbit/s; 0 is unlimited.
    pub rate_mbit: f64,
    /// Frames the kernel dropped before this program saw them.
    pub kernel_drops: u64,
    /// Frames the kernel refused to send.
    pub send_refused: u64,
}

impl Report {
    /// Adds what another queue pair of the same end saw and did. Times are the longest, the goodput is that of
    /// both.
    pub fn add(&mut self, other: &Self) {
        self.completed &= other.completed;
        let counts: [(&mut u64, u64); 20] = [
            (&mut self.messages, other.messages),
            (&mut self.octets, other.octets),
            (&mut self.bytes_wrong, other.bytes_wrong),
            (&mut self.packets_sent, other.packets_sent),
            (&mut self.packets_resent, other.packets_resent),
            (&mut self.timeouts, other.timeouts),
            (&mut self.naks_received, other.naks_received),
            (&mut self.naks_sent, other.naks_sent),
            (&mut self.acks_received, other.acks_received),
            (&mut self.acks_sent, other.acks_sent),
            (&mut self.packets_received, other.packets_received),
            (&mut self.duplicates, other.duplicates),
            (&mut self.out_of_order, other.out_of_order),
            (&mut self.ce_marked, other.ce_marked),
            (&mut self.cnps_received, other.cnps_received),
            (&mut self.cnps_sent, other.cnps_sent),
            (&mut self.icrc_errors, other.icrc_errors),
            (&mut self.protocol_errors, other.protocol_errors),
            (&mut self.kernel_drops, other.kernel_drops),
            (&mut self.send_refused, other.send_refused),
        ];
        counts.into_iter().for_each(|(to, more)| *to += more);
        self.longest_gap_us = self.longest_gap_us.max(other.longest_gap_us);
        self.rtt_us = self.rtt_us.max(other.rtt_us);
        self.rate_mbit += other.rate_mbit;
        for (time, other) in self.message_us.iter_mut().zip(other.message_us) {
            *time = other.max(*time);
        }
        let seconds = self.seconds.max(other.seconds);
        self.set_time((seconds * 1e9) as u64);
    }

    /// Sets time and goodput.
    pub fn set_time(&mut self, nanoseconds: u64) {
        self.seconds = nanoseconds as f64 / 1e9;
        if nanoseconds > 0 {
            self.goodput_mbit = self.octets as f64 * 8e3 / nanoseconds as f64;
        }
    }
}
