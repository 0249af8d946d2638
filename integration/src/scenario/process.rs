//! The programs that take part: where they are, starting them in a namespace, waiting for `ready`,
//! ending them, and what processor time they took.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::Failure;

/// Time to end after SIGTERM before SIGKILL.
const GRACE: Duration = Duration::from_secs(10);

/// Paths of the programs.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `crem-gateway`.
    pub gateway: PathBuf,
    /// `crem-gateway` for control processes: of another version where versions are tried together.
    pub control: PathBuf,
    /// `wan`.
    pub wan: PathBuf,
    /// `rdma-peer`.
    pub peer: PathBuf,
    /// `etcd`, if there is one: what `ETCD` names, else what `integration/scripts/etcd` unpacked.
    pub etcd: Option<PathBuf>,
}

impl Programs {
    /// Programs beside this one, unless `CREM_GATEWAY_BIN` names another gateway.
    ///
    /// # Errors
    /// The path of this program is unknown.
    pub fn beside_this() -> Result<Self, Failure> {
        let own = std::env::current_exe()?;
        let folder = own.parent().unwrap_or(Path::new("."));
        let gateway = std::env::var_os("CREM_GATEWAY_BIN");
        Ok(Self {
            gateway: gateway.map_or_else(|| folder.join("crem-gateway"), PathBuf::from),
            control: folder.join("crem-gateway"),
            wan: folder.join("wan"),
            peer: folder.join("rdma-peer"),
            etcd: etcd(),
        })
    }

    /// Checks that they are there.
    pub(crate) fn check(&self, with_gateway: bool) -> Result<(), Failure> {
        let mut needed = vec![&self.wan, &self.peer];
        if with_gateway {
            needed.push(&self.gateway);
        }
        match needed.into_iter().find(|path| !path.exists()) {
            Some(path) => Err(format!("{} is missing: build it first", path.display()).into()),
            None => Ok(()),
        }
    }
}

fn etcd() -> Option<PathBuf> {
    let named = std::env::var_os("ETCD").map(PathBuf::from);
    let found = named.unwrap_or_else(|| "target/tools/etcd/usr/bin/etcd".into());
    found.canonicalize().ok().filter(|path| path.is_file())
}

/// A started program. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    lines: Receiver<String>,
    log: PathBuf,
    ticks: u64,
}

impl Process {
    /// Starts a command; its standard error goes to `NAME.log` in `folder`.
    pub(crate) fn start(command: Command, name: &str, folder: &Path) -> Result<Self, Failure> {
        Self::start_into(command, name, folder, None)
    }

