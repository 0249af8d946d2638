//! What the calls of this crate cost here: nanoseconds of the thread's CPU time per operation, median of
//! seven runs. `docs/dpdk.md` quotes it.
//!
//! `cargo run --release -p crem-dpdk --example costs`. The parts on kernel interfaces need root; they run
//! in a network namespace of their own.

use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use crem_dpdk::{
    Batch, Clock, Eal, EalConfig, Error, Memory, Mempool, MempoolConfig, Port, PortConfig, RxQueue,
    TxQueue, Vdev, vdev,
};
use nix::time::{ClockId, clock_gettime};

const MTU: u16 = 4300;
const RUNS: usize = 7;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("costs: {e}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), Error> {
    let wires = own_namespace();
    let mut vdevs = vec![vdev::sink("net_null0"), vdev::ring("net_ring0")];
    for (i, (size, copy)) in NULLS.iter().enumerate() {
        vdevs.push(vdev::null(&format!("net_null{}", i + 1), *size, *copy));
    }
    if wires {
        vdevs.extend(wire_vdevs());
    }
    // EAL_MEMORY=nohuge compares the two.
    let memory = match std::env::var("EAL_MEMORY").as_deref() {
        Ok("nohuge") => Memory::NoHuge { mb: 64 },
        _ => Memory::Auto { mb: 64 },
    };
    let start = Instant::now();
    let eal = Eal::init(EalConfig {
        memory,
        vdevs,
        ..EalConfig::default()
    })?;
    let (took, version) = (start.elapsed().as_millis(), crem_dpdk::dpdk_version());
    println!("{version}, {:?}, EAL started in {took} ms", eal.memory());
    let room = vdev::af_packet_room(MTU);
    let pool = eal.mempool(&MempoolConfig {
        name: "costs",
        count: 4095,
        room,
        ..Default::default()
    })?;
    clocks();
    pools(&eal, &pool);
    sharing(&pool);
    nulls(&eal, &pool)?;
    if wires {
        veth(&eal, &pool)?;
    }
    drop(pool);
    eal.shutdown()
}

/// Thread CPU time.
fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map(Duration::from)
        .unwrap_or_default()
}

