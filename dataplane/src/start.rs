//! From a config document to a running worker: checks of what the machine has, ports, pool, in-band
//! interfaces, the auxiliary thread; and the way back at the end.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::sync_channel;

use crem_api::{Device as Wanted, Document, Inband as InbandConfig, Invalid, MacAddr, Mode};
use crem_api::{Segment as SegmentConfig, SegmentId, Side as ConfigSide};
use crem_core::time::Instant;
use crem_dpdk::{Clock, Eal, EalConfig, Memory, Mempool, MempoolConfig, Port, PortConfig, vdev};
use crem_fec::Engine;

use crate::apply::MakeRemake;
use crate::aux::{
    self, About, Applier, Ends, KernelStation, OrderEnds, PortInterface, Started, Task,
    interface_name,
};
use crate::classify::{Side, Station, View};
use crate::describe::{describe, own_mac, view};
use crate::dpdk::{Device, Dpdk, FramePool};
use crate::guard::Remake;
use crate::inband::Inband;
use crate::machine::{self, Ports, TAP_DESCRIPTORS};
use crate::metering::Setup;
use crate::protect::Protection;
use crate::segment::{Parts, Segment};
use crate::worker::{Idle, Links, Worker};

/// Memory besides the pool that EAL and drivers take, in MB.
const OVERHEAD_MB: u32 = 16;

/// What the tap driver takes at most; CREM's own packets do not go through it.
const TAP_MTU: u32 = 1500;

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
    /// Path of the status socket.
    pub status_socket: PathBuf,
    /// Path of the socket of the exporting process, if anything is observed.
    pub export_socket: PathBuf,
    /// CPU of the worker; `None` leaves it to the scheduler.
    pub cpu: Option<u32>,
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
    let ports = machine::check(&options.document, options.pool_frames).map_err(Failure::Invalid)?;
    let (mb, frames, ring) = (options.memory_mb, options.pool_frames, options.ring_frames);
    machine::check_bootstrap(options.cpu, mb, frames, ring, &ports).map_err(Failure::Bootstrap)?;
    aux::check_socket(&options.status_socket).map_err(Failure::Bootstrap)?;
    let _claims = machine::claim(&options.document).map_err(Failure::Invalid)?;
    let pool_config = MempoolConfig {
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
    let pool = eal.mempool(&pool_config).map_err(Failure::NoMemory)?;
    let clock = Clock::new();
    let ran = serve(options, &ports, &eal, &pool, clock);
    drop(pool);
    if let Err(e) = eal.shutdown() {
        tracing::warn!("{e}");
    }
    ran
}

fn serve(
    options: Options,
    ports: &Ports,
    eal: &Eal,
    pool: &Mempool,
    clock: Clock,
) -> Result<(), Failure> {
    let now = Instant(clock.now_ns());
    let engine = Engine::from_env().map_err(|e| {
        Failure::Invalid(Invalid::whole(
            format!("CREM_FEC_ISA: {e}"),
            "a known and available instruction set",
        ))
    })?;
    let mut metering = Setup::new(&options.document).map_err(Failure::Invalid)?;
    let mut segments = Vec::new();
    let mut about = About {
        version: options.version,
        instance: instance()?,
        revision: None,
        segments: Vec::new(),
    };
    let mut stations = Vec::new();
    for (number, (id, config)) in options.document.segments.iter().enumerate() {
        let made = segment(
            number,
            (id, config),
            ports.mtus(number),
            eal,
            pool,
            engine,
            now,
        )?;
        tell_retention(id, config);
        let meters = metering.segment(number, (id, config), now);
        let meters = meters.map_err(Failure::Invalid)?;
        segments.push(made.0.with_metering(meters));
        stations.extend(made.1);
        about
            .segments
            .push(describe(id, config, ports.mtus(number)));
    }
    let (links, ends, orders) = connect();
    let started = Started {
        pool_frames: options.pool_frames,
        room: ports.room,
    };
    let interfaces = interfaces(&options.document);
    let task = Task {
        socket: options.status_socket,
        applier: Applier::new(options.document, about, started, orders),
        ports: interfaces,
        stations,
        affinity: eal.original_affinity(),
        on_ready: options.on_ready,
        relaying: metering.relaying(&options.export_socket),
        clock,
    };
    let thread = aux::start(task, ends)?;
    let make: MakeRemake<Dpdk> = Box::new(move |config, view| protecting(config, view, engine));
    Worker::new(segments, make, links, options.idle).run(|| Instant(clock.now_ns()));
    // The worker's ends are gone, so the thread ends.
    if thread.join().is_err() {
        tracing::error!("the auxiliary thread panicked");
    }
    Ok(())
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
        Wanted::Interface(name) => Some(PortInterface {
            segment,
            side,
            name: name.clone(),
        }),
        Wanted::Pci(_) | Wanted::Vdev(_) => None,
    };
    ports.filter_map(port).collect()
}

fn connect() -> (Links, Ends, OrderEnds) {
    let (snapshots_in, snapshots_out) = tokio::sync::mpsc::channel(2);
    let (spare_in, spare_out) = sync_channel(4);
    let (wanted_in, wanted_out) = tokio::sync::mpsc::channel(64);
    let (hops_in, hops_out) = sync_channel(256);
    let (orders_in, orders_out) = sync_channel(1);
    let (done_in, done_out) = tokio::sync::mpsc::channel(4);
    let list_flows = Arc::new(AtomicBool::new(false));
    let stop = Arc::new(AtomicBool::new(false));
    let links = Links {
        snapshots: snapshots_in,
        spare: spare_out,
        wanted: wanted_in,
        next_hops: hops_out,
        orders: orders_out,
        done: done_in,
        list_flows: Arc::clone(&list_flows),
        stop: Arc::clone(&stop),
    };
    let ends = Ends {
        snapshots: snapshots_out,
        spare: spare_in,
        wanted: wanted_out,
        next_hops: hops_in,
        list_flows,
        stop,
    };
    let orders = OrderEnds {
        orders: orders_in,
        done: done_out,
    };
    (links, ends, orders)
}

