//! What a config document asks of the machine: interfaces that exist, MTUs that suffice, a pool that can
//! hold what the limits allow. All problems are told at once, as those of the document itself.

use std::collections::BTreeMap;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use crem_api::{Device, Document, Invalid, Issue, Mode, Segment, SegmentId};
use crem_dpdk::thread::Affinity;
use crem_dpdk::{Eal, HEADROOM, Port, free_hugepage_mb, iface, vdev};

use crate::buffer::BURST;
use crate::classify::NEVER_CUT;
use crate::core_config::hold_frames;
use crate::protect::SLOTS;
use crate::slots::RESERVE;
use crate::tx::{REPAIRS, WAITING};

/// Receive descriptors of an in-band interface.
pub(crate) const TAP_DESCRIPTORS: u16 = 64;
/// Largest IP packet of a port whose MTU nobody tells.
const UNKNOWN_MTU: u32 = 9216;
/// Ethernet header and two tags.
const LINK_OCTETS: u32 = 22;
/// Receive descriptors of a port with hardware.
const DESCRIPTORS: u32 = 1024;
/// Buffers that an AF_XDP port keeps in its fill ring, and as many for frames that the kernel has yet to send.
const XDP_DESCRIPTORS: u32 = 2 * 2048;
/// Octets of a buffer besides its room.
const BUFFER_OVERHEAD: u64 = 192;

/// Buffers that a segment may take besides those that it retains and holds: what waits for both ports,
/// symbols, repair, HELLOs with the frame they follow, descriptors, bursts.
/// Each worker has its own, and between two of them a burst may be under way.
fn reserve(segment: &Segment, workers: u16) -> u32 {
    let workers = u32::from(workers);
    let between = workers * (workers - 1) * BURST as u32;
    let tap = match segment.mode {
        Mode::Monitor | Mode::Passthrough | Mode::Block => u32::from(TAP_DESCRIPTORS),
        // Out of bypass it may come back to protection without being asked.
        Mode::Active | Mode::Bypass => {
            u32::from(TAP_DESCRIPTORS) + segment.limits.hello_outstanding
        }
    };
    let xdp = [&segment.lan, &segment.wan]
        .iter()
        .filter(|device| matches!(device, Device::Xdp(_)))
        .count();
    workers * reserve_of_worker(segment) + between + tap + XDP_DESCRIPTORS * xdp as u32
}

fn reserve_of_worker(segment: &Segment) -> u32 {
    let hardware = [&segment.lan, &segment.wan]
        .iter()
        .filter(|device| matches!(device, Device::Pci(_)))
        .count();
    let forwarding = 2 * WAITING as u32 + 4 * BURST as u32 + DESCRIPTORS * hardware as u32;
    match segment.mode {
        Mode::Monitor | Mode::Passthrough | Mode::Block => forwarding,
        Mode::Active | Mode::Bypass => forwarding + SLOTS + REPAIRS as u32,
    }
}

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ports {
    /// MTU of the LAN and WAN port of each segment.
    mtus: Vec<(u32, u32)>,
    /// Octets of each buffer of the pool.
    pub room: u16,
}

impl Ports {
    /// MTU of the LAN and the WAN port of a segment.
    pub fn mtus(&self, segment: usize) -> (u32, u32) {
        self.mtus
            .get(segment)
            .copied()
            .unwrap_or((UNKNOWN_MTU, UNKNOWN_MTU))
    }
}

/// MTUs of devices that the kernel does not know, by their names in the document; of others the largest is
/// taken for granted.
pub type Known = BTreeMap<String, u32>;

/// Asks the drivers of PCI devices.
///
/// # Errors
/// A device did not probe.
pub(crate) fn known(eal: &Eal, document: &Document) -> Result<Known, crem_dpdk::Error> {
    let devices = document.segments.values().flat_map(|s| [&s.lan, &s.wan]);
    let pci = devices.filter(|device| matches!(device, Device::Pci(_)));
    let mtu = |device: &Device| {
        let most = Port::look(eal, device.name())?.max_mtu;
        Ok((device.name().to_owned(), u32::from(most).min(UNKNOWN_MTU)))
    };
    pci.map(mtu).collect()
}

/// Looks at what the document names, before drivers can be asked.
///
/// # Errors
/// Everything that does not fit, at once.
pub fn check(document: &Document, pool_frames: u32) -> Result<Ports, Invalid> {
    check_known(document, pool_frames, &Known::new())
}

