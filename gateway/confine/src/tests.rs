//! A process of its own gives everything up and tries what it must not, and what it must still be able to.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};

use super::*;

const PLACE: &str = "CREM_CONFINE_TEST_PLACE";

fn refused<T: std::fmt::Debug>(what: &str, tried: std::io::Result<T>) {
    let error = tried.expect_err(what);
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{what}: {error}");
}

fn field(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default()
        .trim_start_matches(':')
        .trim()
        .to_owned()
}

/// Runs in the child only.
#[test]
#[ignore = "confines the process that runs it; started by the next test"]
fn inside() {
    let place = PathBuf::from(std::env::var(PLACE).unwrap());
    let (ours, others) = (place.join("ours"), place.join("others"));
    // A thread from before: the filter holds for it as well.
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let older = std::thread::spawn(move || {
        wait.recv().unwrap();
        unshare(CloneFlags::CLONE_NEWNET)
    });
    let state = confine(&Keep {
        capabilities: vec![Capability::CAP_DAC_OVERRIDE],
        calls: Calls::Sockets,
        writable: vec![ours.clone(), place.join("not there")],
    });
    assert!(state.problems.is_empty(), "{state:?}");
    assert!(state.enabled && state.no_new_privileges && state.system_calls_filtered);
    let may = nix::unistd::geteuid().is_root();
    assert_eq!(
        state.capabilities,
        if may {
            vec!["CAP_DAC_OVERRIDE"]
        } else {
            vec![]
        }
    );
    let text = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    assert_eq!(field(&text, "Seccomp"), "2");
    assert_eq!(field(&text, "NoNewPrivs"), "1");
    assert_eq!(
        field(&text, "CapEff"),
        if may {
            "0000000000000002"
        } else {
            "0000000000000000"
        }
    );
    go.send(()).unwrap();
    assert_eq!(
        older.join().unwrap(),
        Err(Errno::EPERM),
        "a thread from before"
    );
    assert_eq!(unshare(CloneFlags::CLONE_NEWUSER), Err(Errno::EPERM));
    refused("executing", Command::new("/bin/true").status());
    if state.landlock_abi > 0 {
        refused("writing elsewhere", std::fs::write(others.join("x"), "x"));
        refused(
            "removing elsewhere",
            std::fs::remove_file(others.join("kept")),
        );
        assert_eq!(state.writable, [ours.display().to_string()]);
    } else {
        println!("skipped: no Landlock in this kernel");
    }
    // What it still can.
    assert_eq!(
        std::fs::read_to_string(others.join("kept")).unwrap(),
        "kept"
    );
    std::fs::write(ours.join("x"), "x").unwrap();
    std::fs::rename(ours.join("x"), ours.join("y")).unwrap();
    std::os::unix::net::UnixListener::bind(ours.join("socket")).unwrap();
    std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    assert_eq!(std::thread::spawn(|| 5).join().unwrap(), 5);
}

#[test]
fn a_confined_process_cannot_do_what_it_gave_up_and_can_do_the_rest() {
    let place = std::env::temp_dir().join(format!("crem-confine-{}", std::process::id()));
    for part in ["ours", "others"] {
        std::fs::create_dir_all(place.join(part)).unwrap();
    }
    std::fs::write(place.join("others/kept"), "kept").unwrap();
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::inside", "--ignored", "--nocapture"])
        .env(PLACE, &place)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(
        done.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&done.stderr)
    );
    std::fs::remove_dir_all(place).unwrap();
}

#[test]
fn without_confinement_the_state_says_so() {
    let state = unconfined();
    assert!(!state.enabled && state.landlock_abi == 0 && state.problems.is_empty());
    assert!(told(&state).starts_with("confined: no; "));
    assert!(Path::new("/proc/self/status").exists());
}
