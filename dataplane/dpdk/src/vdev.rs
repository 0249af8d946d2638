//! Virtual devices: how each driver wants its arguments, and the traps of af_packet's frame ring. No
//! device is opened here.

use crate::error::Error;
use crate::mbuf::HEADROOM;

/// A virtual device for [`crate::EalConfig::vdevs`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vdev {
    name: String,
    args: String,
    iface: Option<String>,
    /// The interface has to be there before EAL starts.
    existing: bool,
}

impl Vdev {
    /// A device by its name and the driver's arguments as DPDK takes them, for drivers without a
    /// constructor here.
    pub fn new(name: &str, args: &str) -> Vdev {
        let iface = args
            .split(',')
            .find_map(|a| a.strip_prefix("iface="))
            .map(Into::into);
        Vdev {
            name: name.into(),
            args: args.into(),
            iface,
            existing: false,
        }
    }

    /// The name of the device, which is the name of its port.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kernel interface under it, where there is one.
    pub fn iface(&self) -> Option<&str> {
        self.iface.as_deref()
    }

    pub(crate) fn argument(&self) -> String {
        if self.args.is_empty() {
            return format!("--vdev={}", self.name);
        }
        format!("--vdev={},{}", self.name, self.args)
    }

    /// Errors that DPDK would only log: a name that no driver takes, characters that would end an
    /// argument, an interface that does not exist.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let fits = self.name.len() < dpdk_sys::SHIM_ETH_NAME_MAX_LEN;
        let plain = |s: &str| {
            s.bytes()
                .all(|b| b.is_ascii_graphic() && b != b',' && b != b'=')
        };
        if self.name.is_empty() || !fits || !plain(&self.name) {
            return Err(Error::Argument {
                what: "vdev name",
                value: self.name.clone(),
                expected: "1 to 63 visible ASCII characters without ',' and '='".into(),
            });
        }
        let Some(iface) = &self.iface else {
            return Ok(());
        };
        if iface.is_empty() || iface.len() > 15 || !plain(iface) || iface.contains('/') {
            return Err(Error::Argument {
                what: "interface",
                value: iface.clone(),
                expected: "a Linux interface name (1 to 15 characters, no ',', '=', '/')".into(),
            });
        }
        if self.existing && crate::iface::index(iface).is_none() {
            return Err(Error::NoInterface {
                port: self.name.clone(),
                iface: iface.clone(),
            });
        }
        Ok(())
    }
}

/// Octets of an af_packet ring frame that its own headers take from a received frame.
const AF_PACKET_RX_OVERHEAD: u32 = 66;
/// Octets of the TPACKET_V2 header: the rest of the ring frame has to fit an mbuf.
const TPACKET_HEADER: u32 = 32;
/// What a frame is longer than its IP packet: Ethernet header and one VLAN tag.
const L2_OVERHEAD: u32 = 14 + 4;
/// Pages that ring blocks are made of.
const PAGE: u32 = 4096;

/// Ring frame and block size for frames that carry `mtu` octets of IP.
///
/// The driver addresses frame i at i times the frame size, so the block has to be a multiple of the
/// frame size, and the kernel wants a multiple of the page size: the frame size is rounded up to one
/// that divides a small block.
fn af_packet_ring(mtu: u32) -> (u32, u32) {
    let need = mtu + L2_OVERHEAD + AF_PACKET_RX_OVERHEAD;
    let frame = need.max(2048).next_multiple_of(1024);
    (frame, lcm(frame, PAGE))
}

fn lcm(a: u32, b: u32) -> u32 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

/// An af_packet port on kernel interface `iface` (which has to exist in this network namespace and
/// should have `mtu` as its MTU, or less).
///
/// `frames` is the number of frames in the receive ring and in the transmit ring, each of about `mtu`
/// octets; 2048 rides out a scheduling pause of some milliseconds.
///
/// Traps, all measured:
/// - A frame longer than the ring frame minus 66 octets is **cut without a word** on receive: give the
///   interface's MTU here, and drop what [`is_cut`] finds. On transmit such a frame is dropped by the
///   driver and counted as sent.
/// - The driver's ring frame has to fit an mbuf: see [`af_packet_room`].
/// - The fan-out group is made from process id and interface index: two processes in **one** network
///   namespace can collide ("could not set PACKET_FANOUT"). One namespace per process.
/// - The driver asks the kernel to **reassemble IPv4 fragments** before it delivers them: fragments of a
///   datagram arrive as one frame, cut where it is too long, and as none where one is lost.
/// - The MTU cannot be set through DPDK. Use `ip link set IFACE mtu N`.
/// - An outer tag with TPID 0x88a8 comes out as 0x8100 (the kernel strips it, the driver re-inserts).
/// - When the transmit ring is full the driver waits in `poll` without end.
/// - With several queue pairs the kernel spreads frames over them by addresses **and ports**: packets of
///   a queue pair whose UDP source port changes can pass each other.
pub fn af_packet(name: &str, iface: &str, mtu: u16, frames: u32) -> Vdev {
    af_packet_queues(name, iface, mtu, frames, 1)
}

