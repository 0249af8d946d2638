//! Echoes (ICMP) to a peer over an in-band interface: whether they come back, how soon, and up to which length. The
//! kernels of both gateways send and answer them, over the way that messages of the protocol take. Blocks, for a
//! bounded time; what the figures mean for flows is not judged here.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crem_api::rest::EchoReport;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, bind,
    connect, recv, send, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

use crate::clock;

/// Between two short ones.
const SPACING: Duration = Duration::from_millis(20);
/// Longest wait for one of them.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often a length is tried before it counts as one that does not pass.
const TRIES: u32 = 3;
/// All that the lengths may take.
const LENGTHS: Duration = Duration::from_secs(8);
/// Lengths that are not told apart, octets.
const STEP: u32 = 4;
/// The shortest IP packet that every path of IPv4 or of IPv6 carries, octets.
const LEAST_V4: u32 = 576;
const LEAST_V6: u32 = 1280;
/// Octets of the ICMP header.
const HEADER: u32 = 8;

/// What to try.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Kernel interface to send over.
    pub interface: String,
    /// Our address there.
    pub from: IpAddr,
    /// Whom to ask.
    pub to: IpAddr,
    /// Short ones to send.
    pub count: u16,
    /// Longest IP packet to try, octets.
    pub longest: u32,
}

/// Tries it.
pub fn run(plan: &Plan) -> EchoReport {
    let mut report = EchoReport {
        at_ms: clock::now().wall_ms,
        mtu_tried: plan.longest,
        ..EchoReport::default()
    };
    let mut echo = match Echo::open(plan) {
        Ok(echo) => echo,
        Err(error) => {
            report.unavailable = Some(format!("{}: {error}", plan.interface));
            return report;
        }
    };
    let mut times = echo.series(plan.count);
    report.sent = echo.sent;
    report.received = times.len() as u64;
    times.sort_unstable();
    let us = |time: &Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    report.rtt_min_us = times.first().map(us);
    report.rtt_median_us = times.get(times.len() / 2).map(us);
    report.rtt_max_us = times.last().map(us);
    if let Some(longest) = times.last() {
        // A long packet may take longer than the longest of the short ones.
        let patience = (*longest * 4 + Duration::from_millis(50)).min(PATIENCE);
        let (passed, refused) = echo.lengths(plan.longest, patience);
        (report.mtu_both_ways, report.mtu_refused) = (passed, refused);
    }
    report
}

/// A socket for echoes to one station.
struct Echo {
    socket: OwnedFd,
    version_6: bool,
    /// Whether whole IP packets come, and echoes of others.
    raw: bool,
    identifier: u16,
    sequence: u16,
    sent: u64,
}

