//! Reading classic pcap files of Ethernet frames, plain or gzip-compressed. Nothing is interpreted
//! beyond the record headers.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use flate2::read::MultiGzDecoder;

/// Octets of the file header.
const FILE_HEADER: usize = 24;
/// Octets of a record header.
const RECORD_HEADER: usize = 16;
/// Link type of Ethernet.
const ETHERNET: u32 = 1;
/// Largest capture that is read, decompressed.
const MAX_OCTETS: u64 = 4 << 30;

/// A capture in memory.
#[derive(Debug, Default)]
pub struct Capture {
    octets: Vec<u8>,
    records: Vec<Range<usize>>,
    cut: usize,
}

/// Why a capture cannot be read.
#[derive(Debug)]
pub enum PcapError {
    /// The file cannot be read or decompressed.
    Io(io::Error),
    /// Not a classic pcap file.
    Magic,
    /// Frames of another link type.
    LinkType(u32),
    /// A record header or its octets reach beyond the end, at this offset.
    Truncated(usize),
    /// More octets than are read.
    TooLarge,
}

impl fmt::Display for PcapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Magic => f.write_str("not a classic pcap file"),
            Self::LinkType(number) => write!(f, "link type {number} is not Ethernet (1)"),
            Self::Truncated(offset) => write!(f, "record at octet {offset} is cut"),
            Self::TooLarge => write!(f, "more than {MAX_OCTETS} octets"),
        }
    }
}

impl std::error::Error for PcapError {}

impl From<io::Error> for PcapError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Capture {
    /// Reads a file; gzip is recognised by its first octets.
    ///
    /// # Errors
    /// See [`PcapError`].
    pub fn read(path: &Path) -> Result<Self, PcapError> {
        let mut octets = Vec::new();
        File::open(path)?
            .take(MAX_OCTETS)
            .read_to_end(&mut octets)?;
        if octets.starts_with(&[0x1f, 0x8b]) {
            let mut plain = Vec::new();
            MultiGzDecoder::new(octets.as_slice())
                .take(MAX_OCTETS)
                .read_to_end(&mut plain)?;
            octets = plain;
        }
        if octets.len() as u64 >= MAX_OCTETS {
            return Err(PcapError::TooLarge);
        }
        Self::from_octets(octets)
    }

    /// Takes the contents of a file.
    ///
    /// # Errors
    /// See [`PcapError`].
    pub fn from_octets(octets: Vec<u8>) -> Result<Self, PcapError> {
        let word = word_reader(&octets).ok_or(PcapError::Magic)?;
        match word(&octets, 20) {
            None => return Err(PcapError::Magic),
            // The upper bits may say that frames end in an FCS; we read those that do not.
            Some(ETHERNET) => {}
            Some(other) => return Err(PcapError::LinkType(other)),
        }
        let (mut records, mut cut) = (Vec::new(), 0);
        let mut at = FILE_HEADER;
        while at < octets.len() {
            let lengths = word(&octets, at + 8).zip(word(&octets, at + 12));
            let (captured, original) = lengths.ok_or(PcapError::Truncated(at))?;
            let start = at + RECORD_HEADER;
            let end = start + captured as usize;
            if end > octets.len() {
                return Err(PcapError::Truncated(at));
            }
            if captured < original {
                cut += 1;
            } else {
                records.push(start..end);
            }
            at = end;
        }
        Ok(Self {
            octets,
            records,
            cut,
        })
    }

    /// The complete frames, in order.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.records
            .iter()
            .map(|record| &self.octets[record.clone()])
    }

    /// Number of frames that were left out because the capture has only their front.
    pub fn cut(&self) -> usize {
        self.cut
    }
}

type WordReader = fn(&[u8], usize) -> Option<u32>;

/// How this file's words are read, from its magic number (microseconds or nanoseconds).
fn word_reader(octets: &[u8]) -> Option<WordReader> {
    fn word(octets: &[u8], at: usize) -> Option<[u8; 4]> {
        octets.get(at..)?.first_chunk().copied()
    }
    match u32::from_be_bytes(word(octets, 0)?) {
        0xa1b2_c3d4 | 0xa1b2_3c4d => Some(|octets, at| word(octets, at).map(u32::from_be_bytes)),
        0xd4c3_b2a1 | 0x4d3c_b2a1 => Some(|octets, at| word(octets, at).map(u32::from_le_bytes)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn file(link_type: u32, records: &[(&[u8], u32)]) -> Vec<u8> {
        let mut octets = 0xa1b2_c3d4u32.to_le_bytes().to_vec();
        octets.resize(20, 0);
        octets.extend(link_type.to_le_bytes());
        for (frame, original) in records {
            octets.extend([0; 8]);
            octets.extend((frame.len() as u32).to_le_bytes());
            octets.extend(original.to_le_bytes());
            octets.extend(*frame);
        }
        octets
    }

    #[test]
    fn reads_records_and_leaves_cut_ones_out() {
        let capture = Capture::from_octets(file(1, &[(b"abc", 3), (b"d", 9), (b"", 0)])).unwrap();
        assert!(capture.frames().eq([&b"abc"[..], b""]));
        assert_eq!(capture.cut(), 1);
    }

    #[test]
    fn damaged_files_are_refused() {
        let good = file(1, &[(b"abc", 3)]);
        assert!(matches!(
            Capture::from_octets(good[..30].to_vec()),
            Err(PcapError::Truncated(24))
        ));
        assert!(matches!(
            Capture::from_octets(good[..42].to_vec()),
            Err(PcapError::Truncated(24))
        ));
        assert!(matches!(
            Capture::from_octets(good[..20].to_vec()),
            Err(PcapError::Magic)
        ));
        assert!(matches!(
            Capture::from_octets(vec![0; 40]),
            Err(PcapError::Magic)
        ));
        assert!(matches!(
            Capture::from_octets(file(113, &[])),
            Err(PcapError::LinkType(113))
        ));
    }
}
