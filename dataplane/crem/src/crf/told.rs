//! What a requester knows by now of responses that it lacks (AMB-READRESP). Responses come in the order of
//! their PSNs, and so do the acknowledgments between them: anything beyond a missing response tells a
//! requester that it is lost, and then it asks again, from there on and with another opcode to come. So an
//! acknowledgment waits with the responses that are held before it, under the same bounds and no longer;
//! and once anything beyond a missing response has left, that response is neither restored nor waited for:
//! the new request may be under way, and what was coded of the first answer must not meet it.
//!
//! Cost: an acknowledgment takes one look-up of its flow.

use super::hold::Frame;
use super::stream::FlowKey;
use super::track::{Cx, REUSE, Track};
use super::window::Window;
use super::{Crf, cx};
use crate::actions::{Actions, Delivery};
use crate::config::Hold;
use crate::packet::{Desc, PktBuf, PsnSpace};
use crate::time::Instant;
use crem_wire::Psn;

impl<B: PktBuf> Crf<B> {
    /// An acknowledgment toward a host that is served here: passes, or waits behind what is held for its
    /// queue pair.
    pub(super) fn on_acknowledgment(&mut self, now: Instant, desc: &Desc<B>, out: &mut Actions<B>) {
        let key = FlowKey {
            space: PsnSpace::Responses,
            ..FlowKey::of(&desc.key)
        };
        let found = self.table.slot(&key).and_then(|slot| {
            let stream = self.table.get_mut(slot)?;
            let same = stream.namespace == Some(desc.key.namespace);
            let track = stream.bound.as_mut().filter(|_| same)?;
            Some((slot, track))
        });
        let Some((slot, track)) = found else {
            out.deliver
                .push((Delivery::Acknowledgment, desc.buf.clone()));
            return;
        };
        track.on_acknowledgment(desc, &mut cx(now, &self.config, &mut self.shared, out));
        self.refresh_timer(slot);
    }
}

impl<B: Clone> Track<B> {
    fn on_acknowledgment(&mut self, desc: &Desc<B>, cx: &mut Cx<'_, B>) {
        let ahead = self.window.as_ref().map(Window::next);
        let ahead = ahead.map(|next| desc.psn.distance_from(next));
        if ahead.is_none_or(|ahead| !(-REUSE..REUSE).contains(&ahead)) {
            // Of another life of the queue pair, or damaged.
            cx.out
                .deliver
                .push((Delivery::Acknowledgment, desc.buf.clone()));
            return;
        }
        let frame = Frame {
            psn: desc.psn,
            octets: desc.payload_len,
            kind: Delivery::Acknowledgment,
            buf: desc.buf.clone(),
        };
        self.pass(frame, cx);
    }

    /// Whether this is a response of which the requester knows that it is missing. Hosts for which nothing
    /// is held take responses in any order: of those nobody can say.
    pub(crate) fn is_known_missing(&self, psn: Psn, cx: &Cx<'_, B>) -> bool {
        self.is_responses() && cx.config.crf.hold != Hold::Off && self.accepted.is_beyond(psn)
    }

    /// Whether a response may be restored now: it was not asked for again, and the requester cannot have
    /// given up waiting for it, 2 SRTT after it was missed.
    pub(crate) fn may_restore(&self, psn: Psn, opened: Instant, now: Instant) -> bool {
        if !self.is_responses() {
            return true;
        }
        let missed = self.missed_at(psn).unwrap_or(opened);
        !self.barred.contains(psn) && now.since(missed) <= self.times.srtt * 2
    }

    fn missed_at(&self, psn: Psn) -> Option<Instant> {
        self.window
            .as_ref()
            .and_then(|window: &Window<B>| window.at(psn))
    }

    /// Whether the answer to a request that leaves now would come too late for what was missed at
    /// `missed`.
    pub(crate) fn asks_in_vain(&self, missed: Instant, now: Instant) -> bool {
        self.is_responses() && now.since(missed) > self.times.srtt
    }
}