/// The same with what drivers said.
///
/// # Errors
/// Everything that does not fit, at once.
pub fn check_known(document: &Document, pool_frames: u32, known: &Known) -> Result<Ports, Invalid> {
    let mut issues = Vec::new();
    let mut mtus = Vec::new();
    let mut room = 0;
    for (id, segment) in &document.segments {
        let lan = device_mtu(id, "lan", &segment.lan, known, &mut issues);
        let wan = device_mtu(id, "wan", &segment.wan, known, &mut issues);
        if let (Some(lan), Some(wan)) = (lan, wan) {
            check_mtus(id, segment, lan, wan, &mut issues);
        }
        let pair = (lan.unwrap_or(UNKNOWN_MTU), wan.unwrap_or(UNKNOWN_MTU));
        room = room.max(room_for(segment, pair));
        mtus.push(pair);
    }
    check_pool(document, pool_frames, &mut issues);
    check_xdp(document, room, &mut issues);
    if issues.is_empty() {
        Ok(Ports { mtus, room })
    } else {
        Err(Invalid { issues })
    }
}

/// The same for a document that shall replace the one in force, in buffers of `room` octets.
///
/// # Errors
/// Everything that does not fit, at once.
pub fn check_running(
    document: &Document,
    pool_frames: u32,
    room: u16,
    known: &Known,
) -> Result<Ports, Invalid> {
    let ports = check_known(document, pool_frames, known)?;
    if ports.room <= room {
        return Ok(ports);
    }
    let too_large = |(number, (id, segment)): (usize, (&SegmentId, &Segment))| {
        (room_for(segment, ports.mtus(number)) > room).then(|| {
            Issue::new(
                format!("/segments/{id}/path_mtu"),
                segment.path_mtu.to_string(),
                format!(
                    "frames that fit the {room} octets of the buffers, which were made at the start"
                ),
            )
        })
    };
    let segments = document.segments.iter().enumerate();
    Err(Invalid {
        issues: segments.filter_map(too_large).collect(),
    })
}

/// MTU of a device; `None` with an issue if it is not there.
fn device_mtu(
    id: &SegmentId,
    side: &str,
    device: &Device,
    known: &Known,
    issues: &mut Vec<Issue>,
) -> Option<u32> {
    let Some(name) = device.kernel_interface() else {
        return Some(known.get(device.name()).copied().unwrap_or(UNKNOWN_MTU));
    };
    let place = interface_place(id, side, device);
    if iface::index(name).is_none() {
        issues.push(Issue::new(
            place,
            format!("{name:?}, which does not exist"),
            "an interface of this network namespace",
        ));
        return None;
    }
    match iface::mtu(name) {
        Ok(mtu) => {
            let most = u32::from(vdev::AF_XDP_MAX_MTU);
            if matches!(device, Device::Xdp(_)) && mtu > most {
                issues.push(Issue::new(
                    place,
                    format!("{name:?} with an MTU of {mtu}"),
                    format!("an MTU of at most {most}, which AF_XDP carries"),
                ));
            }
            Some(mtu)
        }
        Err(e) => {
            issues.push(Issue::new(
                place,
                format!("{name:?}: {e}"),
                "an interface whose MTU can be read",
            ));
            None
        }
    }
}

/// Where the document names the kernel interface of a port.
fn interface_place(id: &SegmentId, side: &str, device: &Device) -> String {
    let key = match device {
        Device::Xdp(_) => "xdp",
        Device::Interface(_) | Device::Pci(_) | Device::Vdev(_) => "interface",
    };
    format!("/segments/{id}/{side}/{key}")
}

/// All ports take their buffers from one pool, and AF_XDP takes no large ones.
fn check_xdp(document: &Document, room: u16, issues: &mut Vec<Issue>) {
    let most = vdev::AF_XDP_MAX_ROOM;
    if room <= most {
        return;
    }
    for (id, segment) in &document.segments {
        for (side, device) in [("lan", &segment.lan), ("wan", &segment.wan)] {
            if matches!(device, Device::Xdp(_)) {
                issues.push(Issue::new(
                    interface_place(id, side, device),
                    format!("{:?} with buffers of {room} octets", device.name()),
                    format!(
                        "at most {most} octets, which AF_XDP takes: smaller MTUs and path_mtu in all \
                         segments, and no vdev"
                    ),
                ));
            }
        }
    }
}

