//! Finding the source packets of a capture, stream by stream, in runs of ascending PSNs.

use std::collections::HashMap;
use std::net::IpAddr;

use crem_wire::frame::{self, Class, ParseConfig, Parsed};
use crem_wire::{Psn, Qpn, icrc, roce};

/// Which packets are sources.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kinds {
    /// Requests (Flow Kind 1).
    #[default]
    Requests,
    /// READ and atomic responses (Flow Kind 0xC1).
    Responses,
}

impl Kinds {
    fn has(self, class: roce::Class) -> bool {
        match self {
            Self::Requests => class == roce::Class::Request,
            Self::Responses => matches!(class, roce::Class::Response | roce::Class::AtomicAck),
        }
    }
}

/// A source packet in its frame.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// PSN.
    pub psn: Psn,
    /// The frame as captured.
    pub frame: &'a [u8],
    /// The frame taken apart.
    pub parsed: Parsed,
}

impl<'a> Packet<'a> {
    /// P: the UDP payload, BTH to ICRC.
    pub fn payload(&self) -> &'a [u8] {
        self.parsed.payload(self.frame)
    }
}

/// Packets of one stream with ascending PSNs. A packet that does not advance the PSN (a
/// retransmission) begins a new run, so that each position of a block has one packet.
#[derive(Clone, Debug, Default)]
pub struct Run<'a> {
    /// The packets.
    pub packets: Vec<Packet<'a>>,
}

/// What a capture has.
#[derive(Debug, Default)]
pub struct Found<'a> {
    /// All runs of all streams.
    pub runs: Vec<Run<'a>>,
    /// Number of streams.
    pub streams: usize,
    /// Source packets that were left out because their ICRC is wrong as captured.
    pub corrupt: usize,
}

/// VLAN and VXLAN context, source, destination, destination QP.
type StreamKey = (u64, IpAddr, IpAddr, Qpn);

/// Sorts the source packets of `frames` into runs.
pub fn find_runs<'a>(frames: &[&'a [u8]], config: &ParseConfig, kinds: Kinds) -> Found<'a> {
    let mut found = Found::default();
    let mut open: HashMap<StreamKey, usize> = HashMap::new();
    for &frame in frames {
        let parsed = frame::parse(frame, config);
        let (Class::Roce(bth), Some(ip)) = (parsed.class, parsed.ip) else {
            continue;
        };
        if !kinds.has(bth.opcode.class()) {
            continue;
        }
        if !icrc::verify_frame(frame, &parsed) {
            found.corrupt += 1;
            continue;
        }
        let packet = Packet {
            psn: bth.psn,
            frame,
            parsed,
        };
        let key = (parsed.context(), ip.source, ip.destination, bth.dest_qp);
        let run = open.get(&key).and_then(|&at| found.runs.get_mut(at));
        match run {
            Some(run)
                if run
                    .packets
                    .last()
                    .is_some_and(|last| bth.psn.is_after(last.psn)) =>
            {
                run.packets.push(packet);
            }
            _ => {
                open.insert(key, found.runs.len());
                found.runs.push(Run {
                    packets: vec![packet],
                });
            }
        }
    }
    found.streams = open.len();
    found
}
