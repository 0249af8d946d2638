//! What is measured: the rows of the table, and how each is brought about.

use std::collections::BTreeMap;
use std::rc::Rc;

use crem_dataplane::snapshot::SegmentSnapshot;
use crem_dpdk::{Clock, Eal, HEADROOM, Mempool, MempoolConfig};

use crate::alone::{self, Alone};
use crate::crew::Crew;
use crate::timing::{Cost, Meter};
use crate::world::{Setting, World};

/// Octets of hosts' frames in memory, far beyond any cache.
const RING_OCTETS: usize = 288 << 20;
/// Octets that a buffer takes besides its room.
const PER_BUFFER: usize = 192;
/// Packets that the sender function retains.
const RETAINED: u32 = 32_768;
/// Steps of the world in which every flow has to become protected.
const PATIENCE: usize = 1500;
/// Packets before measuring, once every flow is protected: as many as are retained, and more.
const SETTLE: usize = 10;
/// Steps measured, each of 8,192 packets.
pub const STEPS: usize = 24;

/// Workers of a gateway in rows that have several.
pub const WORKERS: u16 = 2;

/// The work of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Forwarding alone.
    Pass,
    /// The sender function.
    Send,
    /// The receiver function.
    Receive,
}

/// One row of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// In words, for choosing.
    pub title: String,
    /// What the gateway did.
    pub work: Work,
    /// World.
    pub setting: Setting,
    /// What it took.
    pub cost: Cost,
    /// Flows protected at the end, of all.
    pub protected: usize,
    /// Counters of interest over the measured part.
    pub counts: Vec<(String, u64)>,
}

impl Row {
    /// Gigabits of RDMA payload a second.
    /// Of all workers, were each at work all of the time.
    pub fn gigabits(&self, tsc_per_ns: f64) -> f64 {
        let workers = f64::from(self.setting.workers);
        workers * (self.setting.payload * 8) as f64 * tsc_per_ns / self.cost.mean
    }
}

/// Pools of both gateways by size of packets, and threads.
pub struct Pools {
    small: Option<[Mempool; 2]>,
    large: Option<[Mempool; 2]>,
    /// Threads for workers.
    crew: Rc<Crew>,
}

/// A world to measure with the titles of its rows.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Rows: work and title.
    pub rows: Vec<(Work, String)>,
    /// World.
    pub setting: Setting,
}

/// Everything that can be measured.
pub fn plans() -> Vec<Plan> {
    let mut plans = Vec::new();
    for (payload, ring) in [(2, RING_OCTETS), (4096, RING_OCTETS), (2, 1 << 20)] {
        plans.push(pass(payload, ring));
    }
    plans.push(metered(pass(2, RING_OCTETS)));
    for payload in [4096, 1024] {
        plans.push(metered(pair(64, payload, 2, 0)));
        for flows in [64, 1, 1024, 10_000] {
            for m in [0, 1, 4] {
                plans.push(pair(flows, payload, m, 0));
            }
            for loss in [0, 1000, 10_000] {
                plans.push(pair(flows, payload, 2, loss));
            }
        }
    }
    plans.push(several(pass(2, RING_OCTETS)));
    for payload in [4096, 1024] {
        for loss in [0, 10_000] {
            plans.push(several(pair(64, payload, 2, loss)));
        }
    }
    plans
}

/// The world of which both gateways leave the mode. Blocks of two: the receiver keeps one of each flow.
pub fn leaving() -> Plan {
    let mut plan = pair(100_000, 1024, 2, 0);
    plan.setting.k = 2;
    plan.rows = vec![(Work::Send, "leaving flows=100000".to_owned())];
    plan
}

/// The same with two workers of each gateway.
fn several(mut plan: Plan) -> Plan {
    plan.setting.workers = WORKERS;
    for (_, title) in &mut plan.rows {
        title.push_str(" workers=2");
    }
    plan
}

/// The same with observation.
fn metered(mut plan: Plan) -> Plan {
    plan.setting.metered = true;
    // It is the first gateway that observes frames of hosts.
    plan.rows.retain(|(work, _)| *work != Work::Receive);
    for (_, title) in &mut plan.rows {
        title.push_str(" metered");
    }
    plan
}