/// The same with `queues` queue pairs, each with rings of its own of `frames` frames.
pub fn af_packet_queues(name: &str, iface: &str, mtu: u16, frames: u32, queues: u16) -> Vdev {
    let (frame, block) = af_packet_ring(u32::from(mtu));
    // Whole blocks only.
    let frames = frames.max(1).next_multiple_of(block / frame);
    Vdev {
        name: name.into(),
        args: format!(
            "iface={iface},qpairs={queues},framesz={frame},blocksz={block},framecnt={frames}"
        ),
        iface: Some(iface.into()),
        existing: true,
    }
}

/// The longest frame (Ethernet header included) that a port of [`af_packet`] with this `mtu` receives
/// whole.
pub fn af_packet_max_frame(mtu: u16) -> u32 {
    af_packet_ring(u32::from(mtu)).0 - AF_PACKET_RX_OVERHEAD
}

/// The least [`crate::MempoolConfig::room`] that a port of [`af_packet`] with this `mtu` accepts.
pub fn af_packet_room(mtu: u16) -> u16 {
    let (frame, _) = af_packet_ring(u32::from(mtu));
    u16::try_from(frame - TPACKET_HEADER + u32::from(HEADROOM)).unwrap_or(u16::MAX)
}

/// Largest MTU of an interface that [`af_xdp`] makes a port: a frame, its tags and the driver's headroom
/// share a page.
pub const AF_XDP_MAX_MTU: u16 = 3400;
/// The largest [`crate::MempoolConfig::room`] with which the driver makes its memory; with more, the port
/// cannot be opened.
pub const AF_XDP_MAX_ROOM: u16 = 3840;

/// An AF_XDP port on kernel interface `iface`, which has to exist in this network namespace, with an MTU of
/// no more than [`AF_XDP_MAX_MTU`]. Frames come as they were on the wire: tags of 802.1ad keep their TPID,
/// fragments are not put together.
///
/// Traps:
/// - One queue, and a pool with no more than [`AF_XDP_MAX_ROOM`].
/// - What the kernel drops because the socket's ring is full is in no counter of the driver.
/// - The kernel must not wait with tags in its own metadata: with `rxvlan` or `txvlan` offload of a real
///   adapter on, they are stripped before the program sees the frame.
pub fn af_xdp(name: &str, iface: &str) -> Vdev {
    Vdev {
        name: name.into(),
        args: format!("iface={iface}"),
        iface: Some(iface.into()),
        existing: true,
    }
}

/// A kernel TAP interface `iface` whose frames come and go through the port; made with the port and
/// gone with the process. `mac` is its address; `None` draws one.
///
/// Traps:
/// - The driver wakes itself by a realtime signal per received frame: threads that should not be
///   interrupted call [`crate::thread::block_realtime_signals`].
/// - It goes by its own MTU, 1500 at first ([`crate::Port::set_mtu`]); DPDK 22.11 takes no more than
///   1504. A longer frame is not taken by `burst`, and what stands behind it in the batch is not either:
///   drop what stays.
/// - It keeps an mbuf per receive descriptor: give it few ([`crate::PortConfig::rx_descriptors`]).
pub fn tap(name: &str, iface: &str, mac: Option<[u8; 6]>) -> Vdev {
    let mac = mac.map_or(String::new(), |m| {
        format!(
            ",mac={:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}",
            m[0], m[1], m[2], m[3], m[4], m[5]
        )
    });
    Vdev {
        name: name.into(),
        args: format!("iface={iface}{mac}"),
        iface: Some(iface.into()),
        existing: false,
    }
}

/// A port that receives frames of `size` octets without end and swallows what is sent. With `copy` it
/// pays for copying like a real driver, without it only for descriptors.
pub fn null(name: &str, size: u16, copy: bool) -> Vdev {
    Vdev::new(name, &format!("size={size},copy={}", u8::from(copy)))
}

/// A null port that never receives anything.
pub fn sink(name: &str) -> Vdev {
    Vdev::new(name, "no-rx=1")
}

/// A port that receives what was sent on it, by pointer: the very same mbufs come back.
pub fn ring(name: &str) -> Vdev {
    Vdev::new(name, "")
}

