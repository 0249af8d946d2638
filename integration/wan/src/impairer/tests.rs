//! Tests of the link: order, rate, loss and damage in time that the tests count.
#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use crate::class::tests::udp4;
use crate::config::{Loss, NodeConfig};
use crem_wire::crem::{Message, Parsed, parse};

const MS: u64 = 1_000_000;

fn link(a_to_b: DirectionConfig) -> Impairer {
    Impairer::new(&Config {
        seed: 11,
        crem_port: 50_000,
        a_to_b,
        b_to_a: DirectionConfig::default(),
    })
}

/// A frame of `length` octets of RoCE WRITE ONLY that carries `number`.
fn source(number: u32, length: usize, ecn: u8) -> Vec<u8> {
    let mut payload = vec![0u8; length - 42];
    payload[0] = 0x0a;
    payload[12..16].copy_from_slice(&number.to_be_bytes());
    udp4(4791, &payload, ecn)
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[54..58].try_into().unwrap())
}

fn drain(link: &mut Impairer, now: u64) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    link.take_due(now, Side::B, &mut out);
    out
}

#[test]
fn delays_and_keeps_order_with_jitter() {
    let mut link = link(DirectionConfig {
        delay_us: 10_000,
        jitter_us: 2_000,
        ..Default::default()
    });
    for i in 0..100 {
        link.offer(u64::from(i) * 10_000, Side::A, source(i, 100, 0));
    }
    assert!(drain(&mut link, 10 * MS - 1).is_empty());
    let out = drain(&mut link, 14 * MS);
    assert!(out.iter().map(|f| number(f)).eq(0..100));
    assert_eq!(link.next_due(), None);
}

#[test]
fn same_seed_same_losses() {
    let run = |seed| {
        let a_to_b = DirectionConfig {
            loss: Loss::Uniform(0.05),
            ..Default::default()
        };
        let mut link = Impairer::new(&Config {
            seed,
            a_to_b,
            ..Default::default()
        });
        for i in 0..5_000 {
            link.offer(u64::from(i), Side::A, source(i, 100, 0));
        }
        drain(&mut link, MS)
            .iter()
            .map(|f| number(f))
            .collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    assert!((4_650..4_850).contains(&run(1).len()));
}

#[test]
fn lost_frames_are_logged_by_hash() {
    let mut link = link(DirectionConfig {
        loss: Loss::Uniform(1.0),
        ..Default::default()
    });
    let frame = source(3, 100, 0);
    let hash = frame_hash(&frame);
    assert_eq!(link.offer(0, Side::A, frame.clone()), Some(frame));
    let expected = LogEntry {
        a_to_b: true,
        fate: Fate::Lost,
        class: Class::RoceSource,
        hash,
    };
    assert_eq!(link.log(), [expected]);
    assert_eq!(link.report().a_to_b.count(Class::RoceSource, Fate::Lost), 1);
}

#[test]
fn only_chosen_classes_suffer() {
    let only = vec![Class::CremRepair];
    let mut link = link(DirectionConfig {
        loss: Loss::Uniform(1.0),
        only,
        ..Default::default()
    });
    assert!(link.offer(0, Side::A, source(1, 100, 0)).is_none());
    assert!(
        link.offer(0, Side::A, udp4(50_000, &[0x11; 40], 0))
            .is_some()
    );
}

#[test]
fn rate_spaces_frames_and_drops_the_tail() {
    let config = DirectionConfig {
        rate_mbit: 100,
        queue_octets: 5_000,
        ..Default::default()
    };
    let mut link = link(config);
    for i in 0..10 {
        link.offer(0, Side::A, source(i, 976, 0));
    }
    // 1000 octets with overhead take 80 us at 100 Mbit/s; five fit.
    assert_eq!(link.report().a_to_b.total(Fate::QueueDropped), 5);
    assert_eq!(drain(&mut link, 79_999).len(), 0);
    assert_eq!(drain(&mut link, 160_000).len(), 2);
    assert_eq!(drain(&mut link, 400_000).len(), 3);
}

#[test]
fn marks_ect_above_the_threshold_with_a_right_checksum() {
    let config = DirectionConfig {
        rate_mbit: 100,
        ecn_threshold_octets: Some(1_500),
        ..Default::default()
    };
    let mut link = link(config);
    for i in 0..4 {
        let mut frame = source(i, 976, if i == 3 { 0 } else { 2 });
        let sum = header_sum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        link.offer(0, Side::A, frame);
    }
    let out = drain(&mut link, MS);
    let ecn: Vec<u8> = out.iter().map(|f| f[15] & 3).collect();
    assert_eq!(ecn, [2, 2, 3, 0]);
    for frame in &out {
        let (mut header, sum) = (frame[14..34].to_vec(), frame[24..26].to_vec());
        header[10..12].fill(0);
        assert_eq!(header_sum(&header).to_be_bytes().as_slice(), sum);
    }
    assert_eq!(link.report().a_to_b.total(Fate::Marked), 1);
}

fn header_sum(header: &[u8]) -> u16 {
    let mut sum: u32 = header
        .chunks(2)
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
        .sum();
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16)
}

