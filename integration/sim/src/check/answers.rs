//! Requests and their answers for one flow: no index twice, no answer without a request, no more
//! symbols than were asked for, no second answer to a block inside a round trip (CREM Coded Response).

use std::collections::{HashMap, VecDeque};

use super::Violations;
use crate::wire::{Form, Repair};
use crate::{Duration, Instant};

/// Requests remembered.
const REQUESTS: usize = 512;
/// Blocks remembered; older ones are beyond what a sender function may still answer for.
const BLOCKS: usize = 8192;

#[derive(Clone, Copy, Default)]
struct Block {
    used: [u64; 4],
    answered: Option<Instant>,
}

struct Request {
    id: u16,
    named: u64,
    answered: u64,
}

/// The account of one flow.
#[derive(Default)]
pub(crate) struct Answers {
    blocks: HashMap<u32, Block>,
    order: VecDeque<u32>,
    requests: VecDeque<Request>,
}

impl Answers {
    /// The sender function got a request that names so many positions.
    pub(crate) fn request(&mut self, id: u16, named: u64) {
        if let Some(known) = self.requests.iter_mut().find(|r| r.id == id) {
            known.named += named;
            return;
        }
        if self.requests.len() == REQUESTS {
            self.requests.pop_front();
        }
        self.requests.push_back(Request {
            id,
            named,
            answered: 0,
        });
    }

    fn block(&mut self, start: u32) -> &mut Block {
        if !self.blocks.contains_key(&start) {
            if self.order.len() == BLOCKS
                && let Some(old) = self.order.pop_front()
            {
                self.blocks.remove(&old);
            }
            self.order.push_back(start);
        }
        self.blocks.entry(start).or_default()
    }

    /// A REPAIR leaves; `round_trip` is the shortest that the path can have.
    pub(crate) fn repair(
        &mut self,
        now: Instant,
        repair: &Repair,
        round_trip: Duration,
        violations: &mut Violations,
    ) {
        if repair.form == Form::Info {
            return;
        }
        let block = self.block(repair.start);
        if repair.scheme == 1 {
            let (word, bit) = (usize::from(repair.index / 64), 1 << (repair.index % 64));
            let again = block.used[word] & bit != 0;
            block.used[word] |= bit;
            violations.require(now, !again, || {
                format!("Repair Index used again: {repair:?}")
            });
        }
        if repair.form == Form::Ordinary {
            return;
        }
        let before = block.answered.replace(now);
        if let Some(before) = before.filter(|before| *before != now) {
            let gap = now.since(before);
            violations.require(now, gap >= round_trip, || {
                format!("second answer after {gap:?}, round trip {round_trip:?}: {repair:?}")
            });
        }
        match self.requests.iter_mut().find(|r| r.id == repair.session) {
            Some(request) => {
                request.answered += 1;
                let (answered, named) = (request.answered, request.named);
                violations.require(now, answered <= named, || {
                    format!("{answered} symbols for {named} positions: {repair:?}")
                });
            }
            None => violations.add(now, || format!("answer to no request: {repair:?}")),
        }
    }
}
