//! Requests that pass the other way, and the responses that may not be restored because of them
//! (AMB-READRESP). A response that was asked for twice may be under way twice: the requester goes on
//! with other opcodes and perhaps with newer content, so what was coded of the first answer must not be
//! put between the packets of the second one.
//!
//! A READ or atomic request at or behind what its queue pair has asked for before is issued again. From
//! then on no PSN from it up to the end of what had been asked for is restored in any stream of responses
//! between the two hosts: the BTH of a response does not say which requests it answers. A request beyond
//! that end is a new one, and no answer to it can have been coded before. What a requester knows from what
//! it was sent is in `told.rs`.
//!
//! Cost: a READ or atomic request takes one look-up of its queue pair and one of its hosts, any other
//! packet a comparison of its opcode. A request that is issued again costs O(streams of responses between
//! its hosts).

use alloc::vec::Vec;
use core::net::IpAddr;
use crem_wire::roce::Opcode;
use crem_wire::{Psn, Qpn};
use hashbrown::HashMap;

use super::gaps::Gap;
use super::second::Second;
use super::stream::FlowKey;
use super::track::{Cx, REUSE, Track};
use super::window::{Place, Seen};
use super::{Crf, cx};
use crate::actions::{Actions, Delivery};
use crate::config::Mode;
use crate::memory::{of_map, of_vec};
use crate::packet::{Desc, PktBuf, PsnSpace, StreamKey};
use crate::plan;
use crate::table::{BoundedTable, Class};
use crate::time::Instant;

/// Ranges of PSNs that a stream remembers as asked for twice; beyond these the nearest are joined.
const MAX_RANGES: usize = 8;
/// PSNs that a queue pair may have asked for already when the first request of it is seen.
const UNKNOWN_REACH: u32 = 1 << 14;
/// RDMA MTU that spans are reckoned with before the responses have shown any: the smallest, whose spans
/// are never too short.
const LEAST_MTU: u16 = 256;
/// Octets of a READ response ONLY besides its payload: BTH, AETH, ICRC, and padding.
const AROUND_PAYLOAD: u16 = 12 + 4 + 4 + 3;

/// Two hosts: one that asks, and one that answers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Hosts {
    requester: IpAddr,
    responder: IpAddr,
}

impl Hosts {
    fn of_requests(key: &StreamKey) -> Self {
        Self {
            requester: key.source,
            responder: key.destination,
        }
    }

    fn of_responses(key: &FlowKey) -> Self {
        Self {
            requester: key.destination,
            responder: key.source,
        }
    }
}

/// The request with the latest PSN of a queue pair.
#[derive(Clone, Copy, Debug)]
struct Latest {
    psn: Psn,
    /// DMA Length of a READ; 0 for an atomic operation.
    octets: u32,
}

/// What a queue pair has asked for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// The request with the latest PSN.
    latest: Latest,
    /// The request that came last.
    last: Latest,
}

impl Latest {
    fn end(&self, mtu: u16) -> Psn {
        let count = plan::read_span(self.psn, self.octets, mtu).map_or(1, |span| span.count);
        self.psn.add(count.min(Psn::HALF as u32 - 1) as i32)
    }
}

/// What the streams of responses between two hosts have in common.
#[derive(Debug)]
struct Pair {
    /// Slots of the bound streams.
    slots: Vec<u32>,
    /// The smallest RDMA MTU that a response has shown.
    mtu: Option<u16>,
    /// What the RDMA MTU is at least, by the longest response of one packet.
    least: u16,
}

/// PSNs that were asked for again: [from, to).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Again {
    pub(crate) from: Psn,
    pub(crate) to: Psn,
}

impl Again {
    fn contains(&self, psn: Psn) -> bool {
        psn.distance_from(self.from) >= 0 && self.to.is_after(psn)
    }

    /// The smallest range that holds both.
    fn join(self, other: Self) -> Self {
        Self {
            from: super::track::earlier(self.from, other.from),
            to: super::track::later(self.to, other.to),
        }
    }

    fn overlaps(&self, other: &Self) -> bool {
        other.to.distance_from(self.from) >= 0 && self.to.distance_from(other.from) >= 0
    }

    fn width(&self) -> u32 {
        self.to.distance_from(self.from).max(0) as u32
    }
}

