//! Receiving in batches: buffers, the VLAN tag put back, the kernel's drop count.

use std::io::IoSliceMut;
use std::os::fd::RawFd;

use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, LinkAddr, MsgFlags, MultiHeaders, RecvMsg, recvmmsg};

use crate::sock::{Error, RawSock};

/// Octets left free before each frame, for a VLAN tag.
const HEADROOM: usize = 4;
/// Destination and source address, which move when a tag is put back.
const ADDRESSES: usize = 12;
/// Control octets a frame: auxdata (20) and drop count (4), each with its header, aligned.
const CONTROL: usize = 40 + 24;
/// `tp_status` bits (linux/if_packet.h): the TCI, and the TPID, are valid.
const VLAN_VALID: u32 = 1 << 4;
const VLAN_TPID_VALID: u32 = 1 << 6;

/// A received frame.
#[derive(Debug)]
pub struct Frame<'a> {
    /// The octets from the destination address on, without FCS.
    pub octets: &'a [u8],
    /// It left by the interface, sent by another socket or the kernel.
    pub outgoing: bool,
    /// It was longer than the batch's buffers and is cut.
    pub truncated: bool,
}

/// What one message of a batch brought, apart from its octets.
#[derive(Clone, Copy, Default)]
struct Meta {
    length: usize,
    ifindex: usize,
    outgoing: bool,
    truncated: bool,
    tag: Option<[u8; 4]>,
    drops: Option<u32>,
}

/// Fewest frames a call asks for.
const MIN_BATCH: usize = 8;

/// Buffers for one receive call, used again and again.
#[derive(Debug)]
pub struct RecvBatch {
    buffers: Vec<Vec<u8>>,
    /// Frames to ask for next: preparing room for many costs more than receiving few.
    ask: usize,
}

impl RecvBatch {
    /// Room for `frames` frames of up to `octets` octets each.
    pub fn new(frames: usize, octets: usize) -> Self {
        Self {
            buffers: vec![vec![0; HEADROOM + octets]; frames],
            ask: MIN_BATCH,
        }
    }
}

impl RawSock {
    /// Takes what is waiting, at most one batch, and hands each frame to `sink` in order of arrival.
    /// Returns whether more may be waiting.
    ///
    /// # Errors
    /// Any error but "nothing there"; an interface that is down counts as nothing there.
    pub fn recv(
        &mut self,
        batch: &mut RecvBatch,
        mut sink: impl FnMut(Frame<'_>),
    ) -> Result<bool, Error> {
        let ask = batch.ask.min(batch.buffers.len());
        let asked = batch.buffers.get_mut(..ask).unwrap_or_default();
        let metas = match receive(self.raw_fd(), asked) {
            Ok(metas) => metas,
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ENETDOWN) => return Ok(false),
            Err(errno) => {
                let interface = self.name().to_owned();
                return Err(Error::System {
                    call: "recvmmsg",
                    interface,
                    errno,
                });
            }
        };
        for (meta, buffer) in metas.iter().zip(&mut batch.buffers) {
            self.note_drops(meta.drops);
            // Frames of other interfaces may have come between socket() and bind().
            if meta.ifindex == self.ifindex() {
                sink(frame(meta, buffer));
            }
        }
        batch.ask = if metas.len() == ask {
            ask * 4
        } else {
            metas.len() * 2
        }
        .clamp(MIN_BATCH, batch.buffers.len().max(MIN_BATCH));
        Ok(metas.len() == ask)
    }

    /// Extends the kernel's wrapping 32-bit count.
    fn note_drops(&mut self, drops: Option<u32>) {
        if let Some(count) = drops {
            self.drops += u64::from(count.wrapping_sub(self.drops as u32));
        }
    }
}

