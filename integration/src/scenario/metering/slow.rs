//! A collector that reads slowly and keeps what it read, so that the queue before it overflows.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{setsockopt, sockopt::RcvBuf};

use super::super::Failure;

/// Octets taken at once, and the pause after them: 40 kB a second.
const TAKEN: usize = 4096;
/// See [`TAKEN`].
const PAUSE: Duration = Duration::from_millis(100);
/// Octets that the kernel keeps for it.
const BUFFER: usize = 8192;

/// The collector. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Slow {
    hurry: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), Failure>>>,
}

impl Slow {
    /// Listens at a port of the loopback address in the namespace at `path`; what it reads goes to `file`.
    pub(super) fn start(path: PathBuf, port: u16, file: &Path) -> Result<Self, Failure> {
        let hurry = Arc::new(AtomicBool::new(false));
        let (flag, mut out) = (Arc::clone(&hurry), File::create(file)?);
        let (ready, listens) = channel();
        let thread = std::thread::spawn(move || -> Result<(), Failure> {
            setns(File::open(path)?.as_fd(), CloneFlags::CLONE_NEWNET)?;
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
            setsockopt(&listener, RcvBuf, &BUFFER)?;
            listener.set_nonblocking(true)?;
            // The starter waits; it cannot be gone.
            let _ = ready.send(());
            let Some(stream) = accept(&listener, &flag)? else {
                return Ok(());
            };
            keep(stream, &mut out, &flag)
        });
        // An error comes with the end of the thread.
        let _ = listens.recv();
        Ok(Self {
            hurry,
            thread: Some(thread),
        })
    }

    /// Reads the rest at once.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        self.hurry.store(true, Ordering::Relaxed);
        let thread = self.thread.take().ok_or("the slow collector has ended")?;
        thread.join().map_err(|_| "the slow collector panicked")?
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.hurry.store(true, Ordering::Relaxed);
    }
}

fn accept(listener: &TcpListener, hurry: &AtomicBool) -> Result<Option<TcpStream>, Failure> {
    while !hurry.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => return Ok(Some(stream)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// Until the exporter ends the connection, or has nothing more for us although we hurry.
fn keep(mut stream: TcpStream, out: &mut File, hurry: &AtomicBool) -> Result<(), Failure> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut octets = [0; TAKEN];
    loop {
        let late = hurry.load(Ordering::Relaxed);
        match stream.read(&mut octets) {
            Ok(0) => return Ok(()),
            Ok(taken) => out.write_all(octets.get(..taken).unwrap_or_default())?,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if late {
                    return Ok(());
                }
            }
            Err(error) => return Err(error.into()),
        }
        if !late {
            std::thread::sleep(PAUSE);
        }
    }
}
