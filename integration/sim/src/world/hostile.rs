//! Messages that nobody should believe: forged, broken, or from strangers. None is entered into the
//! accounts; what the functions do about them is judged by what follows.

use super::World;
use super::mail::Mail;
use crate::Duration;
use crate::gateway;

/// Shortest and longest forged message.
const LENGTHS: (u64, u64) = (1, 120);
/// Octets of the common header.
const HEADER: usize = 8;
/// Offset of the Flow ID in the common header.
const FLOW: usize = 4;

impl World {
    /// One message reaches each gateway.
    pub(super) fn hostility(&mut self) {
        for side in 0..2 {
            let mail = self.forge(side);
            self.mail_arrives(side, mail);
        }
        let mean = 1e9 / self.scenario.hostile;
        let pause = self.rng.exponential(mean).max(1.0) as u64;
        self.next_hostile = Some(self.now + Duration::from_nanos(pause));
    }

    fn forge(&mut self, side: usize) -> Mail {
        if self.scenario.insider {
            return self.nonsense(side);
        }
        let stranger = gateway::stranger();
        let from = match self.rng.below(4) {
            // Spoofed: only what needs no knowledge of nonces and Flow IDs.
            0 => gateway::address(1 - side),
            _ => stranger,
        };
        let octets = if from == stranger && self.rng.chance(0.5) {
            self.replay(side)
        } else {
            self.noise()
        };
        Mail {
            from,
            octets,
            symbol: None,
            t: 0,
            ce: false,
        }
    }

    /// A plausible header with anything behind it.
    fn noise(&mut self) -> Vec<u8> {
        let length = self.rng.between(LENGTHS.0, LENGTHS.1) as usize;
        let mut octets: Vec<u8> = (0..length).map(|_| self.rng.next() as u8).collect();
        if octets.len() >= 8 && self.rng.chance(0.9) {
            octets[0] = 0x10 | self.rng.between(1, 9) as u8;
            octets[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        }
        octets
    }

    /// The last message that this side got from its peer, or one that it sent itself, once more with an
    /// octet changed behind the header.
    fn nonsense(&mut self, side: usize) -> Mail {
        let heard_by = if self.rng.chance(0.7) { side } else { 1 - side };
        let mut octets = self.sides[heard_by].overheard.clone();
        if octets.len() > HEADER {
            let at = self.rng.between(HEADER as u64, octets.len() as u64 - 1) as usize;
            octets[at] = self.rng.next() as u8;
        }
        Mail {
            from: gateway::address(1 - side),
            octets,
            symbol: None,
            t: 0,
            ce: false,
        }
    }

    /// The last message that this side got, from another address; its Flow ID may be known that way.
    fn replay(&mut self, side: usize) -> Vec<u8> {
        let mut octets = self.sides[side].overheard.clone();
        if octets.len() > FLOW && self.rng.chance(0.2) {
            octets[FLOW] ^= 1 << self.rng.below(8);
        }
        octets
    }
}
