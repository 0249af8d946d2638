//! Writing pcapng (draft-ietf-opsawg-pcapng): one section in little-endian order, an interface for each port,
//! packets with direction, statistics at the end. Times are UTC in nanoseconds. Nothing is read here.

use std::io::{self, Write};

/// Block types.
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;

/// Options; the numbers of each block type are its own.
const END: u16 = 0;
const SECTION_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_RESOLUTION: u16 = 9;
const PACKET_FLAGS: u16 = 2;
const STATISTICS_DROPPED: u16 = 5;

/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = 1;
/// Exponent of the time unit: nanoseconds.
const NANOSECONDS: u8 = 9;
/// Direction in the flags of a packet.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// A file under way.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    block: Vec<u8>,
}

/// A packet as it goes into the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'f> {
    /// Number of the interface, in the order of [`Writer::interface`].
    pub interface: u32,
    /// UTC, nanoseconds since 1970.
    pub at_ns: u64,
    /// Octets on the wire.
    pub original: u32,
    /// What was kept of them, from the front.
    pub octets: &'f [u8],
    /// Sent there, else received.
    pub outbound: bool,
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn new(to: W, application: &str) -> io::Result<Self> {
        let block = Vec::with_capacity(16 * 1024);
        let mut writer = Self { to, block };
        writer.begin(SECTION);
        writer.put(&0x1a2b_3c4d_u32.to_le_bytes());
        writer.put(&[1, 0, 0, 0]);
        // The length of the section is not told.
        writer.put(&u64::MAX.to_le_bytes());
        writer.option(SECTION_APPLICATION, application.as_bytes());
        writer.option(END, &[]);
        writer.end()?;
        Ok(writer)
    }

    /// Declares the next interface; `snap` is the most octets kept of a packet.
    ///
    /// # Errors
    /// Those of the file.
    pub fn interface(&mut self, name: &str, snap: u32) -> io::Result<()> {
        self.begin(INTERFACE);
        self.put(&ETHERNET.to_le_bytes());
        self.put(&[0, 0]);
        self.put(&snap.to_le_bytes());
        self.option(INTERFACE_NAME, name.as_bytes());
        self.option(INTERFACE_RESOLUTION, &[NANOSECONDS]);
        self.option(END, &[]);
        self.end()
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// Those of the file.
    pub fn packet(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        let kept = u32::try_from(packet.octets.len()).unwrap_or(u32::MAX);
        let flags = if packet.outbound { OUTBOUND } else { INBOUND };
        self.begin(PACKET);
        self.put(&packet.interface.to_le_bytes());
        self.time(packet.at_ns);
        self.put(&kept.to_le_bytes());
        self.put(&packet.original.to_le_bytes());
        self.put(packet.octets);
        self.pad();
        self.option(PACKET_FLAGS, &flags.to_le_bytes());
        self.option(END, &[]);
        self.end()
    }

    /// Says at the end how many packets were lost at an interface.
    ///
    /// # Errors
    /// Those of the file.
    pub fn statistics(&mut self, interface: u32, at_ns: u64, dropped: u64) -> io::Result<()> {
        self.begin(STATISTICS);
        self.put(&interface.to_le_bytes());
        self.time(at_ns);
        self.option(STATISTICS_DROPPED, &dropped.to_le_bytes());
        self.option(END, &[]);
        self.end()
    }

    /// Hands on what is buffered.
    ///
    /// # Errors
    /// Those of the file.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }

    /// The file.
    pub fn into_inner(self) -> W {
        self.to
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.put(&kind.to_le_bytes());
        // The length comes in at the end.
        self.put(&[0; 4]);
    }

    fn put(&mut self, octets: &[u8]) {
        self.block.extend_from_slice(octets);
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    /// The high half comes first, each in the order of the section.
    fn time(&mut self, at_ns: u64) {
        let (high, low) = ((at_ns >> 32) as u32, at_ns as u32);
        self.put(&high.to_le_bytes());
        self.put(&low.to_le_bytes());
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
        self.put(&code.to_le_bytes());
        self.put(&length.to_le_bytes());
        self.put(value.get(..usize::from(length)).unwrap_or(value));
        self.pad();
    }

    fn end(&mut self) -> io::Result<()> {
        let length = u32::try_from(self.block.len() + 4).unwrap_or(u32::MAX);
        self.put(&length.to_le_bytes());
        if let Some(place) = self.block.get_mut(4..8) {
            place.copy_from_slice(&length.to_le_bytes());
        }
        self.to.write_all(&self.block)
    }
}