/// A port that receives the frames of capture file `input` once and writes what is sent to `output`.
pub fn pcap(name: &str, input: &str, output: &str) -> Vdev {
    Vdev::new(name, &format!("rx_pcap={input},tx_pcap={output}"))
}

/// Whether an IP packet in `frame` says that it is longer than the `frame_len` octets that were
/// received: the driver cut it. `frame` has to hold the headers, at least 14 octets plus tags plus 6.
/// Frames that carry no IP are never found cut: they do not tell their length.
pub fn is_cut(frame: &[u8], frame_len: u32) -> bool {
    ip_end(frame).is_some_and(|end| end > frame_len)
}

/// Where the IP packet ends, counted from the start of the frame.
fn ip_end(frame: &[u8]) -> Option<u32> {
    let word = |at: usize| {
        let b = frame.get(at..at + 2)?;
        Some(u16::from_be_bytes([b[0], b[1]]))
    };
    let mut at = 12;
    let mut ether_type = word(at)?;
    while matches!(ether_type, 0x8100 | 0x88a8 | 0x9100) {
        at += 4;
        ether_type = word(at)?;
    }
    let ip = at + 2;
    let len = match ether_type {
        0x0800 => u32::from(word(ip + 2)?),
        0x86dd => 40 + u32::from(word(ip + 4)?),
        _ => return None,
    };
    Some(u32::try_from(ip).ok()? + len)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ring_geometry_satisfies_kernel_and_driver_for_every_mtu() {
        for mtu in 68..=16_000u32 {
            let (frame, block) = af_packet_ring(mtu);
            assert_eq!(frame % 16, 0, "mtu {mtu}");
            assert_eq!(block % PAGE, 0, "mtu {mtu}");
            assert_eq!(block % frame, 0, "mtu {mtu}");
            assert!(
                frame - AF_PACKET_RX_OVERHEAD >= mtu + L2_OVERHEAD,
                "mtu {mtu}"
            );
            assert!(block <= 65_536, "mtu {mtu}: block {block}");
        }
    }

    #[test]
    fn frame_count_fills_whole_blocks() {
        let v = af_packet("net_af_packet0", "g0", 4200, 2047);
        assert_eq!(
            v.argument(),
            "--vdev=net_af_packet0,iface=g0,qpairs=1,framesz=5120,blocksz=20480,framecnt=2048"
        );
    }

    #[test]
    fn tap_arguments_carry_the_address() {
        let v = tap("net_tap0", "crem0", Some([2, 0, 0, 0, 0, 0x1f]));
        assert_eq!(
            v.argument(),
            "--vdev=net_tap0,iface=crem0,mac=02:00:00:00:00:1f"
        );
    }

    #[test]
    fn names_that_would_inject_arguments_are_refused() {
        assert!(matches!(
            Vdev::new("net,null", "").check(),
            Err(Error::Argument { .. })
        ));
        let v = tap("net_tap0", "a,mac=0", None);
        assert!(matches!(v.check(), Err(Error::Argument { .. })));
        assert!(matches!(
            af_packet("net_af_packet0", "nope0", 1500, 64).check(),
            Err(Error::NoInterface { .. })
        ));
    }

    fn frame(tags: &[u16], ether_type: u16, ip: &[u8]) -> Vec<u8> {
        let mut f = vec![0; 12];
        for t in tags {
            f.extend_from_slice(&t.to_be_bytes());
            f.extend_from_slice(&[0, 5]);
        }
        f.extend_from_slice(&ether_type.to_be_bytes());
        f.extend_from_slice(ip);
        f
    }

    #[test]
    fn cut_frames_are_found_behind_any_tags() {
        let v4 = |total: u16| [&[0x45, 0][..], &total.to_be_bytes(), &[0; 16]].concat();
        let v6 = |payload: u16| [&[0x60, 0, 0, 0][..], &payload.to_be_bytes(), &[0; 34]].concat();
        for tags in [&[][..], &[0x8100], &[0x88a8, 0x8100]] {
            let l2 = 14 + 4 * u32::try_from(tags.len()).unwrap();
            let f = frame(tags, 0x0800, &v4(4000));
            assert!(!is_cut(&f, l2 + 4000));
            assert!(is_cut(&f, l2 + 3999));
            let f = frame(tags, 0x86dd, &v6(4000));
            assert!(!is_cut(&f, l2 + 4040));
            assert!(is_cut(&f, l2 + 4039));
        }
        // Padding behind the packet is no cut, and what is no IP does not tell.
        assert!(!is_cut(&frame(&[], 0x0800, &v4(28)), 60));
        assert!(!is_cut(&frame(&[], 0x0806, &[0; 28]), 42));
        assert!(!is_cut(&[0; 13], 13));
    }
}
