//! NUMA nodes: which one the frame buffers are on, and what is told where ports, buffers and workers are on different
//! ones. Nothing is moved: CPUs are the bootstrap's business, slots the operator's.

use std::collections::BTreeSet;
use std::path::Path;

use crem_api::Document;
use crem_dpdk::{Eal, Error, Mempool, MempoolConfig, Port};

use crate::start::port_name;

/// Makes the pool on the node of the ports. Where there is no memory on it, anywhere.
///
/// # Errors
/// There is too little memory.
pub(crate) fn pool_beside_ports(
    eal: &Eal,
    document: &Document,
    cpus: &[u32],
    config: &MempoolConfig<'_>,
) -> Result<Mempool, Error> {
    let nodes = port_nodes(eal, document);
    for problem in far(&nodes, cpus, cpu_node) {
        tracing::warn!("{problem}");
    }
    let socket = node_of(&nodes);
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

/// Names of ports with their nodes, as far as drivers know them.
fn port_nodes(eal: &Eal, document: &Document) -> Vec<(String, u16)> {
    let mut nodes = Vec::new();
    for (number, segment) in document.segments.values().enumerate() {
        for (side, device) in [("lan", &segment.lan), ("wan", &segment.wan)] {
            // A port that is not there is told when it is opened.
            let node = Port::look(eal, &port_name(number, side, device)).map(|info| info.socket);
            if let Ok(Some(node)) = node {
                nodes.push((device.name().to_owned(), node));
            }
        }
    }
    nodes
}

/// The node that the ports share.
fn node_of(ports: &[(String, u16)]) -> Option<u16> {
    let nodes: BTreeSet<u16> = ports.iter().map(|(_, node)| *node).collect();
    nodes.first().copied().filter(|_| nodes.len() == 1)
}

/// What crosses from node to node, in words.
fn far(
    ports: &[(String, u16)],
    cpus: &[u32],
    node_of_cpu: impl Fn(u32) -> Option<u16>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let Some(node) = node_of(ports) else {
        if let [(first, a), .., (last, b)] = ports {
            problems.push(format!(
                "ports are on several NUMA nodes ({first} on {a}, {last} on {b}, …): every frame crosses between them; \
                 put both ports of a segment into slots of one node"
            ));
        }
        return problems;
    };
    for cpu in cpus {
        if let Some(other) = node_of_cpu(*cpu).filter(|other| *other != node) {
            problems.push(format!(
                "worker.cpus: CPU {cpu} is on NUMA node {other}, the ports are on node {node}: take CPUs of that node"
            ));
        }
    }
    problems
}

/// The node of a CPU, as the kernel tells.
fn cpu_node(cpu: u32) -> Option<u16> {
    let place = format!("/sys/devices/system/cpu/cpu{cpu}");
    let entries = std::fs::read_dir(Path::new(&place)).ok()?;
    let mut names = entries.filter_map(|e| e.ok()?.file_name().into_string().ok());
    names.find_map(|name| name.strip_prefix("node")?.parse().ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn ports(nodes: &[u16]) -> Vec<(String, u16)> {
        let ports = nodes.iter().enumerate();
        ports.map(|(n, node)| (format!("p{n}"), *node)).collect()
    }

    #[test]
    fn buffers_are_where_all_ports_are() {
        assert_eq!(node_of(&ports(&[1, 1])), Some(1));
        assert_eq!(node_of(&ports(&[0, 1])), None);
        assert_eq!(node_of(&[]), None);
    }

    #[test]
    fn what_crosses_between_nodes_is_told() {
        let node_of_cpu = |cpu: u32| u16::try_from(cpu / 8).ok();
        let told = |nodes: &[u16], cpus: &[u32]| far(&ports(nodes), cpus, node_of_cpu);
        assert!(told(&[1, 1], &[8, 9]).is_empty());
        let [said] = &told(&[1, 1], &[8, 3])[..] else {
            unreachable!("one CPU is elsewhere");
        };
        assert!(
            said.contains("CPU 3 is on NUMA node 0, the ports are on node 1"),
            "{said}"
        );
        assert!(told(&[0, 1], &[3])[0].contains("several NUMA nodes"));
        // A machine that tells nothing.
        assert!(told(&[], &[3]).is_empty());
        assert!(far(&ports(&[0, 0]), &[3], |_| None).is_empty());
    }

    #[test]
    fn this_machine_knows_the_node_of_its_first_cpu() {
        let node = cpu_node(0);
        assert_eq!(
            node.is_some(),
            Path::new("/sys/devices/system/node/node0").exists()
        );
    }
}
