//! Opening, binding and sending. Receiving is in `recv.rs`, waiting in `wait.rs`.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::sockopt::{RcvBufForce, RxqOvfl, SndBufForce};
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, MultiHeaders, SockFlag, SockProtocol, SockType, bind,
    sendmmsg, setsockopt, socket,
};

/// Socket options that nix does not name; its macro writes the call.
mod option {
    use nix::setsockopt_impl;
    use nix::sys::socket::sockopt::SetBool;

    /// Hand over the VLAN tag that the kernel took out of a frame (packet(7)).
    #[derive(Clone, Copy)]
    pub(super) struct PacketAuxdata;
    setsockopt_impl!(
        PacketAuxdata,
        libc::SOL_PACKET,
        libc::PACKET_AUXDATA,
        bool,
        SetBool
    );

    /// Do not deliver frames that leave by the interface (packet(7)).
    #[derive(Clone, Copy)]
    pub(super) struct PacketIgnoreOutgoing;
    setsockopt_impl!(
        PacketIgnoreOutgoing,
        libc::SOL_PACKET,
        libc::PACKET_IGNORE_OUTGOING,
        bool,
        SetBool
    );
}

/// Most frames of one [`RawSock::send`] system call.
const SEND_BATCH: usize = 64;

/// What went wrong with a raw socket.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The interface does not exist in the network namespace of this thread.
    #[error("no interface {0} in this network namespace")]
    NoInterface(String),
    /// A system call failed.
    #[error("{call} on {interface}: {errno}")]
    System {
        /// The call.
        call: &'static str,
        /// The interface.
        interface: String,
        /// Its error.
        errno: Errno,
    },
}

/// How to open a socket.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Receive buffer in octets as the kernel counts them (about twice the frame's length each).
    pub receive_buffer: usize,
    /// Send buffer in octets.
    pub send_buffer: usize,
    /// Deliver only frames that arrive, not those that others send by this interface.
    pub ignore_outgoing: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            receive_buffer: 64 << 20,
            send_buffer: 16 << 20,
            ignore_outgoing: true,
        }
    }
}

/// What became of frames given to [`RawSock::send`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sent {
    /// Frames the kernel took.
    pub frames: u64,
    /// Frames it refused: too long for the interface, interface down, or no buffer.
    pub refused: u64,
}

/// A packet socket bound to one interface; non-blocking.
#[derive(Debug)]
pub struct RawSock {
    fd: OwnedFd,
    name: String,
    address: LinkAddr,
    pub(crate) drops: u64,
}

impl RawSock {
    /// Opens a socket on `interface` in the network namespace of the calling thread; it stays in that
    /// namespace when the thread leaves it.
    ///
    /// # Errors
    /// The interface is missing, or the process lacks CAP_NET_RAW or CAP_NET_ADMIN.
    pub fn open(interface: &str, options: Options) -> Result<Self, Error> {
        let fail = |call: &'static str| {
            move |errno| Error::System {
                call,
                interface: interface.to_owned(),
                errno,
            }
        };
        let address = link_address(interface)?;
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let fd = socket(
            AddressFamily::Packet,
            SockType::Raw,
            flags,
            SockProtocol::EthAll,
        )
        .map_err(fail("socket"))?;
        // Options first: what arrives before them would lack its tag or be an outgoing copy.
        setsockopt(&fd, option::PacketAuxdata, &true).map_err(fail("PACKET_AUXDATA"))?;
        setsockopt(&fd, option::PacketIgnoreOutgoing, &options.ignore_outgoing)
            .map_err(fail("PACKET_IGNORE_OUTGOING"))?;
        setsockopt(&fd, RxqOvfl, &1).map_err(fail("SO_RXQ_OVFL"))?;
        setsockopt(&fd, RcvBufForce, &options.receive_buffer).map_err(fail("SO_RCVBUFFORCE"))?;
        setsockopt(&fd, SndBufForce, &options.send_buffer).map_err(fail("SO_SNDBUFFORCE"))?;
        bind(fd.as_raw_fd(), &address).map_err(fail("bind"))?;
        Ok(Self {
            fd,
            name: interface.to_owned(),
            address,
            drops: 0,
        })
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The interface's Ethernet address.
    pub fn mac(&self) -> [u8; 6] {
        self.address.addr().unwrap_or_default()
    }

    /// Frames that the kernel dropped because the receive buffer was full, as of the last frame
    /// received after the loss.
    pub fn kernel_drops(&self) -> u64 {
        self.drops
    }

    pub(crate) fn ifindex(&self) -> usize {
        self.address.ifindex()
    }

    pub(crate) fn raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Sends whole frames in order. A frame that the kernel refuses is counted and left out.
    ///
    /// # Errors
    /// Any error that is not about a single frame or a full queue.
    pub fn send<F: AsRef<[u8]>>(&mut self, frames: &[F]) -> Result<Sent, Error> {
        let mut sent = Sent::default();
        for chunk in frames.chunks(SEND_BATCH) {
            let mut rest = chunk;
            while !rest.is_empty() {
                match self.send_some(rest) {
                    Ok(0) | Err(Errno::EINTR) => {}
                    Ok(count) => {
                        sent.frames += count as u64;
                        rest = rest.get(count..).unwrap_or_default();
                    }
                    Err(
                        Errno::EAGAIN
                        | Errno::ENOBUFS
                        | Errno::EMSGSIZE
                        | Errno::ENETDOWN
                        | Errno::EINVAL,
                    ) => {
                        sent.refused += 1;
                        rest = rest.get(1..).unwrap_or_default();
                    }
                    Err(errno) => {
                        let interface = self.name.clone();
                        return Err(Error::System {
                            call: "sendmmsg",
                            interface,
                            errno,
                        });
                    }
                }
            }
        }
        Ok(sent)
    }

    /// One system call; the number of leading frames that were taken.
    fn send_some<F: AsRef<[u8]>>(&self, frames: &[F]) -> Result<usize, Errno> {
        let slices: Vec<[IoSlice<'_>; 1]> = frames
            .iter()
            .map(|frame| [IoSlice::new(frame.as_ref())])
            .collect();
        let addresses = vec![None::<LinkAddr>; slices.len()];
        let mut headers = MultiHeaders::preallocate(slices.len(), None);
        let sent = sendmmsg(
            self.raw_fd(),
            &mut headers,
            &slices,
            addresses,
            [],
            MsgFlags::MSG_DONTWAIT,
        )?;
        Ok(sent.count())
    }
}

impl AsFd for RawSock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The link-layer address of an interface. Its protocol field is 0, which makes `bind` keep the
/// socket's own protocol.
fn link_address(interface: &str) -> Result<LinkAddr, Error> {
    let missing = || Error::NoInterface(interface.to_owned());
    let mut all = getifaddrs().map_err(|errno| Error::System {
        call: "getifaddrs",
        interface: interface.to_owned(),
        errno,
    })?;
    all.find_map(|entry| {
        (entry.interface_name == interface)
            .then(|| entry.address.and_then(|a| a.as_link_addr().copied()))
            .flatten()
    })
    .ok_or_else(missing)
}
