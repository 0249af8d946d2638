//! What is observed of a flow whether it is protected or not: its highest PSN, READ spans, rate, RDMA
//! MTU, DSCP. Pure bookkeeping, no decision about protection.

use crem_wire::Psn;

use super::sizes::Sizes;
use crate::packet::Desc;
use crate::plan::{self, RDMA_MTUS};
use crate::time::{Duration, Instant};

/// A jump of this many PSNs, either way, is another use of the QP (AMB-QPREUSE).
const REUSE_DISTANCE: i32 = 1 << 22;
/// DMA Length beyond which a READ is not valid RDMA.
const MAX_READ: u32 = 1 << 31;
/// Shortest window of the rate measurement.
const MIN_WINDOW: Duration = Duration::from_millis(1);
/// A pause this long is no part of the rate.
const PAUSE: Duration = Duration::from_millis(100);
/// XRC opcodes carry these upper bits.
const XRC: u8 = 0xa0;

/// How a packet relates to what was seen before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// A new PSN, `jump` positions beyond the highest (1 if it is the next); of the positions after
    /// it `absent` belong to the READ that it is.
    New { jump: u32, absent: u32 },
    /// At or behind the highest PSN.
    Behind,
    /// So far away that the QP must have been reused. It counts as the first packet of the new use.
    Reused { absent: u32 },
}

/// Packets per second, in windows of about one round trip.
#[derive(Clone, Copy, Debug, Default)]
struct RateMeter {
    window_start: Option<Instant>,
    count: u64,
    /// Packets and length of the window before.
    last: Option<(u64, Duration)>,
    smoothed: Option<u64>,
}

impl RateMeter {
    /// A packet passes, new or not: closes the window if it is over. After a pause all begins anew, but
    /// for the smoothed rate.
    fn tick(&mut self, now: Instant, pause: bool, window: Duration) {
        let Some(start) = self.window_start.filter(|_| !pause) else {
            (self.count, self.last) = (0, None);
            self.window_start = Some(now);
            return;
        };
        let elapsed = now.since(start);
        if elapsed < window {
            return;
        }
        if self.count > 0 {
            let fresh = per_second(self.count, elapsed);
            self.smoothed = Some(self.smoothed.map_or(fresh, |old| (old * 3 + fresh) / 4));
        }
        self.last = Some((self.count, elapsed));
        self.window_start = Some(now);
        self.count = 0;
    }

    /// The smoothed rate, or before the first full window what there is of it.
    fn smoothed(&self, now: Instant) -> u64 {
        self.smoothed
            .unwrap_or_else(|| per_second(self.count, self.elapsed(now).max(MIN_WINDOW)))
    }

    /// The rate of the last one to two windows; the smoothed one where there is none.
    fn recent(&self, now: Instant) -> u64 {
        self.last.map_or_else(
            || self.smoothed(now),
            |(count, elapsed)| per_second(count + self.count, elapsed + self.elapsed(now)),
        )
    }

    fn elapsed(&self, now: Instant) -> Duration {
        self.window_start
            .map_or(Duration::ZERO, |start| now.since(start))
    }
}

fn per_second(count: u64, elapsed: Duration) -> u64 {
    let nanos = elapsed.as_nanos().max(1);
    // Divisions of 128 bits cost many times as much, and this is reckoned for every few packets.
    match (count.checked_mul(1_000_000_000), u64::try_from(nanos)) {
        (Some(packets), Ok(nanos)) => packets / nanos,
        _ => u64::try_from(u128::from(count) * 1_000_000_000 / nanos).unwrap_or(u64::MAX),
    }
}

/// What is known of a flow from its packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Track {
    highest: Option<Psn>,
    last_read: Option<(Psn, u32)>,
    /// DMA Length of the last new packet if that was a READ request, while the RDMA MTU is a guess.
    guessed_read: Option<u32>,
    /// The last packet took back part of a READ's span: what was made of those positions is void.
    pub(super) took_back: bool,
    rate: RateMeter,
    /// New packets since the start or the last reuse of the QP.
    pub(super) new_packets: u64,
    /// Positions of READ spans among the new ones that carry no packet.
    absent: u64,
    /// Time of the last packet.
    pub(super) last_packet: Instant,
    /// RDMA MTU learned: from FIRST and MIDDLE packets, from the PSN that follows a READ, or from the
    /// other direction (AMB-RDMAMTU).
    pub(super) mtu: Option<u16>,
    /// Sizes of the packets.
    pub(super) sizes: Sizes,
    /// XRC packets were seen: they carry four octets more.
    pub(super) xrc: bool,
    /// DSCP of the last packet.
    pub(super) dscp: u8,
}

