//! Joins two kernel interfaces through two af_packet ports, both ways, until its standard input ends.
//!
//! `forward IFACE IFACE [MTU [SLEEP_US [SECONDS]]]`: frames up to MTU (4300) octets of IP; after 200 empty
//! polls it sleeps for SLEEP_US (20; 0 polls without end). Prints counters and CPU time at the end. The
//! two interfaces have to be in this network namespace.

use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crem_dpdk::{
    Batch, Eal, EalConfig, Error, Memory, MempoolConfig, Port, PortConfig, RxQueue, TxQueue,
    thread, vdev,
};

struct Way {
    rx: RxQueue,
    tx: TxQueue,
    cut: u64,
    unsent: u64,
}

impl Way {
    /// One burst; how many were received.
    fn forward(&mut self) -> usize {
        let mut got = Batch::<32>::new();
        let n = self.rx.burst(&mut got);
        let mut out = Batch::<32>::new();
        for m in got.drain() {
            if vdev::is_cut(m.data(), m.len()) {
                self.cut += 1;
                continue;
            }
            // As many fit as were received.
            let _ = out.push(m);
        }
        self.tx.burst(&mut out);
        self.unsent += out.len() as u64;
        n
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [a, b, rest @ ..] = &args[..] else {
        eprintln!("usage: forward IFACE IFACE [MTU [SLEEP_US [SECONDS]]]");
        return ExitCode::from(2);
    };
    let number = |i: usize, default: u64| rest.get(i).map_or(Ok(default), |s| s.parse());
    let (Ok(mtu), Ok(sleep), Ok(seconds)) = (number(0, 4300), number(1, 20), number(2, 0)) else {
        eprintln!("forward: MTU, SLEEP_US and SECONDS are numbers");
        return ExitCode::from(2);
    };
    let limit = (seconds > 0).then(|| Duration::from_secs(seconds));
    let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
    match run(a, b, mtu, Duration::from_micros(sleep), limit) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("forward: {e}");
            ExitCode::from(2)
        }
    }
}

fn run(a: &str, b: &str, mtu: u16, sleep: Duration, limit: Option<Duration>) -> Result<(), Error> {
    let vdevs = vec![
        vdev::af_packet("net_af_packet0", a, mtu, 2048),
        vdev::af_packet("net_af_packet1", b, mtu, 2048),
    ];
    let memory = Memory::Auto { mb: 32 };
    let eal = Eal::init(EalConfig {
        memory,
        vdevs,
        ..EalConfig::default()
    })?;
    let room = vdev::af_packet_room(mtu);
    let pool = eal.mempool(&MempoolConfig {
        name: "rx",
        count: 2047,
        room,
        ..Default::default()
    })?;
    let open = |name| Port::open(&eal, name, &PortConfig::default(), &pool);
    let (left, right) = (open("net_af_packet0")?, open("net_af_packet1")?);
    thread::set_timer_slack(1)?;

    let way = |from: &Port, to: &Port| {
        Ok::<_, Error>(Way {
            rx: from.rx_queue(0)?,
            tx: to.tx_queue(0)?,
            cut: 0,
            unsent: 0,
        })
    };
    let (mut there, mut back) = (way(&left, &right)?, way(&right, &left)?);
    println!("forward: ready, {:?}", eal.memory());
    let took = poll(&mut there, &mut back, sleep, limit);

    for (port, way) in [(&left, &there), (&right, &back)] {
        let s = port.stats()?;
        println!(
            "{}: received {} missed {} no-mbuf {} sent {} cut {} unsent {}",
            port.name(),
            s.rx_packets,
            s.rx_missed,
            s.rx_no_mbuf,
            s.tx_packets,
            way.cut,
            way.unsent
        );
    }
    println!(
        "forward: {:.2} s, CPU {:.2} s",
        took.as_secs_f64(),
        cpu_seconds()
    );
    drop((there, back, left, right, pool));
    eal.shutdown()
}

fn poll(there: &mut Way, back: &mut Way, sleep: Duration, limit: Option<Duration>) -> Duration {
    let ended = Arc::new(AtomicBool::new(false));
    let at_end = Arc::clone(&ended);
    // Not joined: it may stay in `read` when the time limit ends the run.
    std::thread::spawn(move || {
        let mut sink = [0; 64];
        while std::io::stdin().read(&mut sink).is_ok_and(|n| n > 0) {}
        at_end.store(true, Ordering::Relaxed);
    });
    let start = Instant::now();
    let mut idle = 0_u32;
    while !ended.load(Ordering::Relaxed) {
        if there.forward() + back.forward() > 0 {
            idle = 0;
            continue;
        }
        idle += 1;
        if idle > 200 && !sleep.is_zero() {
            std::thread::sleep(sleep);
        }
        if idle.is_multiple_of(64) && limit.is_some_and(|l| start.elapsed() > l) {
            break;
        }
    }
    start.elapsed()
}

/// CPU time of the process so far, from the kernel's scheduler statistics of its main thread.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let ns: u64 = stat
        .split(' ')
        .next()
        .and_then(|s| s.parse().ok())
        .unwrap_or(0);
    ns as f64 / 1e9
}
