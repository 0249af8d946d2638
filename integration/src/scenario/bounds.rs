//! Counters of gateways against bounds that a scenario names: what happened has its counter, and what must not
//! happen has one that stays zero.

use crem_api::state::{Named, SegmentCounters};
use serde::{Deserialize, Serialize};

use super::check::Finding;
use super::report::{RunReport, gateway_name};
use super::spec::Host;

/// A bound of one counter, or of the sum of several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// Gateway.
    pub at: Host,
    /// Group of counters: `lan`, `wan`, `drops`, `messages`, `csf`, `crf`, `coding`, `inband`, `monitor`.
    pub group: String,
    /// Names; their sum counts. All of them have to be there.
    pub names: Vec<String>,
    /// Least value.
    #[serde(default)]
    pub least: u64,
    /// Most; without it no bound.
    pub most: Option<u64>,
}

/// Every bound in one run.
pub(crate) fn judge(bounds: &[Bound], run: &RunReport, found: &mut Vec<Finding>) {
    for bound in bounds {
        let counters = run.gateways.get(gateway_name(bound.at));
        let value = counters.and_then(|counters| sum(bound, counters));
        let ok = value.is_some_and(|value| {
            value >= bound.least && bound.most.is_none_or(|most| value <= most)
        });
        let most = bound
            .most
            .map_or_else(String::new, |most| format!(", at most {most}"));
        let (at, group, names) = (bound.at, &bound.group, bound.names.join(" + "));
        found.push(Finding::new(
            ok,
            format!(
                "{}: {at:?} {group} {names} {value:?}, at least {}{most}",
                run.mode, bound.least
            ),
        ));
    }
}

/// `None` where there is no such group or name.
fn sum(bound: &Bound, counters: &SegmentCounters) -> Option<u64> {
    let group: &Named = match bound.group.as_str() {
        "lan" => &counters.lan,
        "wan" => &counters.wan,
        "drops" => &counters.drops,
        "messages" => &counters.messages,
        "csf" => &counters.csf,
        "crf" => &counters.crf,
        "coding" => &counters.coding,
        "inband" => &counters.inband,
        "monitor" => &counters.monitor,
        _ => return None,
    };
    bound.names.iter().map(|name| group.get(name)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_is_not_there_meets_no_bound() {
        let bound = |names: &[&str], least, most| Bound {
            at: Host::B,
            group: "crf".to_owned(),
            names: names.iter().map(|n| (*n).to_owned()).collect(),
            least,
            most,
        };
        let mut run = RunReport::default();
        let gateway = run.gateways.entry("gwB".to_owned()).or_default();
        gateway.crf.insert("held".to_owned(), 5);
        gateway.crf.insert("jumps".to_owned(), 2);
        let ok = |bound: Bound| {
            let mut found = Vec::new();
            judge(&[bound], &run, &mut found);
            found.iter().all(|f| f.ok) && found.len() == 1
        };
        assert!(ok(bound(&["held"], 5, Some(5))));
        assert!(ok(bound(&["held", "jumps"], 7, None)));
        assert!(!ok(bound(&["held"], 6, None)) && !ok(bound(&["held"], 0, Some(4))));
        assert!(!ok(bound(&["heldd"], 0, None)));
        let elsewhere = Bound {
            at: Host::A,
            ..bound(&["held"], 0, None)
        };
        assert!(!ok(elsewhere));
    }
}
