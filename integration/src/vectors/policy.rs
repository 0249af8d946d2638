//! The redundancy policy, the timers of the negotiation and the circuit breaker. The timers are read off a
//! sender function whose peer keeps silent.

use std::net::{IpAddr, SocketAddr};

use crem_core::actions::{Actions, SlotId};
use crem_core::config::{CoreConfig, Prefix};
use crem_core::csf::Csf;
use crem_core::events::Event;
use crem_core::packet::{Desc, Namespace, PktBuf, PsnSpace, StreamKey};
use crem_core::policy::{Bounds, Breaker, Interval, Losses, Targets, excess_probability, need};
use crem_core::time::{Duration, Instant};
use crem_wire::crem::registry::CloseReason;
use crem_wire::crem::{Hello, HelloAck, Message};
use crem_wire::{FlowId, Psn, Qpn};
use serde::Deserialize;
use serde_json::Value;

use super::case::{Tally, equal};

#[derive(Deserialize)]
struct Policy {
    k: u8,
    p: String,
    eps: String,
    m: Option<u8>,
    tail: Option<f64>,
    tail_at_m_minus_1: Option<f64>,
}

#[derive(Deserialize)]
struct Sends {
    #[serde(default)]
    srtt_ms: f64,
    send_ms: Vec<f64>,
    give_up_ms: f64,
}

#[derive(Deserialize)]
struct Window {
    reports: Vec<(u64, u64, u64)>,
    trip: bool,
}

pub(super) fn run(document: &Value, tally: &mut Tally) -> &'static [&'static str] {
    // shows: CREM-POL-06, CREM-POL-08
    tally.each(document, "policy", symbols);
    // shows: CREM-PARAM-03
    tally.each(document, "param_update", param_update);
    // shows: CREM-CC-10
    tally.each(document, "breaker", breaker);
    if let Some(timers) = document.get("hello") {
        let result = Sends::deserialize(timers)
            .map_err(|error| format!("unexpected shape: {error}"))
            .and_then(|case| hello(&case));
        tally.check(|| "hello".to_owned(), result);
    }
    &["policy", "param_update", "breaker"]
}

fn symbols(case: Policy) -> Result<(), String> {
    let number = |text: &str| text.parse::<f64>().map_err(|error| error.to_string());
    let (p, epsilon) = (number(&case.p)?, number(&case.eps)?);
    let largest = u8::try_from(256 - u16::from(case.k)).unwrap_or(u8::MAX);
    let bounds = Bounds {
        min: 0,
        max: u8::MAX,
    };
    let targets = Targets {
        epsilon,
        ..Targets::default()
    };
    let found = need(case.k, Losses::independent(p), &targets, bounds);
    let m = found.m;
    equal("m", case.m.unwrap_or(largest), m)?;
    equal("reached", case.m.is_some(), found.reached)?;
    close_to("tail", case.tail, case.k, Some(m), p)?;
    close_to(
        "tail at m - 1",
        case.tail_at_m_minus_1,
        case.k,
        m.checked_sub(1),
        p,
    )
}

fn close_to(what: &str, tail: Option<f64>, k: u8, m: Option<u8>, p: f64) -> Result<(), String> {
    let (Some(expected), Some(m)) = (tail, m) else {
        return Ok(());
    };
    let found = excess_probability(k, m, p);
    if (found - expected).abs() <= expected.abs() * 1e-9 {
        Ok(())
    } else {
        Err(format!("{what}: expected {expected:e}, found {found:e}"))
    }
}

/// The reports divide the window of one second evenly.
fn breaker(case: Window) -> Result<(), String> {
    let mut breaker = Breaker::default();
    let length = Duration::from_secs(1) / u32::try_from(case.reports.len()).unwrap_or(1).max(1);
    let mut now = Instant(1_000_000_000_000);
    for (expected, received, ce) in case.reports {
        now = now + length;
        let _ = breaker.on_report(
            now,
            &Interval {
                length,
                expected,
                received,
                ce,
            },
        );
    }
    equal("trip", case.trip, breaker.is_open())
}

fn hello(case: &Sends) -> Result<(), String> {
    let mut rig = Rig::new();
    let mut sent = Vec::new();
    let give_up = rig.until(|at, seen| match seen {
        Seen::Message(Message::Hello(_)) => {
            sent.push(at);
            false
        }
        Seen::Event(Event::PeerDead(_)) => true,
        _ => false,
    });
    compare(case, &sent, give_up)
}

fn param_update(case: Sends) -> Result<(), String> {
    let mut rig = Rig::new();
    let srtt = Duration::from_secs_f64(case.srtt_ms / 1e3);
    rig.answer_hello(srtt)?;
    let mut sent = Vec::new();
    let give_up = rig.until(|at, seen| match seen {
        Seen::Message(Message::ParamUpdate(_)) => {
            sent.push(at);
            false
        }
        Seen::Message(Message::Close(close)) => close.reason == CloseReason::SyncFailed.code(),
        _ => false,
    });
    compare(&case, &sent, give_up)
}

