//! One EAL, all cases after each other on its thread. The process first moves to a network namespace of
//! its own, which the kernel removes with it however it ends.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod devices;
mod memory;
mod process;
mod wire;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, exit};

use crem_dpdk::{Eal, EalConfig, Memory, Mempool, MempoolConfig, vdev};

/// Packet memory that the suite needs, in MB.
pub(crate) const NEEDED_MB: u32 = 32;

/// MTU of the first veth end's port; longer frames than the second takes can be sent from it.
const LARGE_MTU: u16 = 9000;
/// MTU of the second veth end's port.
const PATH_MTU: u16 = 4300;

/// What the cases share.
pub(crate) struct World {
    pub(crate) eal: Eal,
    /// Elements with room for 2 KiB.
    pub(crate) small: Mempool,
    /// Elements with room for a frame of [`LARGE_MTU`].
    pub(crate) large: Mempool,
}

type Case = (&'static str, fn(&World));

pub(crate) fn main(memory: Memory) {
    if let Ok(case) = std::env::var(process::CASE) {
        process::child(&case, memory);
        return;
    }
    let wanted = std::env::args()
        .skip(1)
        .find(|a| !a.starts_with('-'))
        .unwrap_or_default();
    let privileged = enter_own_namespace();
    let signals = process::Signals::now();
    let config = EalConfig {
        memory,
        vdevs: devices(privileged),
        ..EalConfig::default()
    };
    let eal = Eal::init(config).expect("EAL starts");
    let world = world(eal);

    let mut failed = Vec::new();
    let run = |name: &str, case: &dyn Fn(), failed: &mut Vec<String>| {
        if !name.contains(&wanted) {
            return;
        }
        let ok = catch_unwind(AssertUnwindSafe(case)).is_ok();
        println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        if !ok {
            failed.push(name.to_owned());
        }
    };
    run(
        "process::signals_are_left_alone",
        &|| signals.assert_unchanged(),
        &mut failed,
    );
    for (name, case) in cases(privileged) {
        run(name, &|| case(&world), &mut failed);
        run(
            &format!("{name} (leak)"),
            &|| world.assert_all_back(),
            &mut failed,
        );
    }
    run("process::children", &|| process::parent(), &mut failed);
    let World { eal, small, large } = world;
    drop((small, large));
    let end = eal.shutdown();
    run(
        "eal_gives_everything_back",
        &|| assert_eq!(end, Ok(())),
        &mut failed,
    );
    if !failed.is_empty() {
        println!("FAILED: {}", failed.join(", "));
        exit(101);
    }
}

impl World {
    fn assert_all_back(&self) {
        assert_eq!(self.small.in_use(), 0, "mbufs of the small pool are out");
        assert_eq!(self.large.in_use(), 0, "mbufs of the large pool are out");
    }
}

fn world(eal: Eal) -> World {
    let pool = |name, count, room| {
        let config = MempoolConfig {
            name,
            count,
            room,
            cache: 64,
            socket: None,
        };
        eal.mempool(&config).expect("pool")
    };
    let small = pool("small", 2047, 2048 + crem_dpdk::HEADROOM);
    let large = pool("large", 1023, vdev::af_packet_room(LARGE_MTU));
    World { small, large, eal }
}

fn cases(privileged: bool) -> Vec<Case> {
    let mut all = [memory::CASES, devices::CASES].concat();
    if privileged {
        all.extend(wire::CASES);
    }
    all
}

fn devices(privileged: bool) -> Vec<vdev::Vdev> {
    let mut all = devices::vdevs();
    if privileged {
        all.extend(wire::vdevs());
    }
    all
}

/// False, with a word, where we may not.
fn enter_own_namespace() -> bool {
    match nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET) {
        Ok(()) => {
            wire::make_interfaces();
            true
        }
        Err(e) => {
            println!("skipped: af_packet and tap: no own network namespace: {e}");
            false
        }
    }
}

/// Runs `ip` with these words.
fn ip(words: &str) {
    let out = Command::new("ip")
        .args(words.split(' '))
        .output()
        .expect("iproute2 is installed");
    assert!(
        out.status.success(),
        "ip {words}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
}
