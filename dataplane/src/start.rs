//! From a config document to a running worker: checks of what the machine has, ports, pool, in-band
//! interfaces, the auxiliary thread; and the way back at the end.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use crem_api::{Confinement, Device as Wanted, Document, Invalid};
use crem_core::time::Instant;
use crem_dpdk::thread::Affinity;
use crem_dpdk::{Clock, Eal, EalConfig, Iova, Mempool, MempoolConfig, vdev};
use crem_fec::Engine;

use crate::apply::MakeRemake;
use crate::aux::{
    self, About, AboutSegment, Applier, Ends, OrderEnds, PortInterface, Started, Task, WorkerEnds,
    interface_name,
};
use crate::classify::Side;
use crate::crew;
use crate::describe::{describe, own_mac};
use crate::dpdk::Dpdk;
use crate::guard::tell_panics_briefly;
use crate::line::{Maker, protecting, tell_bounds};
use crate::machine::{self, Known, Ports};
use crate::memory::Takers;
use crate::metering::{Metered, utc_offset};
use crate::numa::{self, Plan, Topology};
use crate::segment::Segment;
use crate::worker::{Idle, Links, Worker};

/// Where packet memory comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MemoryKind {
    /// Hugepages if enough are free, else ordinary pages.
    #[default]
    Auto,
    /// Hugepages.
    Huge,
    /// Ordinary pages.
    NoHuge,
}

/// What a data plane is started with.
pub struct Options {
    /// The config document.
    pub document: Document,
    /// What is otherwise than configured since the start, and why, in words; for the status.
    pub instead: Option<String>,
    /// Path of the status socket.
    pub status_socket: PathBuf,
    /// Path of the socket of the exporting process, looked for while something is observed.
    pub export_socket: PathBuf,
    /// CPUs of the workers in their order; those without one run on CPUs of the ports' NUMA nodes.
    pub cpus: Vec<u32>,
    /// Queues of a port that is a kernel interface: the kernel spreads frames over them by addresses and
    /// ports.
    pub interface_queues: u16,
    /// Time without a turn after which a worker is stuck and the process ends; zero: never.
    pub watchdog: Duration,
    /// For trying what becomes of a fault: after this time the first worker panics once in protocol.
    pub fault_after: Option<Duration>,
    /// Packet memory.
    pub memory: MemoryKind,
    /// Packet memory in MB; `None` computes it from the pool.
    pub memory_mb: Option<u32>,
    /// Frame buffers.
    pub pool_frames: u32,
    /// Frames of each AF_PACKET ring.
    pub ring_frames: u32,
    /// What the worker does when nothing arrives.
    pub idle: Idle,
    /// Version that the status shows.
    pub version: String,
    /// Called once, when the process has its memory and ports and before it has threads besides DPDK's: gives up
    /// what the rest does not need and tells what that is.
    pub confine: Box<dyn FnOnce() -> Confinement + Send>,
    /// Called once, when frames are forwarded and the status socket answers.
    pub on_ready: Box<dyn FnOnce() + Send>,
}