impl Track {
    /// Takes a packet in. `mtu` is the RDMA MTU to reckon READ spans with, `window` the span that the
    /// rate is smoothed over. Constant time.
    pub(crate) fn observe<B>(
        &mut self,
        packet: &Desc<B>,
        mtu: u16,
        window: Duration,
        now: Instant,
    ) -> Seen {
        let pause = now.since(self.last_packet) > PAUSE;
        self.last_packet = now;
        self.dscp = packet.dscp;
        self.xrc |= packet.opcode & 0xe0 == XRC;
        if let Some(seen) = packet.mtu_seen.filter(|m| is_rdma_mtu(*m)) {
            self.mtu = Some(seen);
        }
        self.rate.tick(now, pause, window.max(MIN_WINDOW));
        self.sizes.note(now, packet.payload_len);
        self.learn_from_read(packet);
        let mtu = self.mtu.unwrap_or(mtu);
        let seen = self.place(packet.psn);
        if let Seen::Behind = seen {
            return seen;
        }
        if let Seen::Reused { .. } = seen {
            self.last_read = None;
        }
        let absent = self.absent_after(packet, mtu);
        self.highest = Some(packet.psn.add(absent as i32));
        self.rate.count += 1;
        match seen {
            Seen::New { jump, .. } => {
                self.new_packets += 1;
                self.absent += u64::from(absent);
                Seen::New { jump, absent }
            }
            _ => {
                self.new_packets = 1;
                self.absent = u64::from(absent);
                self.sizes = Sizes::default();
                self.sizes.note(now, packet.payload_len);
                self.mtu = packet.mtu_seen.filter(|m| is_rdma_mtu(*m));
                Seen::Reused { absent }
            }
        }
    }

    fn place(&self, psn: Psn) -> Seen {
        let Some(highest) = self.highest else {
            return Seen::New { jump: 1, absent: 0 };
        };
        let distance = psn.distance_from(highest);
        if distance >= REUSE_DISTANCE || (distance <= -REUSE_DISTANCE && !self.in_last_read(psn)) {
            Seen::Reused { absent: 0 }
        } else if distance > 0 {
            Seen::New {
                jump: distance as u32,
                absent: 0,
            }
        } else {
            Seen::Behind
        }
    }

    /// A READ may span up to 2^23 PSNs; being re-issued inside it is no reuse of the QP.
    fn in_last_read(&self, psn: Psn) -> bool {
        self.last_read.is_some_and(|(start, count)| {
            psn.get().wrapping_sub(start.get()) & (Psn::SPACE - 1) < count
        })
    }

    /// The packet after a READ request tells the RDMA MTU by its PSN, if that was a guess so far: with a
    /// guess too small the packet would look like a repeated one.
    fn learn_from_read<B>(&mut self, packet: &Desc<B>) {
        self.took_back = false;
        let Some((read, octets)) = self.last_read_guessed() else {
            return;
        };
        // A READ that is issued again inside the span asks for less.
        let again = packet.read_length.is_some_and(|length| length < octets);
        if again || !packet.psn.is_after(read) {
            return;
        }
        self.guessed_read = None;
        let follows = |mtu: &u16| {
            plan::read_span(read, octets, *mtu)
                .is_some_and(|s| s.absent > 0 && s.next == packet.psn)
        };
        if let Some(mtu) = RDMA_MTUS.into_iter().find(follows) {
            self.mtu = Some(mtu);
            self.took_back = (self.highest).is_some_and(|h| !packet.psn.is_after(h));
            self.highest = Some(packet.psn.add(-1));
        }
    }

    fn last_read_guessed(&self) -> Option<(Psn, u32)> {
        let octets = self.guessed_read.filter(|_| self.mtu.is_none())?;
        Some((self.last_read?.0, octets))
    }

    /// The PSNs that so many packets of the flow take up on average, what READs leave out included.
    pub(super) fn positions_of(&self, packets: u64) -> u64 {
        let per_packet = self.absent / self.new_packets.max(1) + 1;
        packets.saturating_mul(per_packet)
    }

    /// What the other direction shows of the RDMA MTU, where this one has shown nothing.
    pub(super) fn learn_mtu(&mut self, octets: u16) {
        if is_rdma_mtu(octets) {
            self.mtu.get_or_insert(octets);
        }
    }

    fn absent_after<B>(&mut self, packet: &Desc<B>, mtu: u16) -> u32 {
        let length = packet.read_length.filter(|l| *l <= MAX_READ);
        self.guessed_read = length.filter(|_| self.mtu.is_none());
        let Some(length) = length else {
            return 0;
        };
        let Some(span) = plan::read_span(packet.psn, length, mtu) else {
            return 0;
        };
        // The highest PSN must stay less than half the space ahead of the request.
        let count = span.count.min(Psn::HALF as u32 - 1);
        self.last_read = Some((packet.psn, count));
        count - 1
    }

    /// Another use of the QP begins: its PSNs are not known yet, its RDMA MTU perhaps.
    pub(super) fn begin_anew(&mut self, mtu: Option<u16>) {
        (self.highest, self.last_read, self.new_packets) = (None, None, 0);
        self.mtu = mtu.filter(|m| is_rdma_mtu(*m));
    }

    /// The PSN after the highest.
    pub(crate) fn next(&self) -> Psn {
        self.highest.map_or(Psn::new(0), |psn| psn.add(1))
    }