fn compare(case: &Sends, sent: &[Instant], give_up: Option<Instant>) -> Result<(), String> {
    let first = sent.first().copied().ok_or("nothing was sent")?;
    let after = |at: Instant| at.since(first).as_secs_f64() * 1e3;
    let times: Vec<f64> = sent.iter().map(|at| after(*at)).collect();
    let near = |a: f64, b: f64| (a - b).abs() < 0.01;
    let equal_times = times.len() == case.send_ms.len()
        && times.iter().zip(&case.send_ms).all(|(a, b)| near(*a, *b));
    if !equal_times {
        return Err(format!(
            "send times: expected {:?}, found {times:?}",
            case.send_ms
        ));
    }
    match give_up.map(after) {
        Some(found) if near(found, case.give_up_ms) => Ok(()),
        found => Err(format!(
            "give-up: expected {}, found {found:?}",
            case.give_up_ms
        )),
    }
}

#[derive(Clone)]
struct Frame;

impl PktBuf for Frame {}

enum Seen<'a> {
    Message(&'a Message),
    Event(&'a Event),
}

/// A sender function with one flow that asks for protection.
struct Rig {
    csf: Csf<Frame>,
    actions: Actions<Frame>,
    now: Instant,
}

/// No exchange takes longer.
const LONG: Duration = Duration::from_secs(20);

fn peer() -> SocketAddr {
    SocketAddr::new(IpAddr::from([192, 0, 2, 2]), 50_000)
}

impl Rig {
    fn new() -> Self {
        let mut cfg = CoreConfig::new(50_000);
        cfg.allowed_peers = vec![Prefix::host(peer().ip())];
        let burst: Vec<_> = (0..cfg.csf.start_after).map(source).collect();
        let mut rig = Self {
            csf: Csf::new(cfg, [3; 32]),
            actions: Actions {
                free_slots: (0..64).map(SlotId).collect(),
                ..Actions::default()
            },
            now: Instant(1_000_000_000),
        };
        rig.csf.on_burst(rig.now, &burst, &mut rig.actions);
        rig
    }

    /// Passes time until `look` has seen what it waits for; when that was.
    fn until(&mut self, mut look: impl FnMut(Instant, Seen<'_>) -> bool) -> Option<Instant> {
        let end = self.now + LONG;
        loop {
            let mut found = false;
            while let Some(transmit) = self.csf.poll_transmit() {
                found |= look(self.now, Seen::Message(&transmit.message));
            }
            while let Some(event) = self.csf.poll_event() {
                found |= look(self.now, Seen::Event(&event));
            }
            if found {
                return Some(self.now);
            }
            self.now = self
                .csf
                .next_timeout()
                .filter(|at| *at <= end)?
                .max(self.now);
            self.csf.on_timeout(self.now, &mut self.actions);
            self.actions.clear();
        }
    }

    /// Answers the first HELLO `srtt` after it was sent.
    fn answer_hello(&mut self, srtt: Duration) -> Result<(), String> {
        let mut first: Option<Hello> = None;
        let at = self.until(|_, seen| {
            if let Seen::Message(Message::Hello(hello)) = seen {
                first = Some(*hello);
            }
            first.is_some()
        });
        let (Some(hello), Some(at)) = (first, at) else {
            return Err("no HELLO was sent".to_owned());
        };
        while let Some(due) = self.csf.next_timeout().filter(|due| *due < at + srtt) {
            self.csf.on_timeout(due.max(self.now), &mut self.actions);
        }
        while self.csf.poll_transmit().is_some() {}
        self.now = at + srtt;
        let ack = Message::HelloAck(HelloAck {
            flow: FlowId::new(77).ok_or("77 is a Flow ID")?,
            kind: hello.kind,
            af: 4,
            limits: hello.limits,
            rdma_mtu: hello.rdma_mtu,
            nonce: hello.nonce,
            max_open_blocks: 1024,
        });
        self.csf
            .on_message(self.now, peer(), &ack, false, &mut self.actions);
        Ok(())
    }
}

/// A source packet of the flow.
fn source(psn: u32) -> Desc<Frame> {
    Desc {
        key: StreamKey {
            namespace: Namespace(0),
            source: IpAddr::from([10, 0, 1, 1]),
            destination: IpAddr::from([10, 0, 2, 1]),
            qp: Qpn::new(17),
            space: PsnSpace::Requests,
        },
        psn: Psn::new(psn),
        opcode: 7,
        payload_len: 1040,
        payload_off: 42,
        mtu_seen: Some(1024),
        read_length: None,
        ce: false,
        dscp: 26,
        buf: Frame,
    }
}
