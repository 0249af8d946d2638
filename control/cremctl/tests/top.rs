//! `cremctl top` against a gateway that answers from a script: once, as a stream of texts, and on a terminal that it
//! gives back as it was, however it ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use serde_json::{Value, json};
use support::{Answer, Gateway, cremctl};

/// The answers of so many looks, each with 100 frames more.
fn looks(count: u64) -> Vec<Answer> {
    let look = |n: u64| -> [Answer; 4] {
        let status = json!({
            "version": "9.8", "revision": 3, "uptime_ms": 1000,
            "segments": {"a": {"mode": "active", "lan": {"link_up": true}, "wan": {"link_up": true}}},
        });
        let counters = json!({"segments": {"a": {"lan": {"rx_frames": 1000 * n}}}});
        let flow = json!({
            "segment": "a", "role": "csf", "source": "10.0.1.1", "destination": "10.0.2.1", "qp": 7,
            "space": "requests", "reason": "mtu", "counters": {"sources": 1000 * n},
        });
        let flows = json!({"flows": [flow], "total": 1});
        let commit = json!({"state": "none"});
        [status, counters, flows, commit].map(|answer| (200, "", answer))
    };
    (0..count).flat_map(look).collect()
}

#[test]
fn once_is_two_looks_and_one_text_or_document() {
    let gateway = Gateway::new("top-once", looks(2));
    let (status, out, err) = cremctl(&gateway, &["top", "--once", "--interval", "1"]);
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(out.starts_with("CREM 9.8, revision 3"), "{out}");
    assert!(out.contains("mtu") && !out.contains('\x1b'), "{out}");
    let gateway = Gateway::new("top-json", looks(2));
    let (_, out, _) = cremctl(&gateway, &["top", "--once", "--interval", "1", "--json"]);
    let document: Value = serde_json::from_str(&out).unwrap();
    let pps = document["segments"][0]["lan_rx_pps"].as_u64().unwrap();
    assert!((1..=1000).contains(&pps), "{document}");
    assert_eq!(document["flows"][0]["why"], "mtu");
}

#[test]
fn without_a_terminal_it_is_one_text_after_the_other_until_the_gateway_is_gone() {
    let gateway = Gateway::new("top-pipe", looks(3));
    let (status, out, err) = cremctl(&gateway, &["top", "--interval", "1"]);
    assert_eq!(status, 1, "{err}");
    assert_eq!(out.matches("CREM 9.8").count(), 2, "{out}");
    assert!(!out.contains('\x1b'), "{out}");
}

/// `cremctl top` on a terminal of its own.
struct Terminal {
    ours: File,
    theirs: OwnedFd,
    child: Child,
    /// What it looks at, until it ends.
    _gateway: Gateway,
    seen: String,
}

impl Terminal {
    fn start(name: &str) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let path = ptsname(&ours, Vec::new()).unwrap();
        let theirs = open(path, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let size = Winsize {
            ws_row: 10,
            ws_col: 40,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&theirs, size).unwrap();
        let gateway = Gateway::new(name, looks(100));
        let end = || Stdio::from(theirs.try_clone().unwrap());
        let child = Command::new(env!("CARGO_BIN_EXE_cremctl"))
            .arg("--socket")
            .arg(&gateway.socket)
            .args(["top", "--interval", "1"])
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        Self {
            ours: File::from(ours),
            theirs,
            child,
            _gateway: gateway,
            seen: String::new(),
        }
    }

    /// Reads until a text was written.
    fn until(&mut self, text: &str) {
        let end = Instant::now() + Duration::from_secs(20);
        while !self.seen.contains(text) {
            assert!(Instant::now() < end, "{text:?} in {:?}", self.seen);
            let mut octets = [0; 4096];
            let read = self.ours.read(&mut octets).unwrap();
            self.seen
                .push_str(&String::from_utf8_lossy(&octets[..read]));
        }
    }

    /// Waits for its end: the screen, the cursor and the modes are as before.
    fn ended(mut self, before: LocalModes) {
        self.until("\x1b[?25h\x1b[?1049l");
        assert!(self.child.wait().unwrap().success());
        assert_eq!(tcgetattr(&self.theirs).unwrap().local_modes, before);
        // No line is longer than the terminal.
        let lines = self
            .seen
            .split("\r\n")
            .map(|line| line.replace("\x1b[K", ""));
        let wide = lines
            .filter(|l| !l.contains('\x1b'))
            .map(|l| l.chars().count())
            .max();
        assert!(wide.unwrap() <= 40, "{:?}", self.seen);
    }

    fn modes(&self) -> LocalModes {
        tcgetattr(&self.theirs).unwrap().local_modes
    }
}

#[test]
fn a_terminal_is_given_back_as_it_was_after_a_key_and_after_a_signal() {
    let mut terminal = Terminal::start("top-key");
    let before = LocalModes::ICANON | LocalModes::ECHO;
    terminal.until("\x1b[?1049h");
    terminal.until("CREM 9.8");
    assert!(
        !terminal.modes().intersects(before),
        "keys without a line feed"
    );
    let whole = terminal.modes() | before;
    terminal.ours.write_all(b"lq").unwrap();
    terminal.ended(whole);
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut terminal = Terminal::start(&format!("top-signal-{}", signal.as_raw()));
        terminal.until("CREM 9.8");
        let pid = Pid::from_child(&terminal.child);
        kill_process(pid, signal).unwrap();
        terminal.ended(whole);
    }
}