/// What was requested the other way. Bounded: queue pairs by the bound of the flow table, oldest given
/// up first; hosts by the streams that are bound.
#[derive(Debug)]
pub(crate) struct Reverse {
    requests: BoundedTable<(Hosts, Qpn), Asked>,
    pairs: HashMap<Hosts, Pair>,
}

impl Reverse {
    pub(crate) fn new(bound: u32) -> Self {
        Self {
            requests: BoundedTable::new(bound),
            pairs: HashMap::new(),
        }
    }

    /// A stream of responses is bound.
    pub(crate) fn bind(&mut self, key: &FlowKey, slot: u32) {
        if key.space == PsnSpace::Responses {
            let pair = self
                .pairs
                .entry(Hosts::of_responses(key))
                .or_insert_with(|| Pair {
                    slots: Vec::new(),
                    mtu: None,
                    least: LEAST_MTU,
                });
            if !pair.slots.contains(&slot) {
                pair.slots.push(slot);
            }
        }
    }

    /// A stream is bound no more.
    pub(crate) fn unbind(&mut self, key: &FlowKey, slot: u32) {
        if key.space != PsnSpace::Responses {
            return;
        }
        let hosts = Hosts::of_responses(key);
        if let Some(pair) = self.pairs.get_mut(&hosts) {
            pair.slots.retain(|s| *s != slot);
            if pair.slots.is_empty() {
                self.pairs.remove(&hosts);
            }
        }
    }

    /// A stream of responses has shown its RDMA MTU, or what it is at least.
    fn note_mtu(&mut self, key: &FlowKey, shown: Option<u16>, least: u16) {
        if let Some(pair) = self.pairs.get_mut(&Hosts::of_responses(key)) {
            pair.least = pair.least.max(least);
            if let Some(shown) = shown {
                pair.mtu = Some(pair.mtu.map_or(shown, |mtu| mtu.min(shown)));
            }
        }
    }

    /// Takes a request in. What of its PSNs may have been answered before, none if it is a new one, and
    /// whether it goes on where the request before it ended.
    fn note(&mut self, key: &StreamKey, request: Latest) -> Option<(Again, bool)> {
        let hosts = Hosts::of_requests(key);
        let mtu = self
            .pairs
            .get(&hosts)
            .map_or(LEAST_MTU, |pair| pair.mtu.unwrap_or(pair.least));
        let (from, end) = (request.psn, request.end(mtu));
        let id = (hosts, key.qp);
        let Some(slot) = self.requests.slot(&id) else {
            self.insert(id, request);
            let reach = UNKNOWN_REACH.max(end.distance_from(from) as u32);
            let to = from.add(reach as i32);
            return Some((Again { from, to }, false));
        };
        self.requests.touch(slot);
        let Asked { latest, last } = self.requests.get_mut(slot)?;
        let goes_on = last.end(mtu) == from;
        *last = request;
        let next = latest.end(mtu);
        let ahead = from.distance_from(next);
        if ahead >= 0 {
            *latest = request;
            return None;
        }
        if ahead <= -REUSE {
            // Another life of the queue pair, or its PSNs went round.
            *latest = request;
            return Some((Again { from, to: end }, false));
        }
        if from.is_after(latest.psn) {
            *latest = request;
        }
        let to = super::track::later(next, end);
        Some((Again { from, to }, goes_on))
    }

    fn insert(&mut self, id: (Hosts, Qpn), request: Latest) {
        let asked = Asked {
            latest: request,
            last: request,
        };
        if self.requests.is_full()
            && let Some(oldest) = self.requests.oldest(Class::Candidate)
        {
            self.requests.remove(oldest);
        }
        // A table that is bounded to nothing remembers nothing: then every request counts as repeated.
        let _ = self.requests.insert(id, asked);
    }

    /// Octets of memory.
    pub(crate) fn octets(&self) -> usize {
        let slots = self.pairs.values().map(|pair| of_vec(&pair.slots));
        self.requests.octets() + of_map(&self.pairs) + slots.sum::<usize>()
    }

    fn take_slots(&mut self, key: &StreamKey) -> Vec<u32> {
        let pair = self.pairs.get_mut(&Hosts::of_requests(key));
        pair.map(|pair| core::mem::take(&mut pair.slots))
            .unwrap_or_default()
    }