/// Why a data plane did not start or end as it should.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The configuration cannot work on this machine.
    #[error("{0}")]
    Invalid(Invalid),
    /// The bootstrap cannot work on this machine.
    #[error("{0}")]
    Bootstrap(Invalid),
    /// DPDK found too little memory to start with.
    #[error("{0}")]
    NoMemory(crem_dpdk::Error),
    /// DPDK refused.
    #[error("{0}")]
    Dpdk(#[from] crem_dpdk::Error),
    /// The auxiliary thread could not do its part.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

/// Runs a data plane on the calling thread until a signal ends it.
///
/// # Errors
/// [`Failure`], when it does not start.
pub fn run(options: Options) -> Result<(), Failure> {
    tell_panics_briefly();
    let ports = machine::check(&options.document, options.pool_frames).map_err(Failure::Invalid)?;
    let (mb, frames) = (options.memory_mb, options.pool_frames);
    let rings = options.ring_frames * u32::from(interface_queues(&options));
    machine::check_bootstrap(&options.cpus, mb, frames, rings, &ports)
        .map_err(Failure::Bootstrap)?;
    aux::check_socket(&options.status_socket).map_err(Failure::Bootstrap)?;
    let _claims = machine::claim(&options.document).map_err(Failure::Invalid)?;
    let began = Affinity::of_current_thread()?;
    let topology = Topology::of_machine(&options.document)?;
    let plan = numa::plan(&topology, &options.cpus, options.document.workers);
    plan.tell(options.cpus.len());
    // Rings of drivers and of workers come from the node of the thread that makes them.
    if let Some(beside) = plan.affinity(0)? {
        beside.apply()?;
    }
    let mut pool_config = MempoolConfig {
        name: "frames",
        count: options.pool_frames,
        room: ports.room,
        ..MempoolConfig::default()
    };
    let eal = Eal::init(eal_config(&options, &ports, &pool_config)).map_err(|e| match e {
        crem_dpdk::Error::Init { .. } => Failure::NoMemory(e),
        e => e.into(),
    })?;
    // Sleeps of tens of microseconds would otherwise be rounded up to twice that.
    crem_dpdk::thread::set_timer_slack(1)?;
    // Drivers tell what their devices carry only now.
    let known = machine::known(&eal, &options.document)?;
    let ports = machine::check_known(&options.document, options.pool_frames, &known)
        .map_err(Failure::Invalid)?;
    pool_config.room = ports.room;
    let pool = plan.pool(&eal, &pool_config).map_err(Failure::NoMemory)?;
    let clock = Clock::new();
    let ran = serve(options, (&ports, known), &eal, &pool, (&plan, began), clock);
    drop(pool);
    if let Err(e) = eal.shutdown() {
        tracing::warn!("{e}");
    }
    ran
}

fn serve(
    options: Options,
    (ports, known): (&Ports, Known),
    eal: &Eal,
    pool: &Mempool,
    (plan, began): (&Plan, Affinity),
    clock: Clock,
) -> Result<(), Failure> {
    let now = Instant(clock.now_ns());
    let engine = Engine::from_env().map_err(|e| {
        Failure::Invalid(Invalid::whole(
            format!("CREM_FEC_ISA: {e}"),
            "a known and available instruction set",
        ))
    })?;
    let count = options.document.workers;
    let (mut metered, inlets) = Metered::new(&options.document, utc_offset(now));
    let observed = metered.plan(&options.document).map_err(Failure::Invalid)?;
    let mut workers: Vec<Vec<Segment<Dpdk>>> = (0..count).map(|_| Vec::new()).collect();
    let mut about = About {
        version: options.version,
        instance: instance()?,
        revision: None,
        instead: options.instead,
        segments: Vec::new(),
        numa: plan.warnings.clone(),
        confinement: Confinement::default(),
    };
    let (mut stations, mut switches, mut drivers) = (Vec::new(), Vec::new(), Vec::new());
    let make = Maker {
        eal,
        pool,
        engine,
        now,
        workers: count,
        interface_queues: options.interface_queues.clamp(1, count),
    };
    for (number, (id, config)) in options.document.segments.iter().enumerate() {
        let mtus = ports.mtus(number);
        let made = make.segment(number, (id, config), mtus)?;
        tell_bounds(id, config, count);
        for ((worker, to), segment) in (0..).zip(&mut workers).zip(made.segments) {
            let fault = options.fault_after.map(|after| now + after);
            to.push(segment.with_fault(fault.filter(|_| worker == 0)));
        }
        stations.extend(made.station);
        switches.push(made.links);
        drivers.push(made.drivers);
        about.segments.push(AboutSegment {
            ports: made.ports,
            ..describe(id, config, mtus)
        });
    }
    for (worker, segments) in (0..).zip(&mut workers) {
        for mut change in metered
            .changes(&observed, worker)
            .map_err(Failure::Invalid)?
        {
            if let Some(segment) = segments.get_mut(change.segment) {
                segment.observe(now, &mut change);
            }
        }
    }
    metered.adopt(observed);
    about.confinement = (options.confine)();
    let relaying = metered.relaying(&options.export_socket, inlets);
    let (links, ends, orders) = connect(count);
    let started = Started {
        pool_frames: options.pool_frames,
        room: ports.room,
        known,
    };
    let interfaces = interfaces(&options.document);
    let task = Task {
        socket: options.status_socket,
        applier: Applier::new(
            options.document,
            about,
            started,
            metered,
            orders,
            Box::new(move || Instant(clock.now_ns())),
        ),
        ports: interfaces,
        links: switches,
        drivers,
        stations,
        affinity: began,
        on_ready: options.on_ready,
        relaying,
        clock,
        watchdog: options.watchdog,
    };
    let thread = aux::start(task, ends)?;
    let idle = options.idle;
    let workers = workers.into_iter().zip(links);
    let workers = workers.map(|(segments, links)| {
        let make: MakeRemake<Dpdk> =
            Box::new(move |config, view, share| protecting(config, view, engine, share));
        Worker::new(segments, make, links, idle)
    });
    let ran = crew::run(workers.collect(), (plan, began), eal, clock);
    // The workers' ends are gone, so the thread ends.
    if thread.join().is_err() {
        tracing::error!("the auxiliary thread panicked");
    }
    ran
}

fn interface_queues(options: &Options) -> u16 {
    options.interface_queues.clamp(1, options.document.workers)
}

/// Another text for every start.
fn instance() -> Result<String, Failure> {
    let mut drawn = [0; 8];
    getrandom::fill(&mut drawn).map_err(std::io::Error::other)?;
    Ok(format!("{:016x}", u64::from_be_bytes(drawn)))
}

/// The kernel interfaces that are ports.
fn interfaces(document: &Document) -> Vec<PortInterface> {
    let ports = document.segments.values().enumerate();
    let ports = ports.flat_map(|(n, s)| [(n, Side::Lan, &s.lan), (n, Side::Wan, &s.wan)]);
    let port = |(segment, side, device): (usize, Side, &Wanted)| match device {
        Wanted::Interface(name) | Wanted::Xdp(name) => Some(PortInterface {
            segment,
            side,
            name: name.clone(),
            ring: matches!(device, Wanted::Interface(_)),
        }),
        Wanted::Pci(_) | Wanted::Vdev(_) => None,
    };
    ports.filter_map(port).collect()
}

fn connect(workers: u16) -> (Vec<Links>, Ends, OrderEnds) {
    let (snapshots_in, snapshots) = tokio::sync::mpsc::channel(2 * usize::from(workers));
    let (wanted_in, wanted) = tokio::sync::mpsc::channel(64);
    let (done_in, done) = tokio::sync::mpsc::channel(4 * usize::from(workers));
    let (attic_in, attic) = sync_channel(64);
    let stop = Arc::new(AtomicBool::new(false));
    let mut orders = Vec::new();
    let pair = |worker| {
        let (orders_in, orders_out) = sync_channel(1);
        orders.push(orders_in);
        let (spare_in, spare) = sync_channel(4);
        let (hops_in, next_hops) = sync_channel(256);
        let (probes_in, probes) = sync_channel(4);
        let list_flows = Arc::new(AtomicBool::new(false));
        let heartbeat = Arc::new(AtomicU64::new(0));
        let links = Links {
            worker,
            heartbeat: Arc::clone(&heartbeat),
            snapshots: snapshots_in.clone(),
            spare,
            wanted: wanted_in.clone(),
            next_hops,
            orders: orders_out,
            done: done_in.clone(),
            probes,
            attic: attic_in.clone(),
            list_flows: Arc::clone(&list_flows),
            stop: Arc::clone(&stop),
        };
        let ends = WorkerEnds {
            spare: spare_in,
            next_hops: hops_in,
            probes: probes_in,
            list_flows,
            heartbeat,
        };
        (links, ends)
    };
    let (links, workers) = (0..workers).map(pair).unzip();
    let ends = Ends {
        snapshots,
        wanted,
        workers,
        attic,
        stop: Arc::clone(&stop),
    };
    let orders = OrderEnds { orders, done };
    (links, ends, orders)
}

fn eal_config(options: &Options, ports: &Ports, pool: &MempoolConfig<'_>) -> EalConfig {
    let takers = Takers {
        document: &options.document,
        pool,
        interface_queues: interface_queues(options),
        ring_frames: options.ring_frames,
    };
    let mut config = EalConfig {
        cpu: options.cpus.first().copied(),
        memory: takers.memory(options.memory, options.memory_mb),
        log_sink: log,
        ..EalConfig::default()
    };
    for (number, (id, segment)) in options.document.segments.iter().enumerate() {
        let mtus = ports.mtus(number);
        for (side, device, mtu) in [("lan", &segment.lan, mtus.0), ("wan", &segment.wan, mtus.1)] {
            match device {
                Wanted::Interface(interface) => {
                    let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
                    let name = port_name(number, side, device);
                    let (ring, queues) = (options.ring_frames, interface_queues(options));
                    let device = vdev::af_packet_queues(&name, interface, mtu, ring, queues);
                    config.vdevs.push(device);
                }
                Wanted::Xdp(interface) => {
                    let name = port_name(number, side, device);
                    config.vdevs.push(vdev::af_xdp(&name, interface));
                }
                Wanted::Vdev(text) => {
                    let (name, args) = text.split_once(',').unwrap_or((text, ""));
                    config.vdevs.push(vdev::Vdev::new(name, args));
                }
                Wanted::Pci(address) => {
                    config.pci.push(address.clone());
                    // Without an IOMMU devices take physical addresses, and those of hugepages only.
                    config.iova = Iova::Auto;
                }
            }
        }
        if let Some(inband) = &segment.inband {
            let mac = Some(inband.mac.unwrap_or_else(|| own_mac(id, inband)).0);
            config.vdevs.push(vdev::tap(
                &tap_name(number),
                &interface_name(id.as_str()),
                mac,
            ));
        }
    }
    config
}

fn log(level: crem_dpdk::LogLevel, text: &str) {
    if level == crem_dpdk::LogLevel::Warning {
        tracing::warn!(target: "dpdk", "{}", text.trim_end());
    } else {
        tracing::error!(target: "dpdk", "{}", text.trim_end());
    }
}

pub(crate) fn port_name(number: usize, side: &str, device: &Wanted) -> String {
    match device {
        Wanted::Interface(_) => format!("net_af_packet_{number}{side}"),
        Wanted::Xdp(_) => format!("net_af_xdp_{number}{side}"),
        Wanted::Vdev(text) => text.split(',').next().unwrap_or(text).to_owned(),
        Wanted::Pci(address) => address.clone(),
    }
}

pub(crate) fn tap_name(number: usize) -> String {
    format!("net_tap{number}")
}
