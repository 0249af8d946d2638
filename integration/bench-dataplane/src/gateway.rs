//! What a gateway of the bench is made of: the config document, and for each worker the product's segment
//! with a memory port on either side.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use crem_api::{Document, Invalid, Segment as SegmentConfig, Syntax, parse};
use crem_core::time::Instant;
use crem_dataplane::classify::{NEVER_CUT, Side, Station, View};
use crem_dataplane::control_frames::ControlFrames;
use crem_dataplane::dpdk::FramePool;
use crem_dataplane::guard::Remake;
use crem_dataplane::inband::{Inband, Stations};
use crem_dataplane::metering::{Metered, Relaying};
use crem_dataplane::protect::{Protection, Share};
use crem_dataplane::segment::{Parts, Segment};
use crem_dataplane::snapshot::FlowSnapshot;
use crem_dataplane::team::{Team, teams};
use crem_dpdk::Mempool;
use crem_fec::Engine;
use crem_wire::frame::{Mac, ParseConfig};

use crate::port::{Lane, Memory};
use crate::seat::Seat;
use crate::timing::Meter;
use crate::world::Setting;

/// Octets of Ethernet, IPv4 and UDP headers.
pub const HEADERS: usize = 14 + 20 + 8;
const CREM_PORT: u16 = 4801;

/// One gateway.
pub struct Gateway {
    /// Its workers.
    pub seats: Vec<Box<Seat>>,
    /// What it was made of.
    pub config: SegmentConfig,
    /// How it looks at frames.
    pub view: View,
    /// Takes records, and drops and counts them: no exporting process listens.
    pub relaying: Option<Relaying>,
}

impl Gateway {
    /// The first gateway, which has the hosts that send, or the second one, with frames of `pool`.
    ///
    /// # Errors
    /// What does not fit, in words.
    pub fn new(number: usize, setting: Setting, pool: &Mempool) -> Result<Self, String> {
        let document = document(number, setting)?;
        let config = document.segments.values().next().cloned();
        let maker = Maker {
            number,
            setting,
            pool,
            config: config.ok_or("no segment")?,
            stations: Arc::default(),
        };
        let flows = maker.config.limits.flows;
        let made: Vec<_> = match setting.workers {
            0 | 1 => vec![maker.segment(None)],
            count => {
                let teams = teams(count, number as u64, flows, Vec::new());
                teams
                    .into_iter()
                    .map(|team| maker.segment(Some(team)))
                    .collect()
            }
        };
        let seat = |segment| {
            Box::new(Seat {
                segment,
                meter: Meter::default(),
                longest: None,
            })
        };
        let mut gateway = Self {
            seats: made.into_iter().map(seat).collect(),
            view: maker.view(),
            config: maker.config,
            relaying: None,
        };
        if setting.metered {
            gateway.observe(&document).map_err(|e| e.to_string())?;
        }
        Ok(gateway)
    }

    /// Has the workers observe what the document says.
    fn observe(&mut self, document: &Document) -> Result<(), Invalid> {
        let (mut metered, inlets) = Metered::new(document, 0);
        let wanted = metered.plan(document)?;
        for (worker, seat) in (0..).zip(&mut self.seats) {
            for mut change in metered.changes(&wanted, worker)? {
                seat.segment.observe(Instant(1_000_000_000), &mut change);
            }
        }
        metered.adopt(wanted);
        self.relaying = Some(metered.relaying(Path::new("/nonexistent/export.sock"), inlets));
        Ok(())
    }

    /// The devices of its workers on one side.
    pub fn lanes(&mut self, side: Side) -> impl Iterator<Item = &mut Lane> {
        self.seats.iter_mut().map(move |seat| match side {
            Side::Lan => seat.lan(),
            Side::Wan => seat.wan(),
        })
    }

    /// Forgets what was sent to the path.
    pub fn wan_sent(&mut self) {
        self.lanes(Side::Wan).for_each(|lane| lane.sent.clear());
    }

    /// All flows.
    pub fn flows(&self) -> Vec<FlowSnapshot> {
        let mut flows = Vec::new();
        for seat in &self.seats {
            seat.segment.list_flows(0, &mut flows);
        }
        flows.into_iter().map(|(_, flow)| flow).collect()
    }
}

/// What the workers of a gateway have in common.
struct Maker<'a> {
    number: usize,
    setting: Setting,
    pool: &'a Mempool,
    config: SegmentConfig,
    stations: Arc<Stations>,
}

