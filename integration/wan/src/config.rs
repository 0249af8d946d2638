//! What a link does to frames, as a document (TOML or JSON, identical keys). Reading files is not here.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::class::Class;

/// The whole link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Seed of all random decisions.
    pub seed: u64,
    /// UDP port of CREM messages, to tell them from the rest; 0 knows none.
    pub crem_port: u16,
    /// From side A to side B.
    pub a_to_b: DirectionConfig,
    /// From side B to side A.
    pub b_to_a: DirectionConfig,
}

/// One direction of the link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DirectionConfig {
    /// One-way delay in microseconds, added after the queue.
    pub delay_us: u64,
    /// Largest extra delay in microseconds, drawn evenly; order is kept.
    pub jitter_us: u64,
    /// Rate in Mbit/s counted with preamble, gap and FCS; 0 is unlimited.
    pub rate_mbit: u64,
    /// Room before the rate limit in octets; a frame that does not fit is dropped. Only with a rate.
    pub queue_octets: u64,
    /// Frames that find more than this waiting are marked CE if they are ECT; `None` marks none.
    pub ecn_threshold_octets: Option<u64>,
    /// Random loss, after the queue.
    pub loss: Loss,
    /// Probability that a frame is held back by `reorder_extra_us`, so that others overtake it.
    pub reorder: f64,
    /// Extra delay of such a frame in microseconds.
    pub reorder_extra_us: u64,
    /// Probability that a frame arrives twice.
    pub duplicate: f64,
    /// Probability that one bit behind the Ethernet header is flipped.
    pub corrupt: f64,
    /// The node at the entrance of this direction reports drops and queueing to the sources of RDMA flows.
    pub reporter: Option<NodeConfig>,
    /// Which frames suffer loss, reordering, duplication and corruption; all go through queue and delay.
    pub only: Vec<Class>,
}

impl Default for DirectionConfig {
    fn default() -> Self {
        Self {
            delay_us: 0,
            jitter_us: 0,
            rate_mbit: 0,
            queue_octets: 1_000_000,
            ecn_threshold_octets: None,
            loss: Loss::None,
            reorder: 0.0,
            reorder_extra_us: 500,
            duplicate: 0.0,
            corrupt: 0.0,
            reporter: None,
            only: Class::ALL.to_vec(),
        }
    }
}

/// A Path Reporter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// Its address, of the family of the hosts; reports go to the sources of flows.
    pub address: IpAddr,
    /// Its Node ID.
    pub node: u32,
    /// Microseconds that a report takes back to the side that the flow comes from. Nothing happens to it on
    /// that way.
    #[serde(default)]
    pub delay_us: u64,
}

/// A loss process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Loss {
    /// Nothing is lost.
    #[default]
    None,
    /// Each frame alone with this probability.
    Uniform(f64),
    /// Two states (Gilbert-Elliott).
    GilbertElliott {
        /// Probability to turn bad before a frame in the good state.
        to_bad: f64,
        /// Probability to turn good before a frame in the bad state.
        to_good: f64,
        /// Loss in the good state.
        #[serde(default)]
        loss_good: f64,
        /// Loss in the bad state.
        #[serde(default = "one")]
        loss_bad: f64,
    },
}

fn one() -> f64 {
    1.0
}

impl Loss {
    /// The long-run share of frames lost.
    pub fn mean(&self) -> f64 {
        match *self {
            Self::None => 0.0,
            Self::Uniform(p) => p,
            Self::GilbertElliott {
                to_bad,
                to_good,
                loss_good,
                loss_bad,
            } => {
                let bad = if to_bad + to_good > 0.0 {
                    to_bad / (to_bad + to_good)
                } else {
                    0.0
                };
                bad * loss_bad + (1.0 - bad) * loss_good
            }
        }
    }
}

impl Config {
    /// All values that cannot be, each named.
    pub fn problems(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (name, direction) in [("a_to_b", &self.a_to_b), ("b_to_a", &self.b_to_a)] {
            for (key, value) in direction.probabilities() {
                if !(0.0..=1.0).contains(&value) {
                    found.push(format!("{name}.{key}: {value}, expected 0 ..= 1"));
                }
            }
            if direction.reporter.is_some() && self.crem_port == 0 {
                found.push(format!("{name}.reporter: needs a crem_port"));
            }
        }
        found
    }
}

impl DirectionConfig {
    fn probabilities(&self) -> Vec<(&'static str, f64)> {
        let mut all = vec![
            ("reorder", self.reorder),
            ("duplicate", self.duplicate),
            ("corrupt", self.corrupt),
        ];
        match self.loss {
            Loss::None => {}
            Loss::Uniform(p) => all.push(("loss.uniform", p)),
            Loss::GilbertElliott {
                to_bad,
                to_good,
                loss_good,
                loss_bad,
            } => all.extend([
                ("loss.gilbert-elliott.to_bad", to_bad),
                ("loss.gilbert-elliott.to_good", to_good),
                ("loss.gilbert-elliott.loss_good", loss_good),
                ("loss.gilbert-elliott.loss_bad", loss_bad),
            ]),
        }
        all
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn reads_a_document_and_names_bad_values() {
        let text = r#"{"seed": 3, "a_to_b": {"delay_us": 10, "loss": {"uniform": 1.5}, "only": ["roce-source"]},
            "b_to_a": {"loss": {"gilbert-elliott": {"to_bad": 0.1, "to_good": 0.3}}}}"#;
        let config: Config = serde_json::from_str(text).unwrap();
        assert_eq!(
            config.problems(),
            ["a_to_b.loss.uniform: 1.5, expected 0 ..= 1"]
        );
        assert_eq!(config.a_to_b.only, [Class::RoceSource]);
        assert!((config.b_to_a.loss.mean() - 0.25).abs() < 1e-9);
        assert!(serde_json::from_str::<Config>(r#"{"sead": 1}"#).is_err());
        let text = r#"{"a_to_b": {"reporter": {"address": "10.0.0.9", "node": 1}}}"#;
        let mut config: Config = serde_json::from_str(text).unwrap();
        assert_eq!(config.problems(), ["a_to_b.reporter: needs a crem_port"]);
        config.crem_port = 50_000;
        assert_eq!(config.problems().len(), 0);
    }
}
