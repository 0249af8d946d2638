//! How much repair a flow may draw: ordinary symbols and their octets against m/k of its sources, coded
//! symbols and copies of a second against what was reported lost (CREM Congestion Control; AMB-RATECAP,
//! AMB-VOLCAP). Counted from packets and messages that pass.

use std::collections::VecDeque;

use crate::{Duration, Instant};

/// Rounding that the account forgives, in symbols.
const SLACK: f64 = 1e-6;
/// Ordinary octets may be this many times m/k of the source octets.
const OCTET_FACTOR: f64 = 2.0;
/// The floor of coded symbols and copies, per flow and second.
const VOLUME_FLOOR: u64 = 64;
/// Configurations of a flow that are remembered.
const CONFIGURATIONS: usize = 8;
/// Slots of the window of a second; it is one slot longer than a second for what earns, one shorter
/// for what spends, so that slots of another phase are not mistaken for a violation.
const SLOT: Duration = Duration::from_millis(125);
const SLOTS: usize = 10;

/// What a configuration allows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowed {
    pub(crate) m: u8,
    pub(crate) k: u8,
    pub(crate) t: u16,
}

impl Allowed {
    fn ratio(self) -> f64 {
        f64::from(self.m) / f64::from(self.k.max(1))
    }
}

/// Source packets of a stream as its sender function sees them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sources {
    /// Highest PSN, of the plain namespace and of all others.
    highest: [Option<u32>; 2],
    /// Packets with a new PSN.
    pub(crate) new: u64,
    /// Octets of their UDP payloads.
    pub(crate) octets: u64,
    /// Both as they were before the burst that passes now, and when that is.
    before: (u64, u64),
    burst: Instant,
}

impl Sources {
    /// A packet passes at `now`. Symbols of a block may be decided on in the middle of a burst but are
    /// seen at its end. The span of a READ is not skipped: how long the sender function takes it to be
    /// hangs on the RDMA MTU that it knows.
    pub(crate) fn on_packet(&mut self, now: Instant, namespace: u64, psn: u32, octets: u16) {
        if self.burst != now {
            (self.burst, self.before) = (now, (self.new, self.octets));
        }
        let known = &mut self.highest[usize::from(namespace != 0)];
        let ahead = match *known {
            Some(highest) => psn.wrapping_sub(highest) & 0xff_ffff,
            None => 1,
        };
        if (1..1 << 23).contains(&ahead) {
            self.new += 1;
            self.octets += u64::from(octets);
            *known = Some(psn);
        }
    }

    /// The PSNs start anew.
    pub(crate) fn restart(&mut self) {
        self.highest = [None; 2];
    }
}

/// A bucket that earns a share of what passes.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    level: f64,
    seen: u64,
}

impl Bucket {
    /// What passed `before` this burst is capped by the depth, what passes `now` in it is not yet.
    fn earn(&mut self, before: u64, now: u64, ratio: f64, depth: f64) {
        let before = before.max(self.seen);
        let gained = (before - self.seen) as f64 * ratio;
        self.level = (self.level + gained).min(depth.max(self.level));
        self.level += (now - before) as f64 * ratio;
        self.seen = now;
    }
}

/// Ordinary repair of one flow.
#[derive(Clone, Debug)]
pub(crate) struct Ordinary {
    packets: Bucket,
    octets: Bucket,
    /// The configuration that the last symbol was sent under and those acknowledged after it, with their
    /// Config IDs: which of them is in force cannot be seen.
    allowed: VecDeque<(u8, Allowed)>,
    /// No symbol was sent yet: the bucket is full, whichever configuration comes into force first.
    fresh: bool,
}

impl Ordinary {
    /// The first configuration is acknowledged.
    pub(crate) fn new(id: u8, first: Allowed, sources: &Sources) -> Self {
        let depth = f64::from(first.m);
        Self {
            packets: Bucket {
                level: depth,
                seen: sources.new,
            },
            octets: Bucket {
                level: depth * f64::from(first.t),
                seen: sources.octets,
            },
            allowed: VecDeque::from([(id, first)]),
            fresh: true,
        }
    }

