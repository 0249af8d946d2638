//! Which of the newest PSNs of a flow have arrived.

use crem_wire::Psn;

/// PSNs remembered, the newest and those before it.
pub(super) const RECENT: u32 = 1_024;
const WORDS: usize = RECENT as usize / 64;

/// A bit for each of the newest PSNs, at the place of the PSN modulo their number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recent([u64; WORDS]);

impl Default for Recent {
    fn default() -> Self {
        Self([0; WORDS])
    }
}

impl Recent {
    /// The window moves on: the `count` PSNs from `first` on have not arrived.
    pub(super) fn advance(&mut self, first: Psn, count: u32) {
        if count >= RECENT {
            *self = Self::default();
            return;
        }
        for n in 0..count {
            let (word, bit) = place(first.add(n as i32));
            if let Some(word) = self.0.get_mut(word) {
                *word &= !bit;
            }
        }
    }

    /// Notes an arrival; whether it is the first of this PSN.
    pub(super) fn arrived(&mut self, psn: Psn) -> bool {
        let (word, bit) = place(psn);
        let Some(word) = self.0.get_mut(word) else {
            return false;
        };
        let first = *word & bit == 0;
        *word |= bit;
        first
    }
}

fn place(psn: Psn) -> (usize, u64) {
    let place = psn.get() % RECENT;
    (place as usize / 64, 1 << (place % 64))
}
