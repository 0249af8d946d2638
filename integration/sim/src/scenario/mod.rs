//! What a world is made of: connections, paths, configurations and what happens to them over time.
//! Drawing one from a seed is in `draw`, those that lead to rare events are in `directed`.

mod adverse;
mod directed;
pub mod draw;
pub mod many;
mod parked;
mod rare;
mod sure;

use crem_core::config::{CoreConfig, Hold, Prefix};
use crem_core::csf::Ahead;

use crate::Duration;
use crate::endpoint::rc::RequesterConfig;
use crate::endpoint::rc_end::Workload;
use crate::frame::Mode;
use crate::gateway;
use crate::net::path::PathConfig;
use crate::rng::Rng;

/// One connection.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Side of the requester, 0 or 1.
    pub side: usize,
    /// Host at side 0 and at side 1.
    pub hosts: [u8; 2],
    /// VLAN or tunnel context.
    pub namespace: u64,
    /// QP number of the responder; the requester's is this plus 2^20.
    pub qp: u32,
    /// Its transport.
    pub transport: RequesterConfig,
    /// What it does.
    pub workload: Workload,
}

/// What happens at a time of its own.
#[derive(Clone, Debug)]
pub enum Step {
    /// The gateway at this side dies and comes back with no memory; the wire is down meanwhile.
    Restart {
        /// Side.
        side: usize,
        /// Time without a wire.
        down: Duration,
    },
    /// The path from this side becomes another one.
    Path(usize, Box<PathConfig>),
    /// The path from this side is gone for a while.
    Outage(usize, Duration),
    /// The gateway at this side gets another configuration.
    Configure(usize, Box<CoreConfig>),
    /// Buffers run short at this side: so many references are to be given up.
    Shortage(usize, u32),
    /// The gateway at this side ends all its flows.
    Close(usize),
    /// From now on messages of these names from this side get lost.
    Mute(usize, Vec<&'static str>),
    /// From now on somebody on the way from this side tampers with REPAIR.
    Tamper(usize, Tampering),
    /// The hosts of this connection say nothing more.
    Unplug(usize),
    /// Hosts at this side send so many datagrams, each to another queue pair, and as many once more.
    Datagrams(usize, u32),
    /// The hosts of this connection open it with messages of the connection manager.
    Opens(usize),
    /// The requester of this connection ends it with a message of the connection manager.
    Ends(usize),
}

/// What becomes of REPAIRs on the way, besides what the path does to them.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Tampering {
    /// Share of symbols that are damaged so that no device notices.
    pub spoils: f64,
    /// Share of answers to requests that get lost.
    pub loses: f64,
    /// Answers arrive as block information alone.
    pub hollows: bool,
}

/// Who sends forged messages, and what they know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forger {
    /// Another address; it knows what it overheard.
    Stranger,
    /// The peer's own address: what was overheard, with one octet changed.
    Nonsense,
    /// The peer's own address: well-formed messages that fit what was overheard.
    Crafty,
    /// Another address: it answers the HELLO that left last.
    Impostor,
    /// The peer's own address, or another one: a HELLO that arrived, once more.
    Echo,
}

/// What stands where the peer is expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// A gateway.
    Gateway,
    /// A gateway that knows Flow Kind 1 only.
    RequestsOnly,
    /// Nobody.
    Nobody,
}

/// A world to be.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it is, in a word or two.
    pub name: String,
    /// Determines every draw in the world.
    pub seed: u64,
    /// With or without octets.
    pub mode: Mode,
    /// When it ends if the connections are not done before.
    pub lasts: Duration,
    /// Traffic ends when hosts have sent so many packets.
    pub packets: u64,
    /// How long the gateways go on without traffic after that.
    pub linger: Duration,
    /// Hosts at each side.
    pub hosts: [u8; 2],
    /// Addresses of hosts and flows are IPv6.
    pub ipv6: bool,
    /// Between hosts and gateway, each direction of each host.
    pub lan: PathConfig,
    /// Between the gateways, from side 0 and from side 1.
    pub wan: [PathConfig; 2],
    /// Messages between gateways go another way than packets of hosts.
    pub channel: Option<[PathConfig; 2]>,
    /// Half of the packets of hosts go this way, past both gateways.
    pub bypass: Option<[PathConfig; 2]>,
    /// Gateways look at arrivals this often.
    pub poll: Duration,
    /// Symbol buffers of each gateway.
    pub slots: u32,
    /// What stands at each side.
    pub peers: [Peer; 2],
    /// Configuration of each gateway.
    pub core: [CoreConfig; 2],
    /// Octets of IP packets that pass between the gateways.
    pub path_mtu: u32,
    /// Connections.
    pub connections: Vec<Connection>,
    /// What happens, in order of time.
    pub steps: Vec<(Duration, Step)>,
    /// The paths tell what they drop, as Path Reporters.
    pub reporter: bool,
    /// Print every message between the gateways to standard error.
    pub trace: bool,
    /// Forged and broken messages a second that reach each gateway.
    pub hostile: f64,
    /// Who sends them.
    pub forger: Forger,
    /// How long a decode takes.
    pub decode_takes: Duration,
    /// Octets of state a flow at most, packets aside; looked at if given.
    pub state_limit: Option<u64>,
}

/// Packets of any length are coded ahead of their block's end, in few enough slots that some are not.
const AHEAD: Ahead = Ahead {
    slots: 64,
    shortest: 0,
};

/// The configuration of the gateway at `side` with the other one as its peer, everything else as it
/// comes.
pub fn plain(side: usize, path_mtu: u16) -> CoreConfig {
    let mut cfg = CoreConfig::new(gateway::PORT);
    cfg.own = vec![gateway::address(side).ip()];
    cfg.peers = draw::table(side, path_mtu);
    cfg.allowed_peers = vec![Prefix::host(gateway::address(1 - side).ip())];
    cfg.path_mtu = path_mtu;
    cfg
}

impl Scenario {
    /// How long packets may be held at a side, by each of its configurations.
    pub fn holds(&self, side: usize) -> Vec<Hold> {
        let later = self.steps.iter().filter_map(|(_, step)| match step {
            Step::Configure(at, cfg) if *at == side => Some(cfg.crf.hold),
            _ => None,
        });
        later.chain([self.core[side].crf.hold]).collect()
    }
}

/// Every so many seeds one is directed.
pub const DIRECTED: u64 = 4;

/// How many directed scenarios there are: after so many directed seeds the first one comes again.
pub const KINDS: u64 = directed::COUNT as u64;

/// The scenario of a seed: every fourth one is directed at something rare, the others are drawn.
pub fn of(seed: u64, mode: Mode) -> Scenario {
    if seed.is_multiple_of(DIRECTED) {
        directed::of(seed / DIRECTED, seed, mode)
    } else {
        draw::draw(seed, mode)
    }
}

/// An ordinary small world: six connections of 40 Mbit/s, two of them backwards, 20 ms round trip, about
/// one percent loss, for twelve seconds.
pub fn ordinary(seed: u64) -> Scenario {
    let mut scenario = directed::base(&mut Rng::new(seed), seed, Mode::Rank);
    scenario.name = "ordinary".into();
    scenario
}
