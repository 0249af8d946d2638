//! What a segment is made of for each of its workers: queues of the ports or relays to them, the in-band
//! station, the protocol functions, the rings between workers.

use std::net::IpAddr;
use std::sync::Arc;

use crem_api::state::PortStatus;
use crem_api::{Device as Wanted, Inband as InbandConfig, LinkFec, LinkSettings, MacAddr, Mode};
use crem_api::{Segment as SegmentConfig, SegmentId, Side as ConfigSide};
use crem_core::config::CoreConfig;
use crem_core::time::Instant;
use crem_dpdk::{Eal, Mempool, Port, PortConfig, iface};
use crem_fec::Engine;

use crate::aux::{KernelStation, LinkReader, LinkSwitch, interface_name};
use crate::buffer::Platform;
use crate::classify::{Side, Station, View};
use crate::core_config::core_config;
use crate::describe::view;
use crate::dpdk::{Device, Dpdk, Frame, FramePool};
use crate::guard::Remake;
use crate::inband::{Inband, Stations};
use crate::machine::TAP_DESCRIPTORS;
use crate::protect::{Protection, Share};
use crate::rate::WanRate;
use crate::segment::{Parts, Segment};
use crate::start::{Failure, port_name, tap_name};
use crate::team::{Outlet, Place, Relayed, Takes, Teams, relay, teams};
use crate::told;

/// What the tap driver takes at most; CREM's own packets do not go through it.
const TAP_MTU: u32 = 1500;
/// Octets of state that a flow takes in each of both functions at most, as their tests show.
const FLOW_OCTETS: u64 = 2048;

/// A port as a worker has it.
type Way = <Dpdk as Platform>::Port;
/// What other workers send by the queues of the first one.
type Relays = Vec<(Side, Takes<Relayed<Frame>>)>;

/// A segment as it was made.
pub(crate) struct Made {
    /// In the order of the workers.
    pub(crate) segments: Vec<Segment<Dpdk>>,
    /// What the auxiliary thread sets up for it.
    pub(crate) station: Option<KernelStation>,
    /// Switches the links of the LAN and the WAN port.
    pub(crate) links: [LinkSwitch; 2],
    /// Ask the drivers of both.
    pub(crate) drivers: [LinkReader; 2],
    /// What the status says of the LAN and the WAN port.
    pub(crate) ports: [PortStatus; 2],
}

/// What the auxiliary thread has of a port.
struct Opened {
    switch: LinkSwitch,
    driver: LinkReader,
    status: PortStatus,
}

/// Makes segments.
pub(crate) struct Maker<'a> {
    pub(crate) eal: &'a Eal,
    pub(crate) pool: &'a Mempool,
    pub(crate) engine: Engine,
    pub(crate) now: Instant,
    /// How many workers a segment has.
    pub(crate) workers: u16,
    /// Queues of a port that is a kernel interface.
    pub(crate) interface_queues: u16,
}

