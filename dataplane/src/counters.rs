//! The counters of the data plane. Nothing ends here without a count under a name of its own.

use crem_wire::crem::ParseError;
use crem_wire::crem::registry::MessageType;
use crem_wire::frame::Reason;

use crate::classify::{Refusal, Side};
use crate::control_frames::Control;

macro_rules! counters {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: u64,)*
        }

        impl $name {
            /// Calls `f` with the name and the value of every counter.
            pub fn for_each(&self, mut f: impl FnMut(&'static str, u64)) {
                $(f(stringify!($field), self.$field);)*
            }

            /// Adds what another worker counted.
            pub fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

pub(crate) use counters;

counters! {
    /// One port.
    PortCounters {
        /// Frames received.
        rx_frames,
        /// Octets received, without FCS.
        rx_octets,
        /// Frames given to the device.
        tx_frames,
        /// Octets given to the device, without FCS.
        tx_octets,
        /// Frames that had to wait for room in the device.
        tx_deferred,
        /// Frames that the device dropped by its own account.
        device_drops,
        /// Frames that the kernel dropped because the port's AF_PACKET ring was full.
        ring_drops,
    }
}

counters! {
    /// Frames that ended here.
    Drops {
        /// Waited in a port's ring before the worker began: an AF_PACKET socket also hears other
        /// interfaces until it is bound, and the rest is older than the box.
        before_start,
        /// The segment is in mode `block`.
        blocked,
        /// The IP packet is longer than what the port captured of it.
        truncated,
        /// Pause or PFC: of one link, never forwarded.
        mac_control,
        /// The device took no frame and the queue before it was full, LAN side.
        tx_full_lan,
        /// The same, WAN side.
        tx_full_wan,
        /// Held behind a gap, and not to be had back after a panic.
        held_lost,
        /// LLDP, with which the two sides would negotiate their links across the path.
        lldp,
        /// Spanning tree, which the document stops here.
        stp,
        /// Link aggregation, likewise.
        lacp,
        /// 802.1X, likewise.
        dot1x,
        /// MACsec, likewise.
        macsec,
        /// PTP over Ethernet, likewise.
        ptp,
        /// Other frames to addresses that bridges keep to themselves, likewise.
        control_other,
        /// Our own MAC address came in as source from the LAN, or a CREM message from our own address: a loop, or
        /// somebody who speaks in our name.
        own_source_lan,
        /// The same, from the WAN.
        own_source_wan,
        /// Addressed to our MAC address, but not for this VLAN.
        inband_vlan,
        /// Addressed to our MAC address, but neither CREM nor ARP, ND or ICMP.
        inband_other,
        /// For the in-band interface, but over its rate.
        inband_rate,
        /// For the in-band interface, but it did not take it: too long, or its queue full.
        inband_queue,
        /// For the in-band interface, and gives a neighbour another MAC address than the one that answered.
        inband_neighbour,
        /// From the in-band interface, but neither ARP, ND nor ICMP.
        inband_egress,
        /// Repair that found no buffer.
        repair_no_buffer,
        /// Repair that found its queue full: sources had taken the room.
        repair_queue,
        /// Repair that became too old to be of use.
        repair_age,
        /// Times that repair had to wait because sources left nothing of the rate of the WAN; it ended
        /// nowhere yet.
        repair_waits,
        /// Repair or message without a known next hop.
        no_next_hop,
        /// Message that found no buffer.
        message_no_buffer,
        /// Repair or message that its headers could not be written for.
        message_unsendable,
        /// In-band frame that found no buffer.
        inband_no_buffer,
        /// From the WAN, and the ring to the worker that owns the flow was full.
        handover_full,
    }
}

impl Drops {
    /// Counts a frame that goes no further.
    pub fn refuse(&mut self, refusal: Refusal) {
        let count = match refusal {
            Refusal::Truncated => &mut self.truncated,
            Refusal::MacControl => &mut self.mac_control,
            Refusal::Control(Control::Lldp) => &mut self.lldp,
            Refusal::Control(Control::Stp) => &mut self.stp,
            Refusal::Control(Control::Lacp) => &mut self.lacp,
            Refusal::Control(Control::Dot1x) => &mut self.dot1x,
            Refusal::Control(Control::Macsec) => &mut self.macsec,
            Refusal::Control(Control::Ptp) => &mut self.ptp,
            Refusal::Control(Control::Other) => &mut self.control_other,
            Refusal::OwnSource(Side::Lan) => &mut self.own_source_lan,
            Refusal::OwnSource(Side::Wan) => &mut self.own_source_wan,
            Refusal::InbandVlan => &mut self.inband_vlan,
            Refusal::InbandOther => &mut self.inband_other,
        };
        *count += 1;
    }
}

/// Frames that passed and could be no packet of a flow, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Passed {
    reasons: [u64; Reason::ALL.len()],
    /// RoCEv2 in a VXLAN network whose flows are not protected.
    pub other_network: u64,
}

impl Passed {
    /// Counts a frame.
    #[inline]
    pub fn count(&mut self, reason: Reason) {
        if let Some(count) = self.reasons.get_mut(reason.index()) {
            *count += 1;
        }
    }

    /// Adds what another worker counted.
    pub fn add(&mut self, other: &Self) {
        let all = self.reasons.iter_mut().zip(&other.reasons);
        all.for_each(|(a, b)| *a += b);
        self.other_network += other.other_network;
    }

    /// Calls `f` with the name and the value of every counter.
    pub fn for_each(&self, mut f: impl FnMut(&'static str, u64)) {
        for (reason, count) in Reason::ALL.iter().zip(&self.reasons) {
            // Pause and PFC never pass.
            if *reason != Reason::MacControl {
                f(reason.name(), *count);
            }
        }
        f("other_network", self.other_network);
    }
}

counters! {
    /// Coding, decoding and rebuilding.
    Coding {
        /// Code jobs run.
        code_jobs,
        /// Sources that code jobs took in, once for each job.
        code_sources,
        /// Symbol rows that code jobs worked on.
        code_rows,
        /// Code jobs refused by the coder.
        code_refused,
        /// REPAIR sent: ordinary symbols.
        repair_ordinary,
        /// REPAIR sent: coded retransmissions.
        repair_coded,
        /// REPAIR sent: source copies.
        repair_copy,
        /// REPAIR sent: block information.
        repair_info,
        /// Decode jobs run.
        decode_jobs,
        /// Decode jobs refused by the coder.
        decode_refused,
        /// Packets restored, ICRC verified.
        restored,
        /// Of those, with an Identification solved from the ICRC.
        identification_solved,
        /// Positions that the symbols did not determine.
        undetermined,
        /// Positions decoded to something that cannot be the packet.
        corrupt,
        /// Positions without a packet that could lend its headers.
        no_neighbour,
        /// Restored packets that found no buffer.
        no_buffer,
        /// Known sources that failed their ICRC.
        corrupt_sources,
        /// Frames of a source that failed its ICRC and were not offered to the core.
        unverified_sources,
        /// Panics in protocol or coding, each of which put the segment into passthrough.
        panics,
    }
}

counters! {
    /// The in-band interface.
    InbandCounters {
        /// Frames given to the kernel.
        to_kernel,
        /// Frames taken from the kernel.
        from_kernel,
        /// Next hops asked of the kernel.
        resolutions,
        /// Next hops of peers that the kernel found, or found at another MAC address.
        next_hops_found,
        /// Next hops of peers that the kernel lost.
        next_hops_lost,
        /// Addresses, routes, rules and settings of the kernel's interface that somebody removed and that were put back.
        put_back,
    }
}

counters! {
    /// What one worker handed to others and took from them. All of it is 0 with one worker.
    TeamCounters {
        /// Packets handed to the owner of their flow: sent to the WAN already.
        sent_out,
        /// Packets taken as the owner of their flow: sent to the WAN by another worker.
        sent_in,
        /// Packets from the WAN handed to the owner of their flow.
        received_out,
        /// Packets from the WAN taken as the owner of their flow.
        received_in,
        /// Messages handed to the worker that they are for.
        mail_out,
        /// Messages taken from the worker that received them.
        mail_in,
        /// Frames sent for other workers.
        relayed,
        /// Packets sent to the WAN that their owner never saw, because its ring was full.
        unseen,
        /// Messages lost because the ring to their worker was full.
        mail_lost,
        /// Facts that a worker was not told, because its ring was full.
        facts_lost,
        /// Frames for the in-band interface lost because the ring to its worker was full.
        kernel_lost,
        /// Flow IDs that found no place in the table that tells whose they are.
        unplaced,
        /// Times that a burst stayed in the WAN port because a ring had no room for it.
        waited,
    }
}

/// CREM datagrams by type and by reason of refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Messages {
    received: [u64; MessageType::ALL.len()],
    sent: [u64; MessageType::ALL.len()],
    malformed: [u64; ParseError::ALL.len()],
    /// Datagrams with a wrong UDP checksum.
    pub checksum: u64,
    /// HELLO and PATH_REPORT to hosts that we serve, taken in their stead.
    pub intercepted: u64,
    /// HELLO for flows to hosts that we do not serve.
    pub not_served: u64,
    /// Other messages to hosts that we serve: they stop at the boundary.
    pub boundary: u64,
    /// Messages to us that came in from the LAN although their sender is not there (AMB-PEERADDR).
    pub wrong_port_lan: u64,
    /// The same, from the WAN.
    pub wrong_port_wan: u64,
    /// Datagrams on the CREM port that pass between others.
    pub transit: u64,
    /// Messages that came while protection is off.
    pub off: u64,
}

impl Messages {
    /// Counts a message that passed parsing.
    pub fn count_received(&mut self, kind: MessageType) {
        bump(&mut self.received, kind);
    }

    /// Counts a message sent.
    pub fn count_sent(&mut self, kind: MessageType) {
        bump(&mut self.sent, kind);
    }

    /// Counts a datagram that is no message.
    pub fn count_malformed(&mut self, error: ParseError) {
        if let Some(count) = self.malformed.get_mut(error.index()) {
            *count += 1;
        }
    }

    /// Adds what another worker counted.
    pub fn add(&mut self, other: &Self) {
        let sum = |to: &mut [u64], from: &[u64]| to.iter_mut().zip(from).for_each(|(a, b)| *a += b);
        sum(&mut self.received, &other.received);
        sum(&mut self.sent, &other.sent);
        sum(&mut self.malformed, &other.malformed);
        self.checksum += other.checksum;
        self.intercepted += other.intercepted;
        self.not_served += other.not_served;
        self.boundary += other.boundary;
        self.wrong_port_lan += other.wrong_port_lan;
        self.wrong_port_wan += other.wrong_port_wan;
        self.transit += other.transit;
        self.off += other.off;
    }

    /// Calls `f` with the name and the value of every counter.
    pub fn for_each(&self, mut f: impl FnMut(&str, u64)) {
        let types = MessageType::ALL
            .iter()
            .zip(self.received.iter().zip(&self.sent));
        for (kind, (received, sent)) in types {
            f(&format!("rx_{}", message_name(*kind)), *received);
            f(&format!("tx_{}", message_name(*kind)), *sent);
        }
        for (error, count) in ParseError::ALL.iter().zip(&self.malformed) {
            f(&format!("malformed_{}", error.name()), *count);
        }
        f("checksum", self.checksum);
        f("intercepted", self.intercepted);
        f("not_served", self.not_served);
        f("boundary", self.boundary);
        f("wrong_port_lan", self.wrong_port_lan);
        f("wrong_port_wan", self.wrong_port_wan);
        f("transit", self.transit);
        f("off", self.off);
    }
}

fn bump(counts: &mut [u64], kind: MessageType) {
    // Type codes are consecutive from 1.
    if let Some(count) = counts.get_mut(usize::from(kind.code()).wrapping_sub(1)) {
        *count += 1;
    }
}

fn message_name(kind: MessageType) -> &'static str {
    match kind {
        MessageType::Repair => "repair",
        MessageType::Hello => "hello",
        MessageType::HelloAck => "hello_ack",
        MessageType::ParamUpdate => "param_update",
        MessageType::ParamAck => "param_ack",
        MessageType::RepairRequest => "repair_request",
        MessageType::LossReport => "loss_report",
        MessageType::PathReport => "path_report",
        MessageType::Close => "close",
    }
}