fn size(payload: usize) -> &'static str {
    match payload {
        4096 => "4KiB",
        1024 => "1KiB",
        _ => "64B",
    }
}

fn pass(payload: usize, ring_octets: usize) -> Plan {
    let place = if ring_octets < RING_OCTETS {
        "hot"
    } else {
        "memory"
    };
    let title = format!("passthrough {} {place}", size(payload));
    let setting = Setting {
        flows: 64,
        payload,
        run: 8,
        k: 32,
        m: None,
        loss_ppm: 0,
        rate: 10_000_000,
        retained: RETAINED,
        ring: ring_octets / room(payload),
        metered: false,
        workers: 1,
    };
    Plan {
        rows: vec![(Work::Pass, title)],
        setting,
    }
}

fn pair(flows: usize, payload: usize, m: u8, loss_ppm: u32) -> Plan {
    let loss = match loss_ppm {
        0 => "clean",
        1000 => "loss=0.1%",
        _ => "loss=1%",
    };
    let about = format!("{} m={m} flows={flows}", size(payload));
    let mut rows = Vec::new();
    if loss_ppm == 0 {
        rows.push((Work::Send, format!("csf {about}")));
    }
    if m == 2 {
        rows.push((Work::Receive, format!("crf {about} {loss}")));
    }
    let setting = Setting {
        flows,
        payload,
        run: 8,
        k: 32,
        m: Some(m),
        loss_ppm,
        // 100 and 40 Gbit/s.
        rate: if payload == 4096 {
            3_050_000
        } else {
            4_880_000
        },
        retained: RETAINED,
        ring: RING_OCTETS / room(payload),
        metered: false,
        workers: 1,
    };
    Plan { rows, setting }
}

/// Octets of a buffer with what the pool adds.
fn room(payload: usize) -> usize {
    usize::from(buffer(payload)) + PER_BUFFER
}

fn buffer(payload: usize) -> u16 {
    // The room of a symbol and its headers at a path MTU of 4214, and the 2 KiB of small elements.
    let octets = if payload == 4096 { 190 + 4214 } else { 2048 };
    octets + HEADROOM
}

fn counts(payload: usize) -> [u32; 2] {
    let ring = (RING_OCTETS / room(payload)) as u32;
    // Each keeps and retains packets; the path has as many under way as come in half a round trip.
    let kept = if payload == 4096 { 1 << 18 } else { 1 << 19 };
    [ring + RETAINED + (1 << 14), kept - 1]
}

/// Memory that the pools of these plans need, MB.
pub fn needed_mb(plans: &[Plan]) -> u32 {
    let sizes = [2, 4096].into_iter().filter(|size| is_wanted(plans, *size));
    sizes
        .flat_map(|payload| configs(payload).map(|config| config.needed_mb()))
        .sum()
}

fn is_wanted(plans: &[Plan], size: usize) -> bool {
    let is_large = |payload| payload == 4096;
    let mut sizes = plans.iter().map(|plan| plan.setting.payload);
    sizes.any(|payload| is_large(payload) == is_large(size))
}

fn configs(payload: usize) -> [MempoolConfig<'static>; 2] {
    let [sender, receiver] = counts(payload);
    [("sender", sender), ("receiver", receiver)].map(|(name, count)| MempoolConfig {
        name,
        count,
        room: buffer(payload),
        ..MempoolConfig::default()
    })
}

impl Pools {
    /// The pools that these plans need, with threads for their workers.
    ///
    /// # Errors
    /// No memory.
    pub fn new(eal: &Eal, plans: &[Plan], crew: Crew) -> Result<Self, crem_dpdk::Error> {
        let pools = |payload| -> Result<Option<[Mempool; 2]>, crem_dpdk::Error> {
            if !is_wanted(plans, payload) {
                return Ok(None);
            }
            let [sender, receiver] = configs(payload);
            Ok(Some([eal.mempool(&sender)?, eal.mempool(&receiver)?]))
        };
        Ok(Self {
            small: pools(2)?,
            large: pools(4096)?,
            crew: Rc::new(crew),
        })
    }

