//! NUMA nodes: where ports and CPUs are, which CPUs workers take that were given none, and what crosses from node to
//! node. [`plan`] decides and asks nobody; [`Topology::of_machine`] reads what the kernel tells. Ports are not moved:
//! slots are the operator's business.

use std::collections::BTreeSet;
use std::path::Path;

use crem_api::state::NumaWarning;
use crem_api::{Device, Document};
use crem_dpdk::thread::Affinity;
use crem_dpdk::{Eal, Error, Mempool, MempoolConfig};

/// Interfaces below interfaces (VLANs, bonds) are followed so far.
const DEPTH: u32 = 4;

/// Where a port is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PortPlace {
    /// Segment.
    pub(crate) segment: String,
    /// `lan` or `wan`.
    pub(crate) port: &'static str,
    /// What the document names it by.
    pub(crate) device: String,
    /// Its node, where that is known.
    pub(crate) node: Option<u16>,
}

/// What there is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Topology {
    /// The ports of all segments.
    pub(crate) ports: Vec<PortPlace>,
    /// CPUs that the process may run on, and their nodes as far as those are known.
    pub(crate) cpus: Vec<(u32, Option<u16>)>,
}

/// Where things go.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Plan {
    /// The node that all ports share whose node is known: frame buffers go there.
    pub(crate) buffers: Option<u16>,
    /// CPUs of each worker; none: all that the process may run on.
    pub(crate) workers: Vec<Vec<u32>>,
    /// What crosses from node to node all the same.
    pub(crate) warnings: Vec<NumaWarning>,
}

/// Decides where workers run: on the CPUs that are named for them, in their order; those without one on the CPUs of the
/// nodes that have ports, of those that the process may run on and that are not named for another worker. Where that
/// is all CPUs or none, nothing is decided.
pub(crate) fn plan(topology: &Topology, named: &[u32], workers: u16) -> Plan {
    let nodes: BTreeSet<u16> = topology.ports.iter().filter_map(|p| p.node).collect();
    let chosen = beside(topology, &nodes, named);
    let of_worker = |worker: u16| match named.get(usize::from(worker)) {
        Some(cpu) => vec![*cpu],
        None => chosen.clone(),
    };
    let workers: Vec<Vec<u32>> = (0..workers).map(of_worker).collect();
    let mut warnings = Vec::new();
    for (worker, cpus) in (0..).zip(&workers) {
        warn(topology, worker, cpus, &mut warnings);
    }
    Plan {
        buffers: nodes.first().copied().filter(|_| nodes.len() == 1),
        workers,
        warnings,
    }
}

/// CPUs of the nodes; none where the choice would change nothing.
fn beside(topology: &Topology, nodes: &BTreeSet<u16>, named: &[u32]) -> Vec<u32> {
    let near = topology
        .cpus
        .iter()
        .filter(|(_, node)| node.is_some_and(|node| nodes.contains(&node)));
    let near: Vec<u32> = near.map(|(cpu, _)| *cpu).collect();
    if near.len() == topology.cpus.len() {
        return Vec::new();
    }
    let free: Vec<u32> = near
        .iter()
        .copied()
        .filter(|cpu| !named.contains(cpu))
        .collect();
    if free.is_empty() { near } else { free }
}

/// Adds each port that is on another node than CPUs of the worker.
fn warn(topology: &Topology, worker: u16, cpus: &[u32], warnings: &mut Vec<NumaWarning>) {
    let may_run = |cpu: u32| cpus.is_empty() || cpus.contains(&cpu);
    let runs = topology.cpus.iter().filter(|(cpu, _)| may_run(*cpu));
    let runs: Vec<(u32, u16)> = runs
        .filter_map(|(cpu, node)| Some((*cpu, (*node)?)))
        .collect();
    let nodes: BTreeSet<u16> = runs.iter().map(|(_, node)| *node).collect();
    for port in &topology.ports {
        let Some(port_node) = port.node else { continue };
        for worker_node in nodes.iter().copied().filter(|node| *node != port_node) {
            let cpus = runs.iter().filter(|(_, node)| *node == worker_node);
            warnings.push(NumaWarning {
                worker,
                worker_node,
                cpus: cpus.map(|(cpu, _)| *cpu).collect(),
                segment: port.segment.clone(),
                port: port.port.to_owned(),
                device: port.device.clone(),
                port_node,
            });
        }
    }
}

