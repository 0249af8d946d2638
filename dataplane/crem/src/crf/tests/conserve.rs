//! A lossy path end to end, in simulated time: whatever happens on it, every frame that arrives leaves
//! exactly once, none is held longer than H, and what leaves the hold together is in serial order.

use super::*;
use alloc::collections::BTreeMap;
use proptest::prelude::*;

/// What the path does to one source packet.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrives,
    Lost,
    Late(u8),
    Twice,
}

fn fates(loss: u32) -> impl Strategy<Value = Vec<Fate>> {
    let fate = prop_oneof![
        100 - loss => Just(Fate::Arrives),
        loss => Just(Fate::Lost),
        3 => (1u8..60).prop_map(Fate::Late),
        2 => Just(Fate::Twice),
    ];
    proptest::collection::vec(fate, 50..400)
}

/// Delivery of one call: checks order and time.
struct Watch {
    arrived: BTreeMap<u64, Instant>,
    hold: Duration,
}

impl Watch {
    fn check(&mut self, rig: &mut Rig, fresh: &[u64]) -> Result<(), TestCaseError> {
        for (number, left) in rig.numbers.drain(..) {
            let at = self.arrived.remove(&number);
            prop_assert!(at.is_some(), "a frame left twice");
            let waited = left.since(at.unwrap_or(left));
            prop_assert!(waited <= self.hold, "held for {:?}", waited);
            prop_assert!(fresh.contains(&number) || !waited.is_zero());
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    // shows: CREM-RECV-08, CREM-FB-04
    #[test]
    fn frames_leave_once_and_in_time(
        loss in 1u32..30,
        fates in (1u32..30).prop_flat_map(fates),
        m in 0u8..3,
        first in prop_oneof![Just(0xff_ff80u32), 100u32..10_000],
        repairs_lost in any::<u64>(),
        fixed in proptest::option::of(1u64..80),
    ) {
        let _ = loss;
        let mut setup = config();
        if let Some(ms) = fixed {
            setup.crf.hold = crate::config::Hold::Fixed(Duration::from_millis(ms));
        }
        let mut rig = Rig::bound(setup, m, first);
        rig.numbers.clear();
        // H may grow to a quarter of the RTT, or is the operator's.
        let hold = fixed.map_or(RTT / 4, Duration::from_millis);
        let mut watch = Watch { arrived: BTreeMap::new(), hold };
        let mut late: Vec<(usize, u32)> = Vec::new();
        for (n, fate) in fates.iter().enumerate() {
            rig.wait(10 * US);
            watch.check(&mut rig, &[])?;
            let psn = first + n as u32;
            let mut psns = match fate {
                Fate::Arrives => Vec::from([psn]),
                Fate::Lost => Vec::new(),
                Fate::Twice => Vec::from([psn, psn]),
                Fate::Late(by) => {
                    late.push((n + usize::from(*by), psn));
                    Vec::new()
                }
            };
            psns.extend(late.extract_if(.., |(at, _)| *at <= n).map(|(_, psn)| psn));
            let burst: Vec<_> = psns.iter().map(|p| rig.desc(*p)).collect();
            let fresh: Vec<u64> = burst.iter().map(|d| d.buf.number).collect();
            for number in &fresh {
                watch.arrived.insert(*number, rig.now);
            }
            rig.descs(&burst);
            watch.check(&mut rig, &fresh)?;
            if n % 8 == 7 {
                let start = first + n as u32 - 7;
                for index in 0..m {
                    if repairs_lost >> ((n / 8 + usize::from(index)) % 64) & 1 == 0 {
                        rig.ordinary(start, index);
                        watch.check(&mut rig, &[])?;
                    }
                }
            }
        }
        rig.wait(Duration::from_secs(3));
        watch.check(&mut rig, &[])?;
        prop_assert!(watch.arrived.is_empty(), "{:?} never left", watch.arrived);
        // Everything comes to rest: nothing is open, asked for or kept for ever.
        let status = rig.status();
        prop_assert_eq!((status.open_blocks, status.gaps, status.held, status.kept), (0, 0, 0, 0));
        let r = rig.reports();
        prop_assert!(r.received <= r.expected);
    }

    /// Between two calls that hand out frames, what leaves the hold is in serial order.
    // shows: CREM-RECV-08
    #[test]
    fn releases_are_in_serial_order(arrivals in proptest::collection::vec(0u32..60, 1..80)) {
        let mut rig = Rig::bound(config(), 2, 1000);
        for n in &arrivals {
            rig.burst(&[1001 + n]);
            prop_assert!(rig.taken().is_empty(), "1000 is missing, all wait");
        }
        rig.burst(&[1000]);
        let mut left = rig.taken();
        prop_assert!(left.is_sorted());
        rig.crf.release_all(rig.now, &mut rig.out);
        rig.settle();
        let rest = rig.taken();
        prop_assert!(rest.is_sorted());
        left.extend(rest);
        let mut all: Vec<u32> = arrivals.iter().map(|n| 1001 + n).chain([1000]).collect();
        all.sort_unstable();
        prop_assert_eq!(left, all);
    }
}
