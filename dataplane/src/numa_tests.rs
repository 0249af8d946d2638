//! Topologies that are made up, and a `/sys` of our own.
#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use std::path::PathBuf;

fn port(segment: &str, port: &'static str, node: Option<u16>) -> PortPlace {
    PortPlace {
        segment: segment.to_owned(),
        port,
        device: format!("{segment}-{port}"),
        node,
    }
}

/// A segment with its ports on these nodes.
fn segment(lan: Option<u16>, wan: Option<u16>) -> Vec<PortPlace> {
    vec![port("a", "lan", lan), port("a", "wan", wan)]
}

/// CPUs by node: so many in a row on each.
fn cpus(nodes: u16, each: u32) -> Vec<(u32, Option<u16>)> {
    let on = |node: u16| {
        let first = u32::from(node) * each;
        (first..first + each).map(move |cpu| (cpu, Some(node)))
    };
    (0..nodes).flat_map(on).collect()
}

fn machine(ports: Vec<PortPlace>, nodes: u16, each: u32) -> Topology {
    Topology {
        ports,
        cpus: cpus(nodes, each),
    }
}

/// Worker, its node, port, its node.
fn crossings(plan: &Plan) -> Vec<(u16, u16, &str, u16)> {
    let told = |w: &'_ NumaWarning| (w.worker, w.worker_node, w.port_node);
    let of = |w| {
        let (worker, worker_node, port_node) = told(w);
        (worker, worker_node, w.port.as_str(), port_node)
    };
    plan.warnings.iter().map(of).collect()
}

#[test]
fn on_one_node_nothing_is_chosen_and_nothing_crosses() {
    let plan = plan(&machine(segment(Some(0), Some(0)), 1, 4), &[], 2);
    assert_eq!(plan.workers, [Vec::<u32>::new(), Vec::new()]);
    assert_eq!((plan.buffers, plan.warnings.len()), (Some(0), 0));
}

#[test]
fn workers_without_a_cpu_run_beside_the_ports() {
    let plan = plan(&machine(segment(Some(1), Some(1)), 2, 4), &[], 3);
    assert_eq!(plan.workers, vec![vec![4, 5, 6, 7]; 3]);
    assert_eq!((plan.buffers, plan.warnings.len()), (Some(1), 0));
}

#[test]
fn a_cpu_that_is_named_stays_and_is_not_given_to_others() {
    let two = machine(segment(Some(1), Some(1)), 2, 2);
    let beside = plan(&two, &[2], 3);
    assert_eq!(beside.workers, [vec![2], vec![3], vec![3]]);
    assert!(beside.warnings.is_empty());
    let elsewhere = plan(&two, &[0], 2);
    assert_eq!(elsewhere.workers, [vec![0], vec![2, 3]]);
    let told = [(0, 0, "lan", 1), (0, 0, "wan", 1)];
    assert_eq!(crossings(&elsewhere), told);
    let first = elsewhere.warnings.first().unwrap();
    assert_eq!(
        (&*first.segment, &*first.device, &first.cpus[..]),
        ("a", "a-lan", &[0][..])
    );
    // All that is beside the ports is named: shared rather than far.
    let few = plan(&two, &[2, 3], 3);
    assert_eq!(few.workers, [vec![2], vec![3], vec![2, 3]]);
}

#[test]
fn only_cpus_that_the_process_may_run_on_are_taken() {
    let mut narrow = machine(segment(Some(1), Some(1)), 2, 4);
    narrow.cpus.retain(|(cpu, _)| [1, 2, 6].contains(cpu));
    assert_eq!(plan(&narrow, &[], 1).workers, [vec![6]]);
    // None of them is beside the ports: it runs where it may, and that is told.
    narrow.cpus.retain(|(cpu, _)| [1, 2].contains(cpu));
    let far = plan(&narrow, &[], 1);
    assert_eq!(far.workers, [Vec::<u32>::new()]);
    assert_eq!(crossings(&far), [(0, 0, "lan", 1), (0, 0, "wan", 1)]);
    assert_eq!(far.warnings.first().unwrap().cpus, [1, 2]);
}

#[test]
fn ports_on_two_nodes_of_three_keep_workers_off_the_third() {
    let split = machine(segment(Some(0), Some(2)), 3, 2);
    let plan = plan(&split, &[], 1);
    assert_eq!(plan.workers, [vec![0, 1, 4, 5]]);
    assert_eq!(plan.buffers, None);
    assert_eq!(crossings(&plan), [(0, 2, "lan", 0), (0, 0, "wan", 2)]);
}