impl Plan {
    /// Tells what was decided and what crosses.
    pub(crate) fn tell(&self, named: usize) {
        for (worker, cpus) in self.workers.iter().enumerate().skip(named) {
            if !cpus.is_empty() {
                tracing::info!(worker, "runs beside the ports: on CPUs {cpus:?}");
            }
        }
        for w in &self.warnings {
            tracing::warn!(
                segment = w.segment,
                worker = w.worker,
                "CPUs {:?} are on NUMA node {}, {} ({}) is on node {}: every frame crosses; take CPUs of that node, \
                 or put both ports of a segment into slots of one",
                w.cpus,
                w.worker_node,
                w.port,
                w.device,
                w.port_node
            );
        }
    }

    /// CPUs of one worker; `None`: as the process began.
    ///
    /// # Errors
    /// A CPU that no set holds.
    pub(crate) fn affinity(&self, worker: usize) -> Result<Option<Affinity>, Error> {
        match self.workers.get(worker) {
            Some(cpus) if !cpus.is_empty() => Affinity::of_cpus(cpus).map(Some),
            _ => Ok(None),
        }
    }

    /// Makes the pool beside the ports; where there is no memory on their node, anywhere.
    ///
    /// # Errors
    /// There is too little memory.
    pub(crate) fn pool(&self, eal: &Eal, config: &MempoolConfig<'_>) -> Result<Mempool, Error> {
        let socket = self.buffers;
        if socket.is_none() {
            return eal.mempool(config);
        }
        eal.mempool(&MempoolConfig { socket, ..*config })
            .or_else(|error| {
                tracing::warn!(
                    "no frame buffers on NUMA node {socket:?} of the ports, so anywhere: {error}"
                );
                eal.mempool(config)
            })
    }
}

impl Topology {
    /// What the kernel tells of the ports of a document and of the CPUs that the calling thread may run on.
    ///
    /// # Errors
    /// The machine has more CPUs than a set holds.
    pub(crate) fn of_machine(document: &Document) -> Result<Self, Error> {
        Self::read(
            Path::new("/sys"),
            document,
            &Affinity::of_current_thread()?.cpus(),
        )
    }

    fn read(sys: &Path, document: &Document, cpus: &[u32]) -> Result<Self, Error> {
        let mut ports = Vec::new();
        for (id, segment) in &document.segments {
            for (port, device) in [("lan", &segment.lan), ("wan", &segment.wan)] {
                ports.push(PortPlace {
                    segment: id.as_str().to_owned(),
                    port,
                    device: device.name().to_owned(),
                    node: device_node(sys, device),
                });
            }
        }
        let cpus = cpus.iter().map(|cpu| (*cpu, cpu_node(sys, *cpu))).collect();
        Ok(Self { ports, cpus })
    }
}

/// The node of a device, as far as the kernel knows one.
pub(crate) fn device_node(sys: &Path, device: &Device) -> Option<u16> {
    match device {
        Device::Interface(name) | Device::Xdp(name) => interface_node(sys, name, DEPTH),
        Device::Pci(address) => node_in(&sys.join("bus/pci/devices").join(address)),
        Device::Vdev(_) => None,
    }
}

/// The node of an interface, or of those below it where it has no device and they share one.
fn interface_node(sys: &Path, name: &str, depth: u32) -> Option<u16> {
    let place = sys.join("class/net").join(name);
    if let Some(node) = node_in(&place.join("device")) {
        return Some(node);
    }
    let depth = depth.checked_sub(1)?;
    let entries = std::fs::read_dir(&place).ok()?;
    let names = entries.filter_map(|e| e.ok()?.file_name().into_string().ok());
    let lower: Vec<String> = names
        .filter_map(|name| name.strip_prefix("lower_").map(str::to_owned))
        .collect();
    let nodes: Option<BTreeSet<u16>> = lower
        .iter()
        .map(|name| interface_node(sys, name, depth))
        .collect();
    let nodes = nodes?;
    nodes.first().copied().filter(|_| nodes.len() == 1)
}

/// What a device's folder says; the kernel says -1 where it does not know.
fn node_in(device: &Path) -> Option<u16> {
    let text = std::fs::read_to_string(device.join("numa_node")).ok()?;
    text.trim().parse().ok()
}

/// The node of a CPU.
fn cpu_node(sys: &Path, cpu: u32) -> Option<u16> {
    let place = sys.join(format!("devices/system/cpu/cpu{cpu}"));
    let entries = std::fs::read_dir(place).ok()?;
    let mut names = entries.filter_map(|e| e.ok()?.file_name().into_string().ok());
    names.find_map(|name| name.strip_prefix("node")?.parse().ok())
}

#[cfg(test)]
#[path = "numa_tests.rs"]
mod tests;
