//! Two sockets at the ends of a veth pair in a namespace of the test's own.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;

use crem_rawsock::{Error, Options, RawSock, RecvBatch, wait_readable};
use nix::sched::{CloneFlags, setns};

struct Namespace(String);

impl Namespace {
    /// `None`, and said so, where the test may not make one.
    fn new(name: &str) -> Option<Self> {
        let name = format!("crem-rawsock-{}-{name}", std::process::id());
        if !ip(&["netns", "add", &name]) {
            println!("SKIPPED: rawsock: no permission to make network namespaces");
            return None;
        }
        let space = Self(name);
        let n = space.0.as_str();
        assert!(ip(&[
            "-n", n, "link", "add", "end0", "type", "veth", "peer", "name", "end1"
        ]));
        for end in ["end0", "end1"] {
            let key = format!("net.ipv6.conf.{end}.disable_ipv6=1");
            assert!(ip(&["netns", "exec", n, "sysctl", "-qw", &key]));
            assert!(ip(&["-n", n, "link", "set", end, "mtu", "4400", "up"]));
        }
        let file = File::open(format!("/var/run/netns/{n}")).unwrap();
        setns(file.as_fd(), CloneFlags::CLONE_NEWNET).unwrap();
        Some(space)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        ip(&["netns", "delete", &self.0]);
    }
}

fn ip(arguments: &[&str]) -> bool {
    Command::new("ip")
        .args(arguments)
        .output()
        .is_ok_and(|out| out.status.success())
}

fn receive(sock: &mut RawSock, batch: &mut RecvBatch, wanted: usize) -> Vec<(Vec<u8>, bool)> {
    let mut got = Vec::new();
    while got.len() < wanted {
        let [ready] = wait_readable([sock.as_fd()], Some(2_000_000_000)).unwrap();
        assert!(ready, "{} of {wanted} frames came", got.len());
        sock.recv(batch, |frame| {
            got.push((frame.octets.to_vec(), frame.outgoing))
        })
        .unwrap();
    }
    got
}

fn frame(number: u16, tag: Option<[u8; 4]>, octets: usize) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend(tag.into_iter().flatten());
    frame.extend([0x88, 0xb5]);
    frame.extend(number.to_be_bytes());
    frame.resize(octets, number as u8);
    frame
}

#[test]
fn frames_pass_whole_in_order_and_tagged() {
    let Some(_space) = Namespace::new("pass") else {
        return;
    };
    let mut left = RawSock::open("end0", Options::default()).unwrap();
    let mut right = RawSock::open("end1", Options::default()).unwrap();
    assert_ne!(left.mac(), right.mac());
    let sent: Vec<Vec<u8>> = (0..300)
        .map(|n| {
            let tag = match n % 3 {
                0 => None,
                1 => Some([0x81, 0x00, 0x60, 0x64]),
                _ => Some([0x88, 0xa8, 0x00, 0x07]),
            };
            frame(n, tag, 60 + 14 * usize::from(n))
        })
        .collect();
    assert_eq!(left.send(&sent).unwrap().frames, 300);
    let mut batch = RecvBatch::new(64, 4_500);
    let got: Vec<Vec<u8>> = receive(&mut right, &mut batch, 300)
        .into_iter()
        .map(|(frame, _)| frame)
        .collect();
    assert_eq!(got, sent);
    // Own frames do not come back.
    left.recv(&mut batch, |frame| panic!("{frame:?}")).unwrap();
    assert_eq!(right.kernel_drops(), 0);
    assert_eq!(left.send(&[vec![0; 9_000]]).unwrap().refused, 1);
}

#[test]
fn a_capture_sees_both_ways_and_losses_are_counted() {
    let Some(_space) = Namespace::new("capture") else {
        return;
    };
    let mut left = RawSock::open("end0", Options::default()).unwrap();
    let mut right = RawSock::open("end1", Options::default()).unwrap();
    let both = Options {
        ignore_outgoing: false,
        ..Options::default()
    };
    let mut capture = RawSock::open("end0", both).unwrap();
    left.send(&[frame(1, None, 100)]).unwrap();
    right.send(&[frame(2, None, 100)]).unwrap();
    let mut batch = RecvBatch::new(8, 2_000);
    let ways: Vec<bool> = receive(&mut capture, &mut batch, 2)
        .into_iter()
        .map(|(_, outgoing)| outgoing)
        .collect();
    assert_eq!(ways, [true, false]);

    let small = Options {
        receive_buffer: 8_000,
        ..Options::default()
    };
    let mut narrow = RawSock::open("end1", small).unwrap();
    let many: Vec<Vec<u8>> = (0..200).map(|n| frame(n, None, 1_000)).collect();
    left.send(&many).unwrap();
    let mut seen = 0;
    while narrow.recv(&mut batch, |_| seen += 1).unwrap() {}
    left.send(&[frame(7, None, 100)]).unwrap();
    receive(&mut narrow, &mut batch, 1);
    assert!(seen < 200);
    assert_eq!(narrow.kernel_drops(), 200 - seen);
}

#[test]
fn a_missing_interface_is_named() {
    let error = RawSock::open("no-such-if0", Options::default()).unwrap_err();
    assert!(
        matches!(&error, Error::NoInterface(name) if name == "no-such-if0"),
        "{error}"
    );
}
