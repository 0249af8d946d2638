//! How many packet records a session encodes per second on one core: `encode` prints the best of many
//! runs. Exit status 1 if it is less than five million.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use crem_ipfix::element::Mapping;
use crem_ipfix::profile::QpOctets;
use crem_ipfix::session::{PacketProfile, Session, SessionConfig, Totals, Transport};
use crem_meter::point::Direction;
use crem_meter::{PacketRecord, Utc};
use crem_wire::roce::Bth;

fn main() -> std::process::ExitCode {
    let config = SessionConfig {
        domain: 1,
        transport: Transport::Stream { max_message: 65535 },
        mapping: Arc::new(Mapping::consecutive(32473, 1).unwrap()),
        qp: QpOctets::Three,
        packets: Some(PacketProfile {
            unselected: true,
            ..PacketProfile::default()
        }),
        flows: None,
        sequence: None,
        metering_process: 1,
        exporting_process: 1,
    };
    let mut session = Session::new(Arc::new(config), 1, Totals::default()).unwrap();
    let now = Utc(1_793_009_730_125_000_000);
    let record = PacketRecord {
        point: 1,
        time: now,
        source: "10.0.0.1".parse().unwrap(),
        destination: "10.0.0.2".parse().unwrap(),
        source_port: 49152,
        destination_port: 4791,
        tos: 3,
        direction: Direction::Ingress,
        selection: None,
        bth: Bth::parse(&[4, 0, 0xff, 0xff, 0, 0, 1, 2, 0, 0, 0, 1]).unwrap(),
    };
    let mut out = Vec::new();
    session.announce(now, &mut out);
    const RECORDS: u32 = 100_000;
    let best = (0..40)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..RECORDS {
                session.packet(now, black_box(&record), &mut out).unwrap();
                if out.len() > 1 << 20 {
                    out.clear();
                }
            }
            f64::from(RECORDS) / start.elapsed().as_secs_f64()
        })
        .fold(0.0, f64::max);
    println!(
        "{:.1} million packet records per second, at least 5",
        best / 1e6
    );
    std::process::ExitCode::from(u8::from(best < 5e6))
}
