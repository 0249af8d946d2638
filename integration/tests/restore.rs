//! Runs the restore check over the captures, and shows that it notices what it is there to notice.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

use crem_integration::pcap::Capture;
use crem_integration::restore::{FileResult, Kinds, Report, check_capture, check_file};
use crem_wire::frame::{self, ParseConfig};
use crem_wire::icrc;

fn captures() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/captures");
    let mut files: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "gz"))
        .collect();
    files.sort();
    files
}

fn run(kinds: Kinds) -> Report {
    let config = ParseConfig::default();
    let files = captures()
        .iter()
        .map(|file| check_file(file, &config, kinds).unwrap())
        .collect();
    Report { files }
}

#[test]
fn every_request_of_every_capture_is_restored() {
    let report = run(Kinds::Requests);
    let total = report.total();
    assert!(report.is_ok(), "{report}");
    assert_eq!(report.files.len(), 19);
    assert_eq!(
        (total.packets, total.restored, total.wrong),
        (55_909, 55_909, 0)
    );
    assert_eq!(total.identification_solved, 52_695);
    for file in &report.files {
        let empty = file.file.starts_with("ud_");
        assert_eq!(file.total().packets == 0, empty, "{}", file.file);
        assert_eq!((file.corrupt, file.cut), (0, 0), "{}", file.file);
        // Every source packet is removed once for every burst length.
        for burst in &file.bursts {
            let removed = burst.packets + burst.one_neighbour.packets + burst.no_neighbour;
            assert_eq!(
                removed, file.source_packets,
                "{} bursts of {}",
                file.file, burst.burst
            );
        }
        // Without an Identification to solve, one neighbour is as good as two.
        if file.file.starts_with("v6_") {
            assert_eq!(file.total().one_neighbour.refused, 0);
            assert_eq!(file.total().identification_solved, 0);
        }
    }
}

#[test]
fn every_response_is_restored() {
    let report = run(Kinds::Responses);
    assert!(report.is_ok(), "{report}");
    assert_eq!(report.total().restored, 11_990);
}

/// The result over one capture after `change` had its way with each frame (number and octets).
fn changed(change: impl Fn(usize, &mut [u8])) -> FileResult {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/captures");
    let original = Capture::read(&directory.join("rc_write_1024.pcap.gz")).unwrap();
    let mut octets = 0xa1b2_c3d4u32.to_be_bytes().to_vec();
    octets.extend([0; 16]);
    octets.extend(1u32.to_be_bytes());
    for (number, frame) in original.frames().enumerate() {
        octets.extend([0; 8]);
        octets.extend([(frame.len() as u32).to_be_bytes(); 2].concat());
        let start = octets.len();
        octets.extend_from_slice(frame);
        change(number, &mut octets[start..]);
    }
    let capture = Capture::from_octets(octets).unwrap();
    check_capture(
        "changed",
        &capture,
        &ParseConfig::default(),
        Kinds::Requests,
    )
}

#[test]
fn unchanged_capture_is_ok() {
    let report = Report {
        files: vec![changed(|_, _| {})],
    };
    assert!(report.is_ok(), "{report}");
    assert_eq!(report.total().packets, 4_596);
}

#[test]
fn a_frame_that_its_neighbours_do_not_foretell_is_wrong() {
    // Another TTL than all other packets: no neighbour can tell, so the comparison has to.
    let ttl_offset = 22;
    let result = changed(|number, frame| {
        if number == 400 {
            frame[ttl_offset] = 9;
        }
    });
    assert!(result.total().wrong >= 4, "{:?}", result.total());
    let report = Report {
        files: vec![result],
    };
    assert!(!report.is_ok());
    assert!(report.to_string().contains("restore: FAILED packets="));
}

#[test]
fn identifications_that_jump_are_not_believed() {
    let ident_offset = 18;
    let result = changed(|number, frame| {
        let jump = (number as u16).wrapping_mul(0x9e37);
        frame[ident_offset..ident_offset + 2].copy_from_slice(&jump.to_be_bytes());
        let parsed = frame::parse(frame, &ParseConfig::default());
        assert!(icrc::write_frame(frame, &parsed));
        let checksum = frame::ipv4_header_checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    });
    let total = result.total();
    assert!(total.failed > 4_000, "{total:?}");
    assert_eq!(total.wrong, 0);
    assert!(
        total
            .reasons
            .iter()
            .any(|reason| reason.contains("Identification")),
        "{total:?}"
    );
}
