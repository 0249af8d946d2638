//! Sender and receiver function against each other over a simulated WAN.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "pair/world.rs"]
mod world;

use crem_core::crf::Crf;
use crem_core::csf::{Ahead, Csf};
use crem_core::time::Duration;
use world::{MS, Path, Tally, World, config, key};

/// Brings flow `qp` to protection on a clean path and returns the next PSN.
fn protect(world: &mut World, qp: u32, first: u32) -> u32 {
    let path = world.path;
    world.path = Path {
        loss_ppm: 0,
        burst_ppm: 0,
        corrupt_ppm: 0,
        ..path
    };
    let mut psn = first;
    while world
        .csf
        .flows()
        .find(|f| f.key == key(qp))
        .is_none_or(|f| f.unprotected.is_some())
    {
        world.stream(key(qp), psn..psn + 1, MS / 10, 200);
        psn += 1;
        assert!(psn < first + 60_000, "never protected");
    }
    world.stream(key(qp), psn..psn + 100, MS / 10, 200);
    world.wait(5 * path.delay);
    world.path = path;
    world.tally = Default::default();
    psn + 100
}

fn restored_share(world: &World) -> f64 {
    world.tally.restored as f64 / world.tally.lost.max(1) as f64
}

#[test]
fn clean_path_delivers_everything_in_order_and_unchanged() {
    let mut world = World::new(config(), Path::new(20, 0), 1);
    let psn = protect(&mut world, 1, 0xff_ff00);
    world.stream(key(1), psn..psn + 3000, MS / 20, 1000);
    world.wait(100 * MS);
    let t = world.tally;
    assert_eq!(
        (t.lost, t.restored, t.wrong, t.out_of_order),
        (0, 0, 0, 0),
        "{t:?}"
    );
    assert_eq!(world.crf.counters().restored, 0);
}

#[test]
fn one_percent_loss_is_repaired() {
    for seed in 1..=3 {
        let mut world = World::new(config(), Path::new(20, 10_000), seed);
        let psn = protect(&mut world, 1, 1000);
        world.stream(key(1), psn..psn + 8000, MS / 20, 1000);
        world.wait(500 * MS);
        let t = world.tally;
        assert!(t.lost >= 50, "{t:?}");
        assert_eq!((t.wrong, t.twice), (0, 0), "{t:?}");
        assert!(
            restored_share(&world) >= 0.97,
            "{t:?}\n{:?}\n{:?}",
            world.csf.counters(),
            world.crf.counters()
        );
        // m settles at what the loss asks for, and the overhead stays in proportion.
        let m = world.csf.flows().next().unwrap().m;
        assert!((3..=6).contains(&m), "{m}");
    }
}

// shows: CREM-POL-08, AMB-M0
#[test]
fn without_redundancy_coded_retransmission_repairs() {
    let mut cfg = config();
    cfg.fec.m_max = 0;
    let mut world = World::new(cfg, Path::new(20, 10_000), 5);
    let psn = protect(&mut world, 1, 0);
    world.stream(key(1), psn..psn + 8000, MS / 20, 1000);
    world.wait(500 * MS);
    let t = world.tally;
    assert_eq!((t.wrong, world.csf.counters().symbols_ordinary), (0, 0));
    assert!(
        restored_share(&world) >= 0.95,
        "{t:?} {:?}",
        world.crf.counters()
    );
    assert!(world.csf.counters().symbols_coded > 0);
    assert!(t.repair <= 2 * t.lost + 50, "{t:?}");
}

// shows: CREM-RSP-05, AMB-BACK2BACK
#[test]
fn bursts_beyond_m_are_repaired_in_one_round() {
    let mut cfg = config();
    (cfg.fec.m_min, cfg.fec.m_max) = (2, 2);
    let mut world = World::new(cfg, Path::new(20, 0), 5);
    let mut psn = protect(&mut world, 1, 0);
    for _ in 0..20 {
        world.stream(key(1), psn..psn + 100, MS / 20, 1000);
        world.path.down = true;
        for n in 0..12 {
            let packet = world.packet(key(1), psn + 100 + n, 1000);
            world.send(&[packet]);
        }
        world.path.down = false;
        world.stream(key(1), psn + 112..psn + 300, MS / 20, 1000);
        psn += 300;
        world.wait(60 * MS);
    }
    let t = world.tally;
    assert_eq!((t.lost, t.wrong), (240, 0));
    assert!(
        restored_share(&world) >= 0.97,
        "{t:?} {:?} {:?}",
        world.csf.counters(),
        world.crf.counters()
    );
    assert!(world.csf.counters().symbols_coded > 100);
}

#[test]
fn reordering_alone_draws_next_to_no_repair() {
    let mut world = World::new(
        config(),
        Path {
            jitter: MS / 5,
            ..Path::new(20, 0)
        },
        9,
    );
    let psn = protect(&mut world, 1, 0);
    let before = world.csf.counters().symbols_coded;
    world.stream(key(1), psn..psn + 5000, MS / 20, 1000);
    world.wait(200 * MS);
    let t = world.tally;
    assert_eq!((t.lost, t.wrong), (0, 0));
    let drawn = world.csf.counters().symbols_coded - before;
    assert!(drawn <= 50, "{drawn} symbols for nothing");
    assert!(world.crf.counters().restored <= 50);
}

