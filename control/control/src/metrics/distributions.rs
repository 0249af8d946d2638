//! Distributions of the data plane as native histograms. They come with their buckets filled, which no recorder takes, so
//! the text is made here. Labels are segment, worker, and where a frame came from: nothing that grows with traffic.

use std::collections::BTreeMap;
use std::fmt::Write;

use crem_api::state::{Distribution, SegmentCounters};

use crate::watcher::Seen;

/// What a histogram counts in.
#[derive(Clone, Copy, Debug)]
enum Unit {
    /// Told in nanoseconds, shown in seconds.
    Seconds,
    /// Frames.
    Frames,
}

/// A histogram, and the distributions that are its series: name, and a label's name and value.
struct Family {
    name: &'static str,
    help: &'static str,
    unit: Unit,
    series: &'static [(&'static str, &'static str)],
}

const FAMILIES: [Family; 4] = [
    Family {
        name: "crem_transit_seconds",
        help: "Time from receiving a burst until its frames were given to the other port, by the port it came from.",
        unit: Unit::Seconds,
        series: &[("lan_to_wan_ns", "lan"), ("wan_to_lan_ns", "wan")],
    },
    Family {
        name: "crem_receive_burst_frames",
        help: "Frames received at once, by the port they came from.",
        unit: Unit::Frames,
        series: &[("lan_burst", "lan"), ("wan_burst", "wan")],
    },
    Family {
        name: "crem_hold_seconds",
        help: "Time that packets were held behind a gap.",
        unit: Unit::Seconds,
        series: &[("hold_ns", "wan")],
    },
    Family {
        name: "crem_recovery_seconds",
        help: "Time from noticing a loss until the packet was restored.",
        unit: Unit::Seconds,
        series: &[("recovery_ns", "wan")],
    },
];

/// Powers of two whose predecessors are the bounds in nanoseconds: 255 ns to 1.07 s. The data plane's own buckets end
/// there too, so that no value is counted on the wrong side of a bound.
const NANOSECOND_BITS: std::ops::RangeInclusive<u32> = 8..=30;
/// The same for frames of a burst: 1 to 63.
const FRAME_BITS: std::ops::RangeInclusive<u32> = 1..=6;
/// Nanoseconds of a second.
const SECOND: f64 = 1e9;

impl Unit {
    /// Bounds as they are told by the data plane.
    fn bounds(self) -> impl Iterator<Item = u64> {
        let bits = match self {
            Self::Seconds => NANOSECOND_BITS,
            Self::Frames => FRAME_BITS,
        };
        bits.map(|bits| (1 << bits) - 1)
    }

    /// A value as it is shown.
    fn shown(self, value: u64) -> f64 {
        match self {
            Self::Seconds => value as f64 / SECOND,
            Self::Frames => value as f64,
        }
    }
}

/// All histograms as text; none where the data plane does not answer.
pub(super) fn render(seen: &Seen) -> String {
    let mut text = String::new();
    let Some(counters) = &seen.counters else {
        return text;
    };
    for family in &FAMILIES {
        let mut samples = String::new();
        for (id, segment) in &counters.segments {
            for (worker, distributions) in parts(segment) {
                for (name, port) in family.series {
                    if let Some(values) = distributions.get(*name) {
                        let labels = format!(
                            "segment=\"{}\",worker=\"{worker}\",port=\"{port}\"",
                            escaped(id)
                        );
                        put(&mut samples, family, &labels, values);
                    }
                }
            }
        }
        if !samples.is_empty() {
            let (name, help) = (family.name, family.help);
            text += &format!("# HELP {name} {help}\n# TYPE {name} histogram\n{samples}\n");
        }
    }
    text
}

/// Distributions by worker; one worker alone is the whole segment.
fn parts(
    segment: &SegmentCounters,
) -> impl Iterator<Item = (usize, &BTreeMap<String, Distribution>)> {
    let alone = segment.workers.is_empty().then_some(&segment.distributions);
    let workers = segment.workers.iter().map(|worker| &worker.distributions);
    workers.chain(alone).enumerate()
}