impl Echo {
    fn open(plan: &Plan) -> io::Result<Self> {
        let version_6 = plan.to.is_ipv6();
        let (family, protocol) = if version_6 {
            (AddressFamily::Inet6, SockProtocol::IcmpV6)
        } else {
            (AddressFamily::Inet, SockProtocol::Icmp)
        };
        // The first kind is for everybody where the system allows it, the other for the privileged.
        let open = |kind| socket(family, kind, SockFlag::SOCK_CLOEXEC, protocol);
        let (socket, raw) = match open(SockType::Datagram) {
            Ok(socket) => (socket, false),
            Err(Errno::EACCES | Errno::EPERM) => (open(SockType::Raw)?, true),
            Err(error) => return Err(error.into()),
        };
        setsockopt(
            &socket,
            sockopt::BindToDevice,
            &plan.interface.clone().into(),
        )?;
        let fd = socket.as_raw_fd();
        match (plan.from, plan.to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                bind(fd, &SockaddrIn::from(std::net::SocketAddrV4::new(from, 0)))?;
                connect(fd, &SockaddrIn::from(std::net::SocketAddrV4::new(to, 0)))?;
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let at = |address| SockaddrIn6::from(std::net::SocketAddrV6::new(address, 0, 0, 0));
                bind(fd, &at(from))?;
                connect(fd, &at(to))?;
            }
            _ => return Err(io::Error::other("addresses of two families")),
        }
        let [first, second] = random()?;
        Ok(Self {
            socket,
            version_6,
            raw,
            identifier: u16::from_be_bytes([first, second]),
            sequence: 0,
            sent: 0,
        })
    }

    /// Sends an echo in an IP packet of so many octets.
    fn send(&mut self, length: u32) -> io::Result<u16> {
        let ip = if self.version_6 { 40 } else { 20 };
        let size = usize::try_from(length.saturating_sub(ip).max(HEADER)).unwrap_or(0);
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = vec![0; size];
        let kind = if self.version_6 { 128 } else { 8 };
        let [i, j] = self.identifier.to_be_bytes();
        let [s, t] = self.sequence.to_be_bytes();
        if let Some(header) = message.first_chunk_mut::<8>() {
            *header = [kind, 0, 0, 0, i, j, s, t];
        }
        // The kernel does it for the other kinds of sockets.
        if self.raw && !self.version_6 {
            let sum = checksum(&message).to_be_bytes();
            if let Some(place) = message.get_mut(2..4) {
                place.copy_from_slice(&sum);
            }
        }
        send(self.socket.as_raw_fd(), &message, MsgFlags::empty())?;
        Ok(self.sequence)
    }

    /// The number of the next echo that comes back until then.
    fn receive(&self, until: Instant) -> Option<u16> {
        let mut packet = vec![0; 1 << 16];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = i64::try_from(left.as_micros()).unwrap_or(0);
            if left == 0 {
                return None;
            }
            let time = TimeVal::microseconds(left);
            setsockopt(&self.socket, sockopt::ReceiveTimeout, &time).ok()?;
            let received = match recv(self.socket.as_raw_fd(), &mut packet, MsgFlags::empty()) {
                Ok(received) => received,
                // Unreachable, or too long for somebody on the way: an answer of a kind, but not of the peer.
                Err(Errno::EAGAIN | Errno::EINTR | Errno::EHOSTUNREACH | Errno::EMSGSIZE) => {
                    continue;
                }
                Err(_) => return None,
            };
            if let Some(sequence) = packet.get(..received).and_then(|p| self.reply(p)) {
                return Some(sequence);
            }
        }
    }

    /// The number of an echo of ours.
    fn reply(&self, packet: &[u8]) -> Option<u16> {
        let message = if self.raw && !self.version_6 {
            packet.get(usize::from(packet.first()? & 0xf) * 4..)?
        } else {
            packet
        };
        let [kind, _, _, _, i, j, s, t] = *message.first_chunk::<8>()?;
        let ours = !self.raw || u16::from_be_bytes([i, j]) == self.identifier;
        let wanted = if self.version_6 { 129 } else { 0 };
        (kind == wanted && ours).then_some(u16::from_be_bytes([s, t]))
    }

    /// Short ones at a steady pace, and the round-trip times of those that come back.
    fn series(&mut self, count: u16) -> Vec<Duration> {
        let (mut out, mut times) = (Vec::new(), Vec::new());
        let least = if self.version_6 { LEAST_V6 } else { LEAST_V4 };
        for _ in 0..count {
            let at = Instant::now();
            if let Ok(sequence) = self.send(least / 4) {
                out.push((sequence, at));
                self.sent += 1;
            }
            self.collect(at + SPACING, &mut out, &mut times);
        }
        let last = Instant::now() + PATIENCE;
        self.collect(last, &mut out, &mut times);
        times
    }

    fn collect(&self, until: Instant, out: &mut Vec<(u16, Instant)>, times: &mut Vec<Duration>) {
        loop {
            if out.is_empty() {
                // Nothing is under way: only the pace is kept.
                std::thread::sleep(until.saturating_duration_since(Instant::now()).min(SPACING));
                return;
            }
            let Some(sequence) = self.receive(until) else {
                return;
            };
            if let Some(at) = out.iter().position(|(number, _)| *number == sequence) {
                times.push(out.swap_remove(at).1.elapsed());
            }
        }
    }

    /// The longest that comes back and the shortest that does not, found by halving what lies between.
    fn lengths(&mut self, longest: u32, patience: Duration) -> (Option<u32>, Option<u32>) {
        let end = Instant::now() + LENGTHS;
        let least = if self.version_6 { LEAST_V6 } else { LEAST_V4 };
        let least = least.min(longest);
        if self.passes(longest, patience) {
            return (Some(longest), None);
        }
        if !self.passes(least, patience) {
            return (None, Some(least));
        }
        let (mut passed, mut refused) = (least, longest);
        while refused - passed > STEP && Instant::now() < end {
            let middle = passed.midpoint(refused);
            if self.passes(middle, patience) {
                passed = middle;
            } else {
                refused = middle;
            }
        }
        (Some(passed), Some(refused))
    }

    /// Whether a length comes back.
    fn passes(&mut self, length: u32, patience: Duration) -> bool {
        (0..TRIES).any(|_| {
            let until = Instant::now() + patience;
            let Ok(sent) = self.send(length) else {
                return false;
            };
            std::iter::from_fn(|| self.receive(until)).any(|sequence| sequence == sent)
        })
    }
}

/// The checksum of the internet (RFC 1071).
fn checksum(octets: &[u8]) -> u16 {
    let word = |pair: &[u8]| match pair {
        [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
        [high] => u32::from(*high) << 8,
        _ => 0,
    };
    let mut sum: u32 = octets.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn random() -> io::Result<[u8; 2]> {
    use ring::rand::{SecureRandom, SystemRandom};
    let mut octets = [0; 2];
    SystemRandom::new()
        .fill(&mut octets)
        .map_err(|_| io::Error::other("no random numbers"))?;
    Ok(octets)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn plan(to: &str, longest: u32) -> Plan {
        Plan {
            interface: "lo".to_owned(),
            from: if to.contains(':') { "::1" } else { "127.0.0.1" }
                .parse()
                .unwrap(),
            to: to.parse().unwrap(),
            count: 3,
            longest,
        }
    }

    #[test]
    fn this_machine_answers_itself_in_every_length() {
        for to in ["127.0.0.1", "::1"] {
            let report = run(&plan(to, 1500));
            if let Some(why) = &report.unavailable {
                // Not root and not allowed to, or no such family here.
                println!("skipped {to}: {why}");
                continue;
            }
            assert_eq!((report.sent, report.received), (3, 3), "{to}");
            assert!(report.rtt_min_us.unwrap() <= report.rtt_max_us.unwrap());
            assert_eq!(
                (report.mtu_both_ways, report.mtu_refused),
                (Some(1500), None)
            );
        }
    }

    #[test]
    fn what_cannot_be_asked_says_why() {
        let nowhere = Plan {
            interface: "no-such-if".to_owned(),
            ..plan("127.0.0.1", 1500)
        };
        let report = run(&nowhere);
        assert!(report.unavailable.unwrap().starts_with("no-such-if: "));
        assert_eq!((report.sent, report.mtu_both_ways), (0, None));
    }

    #[test]
    fn the_checksum_makes_the_sum_nothing() {
        let mut message = vec![8, 0, 0, 0, 1, 2, 3, 4, 5];
        let sum = checksum(&message).to_be_bytes();
        message[2..4].copy_from_slice(&sum);
        assert_eq!(checksum(&message), 0);
    }
}
