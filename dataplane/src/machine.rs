//! What a config document asks of the machine: interfaces that exist, MTUs that suffice, a pool that can
//! hold what the limits allow. All problems are told at once, as those of the document itself.

use crem_api::{Device, Document, Invalid, Issue, Mode, Segment, SegmentId};
use crem_dpdk::{HEADROOM, iface, vdev};

use crate::buffer::BURST;
use crate::slots::RESERVE;

/// Largest IP packet of a port whose MTU nobody tells.
const UNKNOWN_MTU: u32 = 9216;
/// Ethernet header and two tags.
const LINK_OCTETS: u32 = 22;
/// Buffers that retention and hold must leave for receiving: descriptors, bursts, the transmit queues.
pub(crate) const RX_RESERVE: u32 = 1024 + 8 * BURST as u32;

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ports {
    /// MTU of the LAN and WAN port of each segment.
    mtus: Vec<(u32, u32)>,
    /// Octets of each buffer of the pool.
    pub room: u16,
}

impl Ports {
    /// MTU of the LAN and the WAN port of a segment.
    pub fn mtus(&self, segment: usize) -> (u32, u32) {
        self.mtus
            .get(segment)
            .copied()
            .unwrap_or((UNKNOWN_MTU, UNKNOWN_MTU))
    }
}

/// Looks at what the document names.
///
/// # Errors
/// Everything that does not fit, at once.
pub fn check(document: &Document, pool_frames: u32) -> Result<Ports, Invalid> {
    let mut issues = Vec::new();
    let mut mtus = Vec::new();
    let mut room = 0;
    for (id, segment) in &document.segments {
        let lan = device_mtu(id, "lan", &segment.lan, &mut issues);
        let wan = device_mtu(id, "wan", &segment.wan, &mut issues);
        if let (Some(lan), Some(wan)) = (lan, wan) {
            check_mtus(id, segment, lan, wan, &mut issues);
        }
        let pair = (lan.unwrap_or(UNKNOWN_MTU), wan.unwrap_or(UNKNOWN_MTU));
        room = room.max(room_for(segment, pair));
        mtus.push(pair);
    }
    check_pool(document, pool_frames, &mut issues);
    if issues.is_empty() {
        Ok(Ports { mtus, room })
    } else {
        Err(Invalid { issues })
    }
}

/// MTU of a device; `None` with an issue if it is not there.
fn device_mtu(id: &SegmentId, side: &str, device: &Device, issues: &mut Vec<Issue>) -> Option<u32> {
    let Device::Interface(name) = device else {
        return Some(UNKNOWN_MTU);
    };
    if iface::index(name).is_none() {
        issues.push(Issue {
            pointer: format!("/segments/{id}/{side}/interface"),
            found: format!("{name:?}, which does not exist"),
            expected: "an interface of this network namespace".to_owned(),
        });
        return None;
    }
    match iface::mtu(name) {
        Ok(mtu) => Some(mtu),
        Err(e) => {
            issues.push(Issue {
                pointer: format!("/segments/{id}/{side}/interface"),
                found: format!("{name:?}: {e}"),
                expected: "an interface whose MTU can be read".to_owned(),
            });
            None
        }
    }
}

fn check_mtus(id: &SegmentId, segment: &Segment, lan: u32, wan: u32, issues: &mut Vec<Issue>) {
    let path = u32::from(segment.path_mtu);
    let mut say = |side: &str, device: &Device, mtu: u32, expected: String| {
        issues.push(Issue {
            pointer: format!("/segments/{id}/{side}"),
            found: format!("{:?} with an MTU of {mtu}", device.name()),
            expected,
        });
    };
    if segment.mode == Mode::Active && wan < path {
        let expected =
            format!("an MTU of at least {path}, which is path_mtu, for repair messages to pass");
        say("wan", &segment.wan, wan, expected);
    }
    if wan < lan {
        let expected = format!("an MTU of at most {wan}, which the WAN port has");
        say("lan", &segment.lan, lan, expected);
    }
}

fn room_for(segment: &Segment, (lan, wan): (u32, u32)) -> u16 {
    let headroom = u32::from(HEADROOM);
    let frame = headroom + LINK_OCTETS + lan.max(wan).max(u32::from(segment.path_mtu));
    // No symbol is longer than the path lets through.
    let symbol = headroom + u32::from(RESERVE) + u32::from(segment.path_mtu);
    let mut room = frame.max(symbol);
    for (device, mtu) in [(&segment.lan, lan), (&segment.wan, wan)] {
        if matches!(device, Device::Interface(_)) {
            let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
            room = room.max(u32::from(vdev::af_packet_room(mtu)));
        }
    }
    u16::try_from(room).unwrap_or(u16::MAX)
}

