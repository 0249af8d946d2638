//! What the kernel drops in front of an AF_PACKET port because its ring is full: DPDK's driver does not
//! ask for it, so the sockets that it opened are asked here. Nothing else of them is touched.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::sys::socket::{AddressFamily, SockaddrLike, SockaddrStorage, getsockname};

/// The AF_PACKET sockets of this process that listen to one interface.
#[derive(Debug)]
pub struct Rings {
    sockets: Vec<OwnedFd>,
    drops: u64,
}

impl Rings {
    /// Those bound to the interface with this index now, as when a port of [`crate::vdev::af_packet`]
    /// was just opened. The kernel keeps them open until this is dropped, even when the port is closed.
    ///
    /// # Errors
    /// If the list of open files cannot be read.
    pub fn of(index: u32) -> io::Result<Self> {
        let mut sockets = Vec::new();
        for entry in std::fs::read_dir("/proc/self/fd")? {
            let name = entry?.file_name();
            // Files may close while the list is read: what does not answer is none of ours.
            let number = name.to_str().and_then(|name| name.parse().ok());
            sockets.extend(number.and_then(|number| own_socket(number, index)));
        }
        Ok(Self { sockets, drops: 0 })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Frames dropped so far, since the sockets were opened unless somebody else asked before: the
    /// kernel's count starts anew at each question, so only one `Rings` of an interface counts right.
    pub fn drops(&mut self) -> u64 {
        for socket in &self.sockets {
            // No answer is no drop: the count is the kernel's, and stays for the next question.
            self.drops += u64::from(take_drops(socket).unwrap_or(0));
        }
        self.drops
    }
}

/// A descriptor of our own for the socket behind `number`, if it is one that listens to the interface.
fn own_socket(number: i32, index: u32) -> Option<OwnedFd> {
    if number < 0 {
        return None;
    }
    // SAFETY: `number` is not -1. The descriptor is used for `fcntl` alone and may be closed by another
    // thread at any time: then the call fails, or duplicates whatever has taken its number, and
    // everything after this works on the duplicate, which is ours.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let own = fcntl(borrowed, FcntlArg::F_DUPFD_CLOEXEC(0)).ok()?;
    // SAFETY: `fcntl` just returned this descriptor and nobody else knows it.
    let own = unsafe { OwnedFd::from_raw_fd(own) };
    let address: SockaddrStorage = getsockname(own.as_raw_fd()).ok()?;
    let listens = address.family() == Some(AddressFamily::Packet)
        && usize::try_from(index).is_ok_and(|index| {
            address
                .as_link_addr()
                .is_some_and(|link| link.ifindex() == index)
        });
    listens.then_some(own)
}

/// Frames that the kernel dropped since it was last asked.
fn take_drops(socket: &OwnedFd) -> io::Result<u32> {
    // SAFETY: all-zero octets are valid integers.
    let mut stats: libc::tpacket_stats_v3 = unsafe { core::mem::zeroed() };
    let mut len = size_of_val(&stats) as libc::socklen_t;
    // SAFETY: the descriptor is open; the kernel writes at most `len` octets to `stats`, which has as
    // many. It writes the two or three counters that the socket's version of the ring has.
    let ret = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut stats).cast(),
            &raw mut len,
        )
    };
    if ret < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(stats.tp_drops)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use nix::sched::{CloneFlags, unshare};
    use nix::sys::socket::{SockFlag, SockType, socket};
    use std::net::UdpSocket;

    /// A socket on the loopback of a network namespace of this thread's own; `None` without privileges.
    fn listening_socket() -> Option<OwnedFd> {
        unshare(CloneFlags::CLONE_NEWNET).ok()?;
        crate::iface::set_up("lo", true).expect("our own loopback");
        let all = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            None,
        );
        let listener = all.expect("a packet socket");
        // SAFETY: all-zero octets are valid integers.
        let mut to: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        to.sll_ifindex = 1;
        // SAFETY: the descriptor is open, the address is as long as said.
        let bound = unsafe {
            libc::bind(
                listener.as_raw_fd(),
                (&raw const to).cast(),
                size_of_val(&to) as libc::socklen_t,
            )
        };
        assert_eq!(bound, 0);
        Some(listener)
    }

    #[test]
    fn what_does_not_fit_the_ring_is_counted() {
        std::thread::spawn(|| {
            let Some(_listener) = listening_socket() else {
                println!("no privilege for a namespace: not tried");
                return;
            };
            let mut rings = Rings::of(1).unwrap();
            assert!(!rings.is_empty() && Rings::of(77).unwrap().is_empty());
            assert_eq!(rings.drops(), 0);
            let (from, to) = (
                UdpSocket::bind("127.0.0.1:0").unwrap(),
                UdpSocket::bind("127.0.0.1:0").unwrap(),
            );
            // Nobody reads: some hundred fill the receive buffer, the rest is dropped.
            let mut sent = 0;
            while rings.drops() < 100 && sent < 100_000 {
                let _ = from.send_to(&[0; 1000], to.local_addr().unwrap());
                sent += 1;
            }
            let drops = rings.drops();
            assert!((100..=sent * 2).contains(&drops), "{drops} of {sent}");
            assert_eq!(rings.drops(), drops, "nothing is counted twice");
        })
        .join()
        .unwrap();
    }
}
