//! Two gateways of several workers each, with a lossy wire between them: flows live at their owners,
//! whatever queue their packets come in by, and nobody outside can tell how many workers there are.

use std::sync::Arc;

use super::*;
use crate::buffer::Platform;
use crate::inband::Stations;
use crate::protect::Share;
use crate::team::{Outlet, Place, teams};

/// Queues on the heap, of its own or another worker's.
struct HeapTeam;

impl Platform for HeapTeam {
    type Buf = HeapBuf;
    type Pool = HeapPool;
    type Port = Outlet<HeapPort, HeapBuf>;
}

const WORKERS: u16 = 4;
const FLOWS: u32 = 12;

/// How a port's frames come to workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Queues {
    /// One queue, of worker 0.
    One,
    /// A queue for each worker; all packets of two hosts come in by one of them.
    ByAddresses,
}

struct Gateway {
    workers: Vec<Segment<HeapTeam>>,
    queues: Queues,
}

fn queue(segment: &mut Segment<HeapTeam>, side: Side) -> Option<&mut HeapPort> {
    let egress = match side {
        Side::Lan => &mut segment.lan.device,
        Side::Wan => &mut segment.wan.device,
    };
    match egress {
        Outlet::Queue(port) => Some(port),
        Outlet::Relay { .. } => None,
    }
}

impl Gateway {
    fn new(own: usize, queues: Queues, policy: &str) -> Self {
        let stations: Arc<Stations> = Arc::default();
        let mut relays = Vec::new();
        let mut outlet = |index: u16, side| match queues {
            Queues::One if index > 0 => {
                let (outlet, takes) = crate::team::relay();
                relays.push((side, takes));
                outlet
            }
            _ => Outlet::Queue(HeapPort::default()),
        };
        let ports: Vec<_> = (0..WORKERS)
            .map(|index| (outlet(index, Side::Lan), outlet(index, Side::Wan)))
            .collect();
        let teams = teams::<HeapTeam>(WORKERS, own as u64, 64, relays);
        let workers = teams.into_iter().zip(ports).map(|(team, (lan, wan))| {
            let mut config = config(own, true, policy);
            // All flows at one worker must find room in its share.
            config.limits.retained_frames = 1 << 15;
            config.limits.held_frames = 1 << 15;
            let station = station(own, None);
            let view = view(&config, station);
            let port = team.is_home().then(|| Outlet::Queue(HeapPort::default()));
            let stations = Arc::clone(&stations);
            let mut inband = Inband::shared(station, port, Side::Wan, stations, Instant(0));
            inband.set_next_hop(address(GATEWAYS[1 - own]), Some(gateway_mac(1 - own)));
            let share = Share {
                place: team.place,
                directory: Some(Arc::clone(&team.directory)),
            };
            let seen = view.clone();
            let remake: Remake<HeapTeam> = Box::new(move || {
                let worker = u8::try_from(share.place.index).unwrap();
                let seed = [u8::try_from(own).unwrap() * 16 + worker + 1; 32];
                let (engine, at) = (Engine::scalar(), station.address);
                let share = share.clone();
                Some(Protection::new(&config, at, &seen, engine, seed, share))
            });
            Segment::new(Parts {
                mode: Mode::Active,
                view,
                lan,
                wan,
                pool: HeapPool::default(),
                inband: Some(inband),
                wan_rate: None,
                remake: Some(remake),
            })
            .with_team(team)
        });
        Self {
            workers: workers.collect(),
            queues,
        }
    }

    fn arrive(&mut self, side: Side, frame: &[u8]) {
        let queue_of = match self.queues {
            Queues::One => 0,
            // Messages between gateways come in by another one than what they are about.
            Queues::ByAddresses if psn_of(frame).is_none() => 3,
            Queues::ByAddresses => 1,
        };
        let port = queue(&mut self.workers[queue_of], side).unwrap();
        port.arrive(frame);
    }

    fn sent(&mut self, side: Side) -> Vec<HeapBuf> {
        let ports = self.workers.iter_mut().filter_map(|w| queue(w, side));
        ports.flat_map(|port| port.sent.drain(..)).collect()
    }

