//! The worker's side of the in-band station: frames between the ports and the kernel's interface, where
//! stations were last seen, and the next hops toward peers as the kernel resolved them. Addresses,
//! routes and neighbours themselves are the kernel's, set and watched by the auxiliary thread.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crem_core::bucket::TimeBucket;
use crem_core::time::Instant;
use crem_wire::frame::{ETHERTYPE_VLAN, Mac, Tag, Tags};

use crate::buffer::{BURST, Buffer, Platform, Pool, Port};
use crate::classify::{Side, Station, may_leave_kernel};
use crate::counters::{Drops, InbandCounters};
use crate::neighbours::Neighbours;

/// Frames a second that the kernel gets, and how many at once: as many again of ARP and neighbour
/// discovery, so that a flood of pings does not cost us our next hops.
const RATE: u32 = 2000;
const DEPTH: u32 = 500;
/// Next hops a second that the kernel is asked for.
const ASK_RATE: u32 = 100;
/// Peers whose next hop is kept.
const MAX_HOPS: usize = 4096;
/// Places of the table of stations; a power of two.
const STATIONS: usize = 4096;

/// One station as an entry of the table: its MAC address, the side where it was last seen, and by side
/// whether it was ever seen there since it is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seen {
    mac: Mac,
    side: Side,
    ever: [bool; 2],
}

impl Seen {
    fn packed(self) -> u64 {
        let [a, b, c, d, e, f] = self.mac.0;
        let mac = u64::from_be_bytes([a, b, c, d, e, f, 0, 0]);
        let ever = u64::from(self.ever[0]) | (u64::from(self.ever[1]) << 1);
        mac | ((self.side as u64) << 2) | ever
    }

    fn unpacked(entry: u64) -> Self {
        let [a, b, c, d, e, f, _, flags] = entry.to_be_bytes();
        let side = if flags & 4 == 0 { Side::Lan } else { Side::Wan };
        Self {
            mac: Mac([a, b, c, d, e, f]),
            side,
            ever: [flags & 1 != 0, flags & 2 != 0],
        }
    }
}

/// Where stations were seen, by all workers of a segment. A newer station may take the place of another
/// one; of two notes at one moment one is lost, and made again with the next frame.
#[derive(Debug)]
pub struct Stations(Vec<AtomicU64>);