    /// What coding alone takes from memory, for each size of packets: one symbol and two.
    ///
    /// # Errors
    /// What does not fit, in words.
    pub fn alone(&self) -> Result<Vec<Alone>, String> {
        let mut all = Vec::new();
        for payload in [4096, 1024] {
            let Some([pool, _]) = self.of(payload) else {
                continue;
            };
            for m in [1, 2] {
                all.push(alone::measure(
                    pool,
                    payload,
                    m,
                    RING_OCTETS / room(payload),
                )?);
            }
        }
        Ok(all)
    }

    fn of(&self, payload: usize) -> Option<[&Mempool; 2]> {
        let pools = if payload == 4096 {
            &self.large
        } else {
            &self.small
        };
        pools.as_ref().map(|[sender, receiver]| [sender, receiver])
    }
}

/// A world that begins.
///
/// # Errors
/// What does not fit, in words.
pub fn begun(plan: &Plan, pools: &Pools, clock: Clock) -> Result<World, String> {
    let crew = Rc::clone(&pools.crew);
    let pools = pools.of(plan.setting.payload).ok_or("no pool")?;
    let mut world = World::new(plan.setting, pools, clock, crew)?;
    world.measure(false);
    Ok(world)
}

/// Brings a world up to where it is measured: every flow protected, retention full.
///
/// # Errors
/// That it did not get there, in words.
pub fn settled(plan: &Plan, pools: &Pools, clock: Clock) -> Result<World, String> {
    let mut world = begun(plan, pools, clock)?;
    let flows = plan.setting.flows;
    if plan.setting.m.is_some() {
        let mut steps = 0;
        while world.protected() != (flows, flows) {
            if steps >= PATIENCE {
                let (sending, restoring) = world.protected();
                return Err(format!(
                    "of {flows} flows {sending} became protected, {restoring} bound; the others: {:?}",
                    world.unprotected()
                ));
            }
            for _ in 0..10 {
                world.step()?;
            }
            steps += 10;
        }
    }
    for _ in 0..SETTLE {
        world.step()?;
    }
    Ok(world)
}

/// Measures a plan.
///
/// # Errors
/// What went wrong, in words: then there is no row.
pub fn measure(plan: &Plan, pools: &Pools, clock: Clock, steps: usize) -> Result<Vec<Row>, String> {
    let mut world = settled(plan, pools, clock)?;
    let before = world.describe();
    world.measure(true);
    for _ in 0..steps {
        world.step()?;
    }
    let after = world.describe();
    let (sending, restoring) = world.protected();
    let flows = plan.setting.flows;
    if plan.setting.m.is_some() && (sending, restoring) != (flows, flows) {
        return Err(format!(
            "of {flows} flows {sending} were still protected, {restoring} bound"
        ));
    }
    let row = |(work, title): &(Work, String)| {
        let (gateway, number) = match work {
            Work::Pass | Work::Send => (&world.sender, 0),
            Work::Receive => (&world.receiver, 1),
        };
        Row {
            title: title.clone(),
            work: *work,
            setting: plan.setting,
            cost: Meter::cost(gateway.seats.iter().map(|seat| &seat.meter)),
            protected: sending.min(restoring),
            counts: changes(&before[number], &after[number]),
        }
    };
    Ok(plan.rows.iter().map(row).collect())
}

/// Counters that changed, of all workers together.
fn changes(before: &[SegmentSnapshot], after: &[SegmentSnapshot]) -> Vec<(String, u64)> {
    let list = |of: &[SegmentSnapshot]| {
        let mut all = BTreeMap::new();
        let mut add = |name: String, n: u64| *all.entry(name).or_insert(0) += n;
        for of in of {
            let c = &of.counters;
            c.drops.for_each(|name, n| add(format!("drops.{name}"), n));
            c.coding
                .for_each(|name, n| add(format!("coding.{name}"), n));
            c.team.for_each(|name, n| add(format!("team.{name}"), n));
            let functions = [("csf", &of.csf), ("crf", &of.crf)];
            for (function, counters) in functions {
                let counters = counters.iter();
                counters.for_each(|(name, n)| add(format!("{function}.{name}"), *n));
            }
        }
        all
    };
    let (before, after) = (list(before), list(after));
    let grown = after.into_iter().map(|(name, n)| {
        let grown = n.wrapping_sub(before.get(&name).copied().unwrap_or(0));
        (name, grown)
    });
    grown.filter(|(_, n)| *n > 0).collect()
}
