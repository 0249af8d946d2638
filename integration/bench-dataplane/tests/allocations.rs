//! After warm-up a packet of a protected flow costs neither gateway an allocation: retention, coding, REPAIR,
//! the receiver's window, messages and timers included. One test only: the count is the process's, and so
//! is EAL.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::alloc::System;
use std::rc::Rc;

use crem_bench_dataplane::crew::Crew;
use crem_bench_dataplane::world::{Setting, World};
use crem_dpdk::{Clock, Eal, EalConfig, Memory, MempoolConfig};
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
/// Steps of 8,192 packets until everything has its size, and then measured.
const WARM_UP: usize = 240;
const STEPS: usize = 60;

fn allocations() -> u64 {
    let stats = ALLOCATOR.stats();
    (stats.allocations + stats.reallocations) as u64
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
    let mut world = World::new(
        SETTING,
        [&sender, &receiver],
        Clock::new(),
        Rc::new(Crew::alone()),
    )
    .unwrap();
    (0..WARM_UP).for_each(|_| world.step().unwrap());
    assert_eq!(world.protected(), (SETTING.flows, SETTING.flows));
    world.sender.seats[0].meter.probe = Some(allocations);
    world.receiver.seats[0].meter.probe = Some(allocations);
    (0..STEPS).for_each(|_| world.step().unwrap());
    assert_eq!(world.protected(), (SETTING.flows, SETTING.flows));
    let [sent, received] = world.describe();
    // Blocks of 32 with two symbols each.
    assert!(sent[0].counters.coding.repair_ordinary > (STEPS * 8192 / 32) as u64);
    assert_eq!(received[0].counters.coding.decode_jobs, 0);
    let probed = [&world.sender, &world.receiver].map(|gateway| gateway.seats[0].meter.probed);
    assert_eq!(probed, [0, 0], "allocations at the sender and the receiver");
    drop(world);
    drop((sender, receiver));
    eal.shutdown().unwrap();
}
