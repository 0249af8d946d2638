//! The loss processes.

use crate::config::Loss;
use crate::draw::{Draw, Purpose};

/// A loss process with its state.
#[derive(Debug)]
pub(crate) struct LossProcess {
    kind: Loss,
    bad: bool,
}

impl LossProcess {
    pub(crate) fn new(kind: Loss) -> Self {
        Self { kind, bad: false }
    }

    /// Whether frame `index` is lost. To be asked once per frame, in order.
    pub(crate) fn loses(&mut self, draw: Draw, index: u64) -> bool {
        match self.kind {
            Loss::None => false,
            Loss::Uniform(p) => draw.happens(index, Purpose::Loss, p),
            Loss::GilbertElliott {
                to_bad,
                to_good,
                loss_good,
                loss_bad,
            } => {
                let turn = if self.bad { to_good } else { to_bad };
                self.bad ^= draw.happens(index, Purpose::Transition, turn);
                let p = if self.bad { loss_bad } else { loss_good };
                draw.happens(index, Purpose::Loss, p)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gilbert_elliott_loses_in_bursts() {
        let kind = Loss::GilbertElliott {
            to_bad: 0.002,
            to_good: 0.2,
            loss_good: 0.0,
            loss_bad: 1.0,
        };
        let mut process = LossProcess::new(kind);
        let draw = Draw::new(1, 0);
        let lost: Vec<bool> = (0..200_000).map(|i| process.loses(draw, i)).collect();
        let count = lost.iter().filter(|&&l| l).count();
        let bursts = lost
            .windows(2)
            .filter(|w| matches!(w, [false, true]))
            .count();
        let mean = count as f64 / bursts as f64;
        assert!(
            (count as f64 / 200_000.0 - kind.mean()).abs() < 0.002,
            "{count}"
        );
        assert!((4.0..6.0).contains(&mean), "mean burst {mean}");
    }
}
