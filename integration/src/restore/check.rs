//! The receiver's side of the check: removes packets, decodes, rebuilds, compares. The function that
//! rebuilds gets the decoded payload and frames that were not removed, never the victim.

use std::ops::Range;

use crem_fec::{DecodeJob, Engine, MIN_PAYLOAD, Outcome, PositionSet, Scratch};
use crem_wire::frame::{ParseConfig, restored_tos, set_outer_tos, set_tos};
use crem_wire::rebuild::{Identification, NeighbourRef, RebuildPolicy, Rebuilt, rebuild};

use super::blocks::{self, Block};
use super::{BurstResult, K, Packet, Run};

/// Packets that are removed at once. The shortest is a single loss, the longest more than a block.
pub const BURSTS: [usize; 4] = [1, 2, 8, 40];

/// Octets of the length prefix of a source symbol.
const PREFIX: usize = 2;

/// Removes every packet of the run once for each burst length, and adds what became of them to the
/// results, one for each burst length.
pub fn check_run(
    engine: &Engine,
    run: &Run<'_>,
    config: &ParseConfig,
    results: &mut [BurstResult],
) {
    let longest = run
        .packets
        .iter()
        .map(|packet| packet.payload().len())
        .max()
        .unwrap_or_default();
    let t = longest + PREFIX;
    let blocks = match blocks::code(engine, &run.packets, t) {
        Ok(blocks) => blocks,
        Err(error) => {
            for result in results {
                result.fail(run.packets.len(), &format!("cannot be coded: {error}"));
            }
            return;
        }
    };
    let mut receiver = Receiver {
        engine,
        packets: &run.packets,
        policy: RebuildPolicy {
            parse: *config,
            ..RebuildPolicy::default()
        },
        scratch: Scratch::new(usize::from(K), t),
        t,
        frame: vec![0; usize::from(u16::MAX)],
    };
    for result in results {
        let mut start = 0;
        while start < run.packets.len() {
            let end = (start + result.burst.max(1)).min(run.packets.len());
            receiver.restore(&blocks, start..end, result);
            start = end;
        }
    }
}

struct Receiver<'r, 'a> {
    engine: &'r Engine,
    packets: &'r [Packet<'a>],
    policy: RebuildPolicy,
    scratch: Scratch,
    t: usize,
    /// Where frames are rebuilt.
    frame: Vec<u8>,
}

impl Receiver<'_, '_> {
    /// Restores the packets `lost` from the blocks they are in.
    fn restore(&mut self, blocks: &[Block], lost: Range<usize>, result: &mut BurstResult) {
        let touched = blocks
            .iter()
            .filter(|block| block.packets.start < lost.end && lost.start < block.packets.end);
        for block in touched {
            self.restore_in(block, &lost, result);
        }
    }

    fn restore_in(&mut self, block: &Block, lost: &Range<usize>, result: &mut BurstResult) {
        let gone = block.packets.start.max(lost.start)..block.packets.end.min(lost.end);
        let first = &self.packets[block.packets.start];
        let mut unknown = PositionSet::default();
        for packet in &self.packets[gone.clone()] {
            unknown.insert(blocks::position(first, packet));
        }
        let sources = blocks::sources(self.packets, &block.packets, |at| !gone.contains(&at));
        let symbols = block.symbols(gone.len());
        let job = DecodeJob {
            t: self.t,
            min_payload: MIN_PAYLOAD,
            sources: &sources,
            symbols: &symbols,
            unknown,
        };
        let decoded = match self.engine.decode(&job, &mut self.scratch) {
            Ok(decoded) => decoded,
            Err(error) => return result.fail(gone.len(), &format!("cannot be decoded: {error}")),
        };
        // Both run over the block's lost positions in ascending order.
        for (at, (_, outcome)) in gone.clone().zip(decoded.outcomes()) {
            let payload = match outcome {
                Outcome::Restored(payload) => payload,
                other => {
                    result.fail(1, &format!("decoding gave {other:?}"));
                    continue;
                }
            };
            let neighbours = Neighbours::around(self.packets, lost);
            let rebuilt = rebuild(
                payload,
                neighbours.before,
                neighbours.after,
                &self.policy,
                &mut self.frame,
            );
            let verdict = match rebuilt {
                Ok(rebuilt) => judge(&self.packets[at], &rebuilt, &self.frame[..rebuilt.len]),
                Err(error) => Verdict::Refused(error.to_string()),
            };
            result.count(&verdict, neighbours.count());
        }
    }
}

/// The nearest packets outside a hole.
struct Neighbours<'a> {
    before: Option<NeighbourRef<'a>>,
    after: Option<NeighbourRef<'a>>,
}

impl<'a> Neighbours<'a> {
    fn around(packets: &[Packet<'a>], hole: &Range<usize>) -> Self {
        let neighbour = |packet: &Packet<'a>| NeighbourRef {
            frame: packet.frame,
            psn: packet.psn,
        };
        Self {
            before: packets[..hole.start].last().map(neighbour),
            after: packets.get(hole.end).map(neighbour),
        }
    }

    fn count(&self) -> usize {
        usize::from(self.before.is_some()) + usize::from(self.after.is_some())
    }
}

/// What became of one removed packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Equal to the original octet by octet.
    Equal(Identification),
    /// A frame came out, but another one.
    Different(usize),
    /// Nothing came out, for this reason.
    Refused(String),
}

/// Compares a rebuilt frame with the one that was removed: all of it but link padding, and with the
/// ECN mark that a restored packet has (AMB-RESTECN) instead of the one on arrival.
fn judge(victim: &Packet<'_>, rebuilt: &Rebuilt, frame: &[u8]) -> Verdict {
    let (Some(ip), Some(udp)) = (victim.parsed.ip, victim.parsed.udp) else {
        return Verdict::Different(0);
    };
    let mut expected = victim.frame[..ip.end()].to_vec();
    set_tos(&mut expected, &victim.parsed, restored_tos(ip.tos, false));
    if let Some(tunnel) = &victim.parsed.tunnel {
        set_outer_tos(
            &mut expected,
            &victim.parsed,
            restored_tos(tunnel.ip.tos, false),
        );
    }
    let place = usize::from(udp.payload_off) == rebuilt.payload_off && victim.psn == rebuilt.psn;
    if place && expected == frame {
        return Verdict::Equal(rebuilt.identification);
    }
    let differs = expected.iter().zip(frame).position(|(a, b)| a != b);
    Verdict::Different(differs.unwrap_or(expected.len().min(frame.len())))
}
