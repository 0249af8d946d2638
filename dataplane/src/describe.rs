//! What a segment of the document means for the worker and for the status: the view of frames, the
//! station, its names. Nothing is opened or started here.

use std::net::IpAddr;

use crem_api::state::InbandStatus;
use crem_api::{Inband as InbandConfig, MacAddr, Mode, Segment as SegmentConfig, SegmentId};
use crem_wire::frame::{Mac, ParseConfig};

use crate::aux::{AboutSegment, interface_name};
use crate::classify::{Station, View};
use crate::control_frames::ControlFrames;
use crate::machine;

/// How the worker looks at frames. `mtus` are those of the LAN and the WAN port.
pub(crate) fn view(id: &SegmentId, config: &SegmentConfig, mtus: (u32, u32)) -> View {
    View {
        parse: ParseConfig {
            crem_port: Some(config.crem_port),
            vxlan_port: config.vxlan.as_ref().map(|vxlan| vxlan.port),
        },
        served: config.served.keys().copied().collect(),
        own: config.inband.as_ref().map(|inband| Station {
            address: inband.address.address(),
            mac: Mac(inband.mac.unwrap_or_else(|| own_mac(id, inband)).0),
            vlan: inband.vlan,
        }),
        active: config.mode == Mode::Active,
        watched: config.mode == Mode::Monitor,
        responses: config.policy.responses,
        learn: config.policy.learn,
        verify_sources: config.policy.verify_sources,
        control: ControlFrames::new(&config.control_frames),
        networks: config
            .vxlan
            .iter()
            .flat_map(|vxlan| vxlan.networks.keys().copied())
            .collect(),
        cut_from: [
            machine::cut_from(&config.lan, mtus.0),
            machine::cut_from(&config.wan, mtus.1),
        ],
    }
}

/// What the status says of it.
pub(crate) fn describe(id: &SegmentId, config: &SegmentConfig, mtus: (u32, u32)) -> AboutSegment {
    AboutSegment {
        id: id.as_str().to_owned(),
        lan: (config.lan.name().to_owned(), mtus.0),
        wan: (config.wan.name().to_owned(), mtus.1),
        inband: config.inband.as_ref().map(|inband| InbandStatus {
            address: inband.address.to_string(),
            mac: inband
                .mac
                .unwrap_or_else(|| own_mac(id, inband))
                .to_string(),
            interface: interface_name(id.as_str()),
        }),
        peers: config.peers.values().map(|p| p.address).collect(),
        link_propagation: config.link_propagation,
        ..AboutSegment::default()
    }
}

/// A MAC address that a gateway keeps over restarts: locally administered, from address and segment.
pub(crate) fn own_mac(id: &SegmentId, inband: &InbandConfig) -> MacAddr {
    let address = match inband.address.address() {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    };
    // FNV-1a, 64 bits.
    let octets = address.iter().copied().chain(id.as_str().bytes());
    let hash = octets.fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    });
    let [_, _, a, b, c, d, e, f] = hash.to_be_bytes();
    MacAddr([a & 0xfc | 0x02, b, c, d, e, f])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use crem_api::Side;

    use super::*;

    fn inband(address: &str) -> InbandConfig {
        InbandConfig {
            address: address.parse().unwrap(),
            mac: None,
            vlan: None,
            port: Side::Wan,
            gateway: None,
        }
    }

    #[test]
    fn derived_addresses_are_stable_local_stations_and_differ() {
        let id: SegmentId = "a".parse().unwrap();
        let mac = own_mac(&id, &inband("192.0.2.1/24"));
        assert_eq!(mac, own_mac(&id, &inband("192.0.2.1/24")));
        assert!(mac.is_station() && mac.0[0] & 2 == 2);
        assert_ne!(mac, own_mac(&id, &inband("192.0.2.2/24")));
        assert_ne!(mac, own_mac(&"b".parse().unwrap(), &inband("192.0.2.1/24")));
        assert_ne!(mac, own_mac(&id, &inband("2001:db8::1/64")));
    }
}
