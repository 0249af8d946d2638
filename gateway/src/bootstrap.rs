//! The bootstrap of a process: what it needs before it can read the config document. A file, then the
//! environment, then flags; nothing of it can change the document.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use config::{Config, Environment, File, FileFormat};
use crem_api::read::{Invalid, Issues, Node};
use crem_dataplane::start::MemoryKind;
use crem_dataplane::worker::Idle;
use serde_json::Value;

use crate::sandbox::Sandbox;

/// Prefix of environment variables; the parts of a key are joined by two underscores.
const PREFIX: &str = "CREM_";
const SEPARATOR: &str = "__";
/// The variable that names the document.
const DOCUMENT: &str = "CREM_DOCUMENT";
/// The variable that chooses the kind of memory.
pub(crate) const MEMORY_KIND: &str = "CREM_MEMORY__KIND";
/// Fewest frame buffers that anything works with.
const MIN_POOL: u32 = 2047;
/// Largest number of a CPU.
const MAX_CPU: u32 = 1023;

/// Flags of a process; they win over the environment and the file.
#[derive(Args, Debug, Default)]
pub(crate) struct Flags {
    /// Bootstrap file, TOML.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Config document, TOML or (named *.json) JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) document: Option<String>,
    /// Unix socket that serves the status.
    #[arg(long, value_name = "PATH")]
    pub(crate) status_socket: Option<String>,
    /// CPU that the worker is pinned to.
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<u32>,
    /// Log filter, for example info or crem_dataplane=debug.
    #[arg(long, value_name = "FILTER")]
    pub(crate) log: Option<String>,
    /// Whether the process gives up capabilities, system calls and places to write: on or off.
    #[arg(long, value_name = "on|off")]
    pub(crate) sandbox: Option<String>,
    /// Unix socket of the exporting process.
    #[arg(long, value_name = "PATH")]
    pub(crate) export_socket: Option<String>,
    /// Status socket of the exporting process; it has a flag there.
    #[arg(skip)]
    pub(crate) export_status_socket: Option<String>,
    /// State directory and socket of the control process; they have flags there.
    #[arg(skip)]
    pub(crate) control_state: Option<String>,
    #[arg(skip)]
    pub(crate) control_socket: Option<String>,
    #[arg(skip)]
    pub(crate) first_listener: Option<String>,
    #[arg(skip)]
    pub(crate) fleet_status: Option<String>,
}

/// A finished bootstrap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Bootstrap {
    /// Where the config document may be, in the order of preference; at least one.
    pub(crate) documents: Vec<PathBuf>,
    /// Whoever starts the process has named the document, and means this one.
    pub(crate) only_named: bool,
    pub(crate) status_socket: PathBuf,
    pub(crate) worker: Workers,
    pub(crate) memory: MemoryKind,
    pub(crate) memory_mb: Option<u32>,
    pub(crate) pool_frames: u32,
    pub(crate) ring_frames: u32,
    pub(crate) log_filter: String,
    pub(crate) export_socket: PathBuf,
    pub(crate) export_status_socket: PathBuf,
    pub(crate) control_state: PathBuf,
    pub(crate) control_socket: PathBuf,
    pub(crate) first_listener: Option<SocketAddr>,
    pub(crate) fleet_status: PathBuf,
    pub(crate) sandbox: Sandbox,
}

