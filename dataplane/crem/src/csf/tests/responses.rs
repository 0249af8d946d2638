//! Streams of responses at the sender: when they are offered, and what an unanswered offer leads to
//! (AMB-READRESP).

use core::net::IpAddr;
use crem_wire::crem::Message;

use super::rig::{MS, RTT, Rig, config, gateway};
use crate::config::CoreConfig;
use crate::csf::State;
use crate::csf::testing::key;
use crate::packet::{PsnSpace, StreamKey};
use crate::time::Duration;

fn on() -> CoreConfig {
    CoreConfig {
        responses: true,
        ..config()
    }
}

fn responses(qp: u32) -> StreamKey {
    StreamKey {
        space: PsnSpace::Responses,
        ..key(qp)
    }
}

fn kinds(rig: &Rig) -> Vec<u8> {
    let kind = |m: &Message| match m {
        Message::Hello(hello) => Some(hello.kind),
        _ => None,
    };
    rig.messages.iter().filter_map(|m| kind(&m.2)).collect()
}

// shows: AMB-READRESP
#[test]
fn responses_are_offered_after_an_exchange_of_kind_1() {
    let mut rig = Rig::new(on());
    rig.paced(responses(9), 500..600, MS);
    assert!(kinds(&rig).is_empty());
    rig.psns(key(1), 0..16);
    rig.psns(responses(9), 600..601);
    assert_eq!(kinds(&rig), [1], "not before it is answered");
    rig.wait(RTT);
    rig.psns(responses(9), 601..602);
    assert_eq!(kinds(&rig).last(), Some(&0xc1));
    let next = rig.protect(responses(9), 602);
    rig.psns(responses(9), next..next + 32);
    assert!(!rig.sent.is_empty());
    assert_eq!(rig.status(responses(9)).state, State::Active);
}

// shows: AMB-READRESP
#[test]
fn an_exchange_as_receiver_allows_it_too() {
    let mut rig = Rig::new(on());
    rig.psns(responses(9), 500..540);
    let stranger = "203.0.113.1:50000".parse().unwrap();
    rig.csf
        .peer_met(stranger, key(1).destination, PsnSpace::Requests);
    rig.csf
        .peer_met(gateway(), key(1).destination, PsnSpace::Responses);
    rig.psns(responses(9), 540..541);
    assert!(kinds(&rig).is_empty());
    rig.csf
        .peer_met(gateway(), key(1).destination, PsnSpace::Requests);
    rig.psns(responses(9), 541..542);
    assert_eq!(kinds(&rig), [0xc1]);
}

// shows: AMB-READRESP, AMB-SCALE
#[test]
fn an_unanswered_offer_stops_the_kind_for_five_minutes_and_nothing_else() {
    let mut rig = Rig::new(on());
    let mut psn = rig.protect(key(1), 0);
    rig.deaf_to = Some(0xc1);
    rig.psns(responses(9), 500..516);
    rig.psns(responses(10), 900..916);
    let mut at = 516;
    let mut asked = 0;
    for second in 0..299 {
        for _ in 0..10 {
            rig.psns(key(1), psn..psn + 4);
            rig.psns(responses(9), [at]);
            rig.psns(responses(10), [at + 400]);
            (psn, at) = (psn + 4, at + 1);
            rig.wait(Duration::from_millis(100));
            rig.report(key(1), 4, 4);
        }
        asked = kinds(&rig).iter().filter(|kind| **kind == 0xc1).count();
        assert!(asked <= 16, "{asked} in {second} s");
        assert!(
            rig.csf
                .flows()
                .all(|f| f.key.space == PsnSpace::Responses || f.unprotected.is_none())
        );
    }
    assert_eq!(asked, 16, "both were offered at once, once");
    assert_eq!(rig.csf.counters().peers_dead, 0);
    // Other flows of Kind 1 are offered as ever.
    rig.protect(key(2), 0);
    rig.deaf_to = None;
    rig.paced(responses(9), at..at + 30, Duration::from_millis(100));
    assert_eq!(rig.status(responses(9)).state, State::Active);
}

// shows: AMB-READRESP
#[test]
fn a_peer_that_offers_responses_itself_is_asked_again_at_once() {
    let mut rig = Rig::new(on());
    rig.protect(key(1), 0);
    rig.answer = false;
    rig.psns(responses(9), 500..516);
    rig.wait(Duration::from_secs(5));
    rig.answer = true;
    rig.psns(responses(9), 516..517);
    assert_eq!(rig.status(responses(9)).state, State::Queued);
    let host: IpAddr = key(1).destination;
    rig.csf.peer_met(gateway(), host, PsnSpace::Responses);
    rig.psns(responses(9), 517..518);
    assert_eq!(rig.status(responses(9)).state, State::Hello);
}

// shows: AMB-READRESP, AMB-PSNSPACE
#[test]
fn both_spaces_of_a_queue_pair_are_flows_of_their_own() {
    let mut rig = Rig::new(on());
    let next = rig.protect(key(9), 5_000_000);
    let other = rig.protect(responses(9), 17);
    assert_ne!(rig.flow_id(key(9)), rig.flow_id(responses(9)));
    rig.psns(key(9), next..next + 16);
    rig.psns(responses(9), other..other + 16);
    rig.psns(key(9), next + 16..next + 32);
    rig.psns(responses(9), other + 16..other + 32);
    let starts: Vec<_> = rig
        .sent
        .iter()
        .map(|s| (s.emit.header.flow, s.emit.header.block_start.get()))
        .collect();
    assert!(starts.contains(&(rig.flow_id(key(9)), next)));
    assert!(starts.contains(&(rig.flow_id(responses(9)), other)));
    assert_eq!(rig.csf.counters().qp_reused, 0);
}

// shows: AMB-READRESP
#[test]
fn switching_responses_off_closes_their_flows_only() {
    let mut rig = Rig::new(on());
    rig.protect(key(1), 0);
    rig.protect(responses(9), 0);
    let id = rig.flow_id(responses(9));
    rig.csf.set_config(rig.now, config());
    rig.packets(&[]);
    assert_eq!(
        rig.closes().iter().map(|c| c.flow).collect::<Vec<_>>(),
        [id]
    );
    assert_eq!(rig.csf.flows().count(), 1);
}
