//! The relay against a process that listens, dies, is slow, or is looked for in vain.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::mpsc::{Sender, channel};

use nix::sys::socket::{Backlog, bind, listen};

use super::*;
use crate::metering::ring::{Inlet, Outbox, ring};
use crate::metering::shared;

/// The exporting process, as far as the relay sees it.
struct Process {
    listener: UnixListener,
    stream: Option<UnixStream>,
    path: PathBuf,
}

impl Process {
    fn start(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("crem-relay-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let fd: OwnedFd = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap();
        bind(fd.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        listen(&fd, Backlog::new(4).unwrap()).unwrap();
        Self {
            listener: fd.into(),
            stream: None,
            path,
        }
    }

    fn accept(&mut self) -> bool {
        let Ok((stream, _)) = self.listener.accept() else {
            return false;
        };
        stream.set_nonblocking(true).unwrap();
        self.stream = Some(stream);
        true
    }

    fn say(&mut self, control: Control) {
        let stream = self.stream.as_mut().unwrap();
        stream.write_all(&control.encode()).unwrap();
    }

    /// Everything that came, accounts of what was ignored left out.
    fn take(&mut self) -> Vec<u64> {
        let mut buffer = vec![0; super::super::ring::MAX_BATCH];
        let mut taken = Vec::new();
        while let Some(stream) = &mut self.stream {
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(octets) => {
                    for item in items(&buffer[..octets]).unwrap() {
                        if let Item::Selection(n, _) = item.unwrap() {
                            taken.push(n);
                        }
                    }
                }
            }
        }
        taken
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn put(outbox: &mut Outbox, n: u64) -> bool {
    let stats = crem_meter::select::SelectionStats {
        observed: 0,
        selected: 0,
    };
    outbox.item(&Item::Selection(n, stats))
}

fn controls(outbox: &Outbox) -> Vec<Control> {
    outbox.controls.try_iter().collect()
}

fn relay(path: &Path, batches: usize) -> (Relay, Outbox, Arc<RelayState>) {
    let (relay, outbox, _, state) = growing_relay(path, batches);
    // Nothing is to come after this ring.
    state.ending.store(true, Ordering::Relaxed);
    (relay, outbox, state)
}

/// A relay with one ring, and the way to further ones.
fn growing_relay(path: &Path, batches: usize) -> (Relay, Outbox, Sender<Inlet>, Arc<RelayState>) {
    let shared = shared(0);
    let (outbox, inlet) = ring(batches, Arc::clone(&shared));
    let (begin, begun) = channel();
    begin.send(inlet).unwrap();
    let state = Arc::new(RelayState::default());
    let relay = Relay::new(path, begun, vec![shared], Arc::clone(&state));
    (relay, outbox, begin, state)
}

// shows: BTH-PKT-06
#[test]
fn records_pass_and_sessions_reach_the_worker() {
    let mut process = Process::start("pass");
    let (mut relay, mut outbox, state) = relay(&process.path, 4);
    let now = Instant::now();
    relay.drive(now, 7).unwrap();
    assert_eq!(outbox.shared.utc_offset.load(Ordering::Relaxed), 7);
    assert!(process.accept());
    process.say(Control::Begin(1, 10));
    process.say(Control::Begin(0, 11));
    put(&mut outbox, 1);
    put(&mut outbox, 2);
    outbox.hand_over();
    assert_eq!(relay.drive(now, 7), Some(true));
    assert_eq!(process.take(), [1, 2]);
    let told = [Control::Begin(1, 10), Control::Begin(0, 11)];
    assert_eq!(controls(&outbox), told);
    // What is said last counts; only one thing of each waits for a worker that does not look.
    for session in 0..1000 {
        process.say(Control::Begin(0, session));
        relay.drive(now, 7).unwrap();
    }
    relay.drive(now, 7).unwrap();
    assert!(controls(&outbox).len() < 100);
    relay.drive(now, 7).unwrap();
    assert_eq!(controls(&outbox), [Control::Begin(0, 999)]);
    assert_eq!(state.batches.load(Ordering::Relaxed), 1);
}

// shows: SEQ-ID-07, SEQ-EXP-02
#[test]
fn a_process_that_dies_ends_all_sessions_and_is_looked_for() {
    let mut process = Process::start("dies");
    let path = process.path.clone();
    let (mut relay, mut outbox, state) = relay(&path, 4);
    let mut now = Instant::now();
    relay.drive(now, 0).unwrap();
    process.accept();
    process.say(Control::Begin(3, 5));
    relay.drive(now, 0).unwrap();
    assert_eq!(controls(&outbox), [Control::Begin(3, 5)]);
    drop(process);
    relay.drive(now, 0).unwrap();
    assert_eq!(controls(&outbox), [Control::End(3)]);
    assert!(!state.connected.load(Ordering::Relaxed));
    // What comes now is lost and counted, and memory goes round.
    for n in 0..20 {
        assert!(put(&mut outbox, n));
        outbox.hand_over();
        relay.drive(now, 0).unwrap();
    }
    assert_eq!(state.lost_items.load(Ordering::Relaxed), 20);
    let mut process = Process::start("dies");
    relay.drive(now, 0).unwrap();
    assert!(!process.accept(), "not before a second has passed");
    now += RECONNECT;
    relay.drive(now, 0).unwrap();
    assert!(process.accept());
    put(&mut outbox, 77);
    outbox.hand_over();
    relay.drive(now, 0).unwrap();
    assert_eq!(process.take(), [77]);
    assert_eq!(state.connections.load(Ordering::Relaxed), 2);
}

#[test]
fn a_process_that_does_not_read_costs_records_and_no_time() {
    let mut process = Process::start("slow");
    let (mut relay, mut outbox, state) = relay(&process.path, 4);
    let now = Instant::now();
    relay.drive(now, 0).unwrap();
    process.accept();
    let mut n = 0;
    while outbox.lost < 100_000 {
        put(&mut outbox, n);
        n += 1;
        if n.is_multiple_of(1000) {
            relay.drive(now, 0).unwrap();
        }
    }
    assert!(state.stalls.load(Ordering::Relaxed) > 0);
    // When it reads again everything that was taken comes, in order.
    let mut taken = Vec::new();
    for _ in 0..100 {
        outbox.hand_over();
        taken.extend(process.take());
        relay.drive(now, 0).unwrap();
    }
    assert_eq!(taken.len() as u64, outbox.items);
    assert_eq!(outbox.items + outbox.lost, n);
    assert!(taken.is_sorted());
    assert_eq!(state.lost_items.load(Ordering::Relaxed), 0);
}

#[test]
fn a_restart_is_another_connection_between_the_records() {
    let mut process = Process::start("restart");
    let (mut relay, mut outbox, _) = relay(&process.path, 4);
    let now = Instant::now();
    relay.drive(now, 0).unwrap();
    process.accept();
    process.say(Control::Begin(0, 1));
    put(&mut outbox, 1);
    outbox.restart();
    put(&mut outbox, 2);
    outbox.hand_over();
    relay.drive(now, 0).unwrap();
    assert_eq!(process.take(), [1]);
    assert!(process.accept());
    assert_eq!(process.take(), [2]);
    assert_eq!(controls(&outbox), [Control::Begin(0, 1), Control::End(0)]);
}

#[test]
fn it_ends_when_the_workers_are_gone_and_everything_is_passed() {
    let mut process = Process::start("end");
    let (mut relay, mut outbox, _) = relay(&process.path, 4);
    let now = Instant::now();
    relay.drive(now, 0).unwrap();
    process.accept();
    put(&mut outbox, 5);
    outbox.hand_over();
    drop(outbox);
    assert_eq!(relay.drive(now, 0), None);
    assert_eq!(process.take(), [5]);
}

#[test]
fn rings_come_and_go_while_it_runs() {
    let mut process = Process::start("rings");
    let (mut relay, mut first, begin, state) = growing_relay(&process.path, 4);
    let now = Instant::now();
    assert_eq!(relay.drive(now, 0), Some(false));
    assert!(process.accept() && state.observing.load(Ordering::Relaxed));
    process.say(Control::Begin(3, 9));
    relay.drive(now, 0).unwrap();
    put(&mut first, 1);
    first.hand_over();
    drop(first);
    assert_eq!(relay.drive(now, 0), Some(true));
    assert_eq!(process.take(), [1]);
    assert!(!state.observing.load(Ordering::Relaxed), "nobody is left");
    // The next one learns of the session that there is, and uses the same connection.
    let (mut second, inlet) = ring(4, shared(0));
    begin.send(inlet).unwrap();
    put(&mut second, 2);
    second.hand_over();
    assert_eq!(relay.drive(now, 0), Some(true));
    assert_eq!(process.take(), [2]);
    assert_eq!(controls(&second), [Control::Begin(3, 9)]);
    assert_eq!(state.connections.load(Ordering::Relaxed), 1);
    state.ending.store(true, Ordering::Relaxed);
    drop(second);
    assert_eq!(relay.drive(now, 0), None);
}

#[test]
fn while_nothing_is_observed_nobody_is_looked_for() {
    let mut process = Process::start("nobody");
    let (mut relay, outbox, _begin, state) = growing_relay(&process.path, 1);
    drop(outbox);
    // The ring that ended is noticed in the first turn.
    relay.drive(Instant::now(), 0).unwrap();
    process.accept();
    process.stream = None;
    let mut now = Instant::now();
    for _ in 0..5 {
        now += RECONNECT;
        assert_eq!(relay.drive(now, 0), Some(false));
    }
    assert!(!process.accept());
    assert_eq!(state.connections.load(Ordering::Relaxed), 1);
}