impl Bootstrap {
    /// Reads file, environment and flags.
    ///
    /// # Errors
    /// Every problem at once.
    pub(crate) fn read(
        flags: &Flags,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, Invalid> {
        let environment: Vec<(String, String)> = environment.into_iter().collect();
        let only_named =
            flags.document.is_some() || environment.iter().any(|(name, _)| name == DOCUMENT);
        let value = merged(flags, environment)
            .map_err(|e| Invalid::whole(e.to_string(), "a readable bootstrap"))?;
        let issues = Issues::default();
        let bootstrap = Self::typed(&Node::root(&value, &issues), only_named);
        issues.conclude(bootstrap)
    }

    fn typed(node: &Node<'_>, only_named: bool) -> Option<Self> {
        let mut t = node.table()?;
        let control = t.or("control", Control::default(), Control::read);
        let document = t.optional("document", path);
        let status_socket = t.or("status", "/run/crem/dataplane.sock".into(), |n| {
            let mut t = n.table()?;
            let socket = t.required("socket", path);
            t.finish();
            socket
        });
        let export = t.or("export", Export::default(), Export::read);
        let worker = t.or("worker", Workers::default(), Workers::read);
        let memory = t.or("memory", Memory::default(), Memory::read);
        let log_filter = t.or("logging", "info".to_owned(), |n| {
            let mut t = n.table()?;
            let filter = t.required("filter", |n| n.text("a log filter").map(str::to_owned));
            t.finish();
            filter
        });
        let sandbox = t.or("sandbox", Sandbox::default(), sandbox);
        t.finish();
        let (worker, memory, export, control) = (worker?, memory?, export?, control?);
        Some(Self {
            documents: documents(document?, only_named, &control.state),
            only_named,
            status_socket: status_socket?,
            worker,
            memory: memory.kind,
            memory_mb: memory.mb,
            pool_frames: memory.pool_frames,
            ring_frames: memory.ring_frames,
            log_filter: log_filter?,
            export_socket: export.socket,
            export_status_socket: export.status_socket,
            control_state: control.state,
            control_socket: control.socket,
            first_listener: control.first_listener,
            fleet_status: control.fleet_status,
            sandbox: sandbox?,
        })
    }
}

/// What the control process confirmed last comes first, as that is what it would bring into force anyway; then what the
/// bootstrap names. Who starts the process with a document wins over both.
fn documents(named: Option<PathBuf>, only_named: bool, state: &Path) -> Vec<PathBuf> {
    let confirmed = state.join("confirmed.json");
    match named {
        Some(named) if only_named || named == confirmed => vec![named],
        // A link that leads nowhere is a revision that is lost, and worth telling.
        Some(named) if confirmed.symlink_metadata().is_ok() => vec![confirmed, named],
        Some(named) => vec![named],
        None => vec![confirmed],
    }
}

fn sandbox(node: &Node<'_>) -> Option<Sandbox> {
    let d = Sandbox::default();
    let mut t = node.table()?;
    let on = t.or("mode", d.on, |n| n.choice(&[("on", true), ("off", false)]));
    // One path, or several joined by colons, so that a variable can hold them.
    let write = t.or("write", d.write, |n| {
        let text = n.text("directories, joined by colons")?;
        Some(text.split(':').map(PathBuf::from).collect())
    });
    t.finish();
    Some(Sandbox {
        on: on?,
        write: write?,
    })
}

struct Control {
    state: PathBuf,
    socket: PathBuf,
    first_listener: Option<SocketAddr>,
    fleet_status: PathBuf,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            state: "/var/lib/crem".into(),
            socket: "/run/crem/control.sock".into(),
            first_listener: None,
            fleet_status: "/run/crem/fleet-status.json".into(),
        }
    }
}

impl Control {
    fn read(node: &Node<'_>) -> Option<Self> {
        let d = Self::default();
        let mut t = node.table()?;
        let state = t.or("state", d.state, path);
        let socket = t.or("socket", d.socket, path);
        let fleet_status = t.or("fleet_status", d.fleet_status, path);
        let first_listener = t.optional("first_listener", |n| {
            n.parsed("an address with a port, such as \"192.0.2.1:8443\"")
        });
        t.finish();
        Some(Self {
            state: state?,
            socket: socket?,
            first_listener: first_listener?,
            fleet_status: fleet_status?,
        })
    }
}

/// How the workers of the data plane run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Workers {
    pub(crate) cpus: Vec<u32>,
    pub(crate) idle: Idle,
    pub(crate) interface_queues: u16,
    pub(crate) watchdog: Duration,
    pub(crate) fault_after: Option<Duration>,
}

impl Default for Workers {
    fn default() -> Self {
        Self {
            cpus: Vec::new(),
            idle: Idle::Adaptive,
            interface_queues: 1,
            watchdog: Duration::from_millis(200),
            fault_after: None,
        }
    }
}

impl Workers {
    fn read(node: &Node<'_>) -> Option<Self> {
        let d = Self::default();
        let mut t = node.table()?;
        let cpu = t.optional("cpu", |n| n.integer(0..=MAX_CPU));
        let cpus = t.or("cpus", d.cpus, cpus);
        let words = [("adaptive", Idle::Adaptive), ("busy", Idle::Busy)];
        let idle = t.or("idle", d.idle, |n| n.choice(&words));
        let queues = t.or("interface_queues", d.interface_queues, |n| {
            n.integer(1..=64)
        });
        let fault_after = t.optional("fault_after_ms", |n| {
            n.integer(0..=86_400_000u64).map(Duration::from_millis)
        });
        let watchdog = t.or("watchdog_ms", d.watchdog, |n| {
            n.integer(0..=60_000).map(Duration::from_millis)
        });
        t.finish();
        let mut cpus: Vec<u32> = cpus?;
        // The flag and the variable name the first one; a list in the file goes on behind it.
        match (cpu?, cpus.first_mut()) {
            (Some(cpu), Some(first)) => *first = cpu,
            (Some(cpu), None) => cpus.push(cpu),
            (None, _) => {}
        }
        Some(Self {
            cpus,
            idle: idle?,
            interface_queues: queues?,
            watchdog: watchdog?,
            fault_after: fault_after?,
        })
    }
}

