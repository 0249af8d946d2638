//! Hosts that send again too early, told from NAKs and duplicates.

use super::rig::{MS, RTT, Rig, config};
use crate::csf::testing::key;
use crate::events::Event;
use crate::time::Duration;

/// 64 packets of a protected flow at once, the same again after `wait`; reports say that `lost` of them
/// were lost, of which none was restored. Gives what was advised.
fn resend_after(wait: Duration, lost: u32) -> (Rig, Vec<(Duration, Duration)>) {
    let mut rig = Rig::new(config());
    let psn = rig.protect(key(1), 0);
    rig.psns(key(1), psn..psn + 64);
    rig.wait(wait.min(RTT));
    if lost > 0 {
        rig.report(key(1), 64, 64 - lost);
    }
    rig.wait(wait.saturating_sub(RTT));
    rig.psns(key(1), psn..psn + 64);
    for n in 0..8 {
        rig.wait(RTT);
        rig.psns(key(1), [psn + 64 + n]);
        rig.report(key(1), 64, 64);
    }
    let advised = (rig.events.iter())
        .filter_map(|event| match event {
            Event::RetransmittedEarly {
                stream,
                after,
                raise_to,
            } if *stream == key(1) => Some((*after, *raise_to)),
            _ => None,
        })
        .collect();
    (rig, advised)
}

/// The smallest adapter timeout beyond two round trips of 20 ms and a quarter: 4.096 us x 2^14.
const ADVICE: Duration = Duration::from_nanos(4_096 << 14);

#[test]
fn sooner_than_the_round_trip_it_was_a_timer() {
    let (rig, advised) = resend_after(5 * MS, 0);
    assert_eq!(advised, [(5 * MS, ADVICE)]);
    assert_eq!(rig.csf.counters().early_retransmissions, 1);
    let status = rig.status(key(1));
    assert_eq!(
        (
            status.early_runs,
            status.early_after,
            status.raise_timeout_to
        ),
        (1, Some(5 * MS), Some(ADVICE))
    );
    // Losses do not explain it either: no NAK can be back.
    assert_eq!(resend_after(5 * MS, 3).1.len(), 1);
}

#[test]
fn later_the_reports_decide() {
    let (_, advised) = resend_after(30 * MS, 0);
    assert_eq!(advised, [(30 * MS, ADVICE)]);
    let (rig, advised) = resend_after(30 * MS, 1);
    assert!(advised.is_empty(), "a NAK is likelier");
    let status = rig.status(key(1));
    assert_eq!((status.early_runs, status.raise_timeout_to), (0, None));
    assert!(
        resend_after(60 * MS, 0).1.is_empty(),
        "a timeout that leaves time for repair"
    );
}

#[test]
fn duplicates_on_the_lan_are_not_sent_again() {
    assert!(resend_after(Duration::from_micros(20), 0).1.is_empty());
}

#[test]
fn advice_comes_once_a_minute() {
    let mut rig = Rig::new(config());
    let mut psn = rig.protect(key(1), 0);
    for _ in 0..100 {
        rig.psns(key(1), psn..psn + 32);
        rig.wait(5 * MS);
        rig.psns(key(1), psn..psn + 32);
        rig.wait(RTT);
        rig.report(key(1), 32, 32);
        psn += 32;
    }
    let advised = rig
        .events
        .iter()
        .filter(|e| matches!(e, Event::RetransmittedEarly { .. }));
    assert_eq!((advised.count(), rig.status(key(1)).early_runs), (1, 100));
}
