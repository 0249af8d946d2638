//! Captures as an independent reader sees them: tshark reads what the writer wrote.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Command;

use crem_dataplane::capture::pcapng::{Packet, Writer};

/// An Ethernet frame of `length` octets with a local experimental EtherType.
fn frame(length: usize) -> Vec<u8> {
    let mut octets = vec![0x5a; length];
    octets[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    octets
}

#[test]
fn tshark_reads_times_ports_directions_and_lengths() {
    let path = std::env::temp_dir().join(format!("crem-pcapng-{}.pcapng", std::process::id()));
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = Writer::new(file, "CREM gateway").unwrap();
    writer.interface("site-a/lan", 256).unwrap();
    writer.interface("site-a/wan", 256).unwrap();
    let second = 1_000_000_000;
    let at = 1_790_000_000 * second + 123_456_789;
    let mut expected = String::new();
    for (n, (length, kept)) in [(60, 60), (61, 61), (1500, 256), (63, 63)]
        .into_iter()
        .enumerate()
    {
        let octets = frame(length);
        let (interface, outbound) = (n as u32 % 2, n >= 2);
        writer
            .packet(&Packet {
                interface,
                at_ns: at + n as u64,
                original: length as u32,
                octets: &octets[..kept],
                outbound,
            })
            .unwrap();
        let port = ["lan", "wan"][interface as usize];
        let direction = if outbound { 2 } else { 1 };
        let nanos = 123_456_789 + n;
        expected += &format!("1790000000.{nanos}\tsite-a/{port}\t{direction}\t{length}\t{kept}\n");
    }
    writer.statistics(0, at, 0).unwrap();
    writer.statistics(1, at, 7).unwrap();
    drop(writer);
    let fields = [
        "frame.time_epoch",
        "frame.interface_name",
        "frame.packet_flags_direction",
        "frame.len",
        "frame.cap_len",
    ];
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-r"]).arg(&path).args(["-T", "fields"]);
    fields.into_iter().for_each(|field| {
        tshark.args(["-e", field]);
    });
    let output = tshark
        .output()
        .expect("tshark, which `make setup` installs");
    std::fs::remove_file(&path).unwrap();
    let seen = String::from_utf8(output.stdout).unwrap();
    // Some versions write the direction as a hexadecimal number.
    assert_eq!(seen.replace("0x0000000", "").replace("0x", ""), expected);
    assert!(output.status.success());
}
