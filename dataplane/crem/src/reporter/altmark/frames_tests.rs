//! From marked IPv6 packets to PATH_REPORT: octets in, messages out, with everything between.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use crem_wire::altmark::AltMark;
use crem_wire::crem::FlowDescriptor;
use crem_wire::frame::{Class, ParseConfig, parse};

use super::*;
use crate::config::Prefix;
use crate::reporter::{Observed, Reporter, ReporterConfig, SourcePrefix};
use crate::time::Instant;

/// A marking period.
const T: u64 = 10_000_000;
const FLOW_MON_ID: u32 = 0x54321;

fn address(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last)
}

/// A RoCEv2 packet over IPv6 as it passes inside the measured domain: with a Hop-by-Hop header that the edge
/// put in front of UDP.
fn marked(psn: u8, loss: bool, delay: bool) -> Vec<u8> {
    let mut frame = alloc::vec![2; 12];
    frame.extend([0x86, 0xdd, 0x66, 0x80, 0, 0, 0, 32, 0, 64]);
    frame.extend(address(1).octets());
    frame.extend(address(2).octets());
    let word = FLOW_MON_ID << 12 | u32::from(loss) << 11 | u32::from(delay) << 10;
    frame.extend([17, 0, 0x12, 4]);
    frame.extend(word.to_be_bytes());
    frame.extend([0xc0, 0, 0x12, 0xb7, 0, 24, 0, 0]);
    frame.extend([0x0a, 0, 0xff, 0xff, 0, 0, 0, 7, 0, 0, 0, psn, 1, 2, 3, 4]);
    frame
}

/// What a measurement point takes from a packet.
fn read(frame: &[u8]) -> (MarkedFlow, AltMark, u8) {
    let parsed = parse(frame, &ParseConfig::default());
    let (Class::Roce(bth), Some(ip)) = (parsed.class, parsed.ip) else {
        panic!("{parsed:?}")
    };
    let mark = AltMark::of_packet(frame, &ip).expect("it is marked");
    let flow = FlowDescriptor {
        source: ip.source,
        destination: ip.destination,
        qp: bth.dest_qp,
    };
    let flow = MarkedFlow {
        flow_mon_id: mark.flow_mon_id,
        flow,
    };
    (flow, mark, ip.tos >> 2)
}

// shows: CREM-PR-03, CREM-PR-04, CREM-MSG-26
#[test]
fn losses_of_marked_packets_reach_the_source_as_entries_of_their_periods() {
    let cfg = AltMarkConfig::new(Duration::from_nanos(T));
    let (mut up, mut down) = (MarkMeter::new(cfg), MarkCompare::new(cfg, Instant(0)));
    let mut own = ReporterConfig::new(77, 50_000);
    let prefix = Prefix {
        address: IpAddr::V6(address(0)),
        length: 64,
    };
    own.sources.push(SourcePrefix { prefix, csf: None });
    let mut reporter = Reporter::new(own, 0);
    let mut told = Vec::new();
    for n in 0..100u64 {
        let now = 4 * T + n * T / 20;
        let period = now / T;
        let frame = marked(n as u8, period % 2 == 1, n % 20 == 10);
        let (flow, mark, dscp) = read(&frame);
        up.observe(Instant(now), flow, &mark);
        // Two of period 5 and one of period 7 are lost; from period 6 on the queue takes 300 us longer.
        let delay = if period < 6 { 100_000 } else { 400_000 };
        if ![21, 27, 64].contains(&n) {
            down.observe(Instant(now + delay), flow, &mark);
        }
        up.on_timeout(Instant(now));
        while let Some(count) = up.poll() {
            down.on_upstream(Instant(now), count);
        }
        down.on_timeout(Instant(now));
        while let Some((flow, loss)) = down.poll() {
            let packet = Observed {
                flow: flow.flow,
                port: 0,
                dscp,
            };
            reporter.on_period(Instant(now), &packet, &loss);
        }
        reporter.on_timeout(Instant(now));
        told.extend(core::iter::from_fn(|| reporter.poll_transmit()));
    }
    let entries: Vec<_> = told
        .iter()
        .flat_map(|out| &out.report.hops)
        .map(|e| (e.node, e.period, e.lost, e.queue_delay_change_us, e.cause))
        .collect();
    assert_eq!(
        entries,
        [(77, 5, 2, 0, 0), (77, 6, 0, 300, 0), (77, 7, 1, 0, 0)]
    );
    for out in &told {
        assert_eq!(out.to.ip(), IpAddr::V6(address(1)));
        assert_eq!((out.to.port(), out.dscp), (50_000, 26));
        assert_eq!((out.report.method, out.report.flow.qp.get()), (1, 7));
    }
}