/// CPUs as the kernel lists them: numbers and ranges, joined by commas.
fn cpus(node: &Node<'_>) -> Option<Vec<u32>> {
    const EXPECTED: &str = "CPUs such as \"2\" or \"2-5,8\", each once";
    let text = node.text(EXPECTED)?;
    let number = |text: &str| text.parse::<u32>().ok().filter(|n| *n <= MAX_CPU);
    let range = |part: &str| match part.split_once('-') {
        Some((first, last)) => Some(number(first)?..=number(last)?),
        None => number(part).map(|n| n..=n),
    };
    let ranges: Option<Vec<_>> = text.split(',').map(|part| range(part.trim())).collect();
    let all: Option<Vec<u32>> = ranges.map(|r| r.into_iter().flatten().collect());
    let distinct = |all: &Vec<u32>| {
        let set: std::collections::BTreeSet<_> = all.iter().collect();
        set.len() == all.len() && !all.is_empty()
    };
    match all.filter(distinct) {
        Some(all) => Some(all),
        None => node.fail(EXPECTED),
    }
}

struct Export {
    socket: PathBuf,
    status_socket: PathBuf,
}

impl Default for Export {
    fn default() -> Self {
        Self {
            socket: "/run/crem/export.sock".into(),
            status_socket: "/run/crem/export-status.sock".into(),
        }
    }
}

impl Export {
    fn read(node: &Node<'_>) -> Option<Self> {
        let d = Self::default();
        let mut t = node.table()?;
        let socket = t.or("socket", d.socket, path);
        let status_socket = t.or("status_socket", d.status_socket, path);
        t.finish();
        Some(Self {
            socket: socket?,
            status_socket: status_socket?,
        })
    }
}

struct Memory {
    kind: MemoryKind,
    mb: Option<u32>,
    pool_frames: u32,
    ring_frames: u32,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            kind: MemoryKind::Auto,
            mb: None,
            pool_frames: 8191,
            ring_frames: 2048,
        }
    }
}

impl Memory {
    fn read(node: &Node<'_>) -> Option<Self> {
        let d = Self::default();
        let mut t = node.table()?;
        let kinds = [
            ("auto", MemoryKind::Auto),
            ("hugepages", MemoryKind::Huge),
            ("ordinary", MemoryKind::NoHuge),
        ];
        let kind = t.or("kind", d.kind, |n| n.choice(&kinds));
        let mb = t.optional("mb", |n| n.integer(32..=1 << 20));
        let pool_frames = t.or("pool_frames", d.pool_frames, |n| {
            n.integer(MIN_POOL..=1 << 22)
        });
        let ring_frames = t.or("ring_frames", d.ring_frames, |n| n.integer(64..=1 << 16));
        t.finish();
        Some(Self {
            kind: kind?,
            mb: mb?,
            pool_frames: pool_frames?,
            ring_frames: ring_frames?,
        })
    }
}

fn path(node: &Node<'_>) -> Option<PathBuf> {
    node.text("a path").map(PathBuf::from)
}

