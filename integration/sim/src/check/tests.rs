//! The checkers see what they are there for.
#![allow(clippy::unwrap_used)]

use super::rates::{Allowed, Ordinary, Sources, Volume};
use super::*;
use crate::wire::{Form, Repair};
use crate::{Duration, Instant};

fn at(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

fn repair(form: Form, index: u8, session: u16) -> Repair {
    Repair {
        form,
        config: 1,
        scheme: 1,
        k: 32,
        index,
        start: 100,
        session,
        t: 1000,
        present: (0..32).collect(),
        lost: vec![1, 2],
    }
}

#[test]
fn a_symbol_beyond_m_of_k_is_seen() {
    let mut sources = Sources::default();
    let allowed = Allowed {
        m: 2,
        k: 32,
        t: 100,
    };
    let mut ordinary = Ordinary::new(1, allowed, &sources);
    let mut psn = 0xff_fff0;
    let mut time = 0;
    let mut pass = |sources: &mut Sources, count: u32| {
        for _ in 0..count {
            time += 1;
            sources.on_packet(at(time), 0, psn, 1000);
            psn = (psn + 1) & 0xff_ffff;
        }
    };
    assert_eq!(ordinary.spend(1, 100, &sources), None);
    assert_eq!(ordinary.spend(1, 100, &sources), None);
    pass(&mut sources, 16);
    assert_eq!(ordinary.spend(1, 100, &sources), None);
    pass(&mut sources, 15);
    assert!(ordinary.spend(1, 100, &sources).is_some());
}

#[test]
fn retransmissions_earn_nothing() {
    let mut sources = Sources::default();
    for psn in [5, 6, 6, 5, 7, 100, 50] {
        sources.on_packet(at(1), 0, psn, 10);
    }
    assert_eq!((sources.new, sources.octets), (4, 40));
}

#[test]
fn small_packets_do_not_draw_large_symbols() {
    let mut sources = Sources::default();
    let allowed = Allowed {
        m: 1,
        k: 10,
        t: 1000,
    };
    let mut ordinary = Ordinary::new(1, allowed, &sources);
    assert_eq!(ordinary.spend(1, 1000, &sources), None);
    for psn in 0..10 {
        sources.on_packet(at(2 + u64::from(psn)), 0, psn, 50);
    }
    assert_eq!(
        ordinary.spend(1, 1000, &sources),
        Some("more ordinary octets than the cap allows")
    );
}

#[test]
fn more_than_the_volume_of_a_second_is_seen() {
    let sources = Sources::default();
    let mut volume = Volume::default();
    for _ in 0..64 {
        assert_eq!(volume.spend(at(5000), &sources), None);
    }
    assert_eq!(volume.spend(at(5000), &sources), Some((65, 64)));
    assert_eq!(volume.spend(at(7000), &sources), None);
    volume.report(100);
    for _ in 0..199 {
        assert_eq!(volume.spend(at(7100), &sources), None);
    }
    assert!(volume.spend(at(7200), &sources).is_some());
}

fn answers(now: u64, list: &[Repair]) -> u64 {
    let mut violations = Violations::default();
    let mut answers = answers::Answers::default();
    answers.request(7, 2);
    answers.request(8, 2);
    for (step, repair) in list.iter().enumerate() {
        let time = at(1000 + now * step as u64);
        answers.repair(time, repair, Duration::from_millis(10), &mut violations);
    }
    violations.count()
}

#[test]
fn answers_keep_to_their_request() {
    use Form::{Coded, Ordinary};
    let good = [
        repair(Ordinary, 0, 0),
        repair(Coded, 1, 7),
        repair(Coded, 2, 7),
    ];
    assert_eq!(answers(0, &good), 0);
    let again = [repair(Ordinary, 0, 0), repair(Coded, 0, 7)];
    assert_eq!(answers(0, &again), 1, "index used twice");
    let many = [
        repair(Coded, 1, 7),
        repair(Coded, 2, 7),
        repair(Coded, 3, 7),
    ];
    assert_eq!(answers(0, &many), 1, "three symbols for two positions");
    assert_eq!(answers(0, &[repair(Coded, 1, 9)]), 1, "no such request");
    let soon = [repair(Coded, 1, 7), repair(Coded, 2, 8)];
    assert_eq!(answers(9, &soon), 1, "inside a round trip");
    assert_eq!(answers(10, &soon), 0);
}
