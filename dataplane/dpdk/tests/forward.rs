//! The example `forward` between two hosts in namespaces of their own: pings of 4158 octets both ways.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Three namespaces, gone when this is dropped, also in a panic.
struct Net {
    hosts: [String; 2],
    middle: String,
}

impl Net {
    /// `None` where namespaces may not be made.
    fn new() -> Option<Net> {
        let name = |part: &str| format!("crem-dpdk-{}-{part}", std::process::id());
        let net = Net {
            hosts: [name("a"), name("b")],
            middle: name("m"),
        };
        if !try_ip(&format!("netns add {}", net.middle)) {
            return None;
        }
        // No router solicitations of the interfaces themselves.
        let quiet = "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6";
        let status = Command::new("ip")
            .args(["netns", "exec", &net.middle, "sh", "-c", quiet])
            .status();
        assert!(status.is_ok_and(|s| s.success()), "{quiet}");
        for (i, host) in net.hosts.iter().enumerate() {
            ip(&format!("netns add {host}"));
            let m = &net.middle;
            ip(&format!(
                "-n {m} link add g{i} mtu 4200 type veth peer name eth0 netns {host}"
            ));
            ip(&format!("-n {m} link set g{i} up"));
            ip(&format!("-n {host} link set eth0 mtu 4200 up"));
            ip(&format!("-n {host} addr add 192.0.2.{}/24 dev eth0", i + 1));
        }
        Some(net)
    }

    fn ping(&self, from: usize, octets_of_ip: u32) -> (bool, String) {
        let size = (octets_of_ip - 28).to_string();
        let to = format!("192.0.2.{}", 2 - from);
        let out = Command::new("ip")
            .args([
                "netns",
                "exec",
                &self.hosts[from],
                "ping",
                "-M",
                "do",
                "-c",
                "20",
            ])
            .args(["-i", "0.01", "-W", "2", "-s", &size, &to])
            .output()
            .expect("ping is installed");
        (
            out.status.success(),
            String::from_utf8_lossy(&out.stdout).into_owned(),
        )
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for n in self.hosts.iter().chain([&self.middle]) {
            try_ip(&format!("netns del {n}"));
        }
    }
}

fn try_ip(words: &str) -> bool {
    let mut ip = Command::new("ip");
    ip.args(words.split(' '))
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

fn ip(words: &str) {
    assert!(try_ip(words), "ip {words}");
}

/// The example, which cargo builds with the tests.
fn example() -> PathBuf {
    let me = std::env::current_exe().unwrap();
    me.parent()
        .unwrap()
        .parent()
        .unwrap()
        .join("examples/forward")
}

/// Runs until it says that it is ready; killed when dropped before its end.
struct Running(Child);

impl Running {
    fn start(net: &Net) -> Running {
        let child = Command::new("ip")
            .args(["netns", "exec", &net.middle])
            .arg(example())
            .args(["g0", "g1", "4200"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Running(child)
    }

    fn line(&mut self) -> BufReader<std::process::ChildStdout> {
        let mut out = BufReader::new(self.0.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert!(line.contains("ready"), "{line:?}");
        out
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn pings_of_4158_octets_cross_both_ways() {
    let Some(net) = Net::new() else {
        println!("skipped: forward: no permission to make network namespaces");
        return;
    };
    let mut forward = Running::start(&net);
    let mut out = forward.line();
    for from in [0, 1] {
        let (ok, said) = net.ping(from, 4158);
        assert!(ok && said.contains(" 0% packet loss"), "{said}");
    }
    drop(forward.0.stdin.take());
    let mut text = String::new();
    out.read_to_string(&mut text).unwrap();
    assert!(forward.0.wait().unwrap().success(), "{text}");
    // 40 requests and 40 answers, and ARP.
    let received: u32 = text
        .lines()
        .filter_map(|l| {
            l.split("received ")
                .nth(1)?
                .split(' ')
                .next()?
                .parse::<u32>()
                .ok()
        })
        .sum();
    assert!(received >= 80, "{text}");
    assert_eq!(text.matches("no-mbuf 0").count(), 2, "{text}");
    assert_eq!(text.matches("cut 0 unsent 0").count(), 2, "{text}");
}

#[test]
fn a_missing_interface_is_one_clear_error() {
    let out = Command::new(example())
        .args(["nope0", "nope1"])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(2));
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(
        text.contains("no interface \"nope0\" in this network namespace"),
        "{text}"
    );
}
