//! What metering costs: `costs [--json PATH]` prints cycles of the time-stamp counter per packet for the
//! sequence observer, and nanoseconds per packet for hostile jumps and for all meters together. Exit
//! status 1 if a target is missed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use core::net::IpAddr;
use std::hint::black_box;
use std::time::{Duration, Instant};

use crem_meter::flow::{FlowConfig, FlowRecord};
use crem_meter::point::{Place, Point};
use crem_meter::scope::{Observation, Scope, Scopes};
use crem_meter::select::Selection;
use crem_meter::seq::{
    Epoch, Observer, ObserverConfig, Provision, SequenceRecord, Statement, Step, Window,
};
use crem_meter::{Encapsulation, Meter, PacketConfig, PacketRecord, PointConfig, Sink, Utc};
use crem_wire::frame::{ParseConfig, parse};
use crem_wire::roce::{Bth, Opcode};
use crem_wire::{Psn, Qpn};

/// Takes everything.
#[derive(Default)]
struct Taken(u64);

impl Sink for Taken {
    fn packet(&mut self, record: &PacketRecord) -> bool {
        black_box(record);
        self.0 += 1;
        true
    }
    fn flow(&mut self, _: Place, record: &FlowRecord) -> bool {
        black_box(record);
        self.0 += 1;
        true
    }
    fn sequence(&mut self, record: &SequenceRecord) -> bool {
        black_box(record);
        self.0 += 1;
        true
    }
}

const START: u64 = 1_793_009_730_000_000_000;

fn provision(window: u32) -> Provision {
    Provision {
        source: "10.0.0.0/8".parse().unwrap(),
        destination: "10.0.0.0/8".parse().unwrap(),
        qp: None,
        pkey: None,
        context: None,
        window,
        generation: None,
        statement: Statement {
            only_send_and_write: true,
            complete_and_unambiguous: true,
            packets_per_second: 1_000_000,
            longest_retry: Duration::from_secs(1),
        },
    }
}

fn observation(flow: u32) -> Observation {
    let [a, b, c, d] = (0x0a00_0000 + flow).to_be_bytes();
    Observation {
        source: IpAddr::from([a, b, c, d]),
        destination: IpAddr::from([10, 255, 1, 1]),
        source_port: 49152,
        destination_port: 4791,
        tos: 0,
        ip_octets: 4172,
        payload_off: 42,
        payload_octets: 4112,
        context: 0,
        bth: Bth {
            opcode: Opcode(4),
            octet1: 0,
            pkey: 0xffff,
            octet4: 0,
            dest_qp: Qpn::new(9 + flow),
            octet8: 0,
            psn: Psn::new(0),
        },
    }
}

fn observer(flows: u32, window: u32) -> Observer {
    let config = ObserverConfig {
        contexts: flows,
        epochs: flows,
        window,
        ..ObserverConfig::default()
    };
    let point = Point::new(Place::WanIngress, 1, 0).unwrap();
    let mut observer = Observer::new(point, config, vec![provision(window)]).unwrap();
    observer.begin_session(1);
    observer
}

/// Nanoseconds per packet of the best of many runs: what others do on the machine is not our cost. A run
/// returns its packets.
fn best(mut run: impl FnMut() -> u64) -> f64 {
    let once = || {
        let start = Instant::now();
        let packets = run();
        start.elapsed().as_nanos() as f64 / packets as f64
    };
    core::iter::repeat_with(once)
        .take(RUNS)
        .fold(f64::MAX, f64::min)
}

const RUNS: usize = 40;

/// Nanoseconds per packet of streams in order, in bursts of 32 packets a flow.
fn in_order(flows: u32, window: u32, bursts: u64) -> f64 {
    let mut observer = observer(flows, window);
    let mut packets: Vec<Observation> = (0..flows).map(observation).collect();
    let mut sink = Taken::default();
    let mut now = START;
    let mut psns = vec![0u32; flows as usize];
    let mut turn = |observer: &mut Observer, bursts: u64| {
        for burst in 0..bursts {
            let flow = (burst % u64::from(flows)) as usize;
            for _ in 0..32 {
                let packet = &mut packets[flow];
                packet.bth.psn = Psn::new(psns[flow]);
                psns[flow] = psns[flow].wrapping_add(1);
                observer.packet(Utc(now), black_box(packet), &mut sink);
                now += 100;
            }
        }
    };
    turn(&mut observer, u64::from(flows).max(1000));
    best(|| {
        turn(&mut observer, bursts);
        32 * bursts
    })
}

/// Nanoseconds of a jump by this distance, over and over: each expires what the one before left pending.
fn jumps(window: u32, distance: u32) -> f64 {
    let mut epoch = Epoch::new(window);
    epoch.start(Utc(START), window, Psn::new(0));
    let mut psn = 0u32;
    best(|| {
        for _ in 0..500 {
            psn = psn.wrapping_add(distance);
            let step = epoch.accept(Utc(START), Psn::new(psn), u64::MAX);
            assert_eq!(step, Step::Counted);
        }
        500
    })
}

/// As [`jumps`], with two packets behind each jump that fill positions far back: the labels that a jump
/// left unwritten are written then.
fn jumps_and_fills(window: u32, distance: u32) -> f64 {
    let mut epoch = Epoch::new(window);
    epoch.start(Utc(START), window, Psn::new(0));
    let mut psn = 0u32;
    best(|| {
        for _ in 0..200 {
            psn = psn.wrapping_add(distance);
            for back in [0, distance / 2, distance / 3] {
                let psn = Psn::new(psn.wrapping_sub(back));
                assert_eq!(epoch.accept(Utc(START), psn, u64::MAX), Step::Counted);
            }
        }
        200
    })
}

