//! Leaving mode `active` with as many flows as a segment can have: how long a worker is kept from its ports,
//! and whether each flow is told its end once. Turns are timed by the thread's processor time, so that what
//! else the machine does is not in them.

use std::collections::HashMap;
use std::time::Duration;

use crem_api::Mode;
use crem_core::time::Instant;
use crem_dataplane::apply::{MakeRemake, Order};
use crem_dataplane::buffer::{BURST, Buffer};
use crem_dataplane::core_config::core_config;
use crem_dataplane::team::Place;
use crem_dpdk::Clock;
use crem_wire::crem::registry::CloseReason;
use crem_wire::crem::{Message, Parsed, parse};
use serde_json::{Value, json};

use crate::gateway::{Gateway, HEADERS};
use crate::port::Memory;
use crate::rows::{self, Plan, Pools};
use crate::timing::thread_time;
use crate::world::{World, is_source};

/// Where the length of UDP over IPv4 stands in a frame.
const LENGTH_AT: usize = 38;
/// Packets of a step.
const STEP: usize = 8192;
/// Rounds of all flows in which they have to become protected.
const ROUNDS: usize = 40;
/// Turns without a CLOSE after which there is none any more.
const QUIET: u32 = 2000;

/// What leaving took one gateway.
#[derive(Clone, Debug)]
pub struct Leaving {
    /// In words.
    pub title: String,
    /// Flows that it protected or restored.
    pub flows: usize,
    /// Flows that were told their end, with reason 0.
    pub told: usize,
    /// CLOSE messages beside those: a second one, or another reason.
    pub wrong: usize,
    /// The change itself: held frames go out.
    pub change: Duration,
    /// The longest turn that followed.
    pub longest: Duration,
    /// Turns until the last flow was told.
    pub turns: u32,
    /// Packets of hosts that came meanwhile, and that went on.
    pub packets: [usize; 2],
}

impl Leaving {
    /// Whether everybody was told, once, and every packet went on.
    pub fn is_right(&self) -> bool {
        self.told == self.flows && self.wrong == 0 && self.packets[0] == self.packets[1]
    }

    /// The report's line.
    pub fn line(&self) -> String {
        format!(
            "{:40} {} of {} flows told in {} turns, {} wrong; the change took {:.0} us, the longest turn {:.0} us; {} of {} packets went on",
            self.title,
            self.told,
            self.flows,
            self.turns,
            self.wrong,
            self.change.as_nanos() as f64 / 1e3,
            self.longest.as_nanos() as f64 / 1e3,
            self.packets[1],
            self.packets[0],
        )
    }

    /// For other programs.
    pub fn to_json(&self) -> Value {
        json!({
            "title": self.title,
            "flows": self.flows,
            "told": self.told,
            "wrong": self.wrong,
            "change_ns": self.change.as_nanos() as u64,
            "longest_turn_ns": self.longest.as_nanos() as u64,
            "turns": self.turns,
            "packets": self.packets[0],
            "packets_sent": self.packets[1],
        })
    }
}

/// What was measured with many flows.
#[derive(Clone, Debug)]
pub struct Many {
    /// Leaving, of both gateways.
    pub leaving: [Leaving; 2],
    /// The longest turn of either while all flows came at once.
    pub growing: Duration,
    /// The longest turn of either afterwards.
    pub steady: Duration,
    /// How long a list of all flows takes the first one, which it makes over many turns.
    pub listing: Duration,
}

impl Many {
    /// The report's line.
    pub fn line(&self) -> String {
        let us = |time: Duration| time.as_nanos() as f64 / 1e3;
        format!(
            "{:40} longest turn {:.0} us while they come, {:.0} us later; a list of them, over many turns, takes {:.0} us",
            format!("{} flows", self.leaving[0].flows),
            us(self.growing),
            us(self.steady),
            us(self.listing),
        )
    }

    /// For other programs.
    pub fn to_json(&self) -> Value {
        json!({
            "longest_turn_growing_ns": self.growing.as_nanos() as u64,
            "longest_turn_steady_ns": self.steady.as_nanos() as u64,
            "listing_ns": self.listing.as_nanos() as u64,
            "leaving": self.leaving.iter().map(Leaving::to_json).collect::<Vec<_>>(),
        })
    }
}

/// Has both gateways of a world leave the mode, the first one while its hosts send.
///
/// # Errors
/// What went wrong, in words.
pub fn measure(plan: &Plan, pools: &Pools, clock: Clock) -> Result<Many, String> {
    let mut world = rows::begun(plan, pools, clock)?;
    let flows = plan.setting.flows;
    longest(&mut world);
    protect(&mut world, flows * plan.setting.run)?;
    let growing = longest(&mut world);
    protect(&mut world, flows * plan.setting.run)?;
    let steady = longest(&mut world);
    let listing = list(&mut world)?;
    let about = |who: &str| format!("leaving active, {who}, {flows} flows");
    let sender = leave(&mut world, about("csf"), flows, true)?;
    let receiver = leave(&mut world, about("crf"), flows, false)?;
    Ok(Many {
        leaving: [sender, receiver],
        growing,
        steady,
        listing,
    })
}