impl Maker<'_> {
    /// A segment and what the auxiliary thread needs for it.
    ///
    /// # Errors
    /// What a device refused.
    pub(crate) fn segment(
        &self,
        number: usize,
        (id, config): (&SegmentId, &SegmentConfig),
        mtus: (u32, u32),
    ) -> Result<Made, Failure> {
        let mut relays = Relays::new();
        let lan = port_name(number, "lan", &config.lan);
        let own = (&config.lan, mtus.0, &config.lan_link);
        let (lan, lan_port) = self.ways(&lan, own, Side::Lan, &mut relays)?;
        let wan = port_name(number, "wan", &config.wan);
        let own = (&config.wan, mtus.1, &config.wan_link);
        let (wan, wan_port) = self.ways(&wan, own, Side::Wan, &mut relays)?;
        let view = view(id, config, mtus);
        let mut kernel = None;
        let mut tap = None;
        if let (Some(wanted), Some(station)) = (&config.inband, view.own) {
            tap = Some(self.tap(number)?);
            kernel = Some(kernel_station(number, id, config, wanted, station));
        }
        let mut teams = self.teams(config, relays)?.into_iter();
        let stations: Arc<Stations> = Arc::default();
        let rate = config.wan_rate_mbit;
        let rate = rate.map(|mbit| Arc::new(WanRate::new(mbit, self.now)));
        let mut segments = Vec::new();
        for (lan, wan) in lan.into_iter().zip(wan) {
            let team = teams.next();
            let share = team.as_ref().map_or(Share::ALONE, |team| Share {
                place: team.place,
                directory: Some(Arc::clone(&team.directory)),
            });
            let place = share.place;
            let inband = self.station(config, view.own, tap.take(), &stations);
            let segment = Segment::new(Parts {
                mode: config.mode,
                remake: protecting(config, &view, self.engine, share),
                view: view.clone(),
                lan,
                wan,
                pool: FramePool(self.pool.clone()),
                inband,
                wan_rate: rate.clone(),
            });
            let segment = match team {
                Some(team) => segment.with_team(team),
                None => segment,
            };
            segments.push(segment.with_watch(watching(config, &place)));
        }
        Ok(Made {
            segments,
            station: kernel,
            links: [lan_port.switch, wan_port.switch],
            drivers: [lan_port.driver, wan_port.driver],
            ports: [lan_port.status, wan_port.status],
        })
    }

    /// A port for each worker: a queue of its own as far as there are such, else a relay.
    fn ways(
        &self,
        name: &str,
        (device, mtu, link): (&Wanted, u32, &LinkSettings),
        side: Side,
        relays: &mut Relays,
    ) -> Result<(Vec<Way>, Opened), Failure> {
        let queues = match device {
            Wanted::Interface(_) => self.interface_queues,
            Wanted::Xdp(_) | Wanted::Pci(_) | Wanted::Vdev(_) => {
                let info = Port::look(self.eal, name)?;
                // Where the ports count too, packets of a queue pair could pass each other.
                let most = if info.spreads_by_address {
                    info.max_rx_queues.min(info.max_tx_queues)
                } else {
                    1
                };
                most.min(self.workers)
            }
        };
        if self.workers > 1 {
            tracing::info!(port = name, "{queues} queues for {} workers", self.workers);
        }
        let config = PortConfig {
            rx_queues: queues,
            tx_queues: queues,
            mtu: own_mtu(device, mtu),
            link: own_link(device, link),
            ..PortConfig::default()
        };
        let port = Arc::new(Port::open(self.eal, name, &config, self.pool)?);
        let opened = Opened {
            switch: link_switch(device, &port),
            driver: link_reader(&port),
            status: told::opened(name, device, &port, self.pool)?,
        };
        let way = |worker| {
            if worker < queues {
                return Device::queue(&port, worker).map(Outlet::Queue);
            }
            let (relay, takes) = relay();
            relays.push((side, takes));
            Ok(relay)
        };
        let ways: Result<Vec<Way>, _> = (0..self.workers).map(way).collect();
        Ok((ways?, opened))
    }

    fn tap(&self, number: usize) -> Result<Way, Failure> {
        // The driver keeps a buffer for each descriptor.
        let few = PortConfig {
            rx_descriptors: TAP_DESCRIPTORS,
            ..PortConfig::default()
        };
        let port = Port::open(self.eal, &tap_name(number), &few, self.pool)?;
        Ok(Outlet::Queue(Device::new(port)?))
    }

    fn station(
        &self,
        config: &SegmentConfig,
        station: Option<Station>,
        tap: Option<Way>,
        stations: &Arc<Stations>,
    ) -> Option<Inband<Dpdk>> {
        let side = match config.inband.as_ref()?.port {
            ConfigSide::Lan => Side::Lan,
            ConfigSide::Wan => Side::Wan,
        };
        let stations = Arc::clone(stations);
        Some(Inband::shared(station?, tap, side, stations, self.now))
    }

    /// Rings between the workers, if there are several.
    fn teams(&self, config: &SegmentConfig, relays: Relays) -> Result<Teams<Dpdk>, Failure> {
        if self.workers == 1 {
            return Ok(Teams::new());
        }
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(std::io::Error::other)?;
        let seed = u64::from_ne_bytes(seed);
        Ok(teams(self.workers, seed, config.limits.flows, relays))
    }
}

/// What a driver is asked to carry. Those of kernel interfaces go by the interface, and virtual devices take what
/// they are made with.
fn own_mtu(device: &Wanted, mtu: u32) -> Option<u16> {
    match device {
        Wanted::Pci(_) => u16::try_from(mtu).ok(),
        Wanted::Interface(_) | Wanted::Xdp(_) | Wanted::Vdev(_) => None,
    }
}

