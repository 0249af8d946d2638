//! The auxiliary thread's part: batches from the workers' rings to the exporting process over a local
//! socket, and the beginnings and ends of collector sessions back. Nothing here waits: while the socket
//! takes nothing the rings fill, and what they cannot hold is counted on the worker.
//!
//! The socket keeps messages apart (SOCK_SEQPACKET): one batch is one message.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, TrySendError};
use std::time::{Duration, Instant};

use crem_ipfix::handover::{Batch, Control, Item, items};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

use super::Shared;
use super::ring::{Handover, Inlet};

/// Between two attempts to connect.
const RECONNECT: Duration = Duration::from_secs(1);
/// Between two accounts of what was ignored.
const ACCOUNT: Duration = Duration::from_secs(1);
/// Batches that are passed on at once.
const TURN: usize = 256;

/// What the relay did, readable by others.
#[derive(Debug, Default)]
pub struct RelayState {
    /// Something is observed.
    pub observing: AtomicBool,
    /// The workers are gone, or about to be: when everything is passed on, the relay is done.
    pub ending: AtomicBool,
    /// The exporting process is connected.
    pub connected: AtomicBool,
    /// Connections so far.
    pub connections: AtomicU64,
    /// Batches that it took.
    pub batches: AtomicU64,
    /// Octets of them.
    pub octets: AtomicU64,
    /// Records and other items that were lost because it was not there or went away.
    pub lost_items: AtomicU64,
    /// Times that it took no more for a while.
    pub stalls: AtomicU64,
}

impl RelayState {
    /// Calls `f` with the name and the value of every counter.
    pub fn for_each(&self, mut f: impl FnMut(&'static str, u64)) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        f("connections", read(&self.connections));
        f("batches", read(&self.batches));
        f("octets", read(&self.octets));
        f("lost_items", read(&self.lost_items));
        f("stalls", read(&self.stalls));
    }
}

/// Between the workers and the exporting process.
#[derive(Debug)]
pub struct Relay {
    path: PathBuf,
    socket: Option<UnixStream>,
    /// Rings of workers that begin to observe.
    begun: Receiver<Inlet>,
    inlets: Vec<Source>,
    /// Of all workers, whether they observe something or not.
    shared: Vec<Arc<Shared>>,
    /// Said of each collector, last.
    known: Vec<Control>,
    next_connect: Option<Instant>,
    next_account: Option<Instant>,
    state: Arc<RelayState>,
}

#[derive(Debug)]
struct Source {
    inlet: Inlet,
    /// A batch that the socket did not take.
    stuck: Option<Box<Batch>>,
    /// What its worker is still to be told, at most one thing of each collector.
    untold: Vec<Control>,
    ended: bool,
}

const fn collector(control: &Control) -> u16 {
    match *control {
        Control::Begin(collector, _) | Control::End(collector) => collector,
    }
}

/// Puts what is said last of a collector in the place of what was said before.
fn replace(all: &mut Vec<Control>, control: Control) {
    all.retain(|other| collector(other) != collector(&control));
    all.push(control);
}

impl Relay {
    /// Between the rings of workers, as they come, and the process that listens at `path`, if one does.
    /// `shared` is of all workers that there may be.
    pub fn new(
        path: &Path,
        begun: Receiver<Inlet>,
        shared: Vec<Arc<Shared>>,
        state: Arc<RelayState>,
    ) -> Self {
        Self {
            path: path.to_owned(),
            socket: None,
            begun,
            inlets: Vec::new(),
            shared,
            known: Vec::new(),
            next_connect: None,
            next_account: None,
            state,
        }
    }

    /// Does what can be done now. Returns whether anything was passed on; `None` at the end: the workers
    /// are gone and their rings empty.
    pub fn drive(&mut self, now: Instant, utc_offset: u64) -> Option<bool> {
        // Before the rings are looked at: what they hold when this is set is all that there will be.
        let ending = self.state.ending.load(Ordering::Relaxed);
        for shared in &self.shared {
            shared.utc_offset.store(utc_offset, Ordering::Relaxed);
        }
        self.begin();
        self.connect(now);
        self.listen();
        self.tell();
        let passed = self.pass(now);
        self.account(now);
        self.inlets
            .retain(|source| !source.ended || source.stuck.is_some());
        let observing = !self.inlets.is_empty();
        self.state.observing.store(observing, Ordering::Relaxed);
        (!ending || observing).then_some(passed)
    }

    /// Takes the rings of workers that begin to observe.
    fn begin(&mut self) {
        while let Ok(inlet) = self.begun.try_recv() {
            self.inlets.push(Source {
                inlet,
                stuck: None,
                untold: self.known.clone(),
                ended: false,
            });
        }
    }

    fn connect(&mut self, now: Instant) {
        if self.inlets.is_empty() {
            return;
        }
        if self.socket.is_some() || self.next_connect.is_some_and(|at| at > now) {
            return;
        }
        self.next_connect = Some(now + RECONNECT);
        if let Ok(socket) = connect_to(&self.path) {
            self.socket = Some(socket);
            self.state.connections.fetch_add(1, Ordering::Relaxed);
            self.state.connected.store(true, Ordering::Relaxed);
        }
    }

