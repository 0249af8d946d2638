//! Packets of RDMA hosts: headers by flow, payloads that lie in their buffers from the start and stay, so
//! that writing a packet touches its first and last octets as an adapter's descriptor would, and the payload
//! comes from memory when it is coded.

use std::net::{IpAddr, SocketAddr};

use crate::gateway::HEADERS;
use crc32fast::Hasher;
use crem_wire::frame::{Mac, Tags, UdpFrame};
use crem_wire::roce::{Bth, Opcode, UDP_PORT};
use crem_wire::{Psn, Qpn, icrc};

/// Octets up to the end of the BTH.
const BTH_END: usize = HEADERS + Bth::LEN;
/// Octets of the name of a payload behind the BTH, with which it begins.
const NAME: usize = 4;
/// Where the name stands again: where a symbol or message in the same buffer would have destroyed it.
const NAME_AGAIN: usize = 256;
/// Octets of the ICRC.
const ICRC: usize = 4;
/// Payloads that differ.
const PATTERNS: usize = 64;
/// Pairs of hosts: this many at each end.
const HOSTS: usize = 16;

/// A generator for content, order and losses; nothing depends on its quality.
#[derive(Clone, Debug)]
pub struct Noise(u64);

impl Noise {
    /// From a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// 32 bits.
    pub fn draw(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 32) as u32
    }

    /// Below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.draw()).unwrap_or(0) % n.max(1)
    }

    /// Any order.
    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, self.below(at + 1));
        }
    }
}

/// Flows that send in turn, a run of packets each, in another order in every round.
#[derive(Debug)]
pub struct Hosts {
    headers: Vec<[u8; BTH_END]>,
    psns: Vec<u32>,
    order: Vec<usize>,
    at: usize,
    left: usize,
    run: usize,
    len: usize,
    patterns: Vec<(Vec<u8>, Hasher)>,
    noise: Noise,
}

impl Hosts {
    /// `flows` flows with packets of `payload` octets in runs of `run`. Packets without room for a name
    /// have no valid ICRC.
    pub fn new(flows: usize, payload: usize, run: usize) -> Self {
        let len = BTH_END + payload + ICRC;
        let mut noise = Noise::new(flows as u64);
        let body = payload.saturating_sub(NAME);
        let patterns = (0..PATTERNS).map(|_| {
            let octets: Vec<u8> = (0..body).map(|_| noise.draw().to_le_bytes()[3]).collect();
            (octets, Hasher::new())
        });
        let mut hosts = Self {
            headers: (0..flows).map(|flow| header(flow, len)).collect(),
            psns: (0..flows)
                .map(|flow| (flow as u32) << 8 & 0xff_ffff)
                .collect(),
            order: (0..flows).collect(),
            at: 0,
            left: run,
            run,
            len,
            patterns: patterns.collect(),
            noise,
        };
        hosts.name_payloads();
        hosts
    }

    /// Writes the name into each payload and sums it up.
    fn name_payloads(&mut self) {
        for (number, (octets, sum)) in self.patterns.iter_mut().enumerate() {
            if let Some(again) = octets.get_mut(NAME_AGAIN - BTH_END - NAME..) {
                again
                    .iter_mut()
                    .zip(name(number))
                    .for_each(|(to, from)| *to = from);
            }
            sum.update(octets);
        }
    }

    /// Octets of a frame.
    pub fn len(&self) -> u16 {
        u16::try_from(self.len).unwrap_or(u16::MAX)
    }

    /// Whether there are no flows.
    pub fn is_empty(&self) -> bool {
        self.headers.is_empty()
    }

    /// The headers of a flow's packets up to the PSN.
    pub fn headers(&self, flow: usize) -> &[u8] {
        self.headers.get(flow).map_or(&[], |headers| headers)
    }

    /// Writes the next packet of a flow into a frame of [`Self::len`] octets.
    pub fn write(&mut self, flow: usize, frame: &mut [u8]) {
        let psn = self.psns[flow];
        self.psns[flow] = (psn + 1) & 0xff_ffff;
        let (head, rest) = frame.split_at_mut(BTH_END);
        head.copy_from_slice(&self.headers[flow]);
        head[BTH_END - 3..].copy_from_slice(&psn.to_be_bytes()[1..]);
        if rest.len() > NAME_AGAIN {
            self.finish(frame);
        }
    }

