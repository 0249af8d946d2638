//! One cell of the write experiments: WRITEs of one size on one connection over one path, and how long
//! they took.

use crem_core::csf::CsfCounters;

use super::flow::{Flow, Traffic};
use super::pair::{Pair, PairConfig, Protection};
use super::wire::Tally;
use crate::endpoint::rc::{Recovery, Requester, RequesterConfig, Responder, ResponderConfig};
use crate::net::loss::Loss;
use crate::{Duration, Instant};

/// A cell.
#[derive(Clone, PartialEq, Debug)]
pub struct WriteCell {
    /// Gateways.
    pub protection: Protection,
    /// How the endpoints repair.
    pub recovery: Recovery,
    /// Round-trip time.
    pub rtt: Duration,
    /// Line rate of the host, bit/s.
    pub rate: u64,
    /// Rate of the gateway's WAN port, bit/s.
    pub port_rate: f64,
    /// Octets of a WRITE.
    pub octets: u32,
    /// WRITEs open at a time.
    pub outstanding: u32,
    /// Loss toward the receiver.
    pub loss: Loss,
    /// Loss of acknowledgments and CREM messages on the way back.
    pub back_loss: f64,
    /// Packets before the loss begins: a flow that is bound by then is not caught by a first window full
    /// of losses that nobody can repair.
    pub calm: u64,
    /// WRITEs before measuring begins.
    pub warm: u64,
    /// Packets after which measuring begins all the same, the calm ones among them.
    pub warm_budget: u64,
    /// WRITEs measured.
    pub messages: u64,
    /// Packets after which measuring ends, done or not.
    pub budget: u64,
    /// Determines everything random.
    pub seed: u64,
}

/// RDMA MTU of the experiments, octets.
pub const MTU: u16 = 4096;

/// What came of a cell.
#[derive(Clone, Debug)]
pub struct WriteResult {
    /// Completion times, sorted.
    pub times: Vec<Duration>,
    /// How long was measured.
    pub span: Duration,
    /// Octets of application data that the responder took meanwhile.
    pub taken: u64,
    /// What went toward the WAN meanwhile.
    pub tally: Tally,
    /// Host packets taken by the responder, each once.
    pub packets: u64,
    /// Host packets sent again.
    pub again: u64,
    /// The queue pair failed.
    pub failed: bool,
    /// Symbols a block, positions a block at the end.
    pub shape: Option<(u8, u8)>,
    /// What the sender function counted in all.
    pub csf: CsfCounters,
}

impl WriteResult {
    /// Mean completion time, seconds.
    pub fn mean(&self) -> f64 {
        let sum: f64 = self.times.iter().map(Duration::as_secs_f64).sum();
        sum / self.times.len().max(1) as f64
    }

    /// The completion time that this share of the WRITEs does not exceed, seconds.
    pub fn quantile(&self, share: f64) -> f64 {
        let rank = (self.times.len() as f64 * share).ceil() as usize;
        let time = self.times.get(rank.saturating_sub(1));
        time.map_or(f64::NAN, Duration::as_secs_f64)
    }

    /// Application data taken by the responder, bit/s.
    pub fn goodput(&self) -> f64 {
        self.taken as f64 * 8.0 / self.span.as_secs_f64().max(1e-9)
    }

    /// REPAIR with symbols per host packet.
    pub fn overhead(&self) -> f64 {
        self.tally.repair() as f64 / self.packets.max(1) as f64
    }
}

impl WriteCell {
    fn requester(&self) -> RequesterConfig {
        let mut config = RequesterConfig::for_path(self.recovery, MTU, self.rate, self.rtt);
        config.batch = Duration::from_micros(20);
        config
    }

    /// Runs the cell.
    pub fn run(&self) -> WriteResult {
        let requester = self.requester();
        let responder = ResponderConfig::facing(&requester);
        let flow = Flow::new(
            0,
            Traffic::Writes {
                requester: Box::new(Requester::new(requester)),
                responder: Box::new(Responder::new(responder)),
                octets: self.octets,
                outstanding: self.outstanding,
                messages: self.warm + self.messages,
            },
        );
        let mut config =
            PairConfig::new(self.protection.clone(), self.rtt, self.port_rate, self.seed);
        if self.calm == 0 {
            config.path.loss = self.loss.clone();
        }
        if let Loss::Uniform(rate) | Loss::Bursts { rate, .. } = self.loss {
            config.path.control_loss = rate;
        }
        (config.back_ack_loss, config.back_control_loss) = (self.back_loss, self.back_loss);
        let mut pair = Pair::new(config, vec![flow]);
        let done = |pair: &Pair, count: u64| pair.flows[0].completions.len() as u64 >= count;
        if self.calm > 0 {
            pair.run_while(|p| !failed(p) && p.tally().sources < self.calm);
            pair.path().set_loss(self.loss.clone());
        }
        let limit = self.warm_budget;
        pair.run_while(|p| !done(p, self.warm) && !failed(p) && p.tally().sources < limit);
        let start = Mark::of(&pair);
        let limit = start.tally.sources + self.budget;
        pair.run_while(|p| {
            !done(p, self.warm + self.messages) && !failed(p) && p.tally().sources < limit
        });
        result(&pair, &start)
    }
}

/// Where the counts stand.
struct Mark {
    now: Instant,
    completions: usize,
    tally: Tally,
    again: u64,
    unique: u64,
    octets: u64,
}

impl Mark {
    fn of(pair: &Pair) -> Self {
        let (again, taken) = match &pair.flows[0].traffic {
            Traffic::Writes {
                requester,
                responder,
                ..
            } => (requester.figures().again, responder.figures()),
            Traffic::Open { .. } => Default::default(),
        };
        Self {
            now: pair.now(),
            completions: pair.flows[0].completions.len(),
            tally: pair.tally(),
            again,
            unique: taken.unique,
            octets: taken.octets,
        }
    }
}

fn result(pair: &Pair, start: &Mark) -> WriteResult {
    let end = Mark::of(pair);
    let measured = &pair.flows[0].completions[start.completions..];
    let mut times: Vec<_> = measured.iter().map(|c| c.done.since(c.posted)).collect();
    times.sort_unstable();
    WriteResult {
        times,
        span: end.now.since(start.now),
        taken: end.octets - start.octets,
        tally: end.tally.since(&start.tally),
        packets: end.unique - start.unique,
        again: end.again - start.again,
        failed: failed(pair),
        shape: pair.csf.flows().next().map(|f| (f.m, f.k)),
        csf: pair.csf.counters(),
    }
}

fn failed(pair: &Pair) -> bool {
    match &pair.flows[0].traffic {
        Traffic::Writes { requester, .. } => requester.error().is_some(),
        Traffic::Open { .. } => false,
    }
}