/// The link that a driver is asked for. Those of kernel interfaces are the control process's business.
fn own_link(device: &Wanted, link: &LinkSettings) -> crem_dpdk::LinkSettings {
    if device.kernel_interface().is_some() {
        return crem_dpdk::LinkSettings::default();
    }
    let bits = |pause: &crem_api::Pause| pause.priorities.keys().fold(0, |bits, p| bits | (1 << p));
    crem_dpdk::LinkSettings {
        autonegotiation: link.autonegotiation,
        speed_mbit: link.speed_mbit,
        fec: link.fec.map(|fec| match fec {
            LinkFec::Auto => crem_dpdk::LinkFec::Auto,
            LinkFec::None => crem_dpdk::LinkFec::None,
            LinkFec::BaseR => crem_dpdk::LinkFec::BaseR,
            LinkFec::Rs => crem_dpdk::LinkFec::Rs,
        }),
        pause: link.pause.as_ref().map(|pause| crem_dpdk::Pause {
            priorities: bits(pause),
            high_water_kib: pause.high_water_kib,
            low_water_kib: pause.low_water_kib,
            quanta: pause.pause_quanta,
        }),
    }
}

/// Switches the link of a port: a kernel interface by its flags, any other by its driver.
fn link_switch(device: &Wanted, port: &Arc<Port>) -> LinkSwitch {
    match device {
        Wanted::Interface(name) | Wanted::Xdp(name) => {
            let name = name.clone();
            Box::new(move |up| iface::set_up(&name, up).map_err(|e| e.to_string()))
        }
        Wanted::Pci(_) | Wanted::Vdev(_) => {
            // The workers own it: it must not outlive them.
            let port = Arc::downgrade(port);
            Box::new(move |up| {
                let port = port.upgrade().ok_or("the port is closed")?;
                port.set_link(up).map_err(|e| e.to_string())
            })
        }
    }
}

/// Asks the driver of a port.
fn link_reader(port: &Arc<Port>) -> LinkReader {
    let port = Arc::downgrade(port);
    Box::new(move || Some(told::link_layer(&port.upgrade()?.link_told())))
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

/// What one worker of a segment watches flows with whose mode has that.
fn watching(config: &SegmentConfig, place: &Place) -> Option<CoreConfig> {
    (config.mode == Mode::Monitor).then(|| core_config(config, place))
}

/// What makes the protocol functions of one worker of a segment whose mode has them.
pub(crate) fn protecting(
    config: &SegmentConfig,
    view: &View,
    engine: Engine,
    share: Share,
) -> Option<Remake<Dpdk>> {
    let own = view.own.filter(|_| config.mode == Mode::Active)?;
    Some(remake(config, own.address, view, engine, share))
}

/// Makes the protocol functions, each time with other random numbers: Flow IDs and nonces must not be
/// guessable.
fn remake(
    config: &SegmentConfig,
    own: IpAddr,
    view: &View,
    engine: Engine,
    share: Share,
) -> Remake<Dpdk> {
    let (config, view) = (config.clone(), view.clone());
    Box::new(move || {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).ok()?;
        let share = share.clone();
        Some(Protection::new(&config, own, &view, engine, seed, share))
    })
}

/// How far back the sender function can answer requests, at a rate that people know, and what flows take
/// of memory at most.
pub(crate) fn tell_bounds(id: &SegmentId, config: &SegmentConfig, workers: u16) {
    if config.mode != Mode::Active {
        return;
    }
    // Milliseconds at 10 Gbit/s: 8 bits an octet, 10^7 bits a millisecond.
    let reach = |octets: u32| f64::from(config.limits.retained_frames) * f64::from(octets) * 8e-7;
    tracing::info!(
        segment = %id,
        "retains {} frames: {:.1} ms of 10 Gbit/s at 4 KiB a packet, {:.1} ms at 1 KiB",
        config.limits.retained_frames,
        reach(4154),
        reach(1082)
    );
    let flows = u64::from(config.limits.flows);
    let octets = 2 * flows * FLOW_OCTETS;
    tracing::info!(
        segment = %id,
        "{flows} flows on {workers} workers: {} MB of state at most, packets apart",
        octets.div_ceil(1 << 20)
    );
}
