//! Ten thousand flows between two gateways at 20 ms: what each costs in memory, and that all of them are
//! protected at once.

use super::{Connection, Scenario, directed};
use crate::endpoint::rc::{Recovery, RequesterConfig};
use crate::endpoint::rc_end::Workload;
use crate::frame::Mode;
use crate::net::loss::Loss;
use crate::net::path::PathConfig;
use crate::rng::Rng;
use crate::{Duration, Instant};

/// Flows.
pub const FLOWS: u32 = 10_000;
/// State of a flow at either side, packets aside: octets at most.
pub const STATE: u64 = 2048;
/// The seed that all of it comes from.
pub const SEED: u64 = 10_000;
/// LOSS_REPORTs a second: one for each flow and round trip.
const REPORTS: u32 = 500_000;
const RTT: Duration = Duration::from_millis(20);
const LASTS: Duration = Duration::from_secs(2);
/// Flows begin within this.
const BEGINNING: f64 = 0.5;

/// The world of [`FLOWS`] flows.
pub fn many() -> Scenario {
    let mut rng = Rng::new(SEED);
    let mut s = directed::base(&mut rng, SEED, Mode::Rank);
    s.name = "many flows".into();
    s.lasts = LASTS;
    s.packets = u64::MAX;
    s.hosts = [4, 4];
    s.state_limit = Some(STATE);
    let mut path = PathConfig::clean(RTT / 2);
    path.loss = Loss::Uniform(0.001);
    s.wan = [path.clone(), path];
    for cfg in &mut s.core {
        cfg.csf.report_budget = REPORTS;
        cfg.crf.report_budget = REPORTS;
        cfg.csf.hello_rate = FLOWS;
    }
    s.connections = (0..FLOWS).map(|n| connection(&mut rng, n)).collect();
    s
}

/// Messages of a few packets, some sixty packets a second.
fn connection(rng: &mut Rng, number: u32) -> Connection {
    let recovery = if number.is_multiple_of(2) {
        Recovery::GoBackN
    } else {
        Recovery::Selective { reorder: RTT / 8 }
    };
    let mut transport = RequesterConfig::for_path(recovery, 1024, 20_000_000, RTT);
    transport.first = rng.below(1 << 24);
    transport.retries = 200;
    Connection {
        side: 0,
        hosts: [(number % 4) as u8, (number / 4 % 4) as u8],
        namespace: 0,
        qp: 100 + number,
        transport,
        workload: Workload {
            start: Instant((BEGINNING * rng.unit() * 1e9) as u64),
            messages: u32::MAX,
            outstanding: 1,
            min_octets: 2_048,
            max_octets: 16_384,
            reads: 0.0,
            pause: RTT * 4,
        },
    }
}
