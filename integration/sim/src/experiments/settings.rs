//! What all experiments share: sizes of a run, configurations of the gateways that are compared.

use std::path::PathBuf;

use crem_core::config::{CoreConfig, Hold};

use super::pair::{Protection, roomy};
use crate::Duration;
use crate::endpoint::rc::Recovery;

/// How an experiment is to be run.
#[derive(Clone, Debug)]
pub struct Options {
    /// All sizes are divided by this; 1 is what the targets are stated for.
    pub shrink: u64,
    /// Cells that run at once.
    pub threads: usize,
    /// Only cells whose label contains this.
    pub only: Option<String>,
    /// Where `NAME.json` goes.
    pub results: PathBuf,
    /// Where curves go, to be kept.
    pub docs: PathBuf,
    /// Determines everything random.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shrink: 1,
            threads: 2,
            only: None,
            results: "target/results".into(),
            docs: "docs/results".into(),
            seed: 1,
        }
    }
}

impl Options {
    /// A size of the full experiment, as large as it is to be here.
    pub fn size(&self, full: u64) -> u64 {
        (full / self.shrink.max(1)).max(1)
    }

    /// Where the figures of targets go: to be kept only if they are those of everything in full size.
    pub(super) fn folders(&self) -> impl Iterator<Item = &PathBuf> {
        let complete = self.shrink <= 1 && self.only.is_none();
        core::iter::once(&self.results).chain(complete.then_some(&self.docs))
    }

    /// Whether the cell with this label is to be run.
    pub fn wants(&self, label: &str) -> bool {
        self.only.as_ref().is_none_or(|only| label.contains(only))
    }
}

/// The two kinds of endpoints.
pub(super) const ENDPOINTS: [(&str, Recovery); 2] = [
    ("go-back-N", Recovery::GoBackN),
    (
        "selective repeat",
        Recovery::Selective {
            reorder: Duration::from_micros(50),
        },
    ),
];

/// What the curves compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// No gateways.
    Bare,
    /// Always 4 symbols for 32 packets, no coded retransmission.
    Fixed,
    /// No symbols ahead, only coded retransmission, with a hold that fits one round.
    CodedOnly,
    /// Everything, as it comes.
    Crem,
}

/// All schemes, with their names.
pub(super) const SCHEMES: [(&str, Scheme); 4] = [
    ("bare wire", Scheme::Bare),
    ("fixed FEC", Scheme::Fixed),
    ("coded retransmission only", Scheme::CodedOnly),
    ("CREM", Scheme::Crem),
];

/// Symbols for 32 packets of [`Scheme::Fixed`].
const FIXED_M: u8 = 4;

impl Scheme {
    /// The gateways of this scheme on a path of this RTT.
    pub fn protection(self, rtt: Duration) -> Protection {
        let mut core = roomy();
        match self {
            Scheme::Bare => return Protection::Bare,
            Scheme::Fixed => {
                (core.fec.k, core.fec.max_k) = (32, 32);
                (core.fec.m_min, core.fec.m_max) = (FIXED_M, FIXED_M);
                (core.crf.rounds, core.crf.fallback) = (0, false);
            }
            Scheme::CodedOnly => {
                core.fec.m_max = 0;
                core.crf.hold = round_hold(rtt);
            }
            Scheme::Crem => {}
        }
        Protection::Crem(Box::new(core))
    }
}

/// A hold that fits one coded round (AMB-HOLD): the round trip, a block and twice the reordering allowance.
pub(super) fn round_hold(rtt: Duration) -> Hold {
    Hold::Fixed(rtt + (rtt / 8).max(Duration::from_micros(500)))
}

/// CREM with a target of FEC such that a block fails with this probability.
pub(super) fn with_block_epsilon(epsilon: f64) -> CoreConfig {
    let mut core = roomy();
    core.fec.targets.epsilon = epsilon;
    core.fec.m_max = 32;
    core
}