impl Default for Stations {
    fn default() -> Self {
        Self((0..STATIONS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Stations {
    fn place(&self, mac: Mac) -> Option<&AtomicU64> {
        let [_, _, a, b, c, d] = mac.0;
        // Fibonacci hashing of the four octets that differ most.
        let hash = u32::from_be_bytes([a, b, c, d]).wrapping_mul(0x9e37_79b1);
        self.0.get((hash >> (32 - STATIONS.ilog2())) as usize)
    }

    fn find(&self, mac: Mac) -> Option<Seen> {
        let entry = self.place(mac)?.load(Ordering::Relaxed);
        Some(Seen::unpacked(entry)).filter(|seen| entry != 0 && seen.mac == mac)
    }
}

/// One worker's notes for the table.
#[derive(Debug)]
struct Watch {
    stations: Arc<Stations>,
    /// By side, the station noted last: most frames need no note.
    last: [Mac; 2],
}

impl Watch {
    fn new(stations: Arc<Stations>) -> Self {
        Self {
            stations,
            last: [Mac::default(); 2],
        }
    }

    #[inline]
    fn learn(&mut self, mac: Mac, side: Side) {
        let last = &mut self.last[side as usize];
        if *last == mac || mac.is_group() {
            return;
        }
        *last = mac;
        self.note(mac, side);
    }

    fn note(&mut self, mac: Mac, side: Side) {
        // The other side forgets its shortcut, so that a station that moves is seen.
        let other = &mut self.last[side.opposite() as usize];
        if *other == mac {
            *other = Mac::default();
        }
        let Some(place) = self.stations.place(mac) else {
            return;
        };
        let mut seen = Seen::unpacked(place.load(Ordering::Relaxed));
        if seen.mac != mac {
            // Who is pushed out must be learnt anew when seen again.
            for last in &mut self.last {
                if *last == seen.mac {
                    *last = Mac::default();
                }
            }
            (seen.mac, seen.ever) = (mac, [false; 2]);
        }
        seen.side = side;
        seen.ever[side as usize] = true;
        place.store(seen.packed(), Ordering::Relaxed);
    }

    /// Forgets a station.
    fn forget(&mut self, mac: Mac) {
        if let Some(place) = self.stations.place(mac)
            && Seen::unpacked(place.load(Ordering::Relaxed)).mac == mac
        {
            place.store(0, Ordering::Relaxed);
            for last in &mut self.last {
                if *last == mac {
                    *last = Mac::default();
                }
            }
        }
    }
}

/// The in-band station of a segment.
pub struct Inband<P: Platform> {
    /// Its addresses.
    pub station: Station,
    /// What went through it.
    pub counters: InbandCounters,
    /// The kernel's interface, at the worker that has it.
    port: Option<P::Port>,
    default_side: Side,
    watch: Watch,
    hops: HashMap<IpAddr, Mac>,
    neighbours: Neighbours,
    police: TimeBucket,
    discovery_police: TimeBucket,
    ask_police: TimeBucket,
    to_kernel: Vec<P::Buf>,
    from_kernel: Vec<P::Buf>,
}

impl<P: Platform> Inband<P> {
    /// A station whose kernel interface is `port`; frames to stations not seen yet go to
    /// `default_side`.
    pub fn new(station: Station, port: P::Port, default_side: Side, now: Instant) -> Self {
        let stations = Arc::default();
        Self::shared(station, Some(port), default_side, stations, now)
    }

    /// The same of one of several workers, which share the table of stations; one of them has the port.
    pub fn shared(
        station: Station,
        port: Option<P::Port>,
        default_side: Side,
        stations: Arc<Stations>,
        now: Instant,
    ) -> Self {
        Self {
            station,
            counters: InbandCounters::default(),
            port,
            default_side,
            watch: Watch::new(stations),
            hops: HashMap::with_capacity(MAX_HOPS),
            neighbours: Neighbours::default(),
            police: TimeBucket::new(RATE, DEPTH, now),
            discovery_police: TimeBucket::new(RATE, DEPTH, now),
            ask_police: TimeBucket::new(ASK_RATE, ASK_RATE, now),
            to_kernel: Vec::with_capacity(BURST),
            from_kernel: Vec::with_capacity(BURST),
        }
    }

    /// Notes on which side a frame's sender is.
    #[inline]
    pub fn learn(&mut self, frame: &[u8], side: Side) {
        if let Some(&[a, b, c, d, e, f]) = frame.get(6..12) {
            self.watch.learn(Mac([a, b, c, d, e, f]), side);
        }
    }

    /// Takes no station for known any more: another worker may have seen it elsewhere.
    pub fn look_anew(&mut self) {
        self.watch.last = [Mac::default(); 2];
    }

    /// The tags of our frames, with this priority.
    pub fn tags(&self, pcp: u8) -> Tags {
        let mut tags = Tags::NONE;
        if let Some(vlan) = self.station.vlan {
            tags.push(Tag::vlan(u16::from(pcp) << 13 | vlan));
        }
        tags
    }

    /// The kernel's answer, or that there is none any more.
    pub fn set_next_hop(&mut self, peer: IpAddr, mac: Option<Mac>) {
        // Every worker is told; the one with the kernel's interface counts.
        let counts = u64::from(self.port.is_some());
        match mac {
            Some(mac) if self.hops.len() < MAX_HOPS || self.hops.contains_key(&peer) => {
                if self.hops.insert(peer, mac) != Some(mac) {
                    self.counters.next_hops_found += counts;
                }
            }
            Some(_) => {}
            None => {
                if let Some(mac) = self.hops.remove(&peer) {
                    self.counters.next_hops_lost += counts;
                    // It may come back on the other side.
                    self.watch.forget(mac);
                }
            }
        }
    }

    /// Next hop and port toward a peer. A next hop that was seen on our own port stays there, whoever
    /// uses its address on the other one: a host could draw what we send to the peer to itself.
    pub fn next_hop(&self, peer: IpAddr) -> Option<(Mac, Side)> {
        let mac = *self.hops.get(&peer)?;
        let side = match self.watch.stations.find(mac) {
            Some(seen) if !seen.ever[self.default_side as usize] => seen.side,
            _ => self.default_side,
        };
        Some((mac, side))
    }

    /// The port at which messages from a gateway with this address come in: that of the next hop toward
    /// it, and ours as long as none is known.
    pub fn entrance(&self, sender: IpAddr) -> Side {
        let hop = self.next_hop(sender);
        hop.map_or(self.default_side, |(_, side)| side)
    }

    /// Whether the next hop toward a gateway is known.
    pub fn knows(&self, peer: IpAddr) -> bool {
        self.hops.contains_key(&peer)
    }

    /// All next hops known.
    pub fn next_hops(&self) -> impl Iterator<Item = (IpAddr, [u8; 6])> + '_ {
        self.hops.iter().map(|(peer, mac)| (*peer, mac.0))
    }

    /// Whether the kernel may be asked for another next hop now.
    pub fn may_ask(&mut self, now: Instant) -> bool {
        let may = self.ask_police.take(now);
        self.counters.resolutions += u64::from(may);
        may
    }

    /// The port behind which a station is.
    pub fn side_of(&self, mac: Mac) -> Side {
        let seen = self.watch.stations.find(mac);
        seen.map_or(self.default_side, |seen| seen.side)
    }

    /// Takes a frame for the kernel, without our VLAN tag.
    pub fn punt(&mut self, frame: P::Buf, pool: &P::Pool, now: Instant, drops: &mut Drops) {
        let police = if is_discovery(frame.octets()) {
            &mut self.discovery_police
        } else {
            &mut self.police
        };
        if !police.take(now) {
            drops.inband_rate += 1;
            return;
        }
        let frame = if self.station.vlan.is_some() {
            match without_tag(&frame, pool) {
                Some(copy) => copy,
                None => {
                    drops.inband_no_buffer += 1;
                    return;
                }
            }
        } else {
            frame
        };
        if !self.neighbours.admits(frame.octets()) {
            drops.inband_neighbour += 1;
            return;
        }
        self.to_kernel.push(frame);
        if self.to_kernel.len() >= BURST {
            self.give(drops);
        }
    }

    /// Hands the kernel what was taken for it.
    pub fn give(&mut self, drops: &mut Drops) {
        if self.to_kernel.is_empty() {
            return;
        }
        let Some(port) = &mut self.port else {
            drops.inband_queue += self.to_kernel.len() as u64;
            self.to_kernel.clear();
            return;
        };
        while !self.to_kernel.is_empty() {
            let count = self.to_kernel.len();
            port.send(&mut self.to_kernel);
            self.counters.to_kernel += (count - self.to_kernel.len()) as u64;
            // The driver stops at a frame that it finds too long; those behind it are not to blame.
            if !self.to_kernel.is_empty() {
                self.to_kernel.remove(0);
                drops.inband_queue += 1;
            }
        }
    }

    /// Takes what the kernel sends, and calls `send` for each frame, tagged, with its port. Whether there
    /// was any.
    pub fn take(
        &mut self,
        pool: &P::Pool,
        drops: &mut Drops,
        mut send: impl FnMut(Side, P::Buf),
    ) -> bool {
        let Some(port) = &mut self.port else {
            return false;
        };
        let mut frames = core::mem::take(&mut self.from_kernel);
        port.receive(&mut frames);
        let any = !frames.is_empty();
        self.counters.from_kernel += frames.len() as u64;
        for frame in frames.drain(..) {
            let Some(destination) = destination_of(frame.octets()) else {
                continue;
            };
            if !may_leave_kernel(frame.octets()) {
                drops.inband_egress += 1;
                continue;
            }
            self.neighbours.asks(frame.octets());
            let side = self.side_of(destination);
            let tagged = match self.station.vlan {
                Some(vlan) => with_tag::<P>(&frame, vlan, pool),
                None => Some(frame),
            };
            match tagged {
                Some(frame) => send(side, frame),
                None => drops.inband_no_buffer += 1,
            }
        }
        self.from_kernel = frames;
        any
    }
}

/// ARP or neighbour discovery, tagged or not.
fn is_discovery(frame: &[u8]) -> bool {
    let tagged = frame.get(ADDRESSES..ADDRESSES + 2) == Some(&ETHERTYPE_VLAN.to_be_bytes());
    let at = if tagged { ADDRESSES + TAG } else { ADDRESSES };
    match frame.get(at..) {
        Some([0x08, 0x06, ..]) => true,
        // The type of an ICMPv6 message right behind the IPv6 header.
        Some([0x86, 0xdd, packet @ ..]) => {
            packet.get(6) == Some(&58) && matches!(packet.get(40), Some(135 | 136))
        }
        _ => false,
    }
}

fn destination_of(frame: &[u8]) -> Option<Mac> {
    frame.first_chunk::<6>().map(|octets| Mac(*octets))
}

/// Octets before a tag: both addresses.
const ADDRESSES: usize = 12;
const TAG: usize = 4;

/// A copy without the outermost tag.
fn without_tag<B: Buffer>(frame: &B, pool: &impl Pool<B>) -> Option<B> {
    let octets = frame.octets();
    let rest = octets.get(ADDRESSES + TAG..)?;
    let mut copy = pool.take(u16::try_from(octets.len() - TAG).ok()?)?;
    let (addresses, behind) = copy.octets_mut()?.split_at_mut_checked(ADDRESSES)?;
    addresses.copy_from_slice(&octets[..ADDRESSES]);
    behind.copy_from_slice(rest);
    Some(copy)
}

/// A copy with a tag.
fn with_tag<P: Platform>(frame: &P::Buf, vlan: u16, pool: &P::Pool) -> Option<P::Buf> {
    let octets = frame.octets();
    let rest = octets.get(ADDRESSES..)?;
    let mut copy = pool.take(u16::try_from(octets.len() + TAG).ok()?)?;
    let (addresses, behind) = copy.octets_mut()?.split_at_mut_checked(ADDRESSES)?;
    addresses.copy_from_slice(&octets[..ADDRESSES]);
    let (tag, behind) = behind.split_at_mut_checked(TAG)?;
    tag[..2].copy_from_slice(&ETHERTYPE_VLAN.to_be_bytes());
    tag[2..].copy_from_slice(&vlan.to_be_bytes());
    behind.copy_from_slice(rest);
    Some(copy)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::buffer::heap::{Heap, HeapBuf, HeapPool, HeapPort};

    fn mac(last: u8) -> Mac {
        Mac([2, 0, 0, 0, 0, last])
    }

    fn arp(destination: Mac) -> Vec<u8> {
        let mut frame = destination.0.to_vec();
        frame.extend_from_slice(&mac(1).0);
        frame.extend_from_slice(&[0x08, 0x06]);
        frame.extend_from_slice(&[0; 28]);
        frame
    }

    fn inband(vlan: Option<u16>) -> Inband<Heap> {
        let station = Station {
            address: "192.0.2.1".parse().unwrap(),
            mac: mac(1),
            vlan,
        };
        Inband::new(station, HeapPort::default(), Side::Wan, Instant(0))
    }

    #[test]
    fn stations_are_found_where_they_were_last_seen() {
        let mut inband = inband(None);
        assert_eq!(inband.side_of(mac(7)), Side::Wan);
        let seen = |m: Mac| [mac(1).0, m.0].concat();
        inband.learn(&seen(mac(7)), Side::Lan);
        assert_eq!(inband.side_of(mac(7)), Side::Lan);
        inband.learn(&seen(mac(7)), Side::Wan);
        assert_eq!(inband.side_of(mac(7)), Side::Wan);
        inband.learn(&seen(mac(7)), Side::Lan);
        assert_eq!(inband.side_of(mac(7)), Side::Lan);
        inband.learn(&seen(Mac::BROADCAST), Side::Lan);
        assert_eq!(inband.side_of(Mac::BROADCAST), Side::Wan);
    }

    #[test]
    fn our_tag_is_popped_and_pushed() {
        let mut inband = inband(Some(5));
        let (pool, mut drops) = (HeapPool::default(), Drops::default());
        let plain = arp(mac(9));
        let tagged = [&plain[..12], &[0x81, 0, 0, 5], &plain[12..]].concat();
        inband.punt(HeapBuf::new(&tagged), &pool, Instant(0), &mut drops);
        inband.give(&mut drops);
        assert_eq!(inband.port.as_ref().unwrap().sent[0].octets(), plain);
        inband.port.as_mut().unwrap().arrive(&plain);
        let mut sent = Vec::new();
        assert!(inband.take(&pool, &mut drops, |side, f| {
            sent.push((side, f.octets().to_vec()))
        }));
        assert_eq!(sent, [(Side::Wan, tagged)]);
        assert_eq!(drops, Drops::default());
    }

    #[test]
    fn the_kernel_is_spared_more_than_its_rate_and_sends_only_what_it_may() {
        let mut inband = inband(None);
        let (pool, mut drops) = (HeapPool::default(), Drops::default());
        let mut ping = arp(mac(1));
        ping[12..14].copy_from_slice(&[0x08, 0x00]);
        for _ in 0..DEPTH + 3 {
            inband.punt(HeapBuf::new(&ping), &pool, Instant(0), &mut drops);
        }
        inband.give(&mut drops);
        assert_eq!(
            (inband.counters.to_kernel, drops.inband_rate),
            (u64::from(DEPTH), 3)
        );
        // Not even then is ARP starved.
        inband.punt(HeapBuf::new(&arp(mac(1))), &pool, Instant(0), &mut drops);
        inband.give(&mut drops);
        assert_eq!(drops.inband_rate, 3);
        let mut udp = arp(mac(2));
        udp[12..14].copy_from_slice(&[0x08, 0x00]);
        inband.port.as_mut().unwrap().arrive(&udp);
        inband.take(&pool, &mut drops, |_, _| panic!("must not leave"));
        assert_eq!(drops.inband_egress, 1);
    }

    #[test]
    fn next_hops_come_and_go() {
        let mut inband = inband(None);
        let peer = "192.0.2.2".parse().unwrap();
        assert_eq!(inband.next_hop(peer), None);
        inband.set_next_hop(peer, Some(mac(8)));
        assert_eq!(inband.next_hop(peer), Some((mac(8), Side::Wan)));
        inband.set_next_hop(peer, Some(mac(8)));
        inband.set_next_hop(peer, Some(mac(9)));
        inband.set_next_hop(peer, None);
        inband.set_next_hop(peer, None);
        assert_eq!(inband.next_hop(peer), None);
        let InbandCounters {
            next_hops_found,
            next_hops_lost,
            ..
        } = inband.counters;
        assert_eq!((next_hops_found, next_hops_lost), (2, 1));
    }

    #[test]
    fn a_host_cannot_draw_what_goes_to_a_peer_to_itself() {
        let mut inband = inband(None);
        let peer = "192.0.2.2".parse().unwrap();
        let from = |m: Mac| [mac(1).0, m.0].concat();
        inband.set_next_hop(peer, Some(mac(8)));
        inband.learn(&from(mac(8)), Side::Wan);
        inband.learn(&from(mac(8)), Side::Lan);
        assert_eq!(inband.next_hop(peer), Some((mac(8), Side::Wan)));
        // A router on the other port is found there, as long as none like it was seen on ours.
        let router = "192.0.2.3".parse().unwrap();
        inband.set_next_hop(router, Some(mac(9)));
        inband.learn(&from(mac(9)), Side::Lan);
        assert_eq!(inband.next_hop(router), Some((mac(9), Side::Lan)));
        // Once the kernel lost it, it may come back on the other side.
        inband.set_next_hop(peer, None);
        inband.set_next_hop(peer, Some(mac(8)));
        inband.learn(&from(mac(8)), Side::Lan);
        assert_eq!(inband.next_hop(peer), Some((mac(8), Side::Lan)));
    }
}
