//! What EAL does to a process: signals, failure, end. The latter two need processes of their own, which
//! are this program again with the case in the environment.

use std::process::Command;
use std::sync::mpsc;
use std::thread;

use crem_dpdk::{Eal, EalConfig, Error, LogLevel, Memory, MempoolConfig, Port, PortConfig, vdev};

/// Environment variable that names a child's case.
pub(super) const CASE: &str = "CREM_DPDK_TEST_CASE";

/// Signals of this process: caught, ignored, blocked.
pub(super) struct Signals([u64; 3]);

impl Signals {
    pub(super) fn now() -> Signals {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let mask = |key: &str| {
            let line = status.lines().find_map(|l| l.strip_prefix(key)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        Signals([mask("SigCgt:"), mask("SigIgn:"), mask("SigBlk:")])
    }

    /// But for the realtime signals, one of which the tap driver takes.
    pub(super) fn assert_unchanged(&self) {
        let standard = |s: &Signals| s.0.map(|m| m & 0x7fff_ffff);
        assert_eq!(standard(&Signals::now()), standard(self));
    }
}

type Child = (&'static str, fn(Memory));

const CHILDREN: &[Child] = &[
    ("failed_start_tells_why", failed_start_tells_why),
    (
        "early_errors_leave_a_second_try",
        early_errors_leave_a_second_try,
    ),
    ("a_held_mbuf_outlives_eal", a_held_mbuf_outlives_eal),
    (
        "a_running_thread_keeps_memory",
        a_running_thread_keeps_memory,
    ),
    ("cpu_is_pinned_and_restored", cpu_is_pinned_and_restored),
];

pub(super) fn parent() {
    for (name, _) in CHILDREN {
        let me = std::env::current_exe().unwrap();
        let out = Command::new(me).env(CASE, name).output().unwrap();
        let text = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{name}: {} {text}", out.status);
        println!("test process::{name} ... ok");
    }
}

pub(super) fn child(name: &str, memory: Memory) {
    let (_, case) = CHILDREN.iter().find(|(n, _)| *n == name).unwrap();
    // The parent holds most of the memory.
    case(match memory {
        Memory::Huge { .. } | Memory::Auto { .. } => Memory::Huge { mb: 8 },
        Memory::NoHuge { .. } => Memory::NoHuge { mb: 32 },
    });
}

fn config(memory: Memory) -> EalConfig {
    EalConfig {
        memory,
        vdevs: vec![vdev::ring("net_ring0")],
        ..EalConfig::default()
    }
}

const POOL: MempoolConfig<'static> = MempoolConfig {
    name: "child",
    count: 255,
    room: 2176,
    cache: 32,
    socket: None,
};

fn quiet(_: LogLevel, _: &str) {}

fn failed_start_tells_why(memory: Memory) {
    let bad = EalConfig {
        pci: vec!["not an address".into()],
        log_sink: quiet,
        ..config(memory)
    };
    let e = Eal::init(bad).unwrap_err();
    let text = e.to_string();
    assert!(matches!(e, Error::Init { .. }), "{text}");
    assert!(
        text.contains("DPDK said") && text.contains("not an address"),
        "{text}"
    );
    assert_eq!(
        Eal::init(config(memory)).unwrap_err(),
        Error::AlreadyInitialised
    );
}

fn early_errors_leave_a_second_try(memory: Memory) {
    let missing = vdev::af_packet("net_af_packet0", "nope0", 1500, 64);
    let e = Eal::init(EalConfig {
        vdevs: vec![missing],
        ..config(memory)
    })
    .unwrap_err();
    assert!(matches!(&e, Error::NoInterface { iface, .. } if iface == "nope0"));
    assert!(e.to_string().contains("net_af_packet0"));
    let e = Eal::init(EalConfig {
        memory: Memory::Huge { mb: u32::MAX },
        ..config(memory)
    });
    assert!(matches!(e, Err(Error::NoHugepages { .. })));
    let eal = Eal::init(config(memory)).unwrap();
    assert_eq!(
        Eal::init(config(memory)).unwrap_err(),
        Error::AlreadyInitialised
    );
    eal.shutdown().unwrap();
    assert_eq!(
        Eal::init(config(memory)).unwrap_err(),
        Error::AlreadyInitialised
    );
}

fn a_held_mbuf_outlives_eal(memory: Memory) {
    let eal = Eal::init(config(memory)).unwrap();
    let pool = eal.mempool(&POOL).unwrap();
    let held = pool.alloc_from(b"still here").unwrap();
    let also = held.share();
    drop(pool);
    let text = eal.shutdown().unwrap_err().to_string();
    assert!(text.contains("1 mbufs of pool child"), "{text}");
    assert_eq!(held.data(), b"still here");
    drop(held);
    thread::spawn(move || assert_eq!(also.refcnt(), 1))
        .join()
        .unwrap();
}

fn a_running_thread_keeps_memory(memory: Memory) {
    let eal = Eal::init(config(memory)).unwrap();
    let pool = eal.mempool(&POOL).unwrap();
    let port = Port::open(&eal, "net_ring0", &PortConfig::default(), &pool).unwrap();
    let (done, wait) = mpsc::channel::<()>();
    let (freed, is_freed) = mpsc::channel();
    let m = pool.alloc().unwrap();
    let runs = thread::spawn(move || {
        drop(m);
        freed.send(()).unwrap();
        let _ = wait.recv();
        drop(pool.alloc().unwrap());
    });
    is_freed.recv().unwrap();
    let text = eal.shutdown().unwrap_err().to_string();
    assert!(
        text.contains("1 ports open") && text.contains("handles"),
        "{text}"
    );
    drop(done);
    runs.join().unwrap();
    drop(port);
}

fn cpu_is_pinned_and_restored(memory: Memory) {
    use crem_dpdk::thread::Affinity;
    let before = Affinity::of_current_thread().unwrap();
    let cpu = *before.cpus().last().unwrap();
    let eal = Eal::init(EalConfig {
        cpu: Some(cpu),
        ..config(memory)
    })
    .unwrap();
    assert_eq!(Affinity::of_current_thread().unwrap().cpus(), [cpu]);
    assert_eq!(eal.original_affinity(), before);
    let back = eal.original_affinity();
    let inherited = thread::spawn(move || {
        let inherited = Affinity::of_current_thread().unwrap();
        back.apply().unwrap();
        assert_eq!(Affinity::of_current_thread().unwrap(), back);
        inherited
    });
    assert_eq!(inherited.join().unwrap().cpus(), [cpu]);
    eal.shutdown().unwrap();
}