/// The longest turn of a worker since this was asked last.
fn longest(world: &mut World) -> Duration {
    let seats = world.sender.seats.iter_mut();
    let seats = seats.chain(&mut world.receiver.seats);
    let turns = seats.filter_map(|seat| seat.longest.replace(Duration::ZERO));
    turns.max().unwrap_or_default()
}

/// Steps until every packet of a round of all flows is protected: flows are too many for a list.
fn protect(world: &mut World, round: usize) -> Result<(), String> {
    let steps = round.div_ceil(STEP);
    let mut last = (0, 0);
    for _ in 0..ROUNDS {
        for _ in 0..steps {
            world.step()?;
        }
        let [sender, _] = world.describe();
        let count = |wanted: &str| -> u64 {
            let counters = sender.iter().flat_map(|seat| &seat.csf);
            counters
                .filter(|(name, _)| *name == wanted)
                .map(|(_, n)| n)
                .sum()
        };
        let now = (count("packets"), count("sources_protected"));
        if now.0 > last.0 && now.0 - last.0 == now.1 - last.1 {
            return Ok(());
        }
        last = now;
    }
    Err(format!(
        "of {} packets only {} were protected",
        last.0, last.1
    ))
}

/// How long a worker takes to list its flows, as for the API.
fn list(world: &mut World) -> Result<Duration, String> {
    let seat = world.sender.seats.first_mut().ok_or("no worker")?;
    let mut flows = Vec::new();
    let before = thread_time();
    seat.segment.list_flows(0, &mut flows);
    Ok(thread_time().saturating_sub(before))
}

/// Lets the first gateway leave, or the second.
fn leave(
    world: &mut World,
    title: String,
    flows: usize,
    is_sender: bool,
) -> Result<Leaving, String> {
    let start = world.now().0;
    let gateway = if is_sender {
        &mut world.sender
    } else {
        &mut world.receiver
    };
    gateway.wan_sent();
    let mut order = passthrough(gateway);
    let make: MakeRemake<Memory> = Box::new(|_, _, _| None);
    let seat = gateway.seats.first_mut().ok_or("no worker")?;
    let before = thread_time();
    seat.segment.reconfigure(Instant(start), &mut order, &make);
    let mut leaving = Leaving {
        title,
        flows,
        told: 0,
        wrong: 0,
        change: thread_time().saturating_sub(before),
        longest: Duration::ZERO,
        turns: 0,
        packets: [0, 0],
    };
    let mut told = HashMap::new();
    let (mut turn, mut last) = (0, 0);
    while turn < last + QUIET {
        turn += 1;
        let now = start + u64::from(turn) * world.gap();
        if is_sender {
            world.arrive(BURST, |_| now)?;
            leaving.packets[0] += BURST;
        }
        let gateway = if is_sender {
            &mut world.sender
        } else {
            &mut world.receiver
        };
        let seat = gateway.seats.first_mut().ok_or("no worker")?;
        (seat.lan().now, seat.wan().now) = (now, now);
        let before = thread_time();
        seat.segment.turn(&|| Instant(now));
        leaving.longest = leaving.longest.max(thread_time().saturating_sub(before));
        seat.wan().note_sent();
        for (_, frame) in seat.wan().sent.drain(..) {
            leaving.packets[1] += usize::from(is_source(frame.octets()));
            if let Some((flow, reason)) = close(frame.octets()) {
                last = turn;
                let is_first = told.insert(flow, ()).is_none();
                let is_told = is_first && reason == CloseReason::Normal.code();
                leaving.told += usize::from(is_told);
                leaving.wrong += usize::from(!is_told);
            }
        }
    }
    leaving.turns = last;
    Ok(leaving)
}

/// The same segment in mode `passthrough`.
fn passthrough(gateway: &Gateway) -> Order {
    let mut config = gateway.config.clone();
    config.mode = Mode::Passthrough;
    let mut view = gateway.view.clone();
    view.active = false;
    let core = core_config(&config, &Place::ALONE);
    Order {
        segment: 0,
        config,
        view,
        core,
        anew: false,
    }
}

/// Flow ID and reason of a CLOSE.
fn close(frame: &[u8]) -> Option<(u32, u16)> {
    if is_source(frame) {
        return None;
    }
    // Short frames have octets behind the datagram.
    let length = usize::from(u16::from_be_bytes(
        frame.get(LENGTH_AT..LENGTH_AT + 2)?.try_into().ok()?,
    ));
    match parse(frame.get(HEADERS..HEADERS - 8 + length)?) {
        Ok(Parsed::Message(Message::Close(close))) => Some((close.flow.get(), close.reason)),
        _ => None,
    }
}
