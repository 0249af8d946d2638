//! DPDK's own forwarder beside ours: what a packet costs it between two null devices, with as much memory
//! for its buffers as our hosts' packets take. It looks at no more than the Ethernet header.

use std::io::{self, Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

/// Buffers of its pool: with their room 300 MB.
const BUFFERS: &str = "--total-num-mbufs=65535";
/// Until it has started, and how long it forwards.
const STARTS: Duration = Duration::from_millis(2500);
const RUNS: Duration = Duration::from_millis(2000);

/// One run of it.
#[derive(Clone, Debug)]
pub struct Forwarded {
    /// Its forwarding mode: `io` touches no packet, `mac` rewrites the addresses.
    pub mode: &'static str,
    /// Octets of each packet.
    pub octets: usize,
    /// Counts of the processor's counter for each packet, by its own account.
    pub cycles: f64,
}

impl Forwarded {
    /// The report's line.
    pub fn line(&self, tsc_per_ns: f64) -> String {
        format!(
            "testpmd {:4} {:5} octets {:27.1} ns {:8.1} cycles/packet",
            self.mode,
            self.octets,
            self.cycles / tsc_per_ns,
            self.cycles
        )
    }

    /// For other programs.
    pub fn to_json(&self) -> Value {
        json!({ "mode": self.mode, "octets": self.octets, "cycles_per_packet": self.cycles })
    }
}

/// Runs it in both modes with small and large packets.
///
/// # Errors
/// It is not there, or did not say what it took.
pub fn run() -> io::Result<Vec<Forwarded>> {
    let cases = [("io", 60), ("mac", 60), ("mac", 4154)];
    let runs = cases.map(|(mode, octets)| {
        forward(mode, octets).map(|cycles| Forwarded {
            mode,
            octets,
            cycles,
        })
    });
    runs.into_iter().collect()
}

fn forward(mode: &str, octets: usize) -> io::Result<f64> {
    let device = |n| format!("--vdev=net_null{n},size={octets},copy=0");
    let mut child = Command::new("dpdk-testpmd")
        .args(["-l", "0,1", "--main-lcore", "0", "-m", "384"])
        .args(["--in-memory", "--no-pci", "--no-telemetry"])
        .args([device(0), device(1)])
        .args(["--", "-i", "--nb-cores=1", BUFFERS, "--mbuf-size=4736"])
        .arg(format!("--forward-mode={mode}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut to) = child.stdin.take() {
        std::thread::sleep(STARTS);
        // Should it have ended, that is seen by what it does not say.
        let _ = to.write_all(b"set record-core-cycles on\nstart\n");
        std::thread::sleep(RUNS);
        let _ = to.write_all(b"stop\nquit\n");
    }
    let mut said = String::new();
    if let Some(mut from) = child.stdout.take() {
        from.read_to_string(&mut said)?;
    }
    child.wait()?;
    cycles(&said).ok_or_else(|| io::Error::other("testpmd did not say what a packet took"))
}

fn cycles(said: &str) -> Option<f64> {
    let (_, rest) = said.split_once("CPU cycles/packet=")?;
    rest.split([' ', '(']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_account_is_understood() {
        let said =
            "x\n  CPU cycles/packet=424.27 (total cycles=113825415 / total mac packets=268288)";
        assert_eq!(cycles(said), Some(424.27));
        assert_eq!(cycles("nothing"), None);
    }
}