/// Frames that a segment may keep at most.
fn kept(segment: &Segment) -> u32 {
    match segment.mode {
        Mode::Active => segment
            .limits
            .retained_frames
            .saturating_add(segment.limits.held_frames),
        Mode::Passthrough => 0,
    }
}

fn check_pool(document: &Document, pool_frames: u32, issues: &mut Vec<Issue>) {
    let all: u64 = document.segments.values().map(|s| u64::from(kept(s))).sum();
    let reserve = u64::from(RX_RESERVE) * document.segments.len() as u64;
    if all + reserve <= u64::from(pool_frames) {
        return;
    }
    for (id, segment) in document.segments.iter().filter(|(_, s)| kept(s) > 0) {
        issues.push(Issue {
            pointer: format!("/segments/{id}/limits"),
            found: format!(
                "retained_frames {} and held_frames {}",
                segment.limits.retained_frames, segment.limits.held_frames
            ),
            expected: format!(
                "together at most {} over all segments: the pool has {pool_frames} frames and \
                 {reserve} of them are for receiving",
                u64::from(pool_frames).saturating_sub(reserve)
            ),
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crem_api::{Syntax, parse};

    fn document(lan: &str, wan: &str, mode: &str, mtu: u16) -> Document {
        let text = format!(
            r#"
            version = 1
            [segments.a]
            mode = "{mode}"
            crem_port = 4801
            path_mtu = {mtu}
            rdma_mtu = 1024
            lan = {{ {lan} }}
            wan = {{ {wan} }}
            served = {{ "10.0.1.0/24" = {{}} }}
            allowed_peers = {{ "192.0.2.0/24" = {{}} }}
            inband = {{ address = "192.0.2.1/24" }}
            "#
        );
        parse(&text, Syntax::Toml).unwrap()
    }

    fn found(document: &Document, frames: u32) -> Vec<String> {
        check(document, frames)
            .unwrap_err()
            .issues
            .iter()
            .map(Issue::to_string)
            .collect()
    }

    #[test]
    fn missing_interfaces_are_all_named() {
        let document = document(
            "interface = \"crem-x0\"",
            "interface = \"crem-x1\"",
            "passthrough",
            1500,
        );
        assert_eq!(
            found(&document, 8191),
            [
                "/segments/a/lan/interface: found \"crem-x0\", which does not exist, expected an \
                 interface of this network namespace",
                "/segments/a/wan/interface: found \"crem-x1\", which does not exist, expected an \
                 interface of this network namespace",
            ]
        );
    }

    #[test]
    fn mtus_are_told_with_both_numbers() {
        let mut issues = Vec::new();
        let document = document(
            "vdev = \"net_null0\"",
            "vdev = \"net_null1\"",
            "active",
            4300,
        );
        let (id, segment) = document.segments.first_key_value().unwrap();
        check_mtus(id, segment, 4300, 4214, &mut issues);
        let texts: Vec<String> = issues.iter().map(Issue::to_string).collect();
        assert_eq!(texts.len(), 2);
        assert!(texts[0].starts_with("/segments/a/wan: found \"net_null1\" with an MTU of 4214"));
        assert!(texts[0].contains("at least 4300"));
        assert!(texts[1].starts_with("/segments/a/lan: found \"net_null0\" with an MTU of 4300"));
        issues.clear();
        check_mtus(id, segment, 4214, 4300, &mut issues);
        assert!(issues.is_empty());
    }

    #[test]
    fn limits_must_fit_the_pool() {
        let active = document(
            "vdev = \"net_null0\"",
            "vdev = \"net_null1\"",
            "active",
            1500,
        );
        let needed = 2048 + 1024 + RX_RESERVE;
        assert!(check(&active, needed).is_ok());
        let texts = found(&active, needed - 1);
        assert!(
            texts[0].starts_with("/segments/a/limits: found retained_frames 2048"),
            "{texts:?}"
        );
        let idle = document(
            "vdev = \"net_null0\"",
            "vdev = \"net_null1\"",
            "passthrough",
            1500,
        );
        assert!(check(&idle, RX_RESERVE).is_ok());
    }

    #[test]
    fn buffers_hold_a_symbol_with_its_headers_and_the_longest_frame() {
        let document = document(
            "vdev = \"net_null0\"",
            "vdev = \"net_null1\"",
            "active",
            4214,
        );
        let segment = document.segments.values().next().unwrap();
        assert!(room_for(segment, (1500, 4214)) >= HEADROOM + RESERVE + 4138);
        assert!(u32::from(room_for(segment, (1500, 9216))) >= u32::from(HEADROOM) + 22 + 9216);
    }
}