#[test]
fn cpus_of_one_node_need_not_be_in_a_row() {
    // As with hyper-threads: even ones on node 0, odd ones on node 1.
    let cpus = (0..8).map(|cpu| (cpu, Some(u16::from(cpu % 2 == 1))));
    let odd = Topology {
        ports: segment(Some(1), Some(1)),
        cpus: cpus.collect(),
    };
    assert_eq!(plan(&odd, &[], 1).workers, [vec![1, 3, 5, 7]]);
}

#[test]
fn what_is_not_known_decides_and_warns_of_nothing() {
    for ports in [segment(None, None), Vec::new()] {
        let plan = plan(&machine(ports, 2, 2), &[3], 2);
        assert_eq!(plan.workers, [vec![3], vec![]]);
        assert_eq!((plan.buffers, plan.warnings.len()), (None, 0));
    }
    // One port that is known stands for both.
    let half = plan(&machine(segment(None, Some(1)), 2, 2), &[0], 2);
    assert_eq!(half.workers, [vec![0], vec![2, 3]]);
    assert_eq!(half.buffers, Some(1));
    assert_eq!(crossings(&half), [(0, 0, "wan", 1)]);
    let blind = Topology {
        ports: segment(Some(1), Some(1)),
        cpus: vec![(0, None), (1, None)],
    };
    let blind = plan(&blind, &[0], 2);
    assert_eq!(blind.workers, [vec![0], vec![]]);
    assert!(blind.warnings.is_empty());
}

#[test]
fn every_segment_counts() {
    let mut ports = segment(Some(0), Some(0));
    ports.extend([port("b", "lan", Some(1)), port("b", "wan", Some(1))]);
    let plan = plan(&machine(ports, 2, 2), &[0, 2], 2);
    assert_eq!(plan.buffers, None);
    let far: Vec<_> = plan
        .warnings
        .iter()
        .map(|w| (w.worker, &*w.segment))
        .collect();
    assert_eq!(far, [(0, "b"), (0, "b"), (1, "a"), (1, "a")]);
}

/// A `/sys` of ours.
struct Sys(PathBuf);

impl Sys {
    fn new(name: &str) -> Self {
        let place = format!("crem-numa-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(place))
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

impl Drop for Sys {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn places_are_read_as_the_kernel_tells_them() {
    let sys = Sys::new("read");
    sys.file("class/net/eth0/device/numa_node", "1\n");
    sys.file("class/net/eth1/device/numa_node", "-1\n");
    sys.file("class/net/vlan5/lower_eth0/ifindex", "3\n");
    for lower in ["eth0", "eth1"] {
        sys.file(&format!("class/net/bond0/lower_{lower}/ifindex"), "3\n");
    }
    sys.file("class/net/veth0/ifindex", "9\n");
    sys.file("class/net/round/lower_round/ifindex", "9\n");
    sys.file("bus/pci/devices/0000:81:00.0/numa_node", "2\n");
    sys.file("devices/system/cpu/cpu3/node1/cpulist", "2-3\n");
    sys.file("devices/system/cpu/cpu4/online", "1\n");
    let interface = |name: &str| device_node(&sys.0, &Device::Interface(name.to_owned()));
    assert_eq!(interface("eth0"), Some(1));
    assert_eq!(interface("vlan5"), Some(1));
    for unknown in ["eth1", "bond0", "veth0", "round", "none"] {
        assert_eq!(interface(unknown), None, "{unknown}");
    }
    let pci = |address: &str| device_node(&sys.0, &Device::Pci(address.to_owned()));
    assert_eq!(pci("0000:81:00.0"), Some(2));
    assert_eq!(pci("0000:82:00.0"), None);
    assert_eq!(
        device_node(&sys.0, &Device::Vdev("net_null0".to_owned())),
        None
    );
    assert_eq!((cpu_node(&sys.0, 3), cpu_node(&sys.0, 4)), (Some(1), None));
}

#[test]
fn this_machine_knows_the_node_of_its_first_cpu() {
    let sys = Path::new("/sys");
    let known = sys.join("devices/system/node/node0").exists();
    assert_eq!(cpu_node(sys, 0).is_some(), known);
}
