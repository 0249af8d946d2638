//! What the service manager sees: readiness and signs of life of a real process, and units that it understands.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("crem-service-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn heard(socket: &UnixDatagram) -> String {
    let mut octets = [0; 256];
    let length = socket.recv(&mut octets).expect("something in time");
    String::from_utf8_lossy(&octets[..length]).into_owned()
}

#[test]
fn control_tells_that_it_is_ready_that_it_lives_and_that_it_ends() {
    let place = folder("notify");
    let manager = UnixDatagram::bind(place.join("notify")).unwrap();
    manager
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_crem-gateway"))
        .args(["control", "--log", "warn"])
        .args(["--state".as_ref(), place.as_os_str()])
        .args(["--socket".as_ref(), place.join("c.sock").as_os_str()])
        .args(["--status-socket".as_ref(), place.join("d.sock").as_os_str()])
        .env("NOTIFY_SOCKET", place.join("notify"))
        .env("WATCHDOG_USEC", "300000")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let child = Ended(child);
    assert_eq!(heard(&manager), "READY=1");
    for _ in 0..3 {
        assert_eq!(heard(&manager), "WATCHDOG=1");
    }
    let pid = i32::try_from(child.0.id()).unwrap();
    let pid = nix::unistd::Pid::from_raw(pid);
    // Stopped, it gives no sign of life.
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    manager.set_nonblocking(true).unwrap();
    while manager.recv(&mut [0; 256]).is_ok() {}
    std::thread::sleep(Duration::from_millis(400));
    assert!(manager.recv(&mut [0; 256]).is_err());
    manager.set_nonblocking(false).unwrap();
    for signal in [
        nix::sys::signal::Signal::SIGCONT,
        nix::sys::signal::Signal::SIGTERM,
    ] {
        nix::sys::signal::kill(pid, signal).unwrap();
    }
    while heard(&manager) != "STOPPING=1" {}
    std::fs::remove_dir_all(place).unwrap();
}

#[test]
fn the_units_are_understood() {
    let place = folder("units");
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd");
    let mut checked = 0;
    for entry in std::fs::read_dir(units).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        // Where it is installed is not on this machine.
        let text = text.replace("/usr/bin/crem-gateway", env!("CARGO_BIN_EXE_crem-gateway"));
        let unit = place.join(path.file_name().unwrap());
        std::fs::write(&unit, text).unwrap();
        let said = match Command::new("systemd-analyze")
            .arg("verify")
            .arg(&unit)
            .output()
        {
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(e) => {
                println!("skipped: no systemd-analyze: {e}");
                return;
            }
        };
        let about = path.file_name().unwrap().to_string_lossy().into_owned();
        let ours: Vec<_> = said
            .lines()
            .filter(|line| line.contains(&about) && !line.contains("man "))
            .collect();
        assert!(ours.is_empty(), "{ours:?}");
        checked += 1;
    }
    assert_eq!(checked, 6);
    std::fs::remove_dir_all(place).unwrap();
}

/// Those that are started anew within a second or less reach the manager's default limit, five starts in ten seconds,
/// and would stay down.
#[test]
fn the_manager_never_gives_up_on_a_unit_that_restarts_at_once() {
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd");
    for name in ["dataplane", "control", "export"] {
        let text = std::fs::read_to_string(units.join(format!("crem-{name}.service"))).unwrap();
        let (unit, service) = text.split_once("\n[Service]\n").unwrap();
        assert!(service.contains("\nRestart=always\n"), "{name}");
        // Where it is no key of [Unit], the manager only logs that it does not know it.
        let set = unit.lines().any(|line| line == "StartLimitIntervalSec=0");
        assert!(set, "{name}: {unit}");
    }
}
