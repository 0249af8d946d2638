//! After warm-up a packet of a protected flow costs neither gateway an allocation: retention, coding, REPAIR,
//! the receiver's window, decoding, restoring, messages and timers included. One test only: the count is the process's, and so
//! is EAL.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::alloc::System;
use std::rc::Rc;

use crem_bench_dataplane::crew::Crew;
use crem_bench_dataplane::world::{Setting, World};
use crem_dataplane::counters::Coding;
use crem_dpdk::{Clock, Eal, EalConfig, Memory, Mempool, MempoolConfig};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const SETTING: Setting = Setting {
    flows: 8,
    payload: 1024,
    run: 8,
    k: 32,
    m: Some(2),
    loss_ppm: 0,
    rate: 400_000,
    retained: 4096,
    ring: 9000,
    metered: false,
    workers: 1,
};
/// Steps of 8,192 packets that are measured.
const STEPS: usize = 60;

/// How many of a million frames the path loses, in one world after the other, and the steps until everything
/// has its size. With losses that takes the longest wait for a repair that a flow ever has.
const WORLDS: [(u32, usize); 2] = [(10_000, 720), (0, 240)];

fn allocations() -> u64 {
    let stats = ALLOCATOR.stats();
    (stats.allocations + stats.reallocations) as u64
}

fn world(setting: Setting, pools: [&Mempool; 2]) -> World {
    World::new(setting, pools, Clock::new(), Rc::new(Crew::alone())).unwrap()
}

/// Counts allocations from now on.
fn probe(world: &mut World) {
    for gateway in [&mut world.sender, &mut world.receiver] {
        gateway.seats[0].meter.probe = Some(allocations);
    }
}

/// Allocations of the sender and the receiver since then.
fn probed(world: &World) -> [u64; 2] {
    [&world.sender, &world.receiver].map(|gateway| gateway.seats[0].meter.probed)
}

/// What both did, the sender first.
fn coding(world: &mut World) -> [Coding; 2] {
    world.describe().map(|gateway| gateway[0].counters.coding)
}

/// Lets a world run, counts, and gives its frames back.
fn measure((loss_ppm, warm_up): (u32, usize), pools: [&Mempool; 2]) {
    let setting = Setting {
        loss_ppm,
        ..SETTING
    };
    let mut world = world(setting, pools);
    (0..warm_up).for_each(|_| world.step().unwrap());
    assert_eq!(world.protected(), (SETTING.flows, SETTING.flows));
    let before = coding(&mut world);
    probe(&mut world);
    (0..STEPS).for_each(|_| world.step().unwrap());
    assert_eq!(world.protected(), (SETTING.flows, SETTING.flows));
    let after = coding(&mut world);
    let count = |gateway: usize, of: fn(&Coding) -> u64| of(&after[gateway]) - of(&before[gateway]);
    // Blocks of 32 with two symbols each.
    assert!(count(0, |coding| coding.repair_ordinary) > (STEPS * 8192 / 32) as u64);
    let (decoded, restored) = (count(1, |c| c.decode_jobs), count(1, |c| c.restored));
    if loss_ppm == 0 {
        assert_eq!((decoded, restored), (0, 0));
    } else {
        // Most of what is lost, a packet or two in a block.
        let lost = STEPS as u64 * 8192 * u64::from(loss_ppm) / 1_000_000;
        assert!(
            decoded > lost / 2 && restored > lost / 2,
            "{decoded} decoded, {restored} restored of about {lost}"
        );
    }
    assert_eq!(
        probed(&world),
        [0, 0],
        "allocations at the sender and the receiver, {loss_ppm} lost of a million"
    );
}

#[test]
fn a_packet_of_a_protected_flow_allocates_nothing() {
    let eal = Eal::init(EalConfig {
        memory: Memory::NoHuge { mb: 256 },
        ..EalConfig::default()
    })
    .unwrap();
    let pool = |count| {
        let config = MempoolConfig {
            count,
            ..MempoolConfig::default()
        };
        eal.mempool(&config).unwrap()
    };
    let (sender, receiver) = (pool(24_000), pool(32_000));
    for world in WORLDS {
        measure(world, [&sender, &receiver]);
    }
    drop((sender, receiver));
    eal.shutdown().unwrap();
}
