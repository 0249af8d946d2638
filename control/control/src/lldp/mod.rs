//! Neighbours that tell who they are by LLDP (IEEE 802.1AB), on every Ethernet interface that the kernel gives
//! frames of: management interfaces, and ports that are kernel interfaces. [`frame`] reads, [`table`] keeps
//! and forgets; the socket is here. Nothing is sent.

pub mod frame;
pub mod table;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{LinkAddr, recvfrom, setsockopt};
use socket2::{Domain, Protocol, Socket, Type};

use crate::clock;
use crate::host::Seen;
use crate::journal::Journal;
use table::Neighbours;

/// Ethertype of LLDP.
const ETHERTYPE: u16 = 0x88cc;
/// Group address of the nearest bridge, to which LLDP is sent.
const GROUP: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e];
/// A frame that is our own.
const OUTGOING: u8 = 4;
/// Milliseconds between two looks at interfaces and at neighbours whose time is over, at most.
const TICK: u16 = 500;
/// Frames taken at once.
const FRAMES: usize = 64;

/// Socket options that nix does not name; its macro writes the call.
mod option {
    use nix::setsockopt_impl;
    use nix::sys::socket::sockopt::SetStruct;

    /// Take frames to a group address on one interface (packet(7)).
    #[derive(Clone, Copy)]
    pub(super) struct AddMembership;
    setsockopt_impl!(
        AddMembership,
        libc::SOL_PACKET,
        libc::PACKET_ADD_MEMBERSHIP,
        libc::packet_mreq,
        SetStruct<libc::packet_mreq>
    );
}

/// The neighbours, for readers.
pub type Shared = Arc<Mutex<Neighbours>>;

/// Listens on a thread of its own, which ends when nobody else has the neighbours any more. Without the right to
/// listen, that is told once and nothing is known.
///
/// # Errors
/// No thread.
pub fn start(neighbours: Shared, machine: Seen, journal: Arc<Journal>) -> io::Result<()> {
    let socket = match open() {
        Ok(socket) => socket,
        Err(error) => {
            tracing::warn!("LLDP: {error}; neighbours are not known");
            return Ok(());
        }
    };
    std::thread::Builder::new()
        .name("crem-lldp".to_owned())
        .spawn(move || listen(&socket, &neighbours, &machine, &journal))?;
    Ok(())
}

fn listen(socket: &OwnedFd, neighbours: &Shared, machine: &Seen, journal: &Journal) {
    let mut members = BTreeSet::new();
    while Arc::strong_count(neighbours) > 1 {
        join(socket, machine, &mut members);
        let mut ready = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut ready, TICK);
        let mut texts = lock(neighbours).forget(clock::now().boot_ms);
        // A flood does not keep this thread from the rest of its work.
        for _ in 0..FRAMES {
            if take(socket, neighbours, machine, &mut texts).is_err() {
                break;
            }
        }
        for (kind, text) in texts {
            journal.push(clock::now().wall_ms, kind, text, None);
        }
    }
}

/// The neighbours, whoever holds them.
pub fn lock(neighbours: &Shared) -> std::sync::MutexGuard<'_, Neighbours> {
    neighbours.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open() -> io::Result<OwnedFd> {
    // The system call takes it as it is on the wire.
    let protocol = Protocol::from(i32::from(ETHERTYPE.to_be()));
    let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol))?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Has interfaces that are new take frames to the group.
fn join(socket: &OwnedFd, machine: &Seen, members: &mut BTreeSet<u32>) {
    let machine = machine.borrow().clone();
    let ethernet = machine.interfaces.interfaces.values();
    let now: BTreeSet<u32> = ethernet
        .filter(|i| i.mac.is_some())
        .map(|i| i.index)
        .collect();
    members.retain(|index| now.contains(index));
    for index in now {
        let Ok(number) = i32::try_from(index) else {
            continue;
        };
        let mut address = [0; 8];
        address[..6].copy_from_slice(&GROUP);
        let request = libc::packet_mreq {
            mr_ifindex: number,
            mr_type: libc::PACKET_MR_MULTICAST as u16,
            mr_alen: 6,
            mr_address: address,
        };
        if !members.contains(&index) && setsockopt(socket, option::AddMembership, &request).is_ok()
        {
            members.insert(index);
        }
    }
}

/// Takes what is there, one frame a call; an error if there is none.
fn take(
    socket: &OwnedFd,
    neighbours: &Shared,
    machine: &Seen,
    texts: &mut Vec<(&'static str, String)>,
) -> io::Result<()> {
    let mut octets = [0; 2048];
    let (length, from) = recvfrom::<LinkAddr>(socket.as_raw_fd(), &mut octets)?;
    let Some(from) = from.filter(|from| from.pkttype() != OUTGOING) else {
        return Ok(());
    };
    let name = {
        let machine = machine.borrow();
        let mut all = machine.interfaces.interfaces.iter();
        all.find(|(_, i)| usize::try_from(i.index).ok() == Some(from.ifindex()))
            .map(|(name, _)| name.clone())
    };
    let Some(name) = name else { return Ok(()) };
    let payload = octets.get(..length).unwrap_or_default();
    texts.extend(lock(neighbours).take(&name, payload, clock::now().boot_ms));
    Ok(())
}
