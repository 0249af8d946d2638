//! Data planes start with the memory that they compute for themselves, whatever the size of the pool: on ordinary pages,
//! in a network namespace, each start in a process of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, unshare};

/// MTU of the ports: elements of the pool take a page and a third, and whole pages are reserved for them.
const MTU: u16 = 4500;

fn ip(arguments: &str) {
    let status = Command::new("ip")
        .args(arguments.split_whitespace())
        .status();
    assert!(status.unwrap().success(), "ip {arguments}");
}

fn document(segments: usize) -> String {
    let mut text = "version = 1\n".to_owned();
    for n in 0..segments {
        write!(
            text,
            "[segments.s{n}]\nmode = \"active\"\ncrem_port = 4801\npath_mtu = 4300\n\
             lan = {{ interface = \"l{n}\" }}\nwan = {{ interface = \"w{n}\" }}\n\
             served = {{ \"10.{n}.1.0/24\" = {{}} }}\nallowed_peers = {{ \"192.0.2.0/24\" = {{}} }}\n\
             inband = {{ address = \"192.0.{n}.1/24\" }}\n"
        )
        .unwrap();
    }
    text
}

/// `Err` with what it said instead of being ready.
fn start(place: &Path, segments: usize, pool_frames: u32) -> Result<(), String> {
    let at = |name: &str| place.join(name);
    std::fs::write(at("d.toml"), document(segments)).unwrap();
    let bootstrap = format!(
        "[status]\nsocket = {:?}\n[memory]\nkind = \"ordinary\"\npool_frames = {pool_frames}\n\
         [control]\nstate = {:?}\n",
        at("d.sock"),
        at("state")
    );
    std::fs::write(at("b.toml"), bootstrap).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_crem-gateway"))
        .args(["dataplane", "--log", "error", "--sandbox", "off"])
        .args(["--config".as_ref(), at("b.toml").as_os_str()])
        .args(["--document".as_ref(), at("d.toml").as_os_str()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
    let mut said = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    child.wait().unwrap();
    if line == "ready\n" { Ok(()) } else { Err(said) }
}

#[test]
fn every_size_of_the_pool_leaves_memory_for_ports_and_inband_interfaces() {
    let run = std::thread::spawn(|| {
        if let Err(e) = unshare(CloneFlags::CLONE_NEWNET) {
            println!("skipped: no network namespace: {e}");
            return;
        }
        let place = std::env::temp_dir().join(format!("crem-memory-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        for port in ["l0", "w0", "l1", "w1"] {
            ip(&format!(
                "link add {port} mtu {MTU} type veth peer name {port}p mtu {MTU}"
            ));
            ip(&format!("link set {port} up"));
        }
        let mut failed = Vec::new();
        for (segments, sizes) in [
            (1, &[8191, 16_383, 20_000, 21_000, 22_000, 30_000][..]),
            (2, &[16_383, 18_000, 19_000, 20_000, 21_000, 22_000, 40_000]),
        ] {
            for &frames in sizes {
                if let Err(said) = start(&place, segments, frames) {
                    failed.push(format!("{segments} segments, {frames} frames: {said}"));
                }
            }
        }
        std::fs::remove_dir_all(place).unwrap();
        assert!(failed.is_empty(), "{failed:#?}");
    });
    if let Err(panic) = run.join() {
        std::panic::resume_unwind(panic);
    }
}
