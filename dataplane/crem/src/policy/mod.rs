//! Redundancy policy: what reports and requests say of a path (`estimate`, `classify`, `repair_loss`,
//! `raise`, `breaker`), and how long blocks are and how many symbols they get for it (`block`, `targets`,
//! `choose`). Arithmetic and small state; when it is applied, and what caps it, is decided in `csf`.

mod block;
mod breaker;
mod choose;
mod classify;
mod estimate;
mod raise;
mod reduce;
mod repair_loss;
mod targets;

pub use block::{Losses, excess_probability, residual_rate};
pub use breaker::{Breaker, BreakerEffect, BreakerState, Interval};
pub use choose::{Bounds, Choice, Demand, Need, Rules, choose, need};
pub use classify::{Classifier, DelaySum, Evidence, LossClass, PathEvidence, Thresholds};
pub use estimate::{BurstEstimate, BurstLength, LossEstimate, PathEstimate};
pub use raise::{RaiseCheck, RaiseVerdict};
pub use reduce::Reduction;
pub use repair_loss::{RepairLoss, RepairMeter, RepairReport};
pub use targets::{Targets, round_failure};