counters! {
    /// What mode `monitor` saw of all flows; the names are those of a flow.
    MonitorCounters {
        /// Packets.
        packets,
        /// Packets with CE.
        ce,
        /// Positions whose packet did not come in time.
        lost,
        /// Runs of them.
        gaps,
        /// Packets that came late and still filled a gap in time.
        reordered,
        /// Packets whose PSN had been lost: sent again by their host.
        resent,
        /// Packets whose PSN had arrived.
        duplicates,
        /// Packets so far behind that it is not known whether their PSN had arrived.
        behind,
        /// Jumps so wide that what lies between is no loss.
        jumps,
        /// Flows given up because the table was full.
        evicted,
    }
}

counters! {
    /// Links that went, and what propagation did.
    LinkCounters {
        /// The link at the LAN port went by itself.
        lan_down,
        /// The link at the WAN port went by itself.
        wan_down,
        /// The link at the LAN port was taken down because the other one was.
        lan_induced,
        /// The link at the WAN port was taken down because the other one was.
        wan_induced,
        /// A link that was taken down was let go.
        released,
        /// A link could not be taken down: the port's driver cannot do it.
        refused,
    }
}

/// Everything that a segment counts besides the protocol functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SegmentCounters {
    /// LAN port.
    pub lan: PortCounters,
    /// WAN port.
    pub wan: PortCounters,
    /// Frames that ended here.
    pub drops: Drops,
    /// Frames that passed and are of no flow.
    pub passed: Passed,
    /// CREM datagrams.
    pub messages: Messages,
    /// Coding.
    pub coding: Coding,
    /// In-band interface.
    pub inband: InbandCounters,
    /// Other workers.
    pub team: TeamCounters,
    /// Flows that are only watched.
    pub monitor: MonitorCounters,
}

impl SegmentCounters {
    /// Adds what another worker counted.
    pub fn add(&mut self, other: &Self) {
        self.lan.add(&other.lan);
        self.wan.add(&other.wan);
        self.drops.add(&other.drops);
        self.passed.add(&other.passed);
        self.messages.add(&other.messages);
        self.coding.add(&other.coding);
        self.inband.add(&other.inband);
        self.team.add(&other.team);
        self.monitor.add(&other.monitor);
    }
}