    /// The same with its standard output in a file.
    pub(crate) fn start_into(
        mut command: Command,
        name: &str,
        folder: &Path,
        out: Option<File>,
    ) -> Result<Self, Failure> {
        let log = folder.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log)?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(out.map_or_else(Stdio::piped, Stdio::from))
            .stderr(file)
            .spawn()
            .map_err(|error| format!("{name}: {error}"))?;
        let (sender, lines) = channel();
        if let Some(out) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Self {
            name: name.to_owned(),
            child,
            lines,
            log,
            ticks: 0,
        })
    }

    /// Waits for the line `ready`.
    pub(crate) fn wait_ready(&mut self, limit: Duration) -> Result<(), Failure> {
        let end = Instant::now() + limit;
        loop {
            match self
                .lines
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                Ok(line) if line.trim() == "ready" => return Ok(()),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(
                        format!("{} was not ready in {limit:?}{}", self.name, self.tail()).into(),
                    );
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait()?;
                    return Err(format!("{} ended ({status}){}", self.name, self.tail()).into());
                }
            }
        }
    }

    /// Waits for words in its log.
    pub(crate) fn wait_logged(&mut self, words: &str, limit: Duration) -> Result<(), Failure> {
        let end = Instant::now() + limit;
        while !self.logged(words)? {
            if let Some(status) = self.child.try_wait()? {
                return Err(format!("{} ended ({status}){}", self.name, self.tail()).into());
            }
            if Instant::now() > end {
                return Err(
                    format!("{}: no {words:?} in {limit:?}{}", self.name, self.tail()).into(),
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Whether it has ended, and how.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>, Failure> {
        self.note_time();
        Ok(self.child.try_wait()?)
    }

    /// SIGKILL, as a crash.
    pub(crate) fn crash(&mut self) -> Result<(), Failure> {
        self.note_time();
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Stops a worker's thread, as a fault in it would, and waits until the process has ended by itself.
    pub(crate) fn stop_thread(
        &mut self,
        worker: u16,
        limit: Duration,
    ) -> Result<Duration, Failure> {
        let thread = self.worker_thread(worker)?;
        ptrace::seize(thread, ptrace::Options::empty())?;
        ptrace::interrupt(thread)?;
        waitpid(thread, Some(WaitPidFlag::__WALL))?;
        let start = Instant::now();
        while start.elapsed() < limit {
            // Only who traces it can tell, and has to let it go.
            let flags = WaitPidFlag::__WALL | WaitPidFlag::WNOHANG;
            match waitpid(thread, Some(flags)) {
                Ok(WaitStatus::StillAlive | WaitStatus::PtraceEvent(..)) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                _ => {
                    let took = start.elapsed();
                    // The first thread's end is the process's.
                    let _ = self.child.wait();
                    return Ok(took);
                }
            }
        }
        Err(format!("{} runs on with a stuck worker{}", self.name, self.tail()).into())
    }

    /// The first worker is the process's first thread; the others bear their numbers.
    fn worker_thread(&self, worker: u16) -> Result<Pid, Failure> {
        let own = i32::try_from(self.child.id())?;
        if worker == 0 {
            return Ok(Pid::from_raw(own));
        }
        let name = format!("crem-worker-{worker}");
        for entry in std::fs::read_dir(format!("/proc/{own}/task"))? {
            let path = entry?.path();
            let comm = std::fs::read_to_string(path.join("comm"))?;
            if comm.trim() == name {
                let id = path.file_name().and_then(|n| n.to_str()?.parse().ok());
                return id.map(Pid::from_raw).ok_or_else(|| "no thread".into());
            }
        }
        Err(format!("{} has no thread {name}", self.name).into())
    }

    /// Waits until it has ended by itself. Tells how.
    pub(crate) fn wait_end(&mut self, limit: Duration) -> Result<ExitStatus, Failure> {
        let end = Instant::now() + limit;
        while Instant::now() < end {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(format!("{} did not end in {limit:?}{}", self.name, self.tail()).into())
    }

    /// Whether words are in its log.
    pub(crate) fn logged(&self, words: &str) -> Result<bool, Failure> {
        Ok(std::fs::read_to_string(&self.log)?.contains(words))
    }

    /// SIGTERM, then waits. Tells how it ended.
    pub(crate) fn stop(&mut self) -> Result<ExitStatus, Failure> {
        self.note_time();
        if let Some(status) = self.child.try_wait()? {
            return Ok(status);
        }
        self.signal(Signal::SIGTERM);
        let end = Instant::now() + GRACE;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.child.kill()?;
        self.child.wait()?;
        Err(format!("{} did not end in {GRACE:?} after SIGTERM", self.name).into())
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // Gone already is as good.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Processor time so far.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        self.ticks as f64 / 100.0
    }

    /// User and system time from `/proc`; the kernel's unit is 1/100 s everywhere.
    fn note_time(&mut self) {
        let path = format!("/proc/{}/stat", self.child.id());
        let Ok(text) = std::fs::read_to_string(path) else {
            return;
        };
        // Behind the last parenthesis: state is field 3, utime 14, stime 15.
        let fields: Vec<&str> = text
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        let field = |at: usize| fields.get(at).and_then(|f| f.parse().ok()).unwrap_or(0u64);
        self.ticks = self.ticks.max(field(11) + field(12));
    }

    /// The end of its log, for an error message.
    pub(crate) fn tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines
            .get(lines.len().saturating_sub(8)..)
            .unwrap_or_default();
        if last.is_empty() {
            String::new()
        } else {
            format!("\n  {}", last.join("\n  "))
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Errors mean that it is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads a report that a program wrote.
pub(crate) fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()).into())
}