/// One system call into `buffers`.
fn receive(fd: RawFd, buffers: &mut [Vec<u8>]) -> Result<Vec<Meta>, Errno> {
    let mut slices: Vec<[IoSliceMut<'_>; 1]> = buffers
        .iter_mut()
        .map(|buffer| {
            [IoSliceMut::new(
                buffer.get_mut(HEADROOM..).unwrap_or_default(),
            )]
        })
        .collect();
    // Made anew each time: the kernel shortens the control lengths in it, and nix does not reset them.
    let mut headers =
        MultiHeaders::<LinkAddr>::preallocate(slices.len(), Some(Vec::with_capacity(CONTROL)));
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
    let messages = recvmmsg(fd, &mut headers, slices.iter_mut(), flags, None)?;
    Ok(messages.map(|message| meta(&message)).collect())
}

fn meta(message: &RecvMsg<'_, '_, LinkAddr>) -> Meta {
    let mut meta = Meta {
        length: message.bytes,
        truncated: message.flags.contains(MsgFlags::MSG_TRUNC),
        ..Meta::default()
    };
    if let Some(address) = message.address {
        meta.ifindex = address.ifindex();
        meta.outgoing = i32::from(address.pkttype()) == i32::from(libc::PACKET_OUTGOING);
    }
    for control in message.cmsgs().into_iter().flatten() {
        match control {
            ControlMessageOwned::RxqOvfl(count) => meta.drops = Some(count),
            ControlMessageOwned::Unknown(other)
                if other.cmsg_header.cmsg_level == libc::SOL_PACKET
                    && other.cmsg_header.cmsg_type == libc::PACKET_AUXDATA =>
            {
                meta.tag = vlan_tag(&other.data_bytes);
            }
            _ => {}
        }
    }
    meta
}

/// The tag in a `tpacket_auxdata`: status, len, snaplen (32 bits each), mac, net, TCI, TPID (16 each).
fn vlan_tag(auxdata: &[u8]) -> Option<[u8; 4]> {
    let status = u32::from_ne_bytes(auxdata.get(..4)?.try_into().ok()?);
    if status & VLAN_VALID == 0 {
        return None;
    }
    let tci = u16::from_ne_bytes(auxdata.get(16..18)?.try_into().ok()?);
    let tpid = u16::from_ne_bytes(auxdata.get(18..20)?.try_into().ok()?);
    let tpid = if status & VLAN_TPID_VALID != 0 {
        tpid
    } else {
        0x8100
    };
    let [p0, p1] = tpid.to_be_bytes();
    let [t0, t1] = tci.to_be_bytes();
    Some([p0, p1, t0, t1])
}

fn frame<'a>(meta: &Meta, buffer: &'a mut [u8]) -> Frame<'a> {
    let end = (HEADROOM + meta.length).min(buffer.len());
    let start = match meta.tag {
        Some(tag) if end >= HEADROOM + ADDRESSES => {
            buffer.copy_within(HEADROOM..HEADROOM + ADDRESSES, 0);
            if let Some(place) = buffer.get_mut(ADDRESSES..ADDRESSES + HEADROOM) {
                place.copy_from_slice(&tag);
            }
            0
        }
        _ => HEADROOM,
    };
    Frame {
        octets: buffer.get(start..end).unwrap_or_default(),
        outgoing: meta.outgoing,
        truncated: meta.truncated,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn auxdata(status: u32, tci: u16, tpid: u16) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(status.to_ne_bytes());
        bytes.extend([0; 12]);
        bytes.extend(tci.to_ne_bytes());
        bytes.extend(tpid.to_ne_bytes());
        bytes
    }

    #[test]
    fn tag_is_read_from_auxdata() {
        assert_eq!(vlan_tag(&auxdata(0, 100, 0x8100)), None);
        assert_eq!(vlan_tag(&auxdata(1 << 4, 100, 0)), Some([0x81, 0, 0, 100]));
        let both = VLAN_VALID | VLAN_TPID_VALID;
        assert_eq!(
            vlan_tag(&auxdata(both, 0xa064, 0x88a8)),
            Some([0x88, 0xa8, 0xa0, 0x64])
        );
        assert_eq!(vlan_tag(&[0xff; 10]), None);
    }

    #[test]
    fn tag_goes_back_behind_the_addresses() {
        let mut buffer: Vec<u8> = (0..HEADROOM as u8 + 20).collect();
        let meta = Meta {
            length: 20,
            tag: Some([0x81, 0, 0, 7]),
            ..Meta::default()
        };
        let got = frame(&meta, &mut buffer);
        let expected: Vec<u8> = (4..16).chain([0x81, 0, 0, 7]).chain(16..24).collect();
        assert_eq!(got.octets, expected);
    }

    #[test]
    fn untagged_and_cut_frames() {
        let mut buffer = vec![9; HEADROOM + 20];
        let meta = Meta {
            length: 60,
            truncated: true,
            ..Meta::default()
        };
        let got = frame(&meta, &mut buffer);
        assert_eq!(got.octets.len(), 20);
        assert!(got.truncated);
    }
}