    /// New packets per second over the last one or two round trips.
    pub(super) fn rate(&self, now: Instant) -> u64 {
        self.rate.recent(now)
    }

    /// Mean time between new packets.
    pub(crate) fn spacing(&self, now: Instant) -> Duration {
        Duration::from_nanos(1_000_000_000 / self.rate.smoothed(now).max(1))
    }
}

/// Whether a DMA Length is one that RDMA allows.
pub(super) fn read_is_valid(length: u32) -> bool {
    length <= MAX_READ
}

fn is_rdma_mtu(octets: u16) -> bool {
    RDMA_MTUS.contains(&octets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csf::testing::{desc, key};

    const MS: Duration = Duration::from_millis(1);

    fn see(track: &mut Track, psn: u32) -> Seen {
        track.observe(&desc(key(1), psn), 1024, MS, Instant(0))
    }

    fn see_read(track: &mut Track, psn: u32, length: u32, mtu: u16) -> Seen {
        let mut packet = desc(key(1), psn);
        packet.read_length = Some(length);
        track.observe(&packet, mtu, MS, Instant(0))
    }

    // shows: CREM-BLOCK-06, AMB-NEWPSN
    #[test]
    fn new_and_behind_by_serial_distance() {
        let mut track = Track::default();
        assert_eq!(see(&mut track, 0xff_fffe), Seen::New { jump: 1, absent: 0 });
        assert_eq!(see(&mut track, 0xff_ffff), Seen::New { jump: 1, absent: 0 });
        assert_eq!(see(&mut track, 2), Seen::New { jump: 3, absent: 0 });
        assert_eq!(see(&mut track, 2), Seen::Behind);
        assert_eq!(see(&mut track, 0xff_fff0), Seen::Behind);
        assert_eq!(track.new_packets, 3);
    }

    // shows: AMB-QPREUSE
    #[test]
    fn far_jumps_are_reuse() {
        let mut track = Track::default();
        see(&mut track, 0);
        assert_eq!(
            see(&mut track, (1 << 22) - 1),
            Seen::New {
                jump: (1 << 22) - 1,
                absent: 0
            }
        );
        assert_eq!(see(&mut track, (1 << 23) - 1), Seen::Reused { absent: 0 });
        assert_eq!(track.new_packets, 1);
        assert_eq!(see(&mut track, 5), Seen::Reused { absent: 0 });
    }

    #[test]
    fn read_spans_advance_the_highest() {
        let mut track = Track::default();
        assert_eq!(
            see_read(&mut track, 10, 0, 1024),
            Seen::New { jump: 1, absent: 0 }
        );
        assert_eq!(
            see_read(&mut track, 11, 4096, 1024),
            Seen::New { jump: 1, absent: 3 }
        );
        assert_eq!(track.next(), Psn::new(15));
        // Re-issued inside its span: no new PSN.
        assert_eq!(see_read(&mut track, 13, 2048, 1024), Seen::Behind);
        assert_eq!(track.next(), Psn::new(15));
        // The longest READ, re-issued: still no reuse of the QP.
        assert!(matches!(
            see_read(&mut track, 15, 1 << 31, 256),
            Seen::New { .. }
        ));
        assert_eq!(see(&mut track, 15), Seen::Behind);
        // Longer than RDMA allows: one PSN.
        let next = track.next();
        assert_eq!(
            see_read(&mut track, next.get(), u32::MAX, 256),
            Seen::New { jump: 1, absent: 0 }
        );
    }

    #[test]
    fn rate_and_spacing() {
        let mut track = Track::default();
        for n in 0..100u32 {
            let now = Instant(u64::from(n) * 100_000);
            track.observe(&desc(key(1), n), 1024, MS, now);
        }
        let now = Instant(10_000_000);
        assert!(
            (9_000..=11_000).contains(&track.rate(now)),
            "{}",
            track.rate(now)
        );
        // A pause does not count, and packets that are not new do not either.
        track.observe(&desc(key(1), 200), 1024, MS, Instant(5_000_000_000));
        let now = Instant(5_000_000_000);
        assert!(
            (9_000..=11_000).contains(&track.rate(now)),
            "{}",
            track.rate(now)
        );
        assert!(track.spacing(now) < Duration::from_micros(120));
        for n in 1..40u64 {
            let now = Instant(5_000_000_000 + n * 100_000);
            track.observe(&desc(key(1), 200), 1024, MS, now);
        }
        assert!(track.rate(Instant(5_004_000_000)) < 100);
    }

    // shows: QOS-MTU-01
    #[test]
    fn mtu_only_where_it_is_one() {
        let mut track = Track::default();
        let mut packet = desc(key(1), 1);
        packet.mtu_seen = Some(1000);
        track.observe(&packet, 1024, MS, Instant(0));
        assert_eq!(track.mtu, None);
        packet.psn = Psn::new(2);
        packet.mtu_seen = Some(4096);
        packet.opcode = 0xa6;
        track.observe(&packet, 1024, MS, Instant(0));
        assert_eq!((track.mtu, track.xrc), (Some(4096), true));
    }
}
