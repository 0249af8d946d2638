//! Path Reporters: nodes behind each gateway that tell its sender function what the path dropped, by
//! method 3, in messages written here and not by the product.

use std::net::IpAddr;

use crem_core::packet::StreamKey;

use super::mail::Mail;
use super::{Item, World};
use crate::net::Cause;
use crate::packet::Packet;
use crate::{Duration, Instant, gateway, wire};

/// A node reports no more often than this.
const SPACING: Duration = Duration::from_micros(200);
/// Node-local drop accounting.
const METHOD: u8 = 3;
/// More was to be said than fits.
const TRUNCATED: u8 = 0x80;
/// Dropped packets in one report at most.
const MOST: usize = 200;
/// Type and version in the first octet of PATH_REPORT.
const FIRST: u8 = 0x18;

impl World {
    /// The path from `side` dropped a packet.
    pub(super) fn dropped(&mut self, side: usize, packet: &Packet, cause: Cause) {
        let Some(stream) = Self::stream_of(packet) else {
            return;
        };
        if !self.scenario.reporter {
            return;
        }
        let drops = &mut self.sides[side].drops;
        if drops.len() < MOST {
            drops.push((stream, packet.psn.get()));
        }
        if self.now < self.sides[side].quiet_until {
            return;
        }
        self.sides[side].quiet_until = self.now + SPACING;
        self.sides[side].reports += 1;
        let cause = match cause {
            Cause::Overflow => 1,
            Cause::Transmission => 2,
            Cause::Down => 0,
        };
        let said = Said {
            period: self.sides[side].reports - u32::from(self.rng.chance(0.05)),
            truncated: self.rng.chance(0.05),
            delay: if self.rng.chance(0.1) { 5_000 } else { 0 },
            cause,
            psns: std::mem::take(&mut self.sides[side].drops)
                .into_iter()
                .filter_map(|(of, psn)| (of == stream).then_some(psn))
                .collect(),
        };
        let octets = report(&self.streams[stream].key, &said);
        if let Ok((_, seen)) = wire::sent(&octets) {
            self.coverage.message(seen.name());
        }
        let mail = Mail {
            from: gateway::reporter(),
            octets,
            symbol: None,
            t: 0,
            ce: false,
        };
        let at = Instant(self.now.0 + self.scenario.wan[side].delay.as_nanos() as u64 / 4);
        let lane = self.sides[1 - side].wan.lane;
        self.flight.push(lane, at, Item::Mail(Box::new(mail)));
    }
}

/// What one hop entry says.
struct Said {
    period: u32,
    /// More was to be said than fits.
    truncated: bool,
    /// Growth of the queue's delay, microseconds.
    delay: u32,
    cause: u8,
    psns: Vec<u32>,
}

/// One hop entry for a flow.
fn report(key: &StreamKey, said: &Said) -> Vec<u8> {
    let flags = if said.truncated { TRUNCATED } else { 0 };
    let mut out = vec![FIRST, flags, 0, 0, 0, 0, 0, 0, METHOD, 1];
    let family = if key.source.is_ipv4() { 4 } else { 6 };
    out.extend_from_slice(&[family, 0]);
    for address in [key.source, key.destination] {
        match address {
            IpAddr::V4(v4) => out.extend_from_slice(&v4.octets()),
            IpAddr::V6(v6) => out.extend_from_slice(&v6.octets()),
        }
    }
    let lost = said.psns.len();
    for word in [key.qp.get(), 77, said.period, lost as u32, said.delay] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.extend_from_slice(&[said.cause, lost as u8, 0, 0]);
    for psn in &said.psns {
        out.extend_from_slice(&psn.to_be_bytes());
    }
    let length = out.len() as u16;
    out[2..4].copy_from_slice(&length.to_be_bytes());
    out
}