    /// Every worker's part, and the sum of all.
    fn snapshots(&mut self) -> (Vec<SegmentSnapshot>, crate::counters::SegmentCounters) {
        let mut sum = crate::counters::SegmentCounters::default();
        let describe = |worker: &mut Segment<HeapTeam>| {
            let mut snapshot = SegmentSnapshot::default();
            worker.describe(&mut snapshot);
            sum.add(&snapshot.counters);
            snapshot
        };
        let all = self.workers.iter_mut().map(describe).collect();
        (all, sum)
    }
}

struct Pair {
    gateways: [Gateway; 2],
    wires: [VecDeque<(u64, HeapBuf)>; 2],
    now: u64,
    /// This worker of the second gateway is not scheduled.
    stuck: Option<usize>,
}

impl Pair {
    fn new(queues: Queues) -> Self {
        Self::with_policy(queues, "m_min = 2, initial_loss = 0.02")
    }

    fn with_policy(queues: Queues, policy: &str) -> Self {
        Self {
            gateways: [0, 1].map(|own| Gateway::new(own, queues, policy)),
            wires: Default::default(),
            now: 1_000_000,
            stuck: None,
        }
    }

    fn step(&mut self, loses: &impl Fn(&[u8]) -> bool) {
        self.now += STEP_NS;
        let now = self.now;
        for (from, wire) in self.wires.iter_mut().enumerate() {
            while wire.front().is_some_and(|(due, _)| *due <= now) {
                let (_, frame) = wire.pop_front().unwrap();
                self.gateways[1 - from].arrive(Side::Wan, frame.octets());
            }
            let gateway = &mut self.gateways[from];
            for (number, worker) in gateway.workers.iter_mut().enumerate() {
                if from == 0 || self.stuck != Some(number) {
                    worker.turn(&|| Instant(now));
                }
            }
            for frame in gateway.sent(Side::Wan) {
                if !loses(frame.octets()) {
                    wire.push_back((now + DELAY_NS, frame));
                }
            }
        }
    }

    /// Sends `count` packets of each flow, and gives back what arrived.
    fn transfer(&mut self, count: u32, loses: impl Fn(u32, u32) -> bool) -> Vec<HeapBuf> {
        let lose = |frame: &[u8]| flow_and_psn(frame).is_some_and(|(qp, psn)| loses(qp, psn));
        let mut arrived = Vec::new();
        for n in 0..2 * count + 1000 {
            if n % 2 == 0 && n / 2 < count {
                for flow in 0..FLOWS {
                    self.gateways[0].arrive(Side::Lan, &packet_of(flow, n / 2));
                }
            }
            self.step(&lose);
            arrived.extend(self.gateways[1].sent(Side::Lan));
        }
        arrived
    }
}

/// A packet of one of several flows, from a UDP source port that is another one every 40 packets. Were it
/// another one for each packet, nobody could tell which one a lost packet had.
fn packet_of(flow: u32, psn: u32) -> Vec<u8> {
    let mut octets = packet(psn);
    let port = u16::try_from(49_152 + (psn / 40 * 7919 + flow) % 16_384).unwrap();
    octets[34..36].copy_from_slice(&port.to_be_bytes());
    octets[42 + 7] = u8::try_from(0x20 + flow).unwrap();
    let parsed = frame::parse(&octets, &ParseConfig::default());
    assert!(icrc::write_frame(&mut octets, &parsed));
    octets
}

fn flow_and_psn(frame: &[u8]) -> Option<(u32, u32)> {
    match frame::parse(frame, &ParseConfig::default()).class {
        frame::Class::Roce(bth) => Some((bth.dest_qp.get() - 0x20, bth.psn.get())),
        _ => None,
    }
}

/// PSNs of each flow in the order of arrival.
fn by_flow(arrived: &[HeapBuf]) -> Vec<Vec<u32>> {
    let mut flows = vec![Vec::new(); FLOWS as usize];
    for (flow, psn) in arrived.iter().filter_map(|f| flow_and_psn(f.octets())) {
        flows[flow as usize].push(psn);
    }
    flows
}

