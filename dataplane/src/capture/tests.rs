//! Which frames are kept, how much of them, and when a batch leaves.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use crate::buffer::heap::HeapBuf;

use super::*;

const ALL: Filter = Filter {
    kind: CaptureKind::All,
    crem_port: 4801,
    address: None,
};

struct Rig {
    probe: Probe,
    back: Return,
    batches: Receiver<Box<Batch>>,
    budget: Arc<Budget>,
}

fn rig(filter: Filter, snap: usize, frames: u64, octets: u64) -> Rig {
    let budget = Budget::new(frames, octets);
    let (full, batches) = sync_channel(places(1));
    let (probe, back) = Probe::new((3, 1), filter, snap, Arc::clone(&budget), full);
    Rig {
        probe,
        back,
        batches,
        budget,
    }
}

fn frames(lengths: &[usize]) -> Vec<HeapBuf> {
    let frame = |length: &usize| HeapBuf::new(&vec![*length as u8; *length]);
    lengths.iter().map(frame).collect()
}

fn kept(batch: &Batch) -> Vec<(u64, u32, usize, bool)> {
    let entry = |(entry, kept): (&Entry, &[u8])| {
        assert!(kept.iter().all(|octet| *octet == entry.original as u8));
        (entry.at.0, entry.original, kept.len(), entry.outbound)
    };
    batch.frames().map(entry).collect()
}

#[test]
fn frames_keep_time_direction_and_length_and_wait_no_longer_than_a_tenth_of_a_second() {
    let mut rig = rig(ALL, 100, 10, 10_000);
    assert!(rig.probe.tick(Instant(5)));
    rig.probe.received(&frames(&[64, 200]));
    assert!(rig.probe.tick(Instant(7)));
    rig.probe.sent(&frames(&[90]));
    assert!(rig.batches.try_recv().is_err());
    rig.probe.tick(Instant(5) + LINGER);
    let batch = rig.batches.try_recv().unwrap();
    assert_eq!(batch.probe, 3);
    let expected = [(5, 64, 64, false), (5, 200, 100, false), (7, 90, 90, true)];
    assert_eq!(kept(&batch), expected);
    assert_eq!(rig.budget.left(), (7, 10_000 - 254));
}

#[test]
fn each_limit_ends_the_capture_and_what_was_kept_arrives() {
    for (most_frames, most_octets, kept_frames) in [(2, 10_000, 2), (100, 130, 2), (100, 128, 2)] {
        let mut rig = rig(ALL, 64, most_frames, most_octets);
        rig.probe.received(&frames(&[100, 100, 100]));
        assert!(!rig.probe.tick(Instant(1)), "{most_frames} {most_octets}");
        drop(rig.probe);
        let batch = rig.batches.try_recv().unwrap();
        assert_eq!(kept(&batch).len(), kept_frames);
        assert!(rig.batches.recv().is_err(), "the end is seen");
    }
    let mut stopped = rig(ALL, 64, 10, 1000);
    stopped.budget.stop();
    stopped.probe.received(&frames(&[100]));
    assert!(!stopped.probe.tick(Instant(1)));
}

#[test]
fn frames_without_a_batch_are_counted_and_a_batch_given_back_is_filled_again() {
    let mut rig = rig(ALL, 64, u64::MAX, u64::MAX);
    let burst = frames(&[64; 32]);
    let room = BATCHES * BATCH_FRAMES;
    for _ in 0..=room / burst.len() {
        rig.probe.received(&burst);
    }
    assert_eq!(rig.budget.lost(), [0, burst.len() as u64]);
    rig.back.give(rig.batches.try_recv().unwrap());
    rig.probe.received(&burst);
    assert_eq!(rig.budget.lost(), [0, burst.len() as u64]);
    drop(rig.probe);
    let all: usize = rig.batches.iter().map(|batch| batch.frames().count()).sum();
    assert_eq!(all, room - BATCH_FRAMES + burst.len());
}

#[test]
fn long_frames_fill_a_batch_by_octets() {
    let mut rig = rig(ALL, 9216, u64::MAX, u64::MAX);
    let burst = frames(&[9000; 32]);
    rig.probe.received(&burst);
    let batch = rig.batches.try_recv().unwrap();
    assert_eq!(batch.frames().count(), BATCH_OCTETS / 9000);
}

#[test]
fn a_filter_takes_what_it_names() {
    let address = |text: &str| Some(text.parse().unwrap());
    let datagram = |from: &str, port: u16, payload: &[u8]| {
        let frame = crem_wire::frame::UdpFrame {
            destination_mac: crem_wire::frame::Mac([2; 6]),
            source_mac: crem_wire::frame::Mac([4; 6]),
            tags: crem_wire::frame::Tags::NONE,
            source: format!("{from}:5000").parse().unwrap(),
            destination: format!("10.0.2.1:{port}").parse().unwrap(),
            tos: 0,
            ttl: 64,
            ident: 0,
            dont_fragment: true,
            udp_checksum: false,
        };
        let mut octets = vec![0; frame.header_len() + payload.len()];
        let start = octets.len() - payload.len();
        octets[start..].copy_from_slice(payload);
        frame.write(&mut octets).unwrap();
        octets
    };
    let bth = [&[4, 0, 0xff, 0xff, 0, 0, 0, 7, 0, 0, 0, 1][..], &[0; 20]].concat();
    let roce = datagram("10.0.1.1", 4791, &bth);
    let crem = datagram("10.0.1.1", 4801, &[0; 40]);
    let dns = datagram("10.0.1.9", 53, &[0; 40]);
    let odd = vec![0xff; 60];
    let all = [&roce, &crem, &dns, &odd];
    for (kind, from, expected) in [
        (CaptureKind::All, None, [true; 4]),
        (CaptureKind::Roce, None, [true, false, false, false]),
        (CaptureKind::Crem, None, [false, true, false, false]),
        (
            CaptureKind::All,
            address("10.0.1.1"),
            [true, true, false, false],
        ),
        (
            CaptureKind::All,
            address("10.0.2.1"),
            [true, true, true, false],
        ),
        (CaptureKind::Crem, address("10.0.1.9"), [false; 4]),
    ] {
        let filter = Filter {
            kind,
            crem_port: 4801,
            address: from,
        };
        assert_eq!(
            all.map(|frame| filter.wants(frame)),
            expected,
            "{kind:?} {from:?}"
        );
    }
}
