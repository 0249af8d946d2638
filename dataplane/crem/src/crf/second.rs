//! Where the second answer to a READ brings what was never answered before (AMB-READRESP). A requester that
//! goes back asks again for all that it had asked for, which may be far more than the responder had answered
//! by then; beyond that the second answer is the first one, and is coded as such.
//!
//! A queue pair's packets keep their order. So once the second answer begins, which shows by its opcode where
//! the requester went back to, all of the first one is here but what was lost at its end. As much as that can
//! be in the time since the last packet, and a block more, stays barred.

use crem_wire::Psn;
use crem_wire::roce::{Class, Opcode, Place};

use super::track::{Cx, Track, later};
use super::window::Window;
use crate::packet::Desc;
use crate::time::Instant;

/// A responder sends at most so many times faster than the stream came on average.
const FASTER: u128 = 4;
/// PSNs lost at the end of the first answer, at most.
const MAX_LOST: u128 = 1 << 16;

/// The last time that a requester went back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Second {
    /// Where to, and when; until the answer begins.
    awaited: Option<(Psn, Instant)>,
    /// Once it has begun: from here on nothing was answered before.
    fresh: Option<Psn>,
}

impl Second {
    /// A request for [from, to) was issued again; whether it goes on where the one before it ended. The end
    /// of what may have been answered before.
    pub(crate) fn asked(&mut self, from: Psn, to: Psn, goes_on: bool, now: Instant) -> Psn {
        if !goes_on {
            *self = Self {
                awaited: Some((from, now)),
                fresh: None,
            };
        }
        match self.fresh {
            Some(fresh) if to.is_after(fresh) => later(from, fresh),
            _ => to,
        }
    }
}

/// Whether an answer begins with this opcode.
fn begins(opcode: u8) -> bool {
    let opcode = Opcode(opcode);
    opcode.class() == Class::AtomicAck || matches!(opcode.place(), Some(Place::First | Place::Only))
}

impl<B: Clone> Track<B> {
    /// Looks whether the second answer begins with this response. To be called before the response is taken
    /// in.
    pub(crate) fn note_second_answer(&mut self, d: &Desc<B>, cx: &mut Cx<'_, B>) {
        let Some((from, at)) = self.barred.second.awaited else {
            return;
        };
        let (Some(rtt), Some(spacing)) = (self.times.min_rtt, self.spacing.mean()) else {
            return;
        };
        // What came sooner was on its way when the requester asked.
        if from != d.psn || !begins(d.opcode) || cx.now.since(at) < rtt / 2 {
            return;
        }
        let pause = cx.now.since(self.last_source).as_nanos();
        let lost = (pause / spacing.as_nanos().max(1) * FASTER).min(MAX_LOST) as i32;
        let next = self.window.as_ref().map_or(from, Window::next);
        let fresh = later(next, from.add(1)).add(lost + i32::from(self.configs.max_k()));
        self.barred.second = Second {
            awaited: None,
            fresh: Some(fresh),
        };
        self.barred.end_at(fresh);
        cx.shared.counters.second_answers += 1;
    }
}