fn eal_config(options: &Options, ports: &Ports, pool: &MempoolConfig<'_>) -> EalConfig {
    let mb = options
        .memory_mb
        .unwrap_or_else(|| pool.needed_mb() + OVERHEAD_MB);
    let mut config = EalConfig {
        cpu: options.cpu,
        memory: match options.memory {
            MemoryKind::Auto => Memory::Auto { mb },
            MemoryKind::Huge => Memory::Huge { mb },
            MemoryKind::NoHuge => Memory::NoHuge { mb },
        },
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
                    let ring = options.ring_frames;
                    config
                        .vdevs
                        .push(vdev::af_packet(&name, interface, mtu, ring));
                }
                Wanted::Vdev(text) => {
                    let (name, args) = text.split_once(',').unwrap_or((text, ""));
                    config.vdevs.push(vdev::Vdev::new(name, args));
                }
                Wanted::Pci(address) => config.pci.push(address.clone()),
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

fn port_name(number: usize, side: &str, device: &Wanted) -> String {
    match device {
        Wanted::Interface(_) => format!("net_af_packet_{number}{side}"),
        Wanted::Vdev(text) => text.split(',').next().unwrap_or(text).to_owned(),
        Wanted::Pci(address) => address.clone(),
    }
}

fn tap_name(number: usize) -> String {
    format!("net_tap{number}")
}

type Made = (Segment<Dpdk>, Option<KernelStation>);

fn segment(
    number: usize,
    (id, config): (&SegmentId, &SegmentConfig),
    mtus: (u32, u32),
    eal: &Eal,
    pool: &Mempool,
    engine: Engine,
    now: Instant,
) -> Result<Made, Failure> {
    let open = |side, device| {
        open(
            &port_name(number, side, device),
            PortConfig::default(),
            eal,
            pool,
        )
    };
    let (lan, wan) = (open("lan", &config.lan)?, open("wan", &config.wan)?);
    let view = view(id, config, mtus);
    let (mut inband, mut kernel) = (None, None);
    if let (Some(wanted), Some(station)) = (&config.inband, view.own) {
        inband = Some(worker_station(number, wanted, station, eal, pool, now)?);
        kernel = Some(kernel_station(number, id, config, wanted, station));
    }
    let remake = protecting(config, &view, engine);
    let pool = FramePool(pool.clone());
    let parts = Parts {
        mode: config.mode,
        view,
        lan,
        wan,
        pool,
        inband,
        remake,
    };
    Ok((Segment::new(parts), kernel))
}

/// How far back the sender function can answer requests, at a rate that people know.
fn tell_retention(id: &SegmentId, config: &SegmentConfig) {
    if config.mode == Mode::Active {
        // Milliseconds at 10 Gbit/s: 8 bits an octet, 10^7 bits a millisecond.
        let reach =
            |octets: u32| f64::from(config.limits.retained_frames) * f64::from(octets) * 8e-7;
        tracing::info!(
            segment = %id,
            "retains {} frames: {:.1} ms of 10 Gbit/s at 4 KiB a packet, {:.1} ms at 1 KiB",
            config.limits.retained_frames,
            reach(4154),
            reach(1082)
        );
    }
}

fn open(name: &str, config: PortConfig, eal: &Eal, pool: &Mempool) -> Result<Device, Failure> {
    Ok(Device::new(Port::open(eal, name, &config, pool)?)?)
}

fn worker_station(
    number: usize,
    wanted: &InbandConfig,
    station: Station,
    eal: &Eal,
    pool: &Mempool,
    now: Instant,
) -> Result<Inband<Dpdk>, Failure> {
    let side = match wanted.port {
        ConfigSide::Lan => Side::Lan,
        ConfigSide::Wan => Side::Wan,
    };
    // The driver keeps a buffer for each descriptor.
    let few = PortConfig {
        rx_descriptors: TAP_DESCRIPTORS,
        ..PortConfig::default()
    };
    Ok(Inband::new(
        station,
        open(&tap_name(number), few, eal, pool)?,
        side,
        now,
    ))
}

fn kernel_station(
    number: usize,
    id: &SegmentId,
    config: &SegmentConfig,
    wanted: &InbandConfig,
    station: Station,
) -> KernelStation {
    KernelStation {
        segment: number,
        interface: interface_name(id.as_str()),
        inband: wanted.clone(),
        mac: MacAddr(station.mac.0),
        mtu: TAP_MTU.min(u32::from(config.path_mtu)),
        peers: config.peers.values().map(|p| p.address).collect(),
    }
}

/// What makes the protocol functions of a segment whose mode has them.
fn protecting(config: &SegmentConfig, view: &View, engine: Engine) -> Option<Remake<Dpdk>> {
    let own = view.own.filter(|_| config.mode == Mode::Active)?;
    Some(remake(config, own.address, view, engine))
}

/// Makes the protocol functions, each time with other random numbers: Flow IDs and nonces must not be
/// guessable.
fn remake(config: &SegmentConfig, own: IpAddr, view: &View, engine: Engine) -> Remake<Dpdk> {
    let (config, view) = (config.clone(), view.clone());
    Box::new(move || {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).ok()?;
        Some(Protection::new(&config, own, &view, engine, seed))
    })
}