impl Maker<'_> {
    /// The segment of one worker, which has others beside it if it has a team.
    fn segment(&self, team: Option<Team<Memory>>) -> Segment<Memory> {
        let view = self.view();
        let share = team.as_ref().map_or(Share::ALONE, |team| Share {
            place: team.place,
            directory: Some(Arc::clone(&team.directory)),
        });
        let is_home = share.place.index == 0;
        let kernel = is_home.then(|| Lane::new(self.pool, true));
        let (stations, peer) = (Arc::clone(&self.stations), 1 - self.number);
        let mut inband = Inband::shared(self.station(), kernel, Side::Wan, stations, Instant(0));
        inband.set_next_hop(address(peer), Some(mac(peer)));
        let lane = || Lane::new(self.pool, false);
        let segment = Segment::new(Parts {
            mode: self.config.mode,
            remake: self.setting.m.map(|_| self.remake(&view, share)),
            view,
            lan: lane(),
            wan: lane(),
            pool: FramePool(self.pool.clone()),
            inband: Some(inband),
            wan_rate: None,
        });
        match team {
            Some(team) => segment.with_team(team),
            None => segment,
        }
    }

    fn remake(&self, view: &View, share: Share) -> Remake<Memory> {
        let (config, view) = (self.config.clone(), view.clone());
        let at = self.station().address;
        // Another one for each worker of each gateway.
        let seed = [(self.number as u8 + 1) * 16 + share.place.index as u8; 32];
        Box::new(move || {
            let (engine, share) = (Engine::detect(), share.clone());
            Some(Protection::new(&config, at, &view, engine, seed, share))
        })
    }

    fn station(&self) -> Station {
        Station {
            address: address(self.number),
            mac: mac(self.number),
            vlan: None,
        }
    }

    fn view(&self) -> View {
        View {
            parse: ParseConfig {
                crem_port: Some(CREM_PORT),
                vxlan_port: None,
            },
            served: self.config.served.keys().copied().collect(),
            own: Some(self.station()),
            active: self.setting.m.is_some(),
            responses: false,
            learn: false,
            verify_sources: false,
            control: ControlFrames::default(),
            networks: Vec::new(),
            watched: false,
            cut_from: [NEVER_CUT; 2],
        }
    }
}

fn address(gateway: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, gateway as u8 + 1))
}

fn mac(gateway: usize) -> Mac {
    Mac([2, 0, 0, 0, 0, 0x10 + gateway as u8])
}

/// What is observed, and a collector, without which nothing would be.
const METERED: &str = r#"
        [ipfix]
        domain = 1
        pen = 32473
        first_element = 1
        [ipfix.scopes.all]
        source = "10.0.0.0/16"
        destination = "10.0.0.0/16"
        [ipfix.points.in]
        segment = "a"
        place = "lan_ingress"
        base = 100
        flows = true
        packets = { select = "count", interval = 1, space = 999, selection_sequence = 1 }
        [ipfix.points.out]
        segment = "a"
        place = "wan_egress"
        base = 200
        flows = true
        [ipfix.collectors.a]
        transport = "tcp"
        host = "192.0.2.99"
"#;

fn document(gateway: usize, setting: Setting) -> Result<Document, String> {
    let m = setting.m.unwrap_or(0);
    let (path, rdma) = if setting.payload > 1024 {
        (4214, 4096)
    } else {
        (1500, 1024)
    };
    let mode = if setting.m.is_some() {
        "active"
    } else {
        "passthrough"
    };
    let text = format!(
        r#"
        version = 1
        workers = {}
        [segments.a]
        mode = "{mode}"
        crem_port = {CREM_PORT}
        path_mtu = {path}
        rdma_mtu = {rdma}
        lan = {{ vdev = "lan" }}
        wan = {{ vdev = "wan" }}
        served = {{ "10.0.{}.0/24" = {{}} }}
        peers = {{ "10.0.{}.0/24" = {{ address = "{}" }} }}
        inband = {{ address = "{}/24" }}
        policy = {{ k = {}, adapt_k = false, m_min = {m}, m_max = {m}, m_cong = {m} }}
        limits = {{ flows = {}, retained_frames = {}, held_frames = {}, open_blocks = 16384,
                    hello_per_s = 100000, hello_outstanding = 10000,
                    report_budget = 2000000 }}
        "#,
        setting.workers,
        gateway + 1,
        2 - gateway,
        address(1 - gateway),
        address(gateway),
        setting.k,
        setting.flows.max(64) * 2,
        setting.retained,
        // The receiver keeps the last block of each flow, and refuses flows beyond that.
        setting
            .retained
            .max(setting.flows as u32 * u32::from(setting.k)),
    );
    let metered = if setting.metered { METERED } else { "" };
    parse(&(text + metered), Syntax::Toml).map_err(|e| e.to_string())
}