    fn put_slots(&mut self, key: &StreamKey, slots: Vec<u32>) {
        if let Some(pair) = self.pairs.get_mut(&Hosts::of_requests(key)) {
            pair.slots = slots;
        }
    }
}

/// The ranges that a stream of responses remembers, none of them before its window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Barred {
    ranges: Vec<Again>,
    /// What the RDMA MTU of the stream is at least, as far as it has told the pair.
    least: u16,
    /// The RDMA MTU that it has shown and told.
    shown: Option<u16>,
    /// The second answer that is awaited, or has begun.
    pub(crate) second: Second,
}

impl Barred {
    pub(crate) fn contains(&self, psn: Psn) -> bool {
        self.ranges.iter().any(|range| range.contains(psn))
    }

    /// Adds a range; those it touches become one with it, and so do the nearest two of too many.
    fn add(&mut self, mut range: Again) {
        self.ranges.retain(|old| {
            let apart = !old.overlaps(&range);
            if !apart {
                range = range.join(*old);
            }
            apart
        });
        if self.ranges.len() >= MAX_RANGES {
            let nearest =
                (0..self.ranges.len()).min_by_key(|i| range.join(self.ranges[*i]).width());
            if let Some(index) = nearest {
                range = range.join(self.ranges.swap_remove(index));
            }
        }
        self.ranges.push(range);
    }

    /// Nothing from `end` on is barred.
    pub(crate) fn end_at(&mut self, end: Psn) {
        for range in &mut self.ranges {
            range.to = super::track::earlier(range.to, end);
        }
        self.ranges.retain(|range| range.to.is_after(range.from));
    }

    /// Octets of memory.
    pub(crate) const fn octets(&self) -> usize {
        of_vec(&self.ranges)
    }

    /// Forgets what lies before `base`.
    pub(crate) fn forget_before(&mut self, base: Psn) {
        if !self.ranges.is_empty() {
            self.ranges.retain(|range| range.to.is_after(base));
        }
    }
}

impl<B: PktBuf> Crf<B> {
    /// Packets that went the other way, toward the WAN: of these it looks at READ and atomic requests
    /// only. To be called with every burst that the sender function of the same box is given, so that no
    /// response is restored that was asked for again meanwhile (AMB-READRESP). Does nothing while streams
    /// of responses are switched off.
    pub fn on_reverse_burst(&mut self, now: Instant, burst: &[Desc<B>], out: &mut Actions<B>) {
        if !self.config.responses || self.config.mode != Mode::Active {
            return;
        }
        for desc in burst.iter().filter(|desc| desc.asks()) {
            let request = Latest {
                psn: desc.psn,
                octets: desc.read_length.unwrap_or(0),
            };
            if let Some(again) = self.shared.reverse.note(&desc.key, request) {
                self.asked_again(now, &desc.key, again, out);
            }
        }
    }

    fn asked_again(
        &mut self,
        now: Instant,
        key: &StreamKey,
        (again, goes_on): (Again, bool),
        out: &mut Actions<B>,
    ) {
        let slots = self.shared.reverse.take_slots(key);
        self.shared.counters.requests_reissued += u64::from(!slots.is_empty());
        for slot in &slots {
            if let Some(track) = self.table.get_mut(*slot).and_then(|s| s.bound.as_mut()) {
                track.bar(
                    again,
                    goes_on,
                    &mut cx(now, &self.config, &mut self.shared, out),
                );
            }
            self.refresh_timer(*slot);
        }
        self.shared.reverse.put_slots(key, slots);
    }
}

impl<B: Clone> Track<B> {
    /// Whether this is a stream of responses.
    pub(crate) fn is_responses(&self) -> bool {
        self.key.space == PsnSpace::Responses
    }

    /// Learns from a response what RDMA MTU the spans of READ requests have.
    pub(crate) fn learn_span(&mut self, d: &Desc<B>, cx: &mut Cx<'_, B>) {
        let only = Opcode(d.opcode).0 & 0x1f == Opcode::READ_RESPONSE_ONLY.0;
        let least = if only { mtu_at_least(d.payload_len) } else { 0 };
        let news =
            least > self.barred.least || d.mtu_seen.is_some() && d.mtu_seen != self.barred.shown;
        if news {
            self.barred.least = self.barred.least.max(least);
            self.barred.shown = d.mtu_seen.or(self.barred.shown);
            let key = FlowKey::of(&self.key);
            cx.shared
                .reverse
                .note_mtu(&key, self.barred.shown, self.barred.least);
        }
    }

