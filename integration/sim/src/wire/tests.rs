//! The reader against the example printed in the draft, and against broken messages.
#![allow(clippy::unwrap_used)]

use super::*;

/// The REPAIR of the coding example: header, bitmaps, and sixteen octets of symbol.
fn example() -> Vec<u8> {
    let mut octets = vec![
        0x11, 0x80, 0x00, 0x2c, 0x00, 0x00, 0xbe, 0xef, 0x01, 0x01, 0x04, 0x02, 0x00, 0x10, 0x00,
        0x00, 0x00, 0x07, 0x00, 0x10, 0xf0, 0x00, 0x00, 0x00, 0xe0, 0x00, 0x00, 0x00,
    ];
    octets.extend([0; 16]);
    octets
}

#[test]
fn the_example_of_the_draft_reads_as_printed() {
    let (flow, seen) = sent(&example()).unwrap();
    assert_eq!(flow, 0xbeef);
    let Seen::Repair(repair) = seen else {
        unreachable!("{seen:?}")
    };
    assert_eq!(repair.form, Form::Coded);
    assert_eq!(
        (repair.config, repair.scheme, repair.k, repair.index),
        (1, 1, 4, 2)
    );
    assert_eq!((repair.start, repair.session, repair.t), (0x1000, 7, 16));
    assert_eq!(repair.present, [0, 1, 2, 3]);
    assert_eq!(repair.lost, [0, 1, 2]);
}

#[test]
fn a_receiver_takes_what_means_nothing_and_what_overlaps() {
    // shows: AMB-RESERVED, AMB-FLAGS, AMB-RANGE
    let mut octets = example();
    (octets[1], octets[15]) = (0x81, 1);
    assert_eq!(received(&octets), sent(&example()));
    octets[11] = 252;
    assert_eq!(received(&octets), Err(Fault("i + k above 255")));
    let ranges = [
        0x16, 0x10, 0, 20, 0, 0, 0xbe, 0xef, 0, 9, 0, 2, 0, 0, 10, 4, 0, 0, 8, 3,
    ];
    let overlap = Fault("ranges not ascending and disjoint");
    assert_eq!(sent(&ranges), Err(overlap));
    let (_, seen) = received(&ranges).unwrap();
    let twice = vec![(10, 4), (8, 3)];
    assert!(matches!(seen, Seen::RangeRequest { ranges, .. } if ranges == twice));
}

#[test]
fn every_broken_rule_is_named() {
    let cases: [(usize, u8, &str); 9] = [
        (0, 0x21, "version is not 1"),
        (0, 0x1a, "unknown type"),
        (1, 0x81, "undefined flag set"),
        (3, 0x2d, "Length is wrong"),
        (11, 252, "i + k above 255"),
        (15, 1, "reserved field not zero"),
        (17, 0, "coded retransmission without session"),
        (20, 0xf8, "bitmap padding not zero"),
        (20, 0x70, "lost set outside the present positions"),
    ];
    for (at, value, rule) in cases {
        let mut octets = example();
        octets[at] = value;
        assert_eq!(
            sent(&octets),
            Err(Fault(rule)),
            "octet {at} set to {value:#x}"
        );
    }
    assert_eq!(sent(&example()[..27]), Err(Fault("Length is wrong")));
    assert_eq!(sent(&[]), Err(Fault("too short")));
}