    /// The process is gone: no collector has a session.
    fn disconnect(&mut self) {
        self.socket = None;
        self.state.connected.store(false, Ordering::Relaxed);
        for control in std::mem::take(&mut self.known) {
            self.say(Control::End(collector(&control)));
        }
        self.known.clear();
    }

    fn say(&mut self, control: Control) {
        replace(&mut self.known, control);
        for source in &mut self.inlets {
            replace(&mut source.untold, control);
        }
    }

    /// Takes what the process says.
    fn listen(&mut self) {
        let mut message = [0; Control::LEN];
        while let Some(socket) = &mut self.socket {
            match socket.read(&mut message) {
                Ok(Control::LEN) => match Control::decode(&message) {
                    Ok(control) => self.say(control),
                    Err(error) => {
                        tracing::warn!("exporting process: {error}");
                        self.disconnect();
                    }
                },
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => self.disconnect(),
            }
        }
    }

    /// Passes it on to the workers; what finds no place is tried again.
    fn tell(&mut self) {
        for source in &mut self.inlets {
            let controls = &source.inlet.controls;
            let mut full = false;
            source.untold.retain(|control| {
                full |= matches!(controls.try_send(*control), Err(TrySendError::Full(_)));
                full
            });
        }
    }

    fn pass(&mut self, now: Instant) -> bool {
        let mut passed = false;
        for place in 0..self.inlets.len() {
            for _ in 0..TURN {
                let Some(next) = self.next(place) else { break };
                passed = true;
                match next {
                    Handover::Batch(batch) => {
                        if !self.send(place, batch) {
                            break;
                        }
                    }
                    // Another connection is what tells the process that numbers begin anew.
                    Handover::Restart => {
                        self.disconnect();
                        self.next_connect = None;
                        self.connect(now);
                        self.listen();
                        self.tell();
                    }
                    Handover::Free(meter) => drop(meter),
                }
            }
        }
        passed
    }

    fn next(&mut self, place: usize) -> Option<Handover> {
        let source = self.inlets.get_mut(place)?;
        if let Some(batch) = source.stuck.take() {
            return Some(Handover::Batch(batch));
        }
        match source.inlet.full.try_recv() {
            Ok(next) => Some(next),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                source.ended = true;
                None
            }
        }
    }

    /// Sends a batch and gives its memory back; `false` if the process takes no more now.
    fn send(&mut self, place: usize, batch: Box<Batch>) -> bool {
        match self.write(batch.octets()) {
            Ok(true) => {
                self.state.batches.fetch_add(1, Ordering::Relaxed);
                let octets = batch.octets().len() as u64;
                self.state.octets.fetch_add(octets, Ordering::Relaxed);
            }
            // What was for a process that is gone is of no use to another one.
            Ok(false) => self.lose(&batch),
            Err(()) => {
                let at_end = self.inlets.get(place).is_some_and(|s| s.ended);
                self.state.stalls.fetch_add(1, Ordering::Relaxed);
                match self.inlets.get_mut(place) {
                    // The worker is gone and nobody waits for us to be taken seriously.
                    Some(source) if !at_end => source.stuck = Some(batch),
                    _ => self.lose(&batch),
                }
                return false;
            }
        }
        let mut batch = batch;
        batch.clear();
        if let Some(source) = self.inlets.get(place) {
            // There is room for all that there are; the worker may be gone.
            let _ = source.inlet.spare.try_send(batch);
        }
        true
    }

    fn lose(&self, batch: &Batch) {
        let lost = items(batch.octets()).map_or(0, |items| items.count() as u64);
        self.state.lost_items.fetch_add(lost, Ordering::Relaxed);
    }

    /// Whether the message went out; an error if the socket is full.
    fn write(&mut self, message: &[u8]) -> Result<bool, ()> {
        let Some(socket) = &mut self.socket else {
            return Ok(false);
        };
        loop {
            match socket.write(message) {
                Ok(_) => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(()),
                Err(_) => {
                    self.disconnect();
                    return Ok(false);
                }
            }
        }
    }

    /// Tells how many packets all workers together did not take into account. What is lost here is not in
    /// it: those are records, and the process before knew of them or nobody did.
    fn account(&mut self, now: Instant) {
        if self.next_account.is_some_and(|at| at > now) {
            return;
        }
        self.next_account = Some(now + ACCOUNT);
        let sum = |of: fn(&Shared) -> &AtomicU64| -> u64 {
            let each = self.shared.iter();
            each.map(|shared| of(shared).load(Ordering::Relaxed)).sum()
        };
        let ignored = (sum(|s| &s.ignored_packets), sum(|s| &s.ignored_octets));
        let mut batch = Batch::new(256);
        batch.push(&Item::Ignored(ignored.0, ignored.1));
        // It is said again in a second.
        let _ = self.write(batch.octets());
    }
}

/// Connects to the exporting process; reading and writing never wait.
fn connect_to(path: &Path) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(fd.into())
}

#[cfg(test)]
#[path = "relay_tests.rs"]
mod tests;