    /// The PSNs of `again` were asked for once more: what is missing of them is left to the RDMA
    /// transport, and what will turn out to be missing of them is not restored either.
    fn bar(&mut self, again: Again, goes_on: bool, cx: &mut Cx<'_, B>) {
        let mut again = again;
        if let Some(window) = &self.window {
            let ahead = again.from.distance_from(window.next());
            // Far from the stream: of another queue pair.
            if !(-REUSE..REUSE).contains(&ahead) || !again.to.is_after(window.base()) {
                return;
            }
            // Nothing beyond what was asked for can be missing, unless requests went unseen.
            again.to = super::track::later(again.to, window.next());
        }
        again.to = self
            .barred
            .second
            .asked(again.from, again.to, goes_on, cx.now);
        if again.width() == 0 {
            return;
        }
        self.update_times(cx);
        self.barred.add(again);
        self.release_but_barred(again.from, cx);
        self.leave_gaps(again.from, again.width(), cx);
        for index in 0..self.blocks.len() {
            self.waive_barred(index, cx);
            self.look_at(index, cx);
        }
        self.sweep(cx);
        self.advance_base(cx);
    }

    /// Of what is held, nothing that was restored of the barred PSNs goes on. The rest does at once: over a
    /// wire it would have arrived before the requester asked again. But what waits for a PSN before `from`
    /// goes on waiting: a requester that lacks it did not ask again from there, so it is of another queue
    /// pair.
    fn release_but_barred(&mut self, from: Psn, cx: &mut Cx<'_, B>) {
        let Some(first) = self.hold.first_wait() else {
            return;
        };
        let barred = &self.barred;
        let stale = |psn, kind| kind == Delivery::Restored && barred.contains(psn);
        let stale = self.hold.discard(&mut cx.shared.hold_budget, stale);
        cx.shared.counters.responses_stale += stale;
        if !from.is_after(first) {
            cx.shared.counters.holds_overtaken += 1;
            self.release_hold(cx);
        }
    }

    /// Leaves the gaps among `count` PSNs to the RDMA transport. What no bitmap has named is not known to
    /// be lost.
    pub(crate) fn leave_gaps(&mut self, from: Psn, count: u32, cx: &mut Cx<'_, B>) {
        let mut pieces: Vec<Gap> = Vec::new();
        self.gaps.take(from, count, |piece| pieces.push(piece));
        for piece in &pieces {
            for n in 0..piece.count {
                let psn = piece.start.add(n as i32);
                self.note(psn, Seen::Left, cx);
                cx.shared.counters.responses_given_up += 1;
                self.settle(psn, cx);
            }
            self.resolved(piece.start, piece.end(), cx);
        }
    }

    /// A gap has opened: what of it is barred is none.
    pub(crate) fn skip_barred(&mut self, from: Psn, to: Psn, cx: &mut Cx<'_, B>) {
        for index in 0..self.barred.ranges.len() {
            let range = self.barred.ranges[index];
            if range.to.is_after(from) && to.is_after(range.from) {
                self.leave_gaps(range.from, range.width(), cx);
            }
        }
    }

    /// Gives up the barred positions of a block that have not arrived.
    pub(crate) fn waive_barred(&mut self, index: usize, cx: &mut Cx<'_, B>) {
        if self.barred.ranges.is_empty() || self.blocks[index].closed {
            return;
        }
        let description = self.blocks[index].description;
        for position in self.blocks[index].missing().iter() {
            let psn = description.psn(position);
            if !self.barred.contains(psn) {
                continue;
            }
            self.blocks[index].waived.insert(position);
            cx.shared.counters.responses_given_up += 1;
            if self.place_of(psn) == Some(Place::In(Seen::Missing)) {
                self.leave(psn, true, cx);
            }
        }
    }

    fn place_of(&self, psn: Psn) -> Option<Place> {
        self.window.as_ref().map(|w| w.place(psn))
    }
}

/// The smallest RDMA MTU that lets a READ response ONLY with a UDP payload of `octets` pass.
fn mtu_at_least(octets: u16) -> u16 {
    let payload = octets.saturating_sub(AROUND_PAYLOAD);
    payload.next_power_of_two().clamp(LEAST_MTU, 4096)
}