/// Nanoseconds per packet of all three meters at one point, recognition included.
fn together(flows: u32, window: u32) -> f64 {
    let scopes = Scopes::new(vec![Scope {
        source: "10.0.0.0/8".parse().unwrap(),
        destination: "10.0.0.0/8".parse().unwrap(),
        encapsulation: Encapsulation::Untagged,
    }])
    .unwrap();
    let config = ObserverConfig {
        contexts: flows,
        epochs: flows,
        window,
        ..ObserverConfig::default()
    };
    let point = PointConfig {
        place: Place::WanIngress,
        base: 1,
        packets: Some(PacketConfig {
            selection: Selection::All,
            selection_sequence: 1,
            rate_limit: None,
            seed: 0,
        }),
        flows: Some(FlowConfig {
            flows,
            ..FlowConfig::default()
        }),
        sequences: vec![(config, vec![provision(window)])],
    };
    let mut meter = Meter::new(scopes, &[point], 0, u64::MAX).unwrap();
    for observer in meter.collector(0) {
        observer.begin_session(1);
    }
    let frames: Vec<Vec<u8>> = (0..flows).map(frame).collect();
    let parse_config = ParseConfig::default();
    let parsed: Vec<_> = frames
        .iter()
        .map(|frame| parse(frame, &parse_config))
        .collect();
    let mut sink = Taken::default();
    let mut now = START;
    let mut psn = 0u32;
    let mut turn = |meter: &mut Meter, packets: u64| {
        for n in 0..packets {
            let flow = (n / 32 % u64::from(flows)) as usize;
            let mut parsed = parsed[flow];
            if let crem_wire::frame::Class::Roce(bth) = &mut parsed.class {
                bth.psn = Psn::new(psn);
            }
            if flows == 1 {
                psn = psn.wrapping_add(1);
            }
            meter.observe(
                Place::WanIngress,
                Utc(now),
                &frames[flow],
                black_box(&parsed),
                &mut sink,
            );
            now += 100;
        }
    };
    turn(&mut meter, 32 * u64::from(flows).max(1000));
    let packets = 32 * u64::from(flows).max(3000);
    best(|| {
        turn(&mut meter, packets);
        packets
    })
}

fn frame(flow: u32) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 60];
    frame.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend_from_slice(&(0x0a00_0000 + flow).to_be_bytes());
    frame.extend_from_slice(&[10, 255, 1, 1, 0xc0, 0, 0x12, 0xb7, 0, 40, 0, 0]);
    frame.extend_from_slice(&[4, 0, 0xff, 0xff, 0]);
    frame.extend_from_slice(&(9 + flow).to_be_bytes()[1..]);
    frame.resize(14 + 60, 0);
    frame
}

/// Ticks of the time-stamp counter per nanosecond, as the kernel measured them; 1 if it does not say.
fn ticks_per_nanosecond() -> f64 {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    info.lines()
        .find_map(|line| {
            line.strip_prefix("cpu MHz")?
                .split(':')
                .nth(1)?
                .trim()
                .parse()
                .ok()
        })
        .map_or(1.0, |mhz: f64| mhz / 1000.0)
}

fn main() -> std::process::ExitCode {
    let mut arguments = std::env::args().skip(1);
    let json = match (arguments.next().as_deref(), arguments.next()) {
        (Some("--json"), path) => path,
        _ => None,
    };
    let ticks = ticks_per_nanosecond();
    let mut results = Vec::new();
    let mut missed = 0;
    let mut tell = |name: String, value: f64, unit: &str, target: Option<f64>| {
        let verdict = match target {
            Some(target) if value > target => {
                missed += 1;
                format!("missed: at most {target}")
            }
            Some(target) => format!("at most {target}"),
            None => String::new(),
        };
        println!("{name:44} {value:10.1} {unit:20} {verdict}");
        results.push(format!("  \"{name}\": {value:.1}"));
    };
    for (flows, window) in [(1, 4096), (1, Window::MAX_WIDTH), (10_000, 4096)] {
        let nanos = in_order(flows, window, u64::from(flows).max(3000));
        let name = format!("in order, {flows} flows, W={window}");
        let target = (flows == 1).then_some(60.0);
        tell(name, nanos * ticks, "TSC cycles a packet", target);
    }
    for window in [4096, Window::MAX_WIDTH] {
        for distance in [window, window / 2, window - 1] {
            let nanos = jumps(window, distance);
            tell(
                format!("jump {distance}, W={window}"),
                nanos,
                "ns",
                Some(3000.0),
            );
        }
        let nanos = jumps_and_fills(window, window);
        tell(
            format!("jump and two fills, W={window}"),
            nanos,
            "ns",
            Some(3000.0),
        );
    }
    for flows in [1, 64, 10_000] {
        let nanos = together(flows, 4096);
        tell(
            format!("packet, flow and sequence, {flows} flows"),
            nanos,
            "ns a packet",
            Some(150.0),
        );
    }
    if let Some(path) = json {
        let text = format!("{{\n{}\n}}\n", results.join(",\n"));
        std::fs::write(path, text).expect("the report cannot be written");
    }
    println!("costs: {missed} limits missed");
    std::process::ExitCode::from(u8::from(missed > 0))
}
