//! What each process of the gateway keeps when it gives up the rest. The giving up is in `crem-confine`.

use std::path::{Path, PathBuf};

use crem_api::{Confinement, Device, Document};
use crem_confine::Capability::{self, *};
use crem_confine::{Calls, Keep, confine, mounts_of, narrow, told, unconfined};

use crate::bootstrap::Bootstrap;

/// Whether processes give up what they do not need, and where they may write besides their own places.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sandbox {
    pub(crate) on: bool,
    pub(crate) write: Vec<PathBuf>,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self {
            on: true,
            write: Vec::new(),
        }
    }
}

/// Before DPDK starts: what starting takes as well.
const TO_START: &[Capability] = &[
    CAP_NET_ADMIN,
    CAP_NET_RAW,
    CAP_IPC_LOCK,
    CAP_SYS_ADMIN,
    CAP_SYS_NICE,
    CAP_SYS_RAWIO,
    CAP_SYS_RESOURCE,
    CAP_DAC_OVERRIDE,
    CAP_BPF,
    CAP_PERFMON,
];
/// While it forwards.
const TO_FORWARD: &[Capability] = &[
    CAP_NET_ADMIN,
    CAP_NET_RAW,
    CAP_IPC_LOCK,
    CAP_SYS_NICE,
    CAP_DAC_OVERRIDE,
];
/// To take BPF programs from interfaces again.
const FOR_XDP: &[Capability] = &[CAP_SYS_ADMIN, CAP_BPF];
/// Drivers of real devices may ask for memory later, and without an IOMMU for where it is.
const FOR_PCI: &[Capability] = &[CAP_SYS_ADMIN, CAP_SYS_RAWIO];
/// Addresses and routes of management interfaces, LLDP, ports below 1024, certificates of other users.
const TO_CONTROL: &[Capability] = &[
    CAP_NET_ADMIN,
    CAP_NET_RAW,
    CAP_NET_BIND_SERVICE,
    CAP_DAC_OVERRIDE,
];
/// Certificates and sockets of other users.
const TO_EXPORT: &[Capability] = &[CAP_DAC_OVERRIDE];

/// The first step of a data plane, before it has its memory and ports.
pub(crate) fn dataplane_begins(sandbox: &Sandbox) {
    if sandbox.on {
        for problem in narrow(TO_START) {
            tracing::warn!("not given up: {problem}");
        }
    }
}

/// The second, once it has them.
pub(crate) fn dataplane(
    bootstrap: &Bootstrap,
    document: &Document,
) -> impl FnOnce() -> Confinement + Send + use<> {
    let mut writable = places(bootstrap, &[&bootstrap.status_socket]);
    for place in ["/dev", "/sys", "/proc", "/run/dpdk", "/run/crem"] {
        writable.push(place.into());
    }
    writable.push(std::env::temp_dir());
    writable.push(state(bootstrap));
    writable.extend(mounts_of("hugetlbfs"));
    let devices = document.segments.values().flat_map(|s| [&s.lan, &s.wan]);
    let mut capabilities = TO_FORWARD.to_vec();
    for device in devices {
        match device {
            Device::Xdp(_) => capabilities.extend(FOR_XDP),
            Device::Pci(_) => capabilities.extend(FOR_PCI),
            Device::Interface(_) | Device::Vdev(_) => {}
        }
    }
    let relays = document
        .segments
        .values()
        .filter_map(|s| match &s.bypass.relay {
            crem_api::Relay::Test(path) => directory(path),
            crem_api::Relay::None => None,
        });
    writable.extend(relays);
    let keep = Keep {
        capabilities,
        calls: Calls::Devices,
        writable,
    };
    let on = bootstrap.sandbox.on;
    move || begin(on, &keep)
}

/// The control process, before it has threads.
pub(crate) fn control(bootstrap: &Bootstrap) -> Confinement {
    let mut writable = places(bootstrap, &[&bootstrap.control_socket]);
    writable.push(state(bootstrap));
    let keep = Keep {
        capabilities: TO_CONTROL.to_vec(),
        calls: Calls::Sockets,
        writable,
    };
    begin(bootstrap.sandbox.on, &keep)
}

/// The exporting process, before it has threads.
pub(crate) fn export(bootstrap: &Bootstrap) -> Confinement {
    let mut writable = places(
        bootstrap,
        &[&bootstrap.export_socket, &bootstrap.export_status_socket],
    );
    // Collectors may be files.
    writable.extend([std::env::temp_dir(), state(bootstrap)]);
    let keep = Keep {
        capabilities: TO_EXPORT.to_vec(),
        calls: Calls::Sockets,
        writable,
    };
    begin(bootstrap.sandbox.on, &keep)
}

/// The fleet agent, before it has threads: it writes these files, and others beside them that take their places.
pub(crate) fn fleet(on: bool, files: &[&Path]) -> Confinement {
    let directories = files.iter().copied().filter_map(directory);
    let mut writable: Vec<PathBuf> = directories.map(made).collect();
    writable.push("/dev/null".into());
    let keep = Keep {
        // Sockets and certificates of other users.
        capabilities: TO_EXPORT.to_vec(),
        calls: Calls::Sockets,
        writable,
    };
    begin(on, &keep)
}

/// Where the control process keeps its state, and captures and files of collectors are.
fn state(bootstrap: &Bootstrap) -> PathBuf {
    made(bootstrap.control_state.clone())
}

/// Makes a directory, whichever process comes first: what does not exist when a process is confined stays closed
/// to it.
fn made(directory: PathBuf) -> PathBuf {
    if let Err(error) = std::fs::create_dir_all(&directory) {
        let place = directory.display();
        tracing::warn!("{place} cannot be made, so nothing can be written there: {error}");
    }
    directory
}

/// Directories of sockets, what the bootstrap allows besides, and where the service manager listens.
fn places(bootstrap: &Bootstrap, sockets: &[&Path]) -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = sockets.iter().copied().filter_map(directory).collect();
    places.extend(bootstrap.sandbox.write.iter().cloned());
    places.push("/dev/null".into());
    places
}

fn directory(path: &Path) -> Option<PathBuf> {
    let directory = path.parent()?;
    Some(if directory.as_os_str().is_empty() {
        ".".into()
    } else {
        directory.to_path_buf()
    })
}

fn begin(on: bool, keep: &Keep) -> Confinement {
    let state = if on { confine(keep) } else { unconfined() };
    if state.problems.is_empty() {
        tracing::info!("{}", told(&state));
    } else {
        tracing::warn!("{}", told(&state));
    }
    state
}
