//! Distributions that a segment takes down: how long frames are here, how many come at once. Owned by one worker,
//! added up where they are told.

use crem_api::state::{Bucket, Distribution};
use crem_core::crf::CrfTimes;
use crem_core::histogram::Histogram;
use crem_core::time::Instant;

/// The distributions of a segment, or of one worker's part of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SegmentTimes {
    /// From the moment a burst was received until its frames were given to the WAN port, nanoseconds.
    pub lan_to_wan_ns: Histogram,
    /// The same to the LAN port, of frames that left with the burst that they came in.
    pub wan_to_lan_ns: Histogram,
    /// Frames of a burst from the LAN.
    pub lan_burst: Histogram,
    /// Frames of a burst from the WAN.
    pub wan_burst: Histogram,
    /// What the receiver function took down.
    pub receiver: CrfTimes,
    /// When the first frame of a host had been given to a port.
    pub first_forwarded: Option<Instant>,
}

impl SegmentTimes {
    /// Calls `f` with the name of each and itself.
    pub fn for_each(&self, mut f: impl FnMut(&'static str, &Histogram)) {
        f("lan_to_wan_ns", &self.lan_to_wan_ns);
        f("wan_to_lan_ns", &self.wan_to_lan_ns);
        f("lan_burst", &self.lan_burst);
        f("wan_burst", &self.wan_burst);
        f("hold_ns", &self.receiver.hold_ns);
        f("recovery_ns", &self.receiver.recovery_ns);
    }

    /// Adds what another worker took down.
    pub fn add(&mut self, other: &Self) {
        for (to, more) in [
            (&mut self.lan_to_wan_ns, &other.lan_to_wan_ns),
            (&mut self.wan_to_lan_ns, &other.wan_to_lan_ns),
            (&mut self.lan_burst, &other.lan_burst),
            (&mut self.wan_burst, &other.wan_burst),
            (&mut self.receiver.hold_ns, &other.receiver.hold_ns),
            (&mut self.receiver.recovery_ns, &other.receiver.recovery_ns),
        ] {
            to.add(more);
        }
        let first = self
            .first_forwarded
            .into_iter()
            .chain(other.first_forwarded);
        self.first_forwarded = first.min();
    }
}

/// As it is told.
pub(crate) fn distribution(histogram: &Histogram) -> Distribution {
    let bucket = |(most, count)| Bucket { most, count };
    Distribution {
        count: histogram.count(),
        sum: histogram.sum(),
        median: histogram.permille(500),
        p99: histogram.permille(990),
        p999: histogram.permille(999),
        buckets: histogram.buckets().map(bucket).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_frame_of_all_workers_is_the_first() {
        let with = |first_forwarded| SegmentTimes {
            first_forwarded,
            ..SegmentTimes::default()
        };
        for (a, b, first) in [
            (None, None, None),
            (None, Some(7), Some(7)),
            (Some(7), None, Some(7)),
            (Some(9), Some(7), Some(7)),
            (Some(7), Some(9), Some(7)),
        ] {
            let mut all = with(a.map(Instant));
            all.add(&with(b.map(Instant)));
            assert_eq!(all.first_forwarded, first.map(Instant), "{a:?} {b:?}");
        }
    }

    #[test]
    fn each_has_its_name_and_adds_up() {
        let (mut a, mut b) = (SegmentTimes::default(), SegmentTimes::default());
        a.lan_burst.record(3);
        b.lan_burst.record_n(3, 2);
        b.receiver.hold_ns.record(1_000);
        a.add(&b);
        let mut seen = Vec::new();
        a.for_each(|name, histogram| seen.push((name, histogram.count())));
        assert_eq!(
            seen,
            [
                ("lan_to_wan_ns", 0),
                ("wan_to_lan_ns", 0),
                ("lan_burst", 3),
                ("wan_burst", 0),
                ("hold_ns", 1),
                ("recovery_ns", 0),
            ]
        );
        let told = distribution(&a.lan_burst);
        assert_eq!((told.count, told.sum, told.median, told.p999), (3, 9, 3, 3));
        assert_eq!(told.buckets, [Bucket { most: 3, count: 3 }]);
    }
}