fn check_mtus(id: &SegmentId, segment: &Segment, lan: u32, wan: u32, issues: &mut Vec<Issue>) {
    let path = u32::from(segment.path_mtu);
    let mut say = |side: &str, device: &Device, mtu: u32, expected: String| {
        issues.push(Issue::new(
            format!("/segments/{id}/{side}"),
            format!("{:?} with an MTU of {mtu}", device.name()),
            expected,
        ));
    };
    if segment.mode == Mode::Active && wan < path {
        let expected =
            format!("an MTU of at least {path}, which is path_mtu, for repair messages to pass");
        say("wan", &segment.wan, wan, expected);
    }
    if wan < lan {
        let expected = format!("an MTU of at most {wan}, which the WAN port has");
        say("lan", &segment.lan, lan, expected);
    }
}

/// Octets of a frame from which on a port of this device and MTU may have cut it: what an AF_PACKET ring
/// has room for. No other device delivers a part of a frame.
pub fn cut_from(device: &Device, mtu: u32) -> usize {
    match device {
        Device::Interface(_) => {
            let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
            usize::try_from(vdev::af_packet_max_frame(mtu)).unwrap_or(NEVER_CUT)
        }
        Device::Xdp(_) | Device::Pci(_) | Device::Vdev(_) => NEVER_CUT,
    }
}

fn room_for(segment: &Segment, (lan, wan): (u32, u32)) -> u16 {
    let headroom = u32::from(HEADROOM);
    let frame = headroom + LINK_OCTETS + lan.max(wan).max(u32::from(segment.path_mtu));
    // No symbol is longer than the path lets through.
    let symbol = headroom + u32::from(RESERVE) + u32::from(segment.path_mtu);
    let mut room = frame.max(symbol);
    for (device, mtu) in [(&segment.lan, lan), (&segment.wan, wan)] {
        if matches!(device, Device::Interface(_)) {
            let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
            room = room.max(u32::from(vdev::af_packet_room(mtu)));
        }
    }
    u16::try_from(room).unwrap_or(u16::MAX)
}

/// Frames that a segment may keep at most: what is held behind gaps is beside what is kept for decoding
/// when that is full.
fn kept(segment: &Segment) -> u32 {
    let limits = &segment.limits;
    match segment.mode {
        Mode::Active | Mode::Bypass => limits
            .retained_frames
            .saturating_add(limits.held_frames)
            .saturating_add(hold_frames(limits)),
        Mode::Monitor | Mode::Passthrough | Mode::Block => 0,
    }
}

fn check_pool(document: &Document, pool_frames: u32, issues: &mut Vec<Issue>) {
    let sum = |f: &dyn Fn(&Segment) -> u32| -> u64 {
        document.segments.values().map(|s| u64::from(f(s))).sum()
    };
    let (all, reserve) = (sum(&kept), sum(&|s| reserve(s, document.workers)));
    if all + reserve <= u64::from(pool_frames) {
        return;
    }
    for (id, segment) in &document.segments {
        issues.push(Issue::new(
            format!("/segments/{id}/limits"),
            format!(
                "retained_frames {} and held_frames {} (half of them again behind gaps)",
                segment.limits.retained_frames, segment.limits.held_frames
            ),
            format!(
                "together at most {} over all segments: the pool has {pool_frames} frames \
                 (memory.pool_frames) and {reserve} of them are for receiving and sending",
                u64::from(pool_frames).saturating_sub(reserve)
            ),
        ));
    }
}

