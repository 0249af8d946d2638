//! Two gateways whose points change while packets pass: what stays goes on, what goes is drained, nothing is lost.

use super::*;

/// Changes what gateway 0 observes, as the auxiliary thread would.
fn change(pair: &mut Pair, before: &MeteringConfig, after: &MeteringConfig) {
    let mut change = Change::new(0, before, after.clone(), None).unwrap();
    let now = Instant(pair.now.get());
    pair.gateways[0].observe(now, &mut change);
}

fn send(pair: &mut Pair, psns: std::ops::Range<u32>) {
    for psn in psns {
        pair.gateways[0].lan.device.arrive(&packet(psn));
        pair.step(&mut |_| true);
    }
    for _ in 0..500 {
        pair.step(&mut |_| true);
    }
}

// shows: SEQ-ID-08, SEQ-ID-10
#[test]
fn points_come_and_go_and_what_stays_does_not_notice() {
    let mut pair = Pair::new(true);
    let end = observe(&mut pair, 0, &[Place::LanIngress], 32);
    let mut taken = Taken::default();
    send(&mut pair, 0..100);
    let (one, two) = (
        metering_config(&[Place::LanIngress]),
        metering_config(&[Place::LanIngress, Place::WanEgress]),
    );
    change(&mut pair, &one, &two);
    send(&mut pair, 100..200);
    change(&mut pair, &two, &one);
    send(&mut pair, 200..300);
    taken.take(&end);
    let gone = taken.last(Place::WanEgress);
    assert!(gone.flags.contains(Flags::FINAL));
    assert!(
        !gone.flags.intersects(Flags::REASONS),
        "an ordinary closure"
    );
    assert_eq!((gone.counts.requests, gone.counts.skipped), (100, 0));
    let psns: Vec<u32> = (100..200).collect();
    assert_eq!(taken.psns(Place::WanEgress), psns);
    // Those of nothing at the beginning, and those of the point that came and went.
    assert_eq!(taken.freed, 3);
    // Nothing is observed in the end; the rest of the ring goes with it.
    change(&mut pair, &one, &metering_config(&[]));
    send(&mut pair, 300..400);
    taken.take(&end);
    assert_eq!(taken.last(Place::LanIngress).counts.requests, 300);
    assert_eq!(taken.psns(Place::LanIngress), (0..300).collect::<Vec<_>>());
    let packets: Vec<u64> = taken.flows.iter().map(|(_, flow)| flow.packets).collect();
    assert_eq!(packets, [100, 300]);
    assert_eq!(pair.snapshot(0).metering, None);
    assert!(end.full.try_recv().is_err());
}

// shows: SEQ-ID-08
#[test]
fn a_change_waits_for_room_and_loses_no_record() {
    let mut pair = Pair::new(true);
    let end = observe(&mut pair, 0, &[Place::LanIngress], 1);
    let before = metering_config(&[Place::LanIngress]);
    let mut after = before.clone();
    after.points[0].packets = None;
    after.points[0].sequences[0].0.report_interval = Duration::from_millis(5);
    let mut quiet = before.clone();
    quiet.points[0].packets = None;
    change(&mut pair, &before, &quiet);
    send(&mut pair, 0..100);
    // The only batch is filled and nobody takes it.
    let metering = pair.gateways[0].metering.as_mut().unwrap();
    metering.fill_ring();
    change(&mut pair, &quiet, &after);
    send(&mut pair, 100..200);
    let mut taken = Taken::default();
    taken.take(&end);
    assert!(taken.sequences.is_empty());
    for more in [200, 250] {
        send(&mut pair, more..more + 50);
        send(&mut pair, 0..0);
        taken.take(&end);
    }
    let first = taken.sequences[0];
    assert_eq!(
        (first.flags.contains(Flags::FINAL), first.counts.requests),
        (true, 100)
    );
    assert!(
        taken.sequences.len() > 1,
        "reports of the next epoch follow"
    );
    assert!(
        taken.sequences[1..]
            .iter()
            .all(|record| record.epoch > first.epoch)
    );
    // A ring that stays full costs the records after two seconds.
    pair.gateways[0].metering.as_mut().unwrap().fill_ring();
    change(&mut pair, &after, &quiet);
    pair.now.set(pair.now.get() + 3_000_000_000);
    send(&mut pair, 300..310);
    assert_eq!(pair.snapshot(0).points[0].sequences.unwrap().1, 1);
    assert!(pair.snapshot(0).metering.unwrap().0.ring_full > 0);
}

#[test]
fn a_change_after_a_panic_holds_when_metering_begins_anew() {
    let mut pair = Pair::new(true);
    let end = observe(&mut pair, 0, &[Place::LanIngress], 32);
    pair.gateways[0].metering.as_mut().unwrap().panic_next();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    send(&mut pair, 0..10);
    std::panic::set_hook(hook);
    let before = metering_config(&[Place::LanIngress]);
    change(&mut pair, &before, &metering_config(&[Place::WanEgress]));
    pair.now.set(pair.now.get() + 11_000_000_000);
    send(&mut pair, 10..12);
    send(&mut pair, 12..20);
    pair.gateways[0].close(Instant(pair.now.get()));
    let mut taken = Taken::default();
    taken.take(&end);
    assert!(
        taken
            .psns(Place::WanEgress)
            .ends_with(&(12..20).collect::<Vec<_>>())
    );
    assert!(taken.last(Place::WanEgress).counts.requests >= 8);
}