fn merged(
    flags: &Flags,
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<Value, config::ConfigError> {
    let mut all = Config::builder();
    if let Some(path) = &flags.config {
        all = all.add_source(File::from(path.as_path()).format(FileFormat::Toml));
    }
    // Other programs of ours take CREM_… variables too: those that are meant for a bootstrap name a
    // table, or the document.
    let meant = environment.into_iter().filter(|(name, _)| {
        name == DOCUMENT
            || name
                .strip_prefix(PREFIX)
                .is_some_and(|n| n.contains(SEPARATOR))
    });
    all = all.add_source(
        Environment::with_prefix("CREM")
            .prefix_separator("_")
            .separator(SEPARATOR)
            .try_parsing(true)
            .source(Some(meant.collect())),
    );
    all.set_override_option("document", flags.document.clone())?
        .set_override_option("status.socket", flags.status_socket.clone())?
        .set_override_option("export.socket", flags.export_socket.clone())?
        .set_override_option("export.status_socket", flags.export_status_socket.clone())?
        .set_override_option("control.state", flags.control_state.clone())?
        .set_override_option("control.socket", flags.control_socket.clone())?
        .set_override_option("control.first_listener", flags.first_listener.clone())?
        .set_override_option("control.fleet_status", flags.fleet_status.clone())?
        .set_override_option("sandbox.mode", flags.sandbox.clone())?
        .set_override_option("worker.cpu", flags.cpu)?
        .set_override_option("logging.filter", flags.log.clone())?
        .build()?
        .try_deserialize()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    fn file(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("crem-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn a_document_is_all_that_is_needed() {
        let flags = Flags {
            document: Some("d.toml".to_owned()),
            ..Flags::default()
        };
        let bootstrap = Bootstrap::read(&flags, []).unwrap();
        assert_eq!(bootstrap.documents, [PathBuf::from("d.toml")]);
        assert_eq!(bootstrap.worker, Workers::default());
        assert_eq!(bootstrap.pool_frames, 8191);
    }

    #[test]
    fn flags_win_over_the_environment_and_that_over_the_file() {
        let path = file(
            "order.toml",
            "document = \"f\"\n[worker]\ncpu = 1\ncpus = \"4-5\"\nidle = \"busy\"\n[memory]\nmb = 64\n",
        );
        let flags = Flags {
            config: Some(path.clone()),
            cpu: Some(3),
            ..Flags::default()
        };
        let variables = environment(&[
            ("CREM_DOCUMENT", "e"),
            ("CREM_WORKER__CPU", "2"),
            ("CREM_MEMORY__MB", "128"),
            ("CREM_FEC_ISA", "scalar"),
            ("OTHER__X", "1"),
        ]);
        let bootstrap = Bootstrap::read(&flags, variables).unwrap();
        std::fs::remove_file(path).unwrap();
        assert_eq!(bootstrap.documents, [PathBuf::from("e")]);
        let worker = bootstrap.worker;
        assert_eq!((&worker.cpus[..], worker.idle), (&[3, 5][..], Idle::Busy));
        assert_eq!(bootstrap.memory_mb, Some(128));
    }

    #[test]
    fn cpus_are_listed_as_the_kernel_does() {
        let read = |text: &str| {
            let flags = Flags {
                document: Some("d".to_owned()),
                ..Flags::default()
            };
            let variables = environment(&[("CREM_WORKER__CPUS", text)]);
            Bootstrap::read(&flags, variables).map(|b| b.worker.cpus)
        };
        assert_eq!(read("2-4, 8").unwrap(), [2, 3, 4, 8]);
        for wrong in ["1,1", "4-2", "x", "1-", "2000", "a-b", ""] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn all_problems_come_at_once() {
        let path = file(
            "bad.toml",
            "[worker]\nidle = \"never\"\n[memory]\nmb = 1\npool = 2\n",
        );
        let flags = Flags {
            config: Some(path.clone()),
            ..Flags::default()
        };
        let variables = environment(&[("CREM_STATUS__PORT", "1"), ("CREM_CONTROL__PORT", "1")]);
        let invalid = Bootstrap::read(&flags, variables).unwrap_err();
        std::fs::remove_file(path).unwrap();
        let pointers: Vec<&str> = invalid.issues.iter().map(|i| i.pointer.as_str()).collect();
        for pointer in [
            "/control/port",
            "/worker/idle",
            "/memory/mb",
            "/memory/pool",
            "/status/socket",
            "/status/port",
        ] {
            assert!(pointers.contains(&pointer), "{pointer} in {pointers:?}");
        }
        assert_eq!(pointers.len(), 6);
    }

    #[test]
    fn one_bootstrap_serves_both_processes() {
        let path = file(
            "both.toml",
            "document = \"d\"\n[worker]\ncpu = 1\n[export]\nsocket = \"/a\"\n",
        );
        let flags = Flags {
            config: Some(path.clone()),
            export_status_socket: Some("/b".to_owned()),
            ..Flags::default()
        };
        let bootstrap = Bootstrap::read(&flags, []).unwrap();
        std::fs::remove_file(path).unwrap();
        assert_eq!(bootstrap.export_socket, PathBuf::from("/a"));
        assert_eq!(bootstrap.export_status_socket, PathBuf::from("/b"));
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let flags = Flags {
            config: Some("/nowhere/b.toml".into()),
            ..Flags::default()
        };
        let invalid = Bootstrap::read(&flags, []).unwrap_err();
        assert!(invalid.to_string().contains("/nowhere/b.toml"), "{invalid}");
    }
}