#[test]
fn reordered_frames_are_overtaken() {
    let config = DirectionConfig {
        reorder: 0.1,
        reorder_extra_us: 500,
        ..Default::default()
    };
    let mut link = link(config);
    for i in 0..1_000 {
        link.offer(u64::from(i) * 50_000, Side::A, source(i, 100, 0));
    }
    let out: Vec<u32> = drain(&mut link, 100 * MS)
        .iter()
        .map(|f| number(f))
        .collect();
    let late = out.windows(2).filter(|w| w[1] < w[0]).count();
    assert!((50..150).contains(&late), "{late}");
    assert_eq!(out.len(), 1_000);
}

#[test]
fn duplicates_and_corruption_are_counted_and_real() {
    let config = DirectionConfig {
        duplicate: 0.1,
        corrupt: 0.1,
        ..Default::default()
    };
    let mut link = link(config);
    let sent: Vec<Vec<u8>> = (0..1_000).map(|i| source(i, 200, 0)).collect();
    for frame in &sent {
        link.offer(0, Side::A, frame.clone());
    }
    let report = link.report().a_to_b;
    let (twice, bad) = (
        report.total(Fate::Duplicated),
        report.total(Fate::Corrupted),
    );
    assert!(
        (50..150).contains(&twice) && (50..150).contains(&bad),
        "{twice} {bad}"
    );
    let out = drain(&mut link, MS);
    assert_eq!(out.len() as u64, 1_000 + twice);
    let known: std::collections::HashSet<&Vec<u8>> = sent.iter().collect();
    let distinct: std::collections::HashSet<&Vec<u8>> =
        out.iter().filter(|f| !known.contains(f)).collect();
    assert_eq!(distinct.len() as u64, bad);
    assert!(
        out.iter().all(|f| f[..14] == sent[0][..14]),
        "Ethernet header untouched"
    );
}

#[test]
fn directions_are_separate() {
    let mut link = link(DirectionConfig {
        delay_us: 1_000,
        ..Default::default()
    });
    link.offer(0, Side::B, source(1, 100, 0));
    let mut out = Vec::new();
    link.take_due(0, Side::A, &mut out);
    assert_eq!(out.len(), 1);
    assert_eq!(link.report().b_to_a.total(Fate::Delivered), 1);
    assert_eq!(link.report().a_to_b.total(Fate::Received), 0);
}

/// A link whose direction from A to B has a node that reports.
fn reporting(mut a_to_b: DirectionConfig) -> Impairer {
    a_to_b.reporter = Some(NodeConfig {
        address: [10, 0, 0, 9].into(),
        node: 5,
        delay_us: 0,
    });
    link(a_to_b)
}

/// Runs the timers of the link and gives the entries that arrive at side A: lost, cause, change of delay.
fn told(link: &mut Impairer, until: u64) -> Vec<(u32, u8, i32)> {
    let mut out = Vec::new();
    while let Some(due) = link.next_due().filter(|due| *due <= until) {
        drain(link, due);
        link.take_due(due, Side::A, &mut out);
    }
    let hops = |frame: &Vec<u8>| match parse(&frame[42..]) {
        Ok(Parsed::Message(Message::PathReport(report))) => report.hops,
        other => panic!("{other:?}"),
    };
    out.iter()
        .flat_map(hops)
        .map(|hop| (hop.lost, hop.cause, hop.queue_delay_change_us))
        .collect()
}

#[test]
fn random_loss_is_reported_as_transmission_error() {
    let mut link = reporting(DirectionConfig {
        loss: Loss::Uniform(0.1),
        ..Default::default()
    });
    let mut reports = Vec::new();
    for i in 0..2_000 {
        link.offer(u64::from(i) * MS, Side::A, source(i, 100, 0));
        reports.extend(told(&mut link, u64::from(i) * MS));
    }
    reports.extend(told(&mut link, 10_000 * MS));
    let lost: u32 = reports.iter().map(|r| r.0).sum();
    let report = link.report();
    assert_eq!(
        u64::from(lost),
        report.a_to_b.count(Class::RoceSource, Fate::Lost)
    );
    assert!(reports.len() > 50 && reports.iter().all(|r| r.1 == 2 && r.2 == 0));
    assert_eq!(report.a_to_b.path_reports, reports.len() as u64);
    assert_eq!(report.b_to_a.path_reports, 0);
}

#[test]
fn a_full_queue_is_reported_with_its_growth() {
    let mut link = reporting(DirectionConfig {
        rate_mbit: 100,
        queue_octets: 50_000,
        ..Default::default()
    });
    // 100 frames at once: the queue takes 48 of 1024 octets.
    for i in 0..100 {
        link.offer(MS, Side::A, source(i, 1_000, 0));
    }
    let reports = told(&mut link, 1_000 * MS);
    let lost: u32 = reports.iter().filter(|r| r.1 == 1).map(|r| r.0).sum();
    assert_eq!(lost, 52);
    let grown: i32 = reports.iter().map(|r| r.2).sum();
    assert_eq!(grown, 47 * 1_024 * 8 / 100);
    // The next packet finds it empty.
    link.offer(2_000 * MS, Side::A, source(0, 1_000, 0));
    assert_eq!(told(&mut link, 3_000 * MS), [(0, 0, -grown)]);
}

#[test]
fn the_other_direction_and_other_traffic_are_not_reported() {
    let mut link = reporting(DirectionConfig {
        loss: Loss::Uniform(1.0),
        ..Default::default()
    });
    link.offer(MS, Side::A, udp4(53, &[0; 64], 0));
    let mut out = Vec::new();
    link.take_due(MS * 100, Side::A, &mut out);
    assert!(out.is_empty());
}