/// Median over the runs of nanoseconds per operation; `f` does `ops` of them.
fn measure(name: &str, ops: u32, mut f: impl FnMut()) {
    for _ in 0..100 {
        f();
    }
    let mut runs: Vec<f64> = (0..RUNS)
        .map(|_| {
            let (start, mut n) = (cpu(), 0_u32);
            while cpu() - start < Duration::from_millis(40) {
                for _ in 0..1024 {
                    f();
                }
                n += 1024;
            }
            (cpu() - start).as_nanos() as f64 / f64::from(n) / f64::from(ops)
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    println!("{name:<58} {:>8.1} ns", runs[RUNS / 2]);
}

fn clocks() {
    let clock = Clock::new();
    println!("clock source: {:?}", clock.source());
    measure("Clock::now_ns", 1, || {
        black_box(clock.now_ns());
    });
    measure("std Instant::now", 1, || {
        black_box(Instant::now());
    });
}

fn pools(eal: &Eal, pool: &Mempool) {
    let alloc_free = |name: &str| {
        measure(&format!("alloc + drop, one by one, {name}"), 1, || {
            drop(black_box(pool.alloc()));
        });
        let mut batch = Batch::<32>::new();
        measure(
            &format!("alloc_bulk + clear of 32, {name}, per mbuf"),
            32,
            || {
                black_box(pool.alloc_bulk(&mut batch, 32));
                batch.clear();
            },
        );
    };
    alloc_free("on EAL's thread");
    let registrar = eal.registrar();
    std::thread::scope(|s| {
        s.spawn(|| alloc_free("on another thread"));
    });
    std::thread::scope(|s| {
        s.spawn(|| {
            let _guard = registrar.register();
            alloc_free("on another, registered thread");
        });
    });
}

fn sharing(pool: &Mempool) {
    let Ok(m) = pool.alloc_from(&[0; 4158]) else {
        return;
    };
    measure("share + drop", 1, || drop(black_box(m.share())));
    measure("clone_indirect + drop", 1, || {
        drop(black_box(m.clone_indirect(pool)))
    });
    measure("alloc + prepend 42 + chain(clone) + drop", 1, || {
        let (Some(mut head), Ok(tail)) = (pool.alloc(), m.clone_indirect(pool)) else {
            return;
        };
        black_box(head.prepend(42).is_ok());
        drop(black_box(head.chain(tail)));
    });
    measure("alloc_from of 4158 octets (warm) + drop", 1, || {
        drop(black_box(pool.alloc_from(m.data())));
    });
}

/// Size and whether the driver copies.
const NULLS: &[(u16, bool)] = &[(64, false), (64, true), (1500, true), (4200, true)];

fn nulls(eal: &Eal, pool: &Mempool) -> Result<(), Error> {
    let open = |name: &str| Port::open(eal, name, &PortConfig::default(), pool);
    let sink = open("net_null0")?;
    let (mut none, mut tx) = (sink.rx_queue(0)?, sink.tx_queue(0)?);
    let mut batch = Batch::<32>::new();
    measure("rx burst, nothing there", 1, || {
        black_box(none.burst(&mut batch));
    });
    for (i, (size, copy)) in NULLS.iter().enumerate() {
        let port = open(&format!("net_null{}", i + 1))?;
        let mut rx = port.rx_queue(0)?;
        let what = format!(
            "null, {size} octets, {}copied",
            if *copy { "" } else { "not " }
        );
        through::<32>(&what, &mut rx, &mut tx);
        if i == 0 {
            through::<8>(&what, &mut rx, &mut tx);
            through::<1>(&what, &mut rx, &mut tx);
            retained(&what, &mut rx, &mut tx);
        }
    }
    let ring = open("net_ring0")?;
    let (mut rx, mut tx) = (ring.rx_queue(0)?, ring.tx_queue(0)?);
    pool.alloc_bulk(&mut batch, 32);
    measure("ring, tx + rx of 32, per packet", 32, || {
        tx.burst(&mut batch);
        rx.burst(&mut batch);
    });
    Ok(())
}

fn through<const N: usize>(what: &str, rx: &mut RxQueue, tx: &mut TxQueue) {
    let mut batch = Batch::<N>::new();
    let n = u32::try_from(N).unwrap_or(1);
    measure(&format!("{what}, rx + tx of {N}, per packet"), n, || {
        rx.burst(&mut batch);
        tx.burst(&mut batch);
    });
}

/// As a gateway does: keep a reference to each packet, send the other, drop the kept ones later.
fn retained(what: &str, rx: &mut RxQueue, tx: &mut TxQueue) {
    let mut batch = Batch::<32>::new();
    let mut held = Batch::<32>::new();
    measure(&format!("{what}, rx + share + tx + drop of 32"), 32, || {
        rx.burst(&mut batch);
        for m in batch.iter() {
            let _ = held.push(m.share());
        }
        tx.burst(&mut batch);
        held.clear();
    });
}

fn own_namespace() -> bool {
    let ip = |words: &str| {
        Command::new("ip")
            .args(words.split(' '))
            .status()
            .is_ok_and(|s| s.success())
    };
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).is_ok()
        && std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").is_ok()
        && ip("link add g0 mtu 4300 type veth peer name g1 mtu 4300")
        && ip("link set g0 up")
        && ip("link set g1 up")
}

fn wire_vdevs() -> [Vdev; 2] {
    [
        vdev::af_packet("net_af_packet0", "g0", MTU, 2048),
        vdev::af_packet("net_af_packet1", "g1", MTU, 2048),
    ]
}

fn veth(eal: &Eal, pool: &Mempool) -> Result<(), Error> {
    let open = |name| Port::open(eal, name, &PortConfig::default(), pool);
    let (left, right) = (open("net_af_packet0")?, open("net_af_packet1")?);
    let (mut tx, mut rx) = (left.tx_queue(0)?, right.rx_queue(0)?);
    let mut batch = Batch::<32>::new();
    measure("af_packet, rx burst, nothing there", 1, || {
        black_box(rx.burst(&mut batch));
    });
    // The kernel hands each frame from one end to the other inside the sender's call.
    for (size, n) in [(64, 32), (1514, 32), (4172, 32), (4172, 8), (4172, 1)] {
        veth_size(&mut tx, &mut rx, pool, size, n);
    }
    Ok(())
}

fn veth_size(tx: &mut TxQueue, rx: &mut RxQueue, pool: &Mempool, size: usize, n: usize) {
    // No IP: nothing for the kernel to look into.
    let mut frame = vec![0; size];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    let (mut sent, mut got) = (Batch::<32>::new(), Batch::<32>::new());
    let (mut tx_runs, mut rx_runs) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (mut out, mut back, mut packets) = (Duration::ZERO, Duration::ZERO, 0_u32);
        while out < Duration::from_millis(40) {
            for _ in 0..n {
                if let Ok(m) = pool.alloc_from(&frame) {
                    let _ = sent.push(m);
                }
            }
            let t0 = cpu();
            tx.burst(&mut sent);
            let t1 = cpu();
            let mut here = 0;
            while here < n {
                here += rx.burst(&mut got);
                got.clear();
            }
            let t2 = cpu();
            // Reading the clock is a system call, which at small bursts would be seen.
            let clock = cpu() - t2;
            out += (t1 - t0).saturating_sub(clock);
            back += (t2 - t1).saturating_sub(clock);
            packets += u32::try_from(n).unwrap_or(1);
        }
        tx_runs.push(out.as_nanos() as f64 / f64::from(packets));
        rx_runs.push(back.as_nanos() as f64 / f64::from(packets));
    }
    tx_runs.sort_by(f64::total_cmp);
    rx_runs.sort_by(f64::total_cmp);
    let (t, r) = (tx_runs[RUNS / 2], rx_runs[RUNS / 2]);
    println!(
        "af_packet veth, {size:>4} octets, bursts of {n:>2}, per packet: tx {t:>7.0} ns, rx {r:>6.0} ns"
    );
}