/// What the bootstrap asks of the machine: a CPU that is there and memory that is free. `None` for memory
/// that DPDK finds by itself.
///
/// # Errors
/// Everything that is not there, with pointers into the bootstrap.
pub fn check_bootstrap(
    wanted_cpus: &[u32],
    memory_mb: Option<u32>,
    pool_frames: u32,
    ring_frames: u32,
    ports: &Ports,
) -> Result<(), Invalid> {
    let mut issues = Vec::new();
    let cpus = Affinity::of_current_thread()
        .map(|a| a.cpus())
        .unwrap_or_default();
    for cpu in wanted_cpus.iter().filter(|cpu| !cpus.contains(cpu)) {
        issues.push(Issue::new(
            "/worker/cpus",
            cpu.to_string(),
            format!("one of the CPUs that this process may use: {cpus:?}"),
        ));
    }
    let mb = |octets: u64| octets.div_ceil(1 << 20);
    let pool = mb(u64::from(pool_frames) * (u64::from(ports.room) + BUFFER_OVERHEAD));
    // Two rings a port, two ports a segment.
    let ring = u64::from(ring_frames) * u64::from(ports.room);
    let rings = mb(4 * ring * ports.mtus.len() as u64);
    let free = mb(available_octets()) + u64::from(free_hugepage_mb());
    for (pointer, value, needed) in [
        ("/memory/mb", memory_mb, u64::from(memory_mb.unwrap_or(0))),
        ("/memory/pool_frames", Some(pool_frames), pool),
        ("/memory/ring_frames", Some(ring_frames), rings),
    ] {
        if let Some(value) = value.filter(|_| needed > free) {
            issues.push(Issue::new(
                pointer,
                format!("{value}, which takes {needed} MB"),
                format!("no more than the {free} MB that are free"),
            ));
        }
    }
    if issues.is_empty() {
        Ok(())
    } else {
        Err(Invalid { issues })
    }
}

/// Memory that can be had without hurting others, octets; all there can be if the kernel does not tell.
fn available_octets() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    let kb = line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kb.map_or(u64::MAX / 2, |kb| kb * 1024)
}

/// Marks that the interfaces are ports of this process. The marks are names in this network namespace
/// that end with the process, however it ends.
#[derive(Debug)]
pub struct Claims {
    #[expect(dead_code, reason = "names are held by holding the sockets")]
    held: Vec<UnixListener>,
}