/// Where the PSNs of a flow are not all from 0 on, in order: the places, and what is there.
fn strays(psns: &[u32], count: u32) -> Vec<(u32, Option<u32>)> {
    let found = (0..count).map(|n| (n, psns.get(n as usize).copied()));
    found.filter(|(n, psn)| *psn != Some(*n)).take(5).collect()
}

fn value(counters: &[(&'static str, u64)], name: &str) -> u64 {
    counters.iter().find(|(n, _)| *n == name).unwrap().1
}

// shows: CREM-RECV-13, CREM-ARCH-04, CREM-PR-13
#[test]
fn order_and_repair_do_not_depend_on_who_receives() {
    for queues in [Queues::One, Queues::ByAddresses] {
        let mut pair = Pair::new(queues);
        let lost = |_: u32, psn: u32| psn > 1000 && psn % 40 == 7;
        let arrived = pair.transfer(2500, lost);
        for (flow, psns) in by_flow(&arrived).into_iter().enumerate() {
            assert_eq!(strays(&psns, 2500), [], "{queues:?} flow {flow}");
        }
        let each = 0..FLOWS;
        let count = each.flat_map(|f| (0..2500).map(move |p| (f, p)));
        let count = count.filter(|(f, p)| lost(*f, *p)).count() as u64;
        let (workers, sum) = pair.gateways[1].snapshots();
        assert_eq!(sum.coding.restored, count, "{queues:?}");
        assert_eq!(sum.drops, Default::default(), "{queues:?}");
        let busy = workers.iter().filter(|w| w.counters.coding.restored > 0);
        assert!(busy.count() >= 3, "{queues:?}: flows are spread");
        let (received, handed) = (sum.team.received_in, sum.team.received_out);
        assert!(received == handed && handed > 10_000, "{queues:?}");
        let (workers, sum) = pair.gateways[0].snapshots();
        assert_eq!(sum.drops, Default::default(), "{queues:?}");
        assert_eq!(sum.team.sent_in, sum.team.sent_out);
        assert!(sum.team.mail_in > 0 && sum.team.facts_lost == 0);
        assert_eq!((sum.team.unseen, sum.team.mail_lost), (0, 0));
        assert_eq!(sum.team.relayed > 0, queues == Queues::One);
        let mut bound = 0;
        for worker in workers {
            assert_eq!(value(&worker.csf, "unknown_flow"), 0, "{queues:?}");
            bound += value(&worker.csf, "hello_ack_bound");
        }
        assert_eq!(bound, u64::from(FLOWS), "{queues:?}");
    }
}

// shows: CREM-RECV-13
#[test]
fn coded_retransmission_is_asked_for_and_answered_at_the_owners() {
    let mut pair = Pair::with_policy(Queues::ByAddresses, "m_max = 0, hold_ns = 12000000");
    let lost = |_: u32, psn: u32| psn > 1000 && psn % 80 == 7;
    let arrived = pair.transfer(2000, lost);
    for (flow, psns) in by_flow(&arrived).into_iter().enumerate() {
        assert_eq!(strays(&psns, 2000), [], "flow {flow}");
    }
    let (_, sum) = pair.gateways[0].snapshots();
    assert!(sum.coding.repair_coded > 0 && sum.coding.repair_ordinary == 0);
}

#[test]
fn a_panic_ends_protection_at_one_worker_and_its_flows_go_on() {
    let mut pair = Pair::new(Queues::ByAddresses);
    let before = pair.transfer(1000, |_, _| false);
    assert_eq!(before.len(), 12_000);
    // The frames that worker 2 takes over from worker 1 are cloned for the hold.
    for flow in 0..FLOWS {
        for psn in [1001, 1002] {
            let port = queue(&mut pair.gateways[1].workers[1], Side::Wan).unwrap();
            port.arrive(&packet_of(flow, psn));
        }
    }
    let now = pair.now;
    let workers = &mut pair.gateways[1].workers;
    workers[1].turn(&|| Instant(now));
    panic_at_clone(1);
    workers[2].turn(&|| Instant(now));
    workers[3].turn(&|| Instant(now));
    workers[0].turn(&|| Instant(now));
    let (workers, sum) = pair.gateways[1].snapshots();
    assert_eq!(sum.coding.panics, 1);
    assert!(workers[2].off_reason.is_some() && workers[1].off_reason.is_none());
    assert!((workers[2].mode, workers[3].mode) == ("passthrough", "active"));
    let flows = |pair: &mut Pair| {
        let arrived = pair.gateways[1].sent(Side::Lan);
        by_flow(&arrived)
    };
    let place = pair.gateways[1].workers[2].team.as_ref().unwrap().place;
    let of_two =
        |flow: u32| place.owner(address(HOSTS[0]), address(HOSTS[1]), Qpn::new(0x20 + flow)) == 2;
    let arrived = flows(&mut pair);
    for flow in (0..FLOWS).filter(|f| of_two(*f)) {
        assert_eq!(arrived[flow as usize], [1001, 1002], "not held any more");
    }
    for flow in (0..FLOWS).filter(|f| !of_two(*f)) {
        assert!(arrived[flow as usize].is_empty(), "held behind 1000");
    }
}

#[test]
fn a_stuck_worker_costs_its_own_flows_and_no_others() {
    let mut pair = Pair::new(Queues::One);
    pair.transfer(500, |_, _| false);
    pair.stuck = Some(2);
    let arrived = pair.transfer(4000, |_, _| false);
    let place: Place = pair.gateways[1].workers[0].team.as_ref().unwrap().place;
    for (flow, psns) in by_flow(&arrived).into_iter().enumerate() {
        let qp = Qpn::new(0x20 + u32::try_from(flow).unwrap());
        let owner = place.owner(address(HOSTS[0]), address(HOSTS[1]), qp);
        let expected = if owner == 2 { 0 } else { 4000 };
        assert_eq!(psns.len(), expected, "flow {flow} of worker {owner}");
    }
    let (_, sum) = pair.gateways[1].snapshots();
    assert!(sum.drops.handover_full > 0 && sum.team.waited > 0);
}

#[test]
fn frames_for_the_kernel_go_to_the_worker_that_has_it() {
    let mut pair = Pair::new(Queues::ByAddresses);
    let own = gateway_mac(1);
    let mut arp = own.0.to_vec();
    arp.extend_from_slice(&mac(9).0);
    arp.extend_from_slice(&[0x08, 0x06]);
    arp.extend_from_slice(&[0; 46]);
    let port = queue(&mut pair.gateways[1].workers[3], Side::Wan).unwrap();
    port.arrive(&arp);
    pair.step(&|_| false);
    pair.step(&|_| false);
    let (workers, _) = pair.gateways[1].snapshots();
    assert_eq!(workers[0].counters.inband.to_kernel, 1);
}

#[test]
fn flows_are_watched_where_they_are_owned() {
    let mut pair = Pair::new(Queues::ByAddresses);
    for gateway in &mut pair.gateways {
        for worker in &mut gateway.workers {
            let place = worker.team.as_ref().unwrap().place;
            let mut config = config(1, true, "");
            config.mode = Mode::Monitor;
            let core = crate::core_config::core_config(&config, &place);
            let view = worker.view.clone();
            let mut order = crate::apply::Order {
                segment: 0,
                config,
                view,
                core,
                anew: true,
            };
            let make: crate::apply::MakeRemake<HeapTeam> = Box::new(|_, _, _| None);
            worker.reconfigure(Instant(pair.now), &mut order, &make);
        }
    }
    let lost = |_: u32, psn: u32| psn % 40 == 7;
    let arrived = pair.transfer(1000, lost);
    assert_eq!(arrived.len(), 975 * FLOWS as usize);
    let (workers, sum) = pair.gateways[1].snapshots();
    assert_eq!(sum.monitor.packets, 975 * u64::from(FLOWS));
    assert_eq!((sum.monitor.lost, sum.monitor.gaps), (25 * 12, 25 * 12));
    let busy = workers.iter().filter(|w| w.counters.monitor.packets > 0);
    assert!(busy.count() >= 3, "flows are spread");
    let (_, sum) = pair.gateways[0].snapshots();
    assert_eq!(
        (sum.team.sent_out, sum.team.sent_in),
        (0, 0),
        "not looked at"
    );
}
