//! What a host sends and receives, taken at its interface by a thread of its own: every RoCEv2 frame by
//! hash. Judging is in `ledger.rs`.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use crem_rawsock::{Options, RawSock, RecvBatch, sleep_ns, wait_readable};
use crem_wan::{Class, frame_hash};
use nix::sched::{CloneFlags, setns};

use super::Failure;
use super::ledger::Record;

/// Frames a receive call.
const BATCH: usize = 128;
/// Longest frame.
const FRAME: usize = 9_600;
/// Longest wait, to see the stop flag.
const IDLE_NS: u64 = 20_000_000;
/// Pause after frames, so that more gather: precision does not matter here.
const GATHER_NS: u64 = 2_000_000;

/// A running capture. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Tap {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Record, Failure>>>,
}

impl Tap {
    /// Starts capturing at `interface` in the namespace at `path`.
    pub(crate) fn start(path: PathBuf, interface: &str, crem_port: u16) -> Result<Self, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, opened) = channel();
        let (flag, name) = (Arc::clone(&stop), interface.to_owned());
        let thread = std::thread::spawn(move || {
            let sock = open(&path, &name);
            match sock {
                Ok(sock) => {
                    // The starter waits; it cannot be gone.
                    let _ = ready.send(());
                    capture(sock, &flag, crem_port)
                }
                Err(error) => Err(error),
            }
        });
        if opened.recv().is_err() {
            return Err(match thread.join() {
                Ok(Err(error)) => error,
                _ => "the capture thread ended".into(),
            });
        }
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Ends the capture.
    pub(crate) fn finish(mut self) -> Result<Record, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().ok_or("the capture has ended")?;
        thread.join().map_err(|_| "the capture thread panicked")?
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Moves this thread into the namespace and opens the socket there.
fn open(path: &PathBuf, interface: &str) -> Result<RawSock, Failure> {
    setns(File::open(path)?.as_fd(), CloneFlags::CLONE_NEWNET)?;
    let options = Options {
        receive_buffer: 256 << 20,
        ignore_outgoing: false,
        ..Options::default()
    };
    Ok(RawSock::open(interface, options)?)
}

fn capture(mut sock: RawSock, stop: &AtomicBool, crem_port: u16) -> Result<Record, Failure> {
    let mut record = Record::default();
    let mut batch = RecvBatch::new(BATCH, FRAME);
    loop {
        let last = stop.load(Ordering::Relaxed);
        let mut any = false;
        let mut take = |frame: crem_rawsock::Frame<'_>| {
            any = true;
            let class = Class::of(frame.octets, crem_port);
            record.add(
                frame.outgoing,
                class,
                frame_hash(frame.octets),
                frame.octets,
            );
        };
        while sock.recv(&mut batch, &mut take)? {}
        if last {
            record.kernel_drops = sock.kernel_drops();
            return Ok(record);
        }
        if any {
            sleep_ns(GATHER_NS);
        } else {
            wait_readable([sock.as_fd()], Some(IDLE_NS))?;
        }
    }
}