/// Claims every kernel interface of the document.
///
/// # Errors
/// All that another gateway uses.
pub fn claim(document: &Document) -> Result<Claims, Invalid> {
    let (mut held, mut issues) = (Vec::new(), Vec::new());
    for (id, segment) in &document.segments {
        for (side, device) in [("lan", &segment.lan), ("wan", &segment.wan)] {
            let Some(name) = device.kernel_interface() else {
                continue;
            };
            let claimed = SocketAddr::from_abstract_name(format!("crem-port-{name}"))
                .and_then(|address| UnixListener::bind_addr(&address));
            match claimed {
                Ok(listener) => held.push(listener),
                Err(e) => {
                    let used = e.kind() == std::io::ErrorKind::AddrInUse;
                    let why = if used {
                        "which another gateway uses".to_owned()
                    } else {
                        e.to_string()
                    };
                    issues.push(Issue::new(
                        interface_place(id, side, device),
                        format!("{name:?}, {why}"),
                        "an interface of this gateway alone",
                    ));
                }
            }
        }
    }
    if issues.is_empty() {
        Ok(Claims { held })
    } else {
        Err(Invalid { issues })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crem_api::{Syntax, parse};

    fn document(lan: &str, wan: &str, mode: &str, mtu: u16) -> Document {
        let text = format!(
            r#"
            version = 1
            [segments.a]
            mode = "{mode}"
            crem_port = 4801
            path_mtu = {mtu}
            rdma_mtu = 1024
            lan = {{ {lan} }}
            wan = {{ {wan} }}
            served = {{ "10.0.1.0/24" = {{}} }}
            allowed_peers = {{ "192.0.2.0/24" = {{}} }}
            inband = {{ address = "192.0.2.1/24" }}
            "#
        );
        parse(&text, Syntax::Toml).unwrap()
    }

    fn found(document: &Document, frames: u32) -> Vec<String> {
        check(document, frames)
            .unwrap_err()
            .issues
            .iter()
            .map(Issue::to_string)
            .collect()
    }

    #[test]
    fn ports_through_af_xdp_take_no_large_buffers() {
        let lo = document("xdp = \"lo\"", "vdev = \"net_null1\"", "passthrough", 1500);
        let segment = lo.segments.values().next().unwrap();
        assert!(reserve(segment, 1) > XDP_DESCRIPTORS);
        // The kernel's loopback has an MTU of 65536, and a vdev may have frames of any length.
        let texts = found(&lo, 8191);
        assert_eq!(
            texts[0],
            "/segments/a/lan/xdp: found \"lo\" with an MTU of 65536, expected an MTU of at most 3400, \
             which AF_XDP carries"
        );
        let buffers = texts.last().unwrap();
        assert!(
            buffers.contains("/segments/a/lan/xdp: found \"lo\" with buffers of 65535 octets"),
            "{texts:?}"
        );
        let mut issues = Vec::new();
        check_xdp(&lo, vdev::AF_XDP_MAX_ROOM, &mut issues);
        assert!(issues.is_empty());
    }

    #[test]
    fn missing_interfaces_are_all_named() {
        let document = document(
            "interface = \"crem-x0\"",
            "interface = \"crem-x1\"",
            "passthrough",
            1500,
        );
        assert_eq!(
            found(&document, 8191),
            [
                "/segments/a/lan/interface: found \"crem-x0\", which does not exist, expected an \
                 interface of this network namespace",
                "/segments/a/wan/interface: found \"crem-x1\", which does not exist, expected an \
                 interface of this network namespace",
            ]
        );
    }

    #[test]
    fn mtus_are_told_with_both_numbers() {
        let mut issues = Vec::new();
        let document = document(
            "vdev = \"net_null0\"",
            "vdev = \"net_null1\"",
            "active",
            4300,
        );
        let (id, segment) = document.segments.first_key_value().unwrap();
        check_mtus(id, segment, 4300, 4214, &mut issues);
        let texts: Vec<String> = issues.iter().map(Issue::to_string).collect();
        assert_eq!(texts.len(), 2);
        assert!(texts[0].starts_with("/segments/a/wan: found \"net_null1\" with an MTU of 4214"));
        assert!(texts[0].contains("at least 4300"));
        assert!(texts[1].starts_with("/segments/a/lan: found \"net_null0\" with an MTU of 4300"));
        issues.clear();
        check_mtus(id, segment, 4214, 4300, &mut issues);
        assert!(issues.is_empty());
    }

    #[test]
    fn limits_must_fit_the_pool() {
        let active = document(
            "vdev = \"net_null0\"",
            "vdev = \"net_null1\"",
            "active",
            1500,
        );
        let segment = active.segments.values().next().unwrap();
        let needed = 2048 + 1024 + 512 + reserve(segment, 1);
        // The defaults of both files fit each other.
        assert!(needed <= 8191);
        assert!(check(&active, needed).is_ok());
        let texts = found(&active, needed - 1);
        assert!(
            texts[0].starts_with("/segments/a/limits: found retained_frames 2048"),
            "{texts:?}"
        );
        let idle = document(
            "vdev = \"net_null0\"",
            "vdev = \"net_null1\"",
            "passthrough",
            1500,
        );
        assert!(check(&idle, reserve(idle.segments.values().next().unwrap(), 1)).is_ok());
    }

    #[test]
    fn what_the_machine_does_not_have_is_told() {
        let ports = Ports {
            mtus: vec![(1500, 1500)],
            room: 2176,
        };
        assert!(check_bootstrap(&[], None, 8191, 2048, &ports).is_ok());
        let bad = check_bootstrap(
            &[1023],
            Some(1 << 20),
            1 << 22,
            2048,
            &Ports {
                room: u16::MAX,
                ..ports
            },
        );
        let pointers: Vec<String> = bad
            .unwrap_err()
            .issues
            .into_iter()
            .map(|i| i.pointer)
            .collect();
        assert_eq!(
            pointers,
            ["/worker/cpus", "/memory/mb", "/memory/pool_frames"]
        );
    }

    #[test]
    fn an_interface_belongs_to_one_gateway() {
        let name = format!("x{}", std::process::id());
        let document = document(
            &format!("interface = {name:?}"),
            "vdev = \"net_null1\"",
            "passthrough",
            1500,
        );
        let first = claim(&document).unwrap();
        let second = claim(&document).unwrap_err();
        assert!(
            second.to_string().contains("which another gateway uses"),
            "{second}"
        );
        drop(first);
        assert!(claim(&document).is_ok());
    }

    // shows: QOS-VLAN-03
    #[test]
    fn buffers_hold_a_symbol_with_its_headers_and_the_longest_frame() {
        let document = document(
            "vdev = \"net_null0\"",
            "vdev = \"net_null1\"",
            "active",
            4214,
        );
        let segment = document.segments.values().next().unwrap();
        assert!(room_for(segment, (1500, 4214)) >= HEADROOM + RESERVE + 4138);
        assert!(u32::from(room_for(segment, (1500, 9216))) >= u32::from(HEADROOM) + 22 + 9216);
    }
}