/// Everything at once: flows of different pace and packet size, READs, pauses, loss of all kinds.
fn mixed(seed: u64, ahead: Ahead) -> (Tally, u64) {
    let path = Path {
        jitter: MS / 10,
        burst_ppm: 300_000,
        control_loss_ppm: 50_000,
        corrupt_ppm: 5_000,
        ce_ppm: 100,
        ..Path::new(10, 5_000)
    };
    let mut config = config();
    config.csf.ahead = ahead;
    let mut world = World::new(config, path, seed);
    let mut next: Vec<u32> = (0..12)
        .map(|qp| protect(&mut world, qp, qp.wrapping_mul(0x123_4567) & 0xff_ffff))
        .collect();
    world.tally = Default::default();
    for _ in 0..1500 {
        let qp = world.random() as usize % next.len();
        let count = world.random() as u32 % 40;
        let mut burst = Vec::new();
        for _ in 0..count {
            let len = 30 + world.random() as usize % 1000;
            let mut packet = world.packet(key(qp as u32), next[qp] & 0xff_ffff, len);
            next[qp] += 1;
            if world.chance(30_000) {
                let length = world.random() as u32 % 20_000;
                packet.read_length = Some(length);
                next[qp] += length.div_ceil(1024).max(1) - 1;
            }
            burst.push(packet);
        }
        world.send(&burst);
        let pause = Duration::from_micros(world.random() % 3000);
        world.wait(pause);
    }
    world.wait(500 * MS);
    let t = world.tally;
    assert!(t.lost > 100, "{t:?}");
    assert_eq!(t.wrong, 0, "seed {seed}: {t:?}");
    assert!(
        restored_share(&world) >= 0.9,
        "seed {seed}: {t:?}\n{:?}\n{:?}",
        world.csf.counters(),
        world.crf.counters()
    );
    (t, world.joined)
}

/// Packets that are coded as they come make the same symbols as blocks that are coded at their end; with few slots,
/// with enough, and with none.
#[test]
fn coding_ahead_changes_nothing_that_shows() {
    let (at_the_end, none) = mixed(7, Ahead::OFF);
    let joined = [9, 40, 400].map(|slots| {
        let (tally, joined) = mixed(7, Ahead { slots, shortest: 0 });
        assert_eq!(tally, at_the_end, "{slots} slots");
        joined
    });
    assert!(
        none == 0 && joined[0] >= 10 && joined[2] >= joined[0],
        "{joined:?}"
    );
}

// shows: CREM-SCOPE-05, CREM-RECV-03
#[test]
fn mixed_traffic_over_a_bad_path() {
    for seed in 1..=4 {
        mixed(seed, Ahead::OFF);
    }
}

/// Runs a steady flow until it is protected again; returns how long that took.
fn time_to_protection(world: &mut World, mut psn: u32) -> Duration {
    let start = world.now;
    loop {
        world.stream(key(1), psn..psn + 1, MS, 500);
        psn += 1;
        let restored_before = world.crf.flows().any(|f| f.config.is_some());
        if restored_before
            && world
                .csf
                .flows()
                .any(|f| f.key == key(1) && f.unprotected.is_none())
        {
            return world.now.since(start);
        }
        assert!(
            world.now.since(start) < Duration::from_secs(10),
            "{:?}",
            world.csf.flows().next()
        );
    }
}

#[test]
fn a_restarted_receiver_is_found_within_three_seconds() {
    for down in [0, 500, 5_000] {
        let mut world = World::new(config(), Path::new(20, 10_000), 3);
        let mut psn = protect(&mut world, 1, 0);
        world.path.down = true;
        world.stream(key(1), psn..psn + down, MS, 500);
        psn += down;
        world.path.down = false;
        world.crf = Crf::new(world.cfg.clone(), [99; 32]);
        let took = time_to_protection(&mut world, psn);
        assert!(
            took <= Duration::from_secs(3),
            "{took:?} after {down} ms down"
        );
        assert_eq!(world.tally.wrong, 0);
    }
}

#[test]
fn a_restarted_sender_protects_again_within_three_seconds() {
    let mut world = World::new(config(), Path::new(20, 10_000), 3);
    let psn = protect(&mut world, 1, 0);
    world.csf = Csf::new(world.cfg.clone(), [99; 32]);
    let took = time_to_protection(&mut world, psn);
    assert!(took <= Duration::from_secs(3), "{took:?}");
    world.tally = Default::default();
    world.stream(key(1), psn + 5000..psn + 9000, MS / 20, 500);
    world.wait(300 * MS);
    assert_eq!(world.tally.wrong, 0);
    assert!(restored_share(&world) >= 0.95, "{:?}", world.tally);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        let mut world = World::new(
            config(),
            Path {
                jitter: MS,
                ..Path::new(20, 20_000)
            },
            77,
        );
        let psn = protect(&mut world, 1, 0);
        world.stream(key(1), psn..psn + 1000, MS / 20, 300);
        world.wait(100 * MS);
        (world.tally, world.csf.counters(), world.crf.counters())
    };
    assert_eq!(run(), run());
}
