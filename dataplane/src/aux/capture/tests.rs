//! Captures as they are asked for: what is kept, what is bounded, and the file that comes of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use std::path::PathBuf;

use crate::buffer::heap::HeapBuf;

use super::*;

const DOCUMENT: &str = r#"
    version = 1
    [segments.a]
    mode = "passthrough"
    crem_port = 4801
    path_mtu = 4500
    lan = { vdev = "net_null0" }
    wan = { vdev = "net_null1" }
    [segments.b]
    mode = "passthrough"
    crem_port = 4801
    path_mtu = 4500
    lan = { vdev = "net_null2" }
    wan = { vdev = "net_null3" }
"#;

struct Rig {
    captures: Captures,
    document: Document,
    probes: Receiver<NewProbe>,
    folder: PathBuf,
}

impl Rig {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("crem-cap-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (worker, probes) = sync_channel(4);
        Self {
            captures: Captures::new(vec![worker], Clock::new()),
            document: crem_api::parse(DOCUMENT, crem_api::Syntax::Toml).unwrap(),
            probes,
            folder,
        }
    }

    fn request(&self, file: &str) -> CaptureRequest {
        CaptureRequest::new("b".to_owned(), self.folder.join(file))
    }

    fn start(&mut self, request: CaptureRequest) -> Result<CaptureState, ErrorReply> {
        self.captures.start(request, &self.document)
    }

    fn ended(&self) -> CaptureState {
        for _ in 0..200 {
            let state = self.captures.state();
            if !state.running {
                return state;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the capture does not end");
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Blocks of a file: type and body.
fn blocks(octets: &[u8]) -> Vec<(u32, &[u8])> {
    let word = |at: usize| u32::from_le_bytes(octets[at..at + 4].try_into().unwrap());
    let (mut at, mut found) = (0, Vec::new());
    while at < octets.len() {
        let length = word(at + 4) as usize;
        assert_eq!(word(at + length - 4) as usize, length);
        assert!(length.is_multiple_of(4));
        found.push((word(at), &octets[at + 8..at + length - 4]));
        at += length;
    }
    found
}

#[test]
fn frames_of_both_ports_get_into_the_file_and_it_ends_with_its_statistics() {
    let mut rig = Rig::new("both");
    let request = CaptureRequest {
        max_frames: 3,
        ..rig.request("x.pcapng")
    };
    let state = rig.start(request.clone()).unwrap();
    assert!(state.running && state.frames == 0);
    let mut probes: Vec<NewProbe> = rig.probes.try_iter().collect();
    let places: Vec<(usize, Side)> = probes.iter().map(|p| (p.segment, p.side)).collect();
    assert_eq!(places, [(1, Side::Lan), (1, Side::Wan)]);
    let frame = [HeapBuf::new(&[7; 300])];
    for new in &mut probes {
        new.probe.tick(crem_core::time::Instant(1_000));
        new.probe.received(&frame);
        new.probe.sent(&frame);
    }
    drop(probes);
    let state = rig.ended();
    assert_eq!((state.frames, state.octets, state.lost), (3, 768, 0));
    assert_eq!(state.ended, Some(CaptureEnd::Frames));
    let octets = std::fs::read(&request.file).unwrap();
    let blocks = blocks(&octets);
    let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [0x0a0d_0d0a, 1, 1, 6, 6, 6, 5, 5]);
    let packet = blocks[3].1;
    assert_eq!(packet[..4], 0_u32.to_le_bytes());
    assert_eq!(packet[12..16], 256_u32.to_le_bytes());
    assert_eq!(packet[16..20], 300_u32.to_le_bytes());
    assert_eq!(packet[20..276], [7; 256]);
}

#[test]
fn one_runs_at_a_time_and_nothing_is_overwritten() {
    let mut rig = Rig::new("one");
    let first = rig.request("first.pcapng");
    rig.start(first.clone()).unwrap();
    let second = rig.request("second.pcapng");
    let refused = rig.start(second.clone()).unwrap_err();
    assert!(
        refused.issues[0].expected.contains("one capture at a time"),
        "{refused:?}"
    );
    assert!(!second.file.exists());
    rig.captures.stop();
    drop(rig.probes.try_iter().collect::<Vec<_>>());
    assert_eq!(rig.ended().ended, Some(CaptureEnd::Stopped));
    let refused = rig.start(first).unwrap_err();
    assert_eq!(refused.issues[0].pointer, "/capture/start/file");
    let wrong = CaptureRequest {
        segment: "none".to_owned(),
        seconds: 0,
        ..second
    };
    assert_eq!(rig.start(wrong).unwrap_err().issues.len(), 2);
}

#[test]
fn time_ends_a_capture_of_which_no_frame_comes() {
    let mut rig = Rig::new("time");
    let request = CaptureRequest {
        seconds: 1,
        ports: vec![Side::Wan, Side::Wan],
        ..rig.request("x.pcapng")
    };
    rig.start(request).unwrap();
    let mut probes: Vec<NewProbe> = rig.probes.try_iter().collect();
    assert_eq!(probes.len(), 1);
    while probes[0].probe.tick(crem_core::time::Instant(0)) {
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(probes);
    assert_eq!(rig.ended().ended, Some(CaptureEnd::Time));
    rig.captures.finish();
}
