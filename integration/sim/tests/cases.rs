//! Cases whose right answer is known: what LOSS_REPORTs tell is the loss of the WAN and nothing else, and
//! protection is there for whom it should be.
#![allow(clippy::unwrap_used)]

use crem_sim::Duration;
use crem_sim::endpoint::rc::{Recovery, RequesterConfig};
use crem_sim::net::loss::Loss;
use crem_sim::net::path::PathConfig;
use crem_sim::scenario::{Peer, Scenario, ordinary};
use crem_sim::world::{Outcome, World};

const RTT: Duration = Duration::from_millis(20);

/// Four connections from side 0 that repeat selectively, one percent loss on the way there.
fn world(seed: u64, reads: f64) -> Scenario {
    let mut s = ordinary(seed);
    s.packets = 400_000;
    s.wan[0].loss = Loss::Uniform(0.01);
    s.wan[1].loss = Loss::None;
    s.connections.truncate(4);
    for connection in &mut s.connections {
        let recovery = Recovery::Selective { reorder: RTT / 8 };
        connection.transport = RequesterConfig::for_path(recovery, 1024, 40_000_000, RTT);
        connection.transport.retries = 200;
        connection.workload.reads = reads;
    }
    s
}

fn run(s: Scenario) -> Outcome {
    let outcome = World::run(s);
    assert_eq!(outcome.violations, Vec::<String>::new());
    outcome
}

/// Reported loss is within a fifth of the WAN's, and no breaker opened.
fn tells_the_truth(outcome: &Outcome) {
    let [crossed, lost] = outcome.sums.requests[0];
    let [expected, received] = outcome.reported[0];
    let truth = lost as f64 / crossed as f64;
    let told = (expected - received) as f64 / expected as f64;
    println!(
        "{}: lost {truth:.5} of {crossed}, told {told:.5} of {expected}",
        outcome.name
    );
    assert!(lost > 50, "{lost} losses");
    // What is sent again is no new position.
    assert!(expected * 4 > crossed, "{expected} of {crossed}");
    assert!(
        (told - truth).abs() <= truth / 5.0,
        "told {told}, truth {truth}"
    );
    let trips = ["breaker_trips", "path_breaker_trips", "breaker_closes"];
    let trips = trips.map(|name| outcome.coverage.counted("csf", name));
    assert_eq!(trips, [0; 3], "no breaker trips");
}

#[test]
fn reads_between_writes_are_no_loss() {
    // shows: CREM-FEC-08, AMB-LREXP
    let mut s = world(1, 0.5);
    s.name = "READ and WRITE".into();
    s.connections.truncate(1);
    s.connections[0].transport.rate = 100_000_000;
    tells_the_truth(&run(s));
}

#[test]
fn reads_alone_are_no_loss() {
    let mut s = world(2, 1.0);
    s.name = "READ only".into();
    for connection in &mut s.connections {
        connection.workload.max_octets = 2_048;
        connection.workload.outstanding = 64;
    }
    tells_the_truth(&run(s));
}

#[test]
fn loss_before_the_gateway_is_not_the_wans() {
    // shows: AMB-UPGAP
    let mut s = world(3, 0.0);
    s.name = "LAN loss".into();
    s.lan.loss = Loss::Uniform(0.02);
    tells_the_truth(&run(s));
}

#[test]
fn packets_over_another_box_are_not_lost() {
    let mut s = world(4, 0.0);
    s.name = "another box".into();
    s.bypass = Some([0, 1].map(|_| PathConfig::clean(RTT / 2)));
    tells_the_truth(&run(s));
}

#[test]
fn a_peer_that_knows_no_responses_keeps_all_requests_protected() {
    // shows: AMB-READRESP
    let mut s = world(5, 0.5);
    s.peers[1] = Peer::RequestsOnly;
    s.peers[0] = Peer::RequestsOnly;
    for cfg in &mut s.core {
        cfg.responses = true;
    }
    let connections = s.connections.len();
    let outcome = run(s);
    assert_eq!(outcome.protected, connections);
    assert_eq!(outcome.coverage.counted("csf", "peers_dead"), 0);
}

/// Messages of eight packets, far apart, with one symbol a block and blocks of up to 32 positions: blocks
/// become as long as the messages, so that each message earns its symbol.
#[test]
fn messages_of_eight_packets_earn_their_symbol() {
    // shows: AMB-BURSTEND
    let mut s = world(6, 0.0);
    s.name = "eight packets".into();
    for connection in &mut s.connections {
        connection.workload.outstanding = 1;
        connection.workload.min_octets = 8 * 1024;
        connection.workload.max_octets = 8 * 1024;
        connection.workload.pause = RTT / 4;
    }
    for cfg in &mut s.core {
        cfg.fec.k = 32;
        (cfg.fec.m_min, cfg.fec.m_max) = (1, 1);
    }
    let outcome = run(s);
    let (messages, symbols) = (outcome.sums.completed, outcome.sums.ordinary);
    let lost = outcome.sums.requests[0][1];
    let restored = outcome.coverage.counted("crf", "restored_ordinary");
    println!("{messages} messages, {symbols} symbols; {restored} of {lost} restored by them");
    assert!(messages > 1_000);
    assert!(symbols * 10 >= messages * 9, "a symbol for each");
    // What is lost together with another packet of its message is beyond one symbol.
    assert!(restored * 100 >= lost * 85);
}