    fn earn(&mut self, sources: &Sources) {
        let largest = |of: fn(Allowed) -> f64| {
            let all = self.allowed.iter().map(|(_, allowed)| of(*allowed));
            all.fold(0.0, f64::max)
        };
        let ratio = largest(Allowed::ratio);
        let depth = largest(|a| f64::from(a.m));
        let octets = largest(|a| f64::from(a.m) * f64::from(a.t));
        let (packets_before, octets_before) = sources.before;
        self.packets.earn(packets_before, sources.new, ratio, depth);
        let ratio = ratio * OCTET_FACTOR;
        self.octets
            .earn(octets_before, sources.octets, ratio, octets);
    }

    /// A further configuration is acknowledged.
    pub(crate) fn configure(&mut self, id: u8, allowed: Allowed, sources: &Sources) {
        self.earn(sources);
        if self.allowed.len() == CONFIGURATIONS {
            self.allowed.pop_front();
        }
        self.allowed.push_back((id, allowed));
        if self.fresh {
            let depth = f64::from(allowed.m);
            self.packets.level = self.packets.level.max(depth);
            self.octets.level = self.octets.level.max(depth * f64::from(allowed.t));
        }
    }

    /// A symbol of `t` octets is sent under configuration `id`. What is wrong with that, if anything.
    pub(crate) fn spend(&mut self, id: u8, t: u16, sources: &Sources) -> Option<&'static str> {
        self.earn(sources);
        if let Some(place) = self.allowed.iter().position(|(known, _)| *known == id) {
            self.allowed.drain(..place);
        }
        self.fresh = false;
        self.packets.level -= 1.0;
        self.octets.level -= f64::from(t);
        if self.packets.level < -SLACK {
            Some("more ordinary symbols than m/k of the sources")
        } else if self.octets.level < -SLACK {
            Some("more ordinary octets than the cap allows")
        } else {
            None
        }
    }
}

/// A count over the last slots.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    slots: [u64; SLOTS],
    epoch: u64,
}

impl Window {
    fn advance(&mut self, now: Instant) {
        let epoch = now.0 / SLOT.as_nanos() as u64;
        for step in 1..=(epoch - self.epoch).min(SLOTS as u64) {
            self.slots[((self.epoch + step) % SLOTS as u64) as usize] = 0;
        }
        self.epoch = epoch;
    }

    fn add(&mut self, now: Instant, count: u64) {
        self.advance(now);
        self.slots[(self.epoch % SLOTS as u64) as usize] += count;
    }

    /// Over the last `slots` ones, the running one included.
    fn sum(&self, slots: usize) -> u64 {
        let slots = slots as u64;
        (0..slots)
            .map(|back| self.slots[((self.epoch + SLOTS as u64 - back) % SLOTS as u64) as usize])
            .sum()
    }
}

/// Coded retransmission and copies of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Volume {
    sent: Window,
    sources: Window,
    /// Losses of the last reports, those that may still be in force at the other phase included.
    losses: [u64; 6],
    seen: u64,
}

impl Volume {
    /// A LOSS_REPORT arrives.
    pub(crate) fn report(&mut self, lost: u64) {
        self.losses.rotate_right(1);
        self.losses[0] = lost;
    }

    /// Brings the account of sources up to date.
    pub(crate) fn sources(&mut self, now: Instant, sources: &Sources) {
        self.sources.add(now, sources.new - self.seen);
        self.seen = sources.new;
    }

    /// A symbol or copy is sent; how many there are in a second and how many are allowed, if those are
    /// more.
    pub(crate) fn spend(&mut self, now: Instant, sources: &Sources) -> Option<(u64, u64)> {
        self.sources(now, sources);
        self.sent.add(now, 1);
        let limit = VOLUME_FLOOR
            .max(2 * self.losses.iter().sum::<u64>())
            .max(self.sources.sum(SLOTS) / 4);
        let sent = self.sent.sum(8);
        (sent > limit).then_some((sent, limit))
    }
}