fn put(to: &mut String, family: &Family, labels: &str, values: &Distribution) {
    let (name, unit) = (family.name, family.unit);
    let mut buckets = values.buckets.iter().peekable();
    let mut below = 0;
    // Writing to memory does not fail.
    for bound in unit.bounds() {
        while let Some(bucket) = buckets.next_if(|bucket| bucket.most <= bound) {
            below += bucket.count;
        }
        let most = unit.shown(bound);
        let _ = writeln!(to, "{name}_bucket{{{labels},le=\"{most}\"}} {below}");
    }
    let (count, sum) = (values.count, unit.shown(values.sum));
    let _ = writeln!(to, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
    let _ = writeln!(to, "{name}_sum{{{labels}}} {sum}");
    let _ = writeln!(to, "{name}_count{{{labels}}} {count}");
}

/// A label's value as the format has it.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crem_api::state::{Bucket, Counters, WorkerCounters};

    use super::*;

    fn values(buckets: &[(u64, u64)], sum: u64) -> Distribution {
        Distribution {
            count: buckets.iter().map(|(_, count)| count).sum(),
            sum,
            buckets: buckets
                .iter()
                .map(|&(most, count)| Bucket { most, count })
                .collect(),
            ..Distribution::default()
        }
    }

    fn seen(segment: SegmentCounters) -> Seen {
        let mut counters = Counters::default();
        counters.segments.insert("wan".to_owned(), segment);
        Seen {
            counters: Some(counters),
            ..Seen::default()
        }
    }

    #[test]
    fn buckets_add_up_and_are_in_base_units() {
        let mut segment = SegmentCounters::default();
        let times = values(
            &[(255, 2), (319, 1), (1_279, 4), (u64::MAX, 1)],
            2_000_000_000,
        );
        segment.distributions.insert("hold_ns".to_owned(), times);
        let bursts = values(&[(1, 5), (39, 2)], 70);
        segment.distributions.insert("lan_burst".to_owned(), bursts);
        let text = render(&seen(segment));
        let has = |line: &str| assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        has("# TYPE crem_hold_seconds histogram");
        let hold = "segment=\"wan\",worker=\"0\",port=\"wan\"";
        has(&format!(
            "crem_hold_seconds_bucket{{{hold},le=\"0.000000255\"}} 2"
        ));
        has(&format!(
            "crem_hold_seconds_bucket{{{hold},le=\"0.000000511\"}} 3"
        ));
        has(&format!(
            "crem_hold_seconds_bucket{{{hold},le=\"0.000001023\"}} 3"
        ));
        has(&format!(
            "crem_hold_seconds_bucket{{{hold},le=\"0.000002047\"}} 7"
        ));
        has(&format!("crem_hold_seconds_bucket{{{hold},le=\"+Inf\"}} 8"));
        has(&format!("crem_hold_seconds_sum{{{hold}}} 2"));
        has(&format!("crem_hold_seconds_count{{{hold}}} 8"));
        let burst = "segment=\"wan\",worker=\"0\",port=\"lan\"";
        has(&format!(
            "crem_receive_burst_frames_bucket{{{burst},le=\"1\"}} 5"
        ));
        has(&format!(
            "crem_receive_burst_frames_bucket{{{burst},le=\"31\"}} 5"
        ));
        has(&format!(
            "crem_receive_burst_frames_bucket{{{burst},le=\"63\"}} 7"
        ));
        assert!(!text.contains("crem_recovery_seconds"), "{text}");
    }

    #[test]
    fn series_are_as_many_as_workers_and_bounds_whatever_passes() {
        let worker = |most: u64| {
            let mut worker = WorkerCounters::default();
            for name in [
                "lan_to_wan_ns",
                "wan_to_lan_ns",
                "lan_burst",
                "wan_burst",
                "hold_ns",
                "recovery_ns",
            ] {
                let all: Vec<_> = (0..most).map(|n| (n, 1)).collect();
                worker
                    .distributions
                    .insert(name.to_owned(), values(&all, 1));
            }
            worker
        };
        let count = |most| {
            let mut segment = SegmentCounters::default();
            segment
                .distributions
                .insert("hold_ns".to_owned(), values(&[(1, 1)], 1));
            segment.workers = vec![worker(most), worker(most)];
            let text = render(&seen(segment));
            text.lines()
                .filter(|l| !l.starts_with('#') && !l.is_empty())
                .count()
        };
        // Four of times with 23 bounds, two of frames with 6, each with infinity, sum and count; of two workers.
        assert_eq!(count(3), 2 * (4 * 26 + 2 * 9));
        assert_eq!(count(3), count(10_000));
    }

    #[test]
    fn nobody_answers_and_nothing_is_shown() {
        assert_eq!(render(&Seen::default()), "");
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