    /// The flow that sends next.
    pub fn next_flow(&mut self) -> usize {
        if self.left == 0 {
            self.left = self.run;
            self.at += 1;
            if self.at >= self.order.len() {
                self.at = 0;
                self.noise.shuffle(&mut self.order);
            }
        }
        self.left -= 1;
        self.order[self.at]
    }

    /// Puts a payload in, if there is none, and the ICRC.
    fn finish(&mut self, frame: &mut [u8]) {
        let end = frame.len() - ICRC;
        let number = match number(&frame[BTH_END..]) {
            Some(number) if frame[NAME_AGAIN..NAME_AGAIN + NAME] == name(number) => number,
            _ => {
                let number = self.noise.below(PATTERNS);
                frame[BTH_END..BTH_END + NAME].copy_from_slice(&name(number));
                frame[BTH_END + NAME..end].copy_from_slice(&self.patterns[number].0);
                number
            }
        };
        // The sum of the part that is new, joined with that of the part that is not.
        let mut start = [0; BTH_END - 14 + NAME + ICRC];
        start[..BTH_END - 14 + NAME].copy_from_slice(&frame[14..BTH_END + NAME]);
        let Some(sum) = icrc::compute(&start, 20) else {
            return;
        };
        let mut whole = Hasher::new_with_initial_len(u32::from_le_bytes(sum), 0);
        whole.combine(&self.patterns[number].1);
        frame[end..].copy_from_slice(&whole.finalize().to_le_bytes());
    }
}

fn name(number: usize) -> [u8; NAME] {
    [0xc0, 0xde, 0x5e, number.to_le_bytes()[0]]
}

fn number(payload: &[u8]) -> Option<usize> {
    match payload {
        [0xc0, 0xde, 0x5e, number, ..] => Some((*number).into()).filter(|n| *n < PATTERNS),
        _ => None,
    }
}

fn header(flow: usize, len: usize) -> [u8; BTH_END] {
    let host = |net: u8| IpAddr::from([10, 0, net, (flow % HOSTS) as u8 + 1]);
    let headers = UdpFrame {
        destination_mac: Mac([2, 0, 0, 0, 2, 1]),
        source_mac: Mac([2, 0, 0, 0, 1, (flow % HOSTS) as u8 + 1]),
        tags: Tags::NONE,
        source: SocketAddr::new(host(1), 49152 + (flow % 16_384) as u16),
        destination: SocketAddr::new(host(2), UDP_PORT),
        tos: 26 << 2 | 2,
        ttl: 64,
        ident: 0,
        dont_fragment: true,
        udp_checksum: false,
    };
    let bth = Bth {
        opcode: Opcode::SEND_MIDDLE,
        octet1: 0,
        pkey: 0xffff,
        octet4: 0,
        dest_qp: Qpn::new(0x100 + (flow / HOSTS) as u32),
        octet8: 0,
        psn: Psn::new(0),
    };
    let mut frame = vec![0; len];
    bth.write(&mut frame[HEADERS..]);
    // A frame of sixteen bits' length has room for all of them.
    let _ = headers.write(&mut frame);
    let mut head = [0; BTH_END];
    head.copy_from_slice(&frame[..BTH_END]);
    head
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crem_wire::frame::{Class, ParseConfig, parse};

    #[test]
    fn packets_are_valid_and_in_order_however_their_buffers_were_used() {
        let mut hosts = Hosts::new(3, 1024, 2);
        let mut frame = vec![0; usize::from(hosts.len())];
        let mut seen = Vec::new();
        for n in 0..24 {
            if n % 5 == 0 {
                frame[100..].fill(0x77);
            }
            let flow = hosts.next_flow();
            hosts.write(flow, &mut frame);
            let parsed = parse(&frame, &ParseConfig::default());
            let Class::Roce(bth) = parsed.class else {
                unreachable!("{:?}", parsed.class)
            };
            assert!(icrc::verify_frame(&frame, &parsed), "packet {n}");
            seen.push((parsed.ip.unwrap().source, bth.psn.get()));
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 24, "no packet twice");
    }
}
