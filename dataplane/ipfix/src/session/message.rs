//! A message while it is being filled: header, Sets, records, within a size. The counting of records and
//! what is in them is decided elsewhere.

use crate::decode::{HEADER_LEN, VERSION};
use crate::template::OPTIONS_SET;

const SET_HEADER: usize = 4;

/// The open message.
#[derive(Clone, Debug)]
pub(super) struct Builder {
    octets: Vec<u8>,
    max: usize,
    /// Set ID of the open Set, and where it starts.
    set: Option<(u16, usize)>,
    /// Data Records so far.
    records: u32,
}

impl Builder {
    /// An empty message of at most `max` octets; never more than 65535.
    pub(super) fn new(max: usize) -> Self {
        let max = max.min(usize::from(u16::MAX));
        let mut octets = Vec::with_capacity(max);
        octets.resize(HEADER_LEN, 0);
        Self {
            octets,
            max,
            set: None,
            records: 0,
        }
    }

    /// Whether nothing is in it.
    pub(super) const fn is_empty(&self) -> bool {
        self.octets.len() <= HEADER_LEN
    }

    /// Whether a record of so many octets fits into a Set of this identifier.
    #[inline]
    pub(super) const fn fits(&self, set: u16, octets: usize) -> bool {
        let header = match self.set {
            Some((open, _)) if open == set && set != OPTIONS_SET => 0,
            _ => SET_HEADER,
        };
        self.octets.len() + header + octets <= self.max
    }

    /// Opens a Set, unless it is the open one. Options Template Records get a Set each: a widespread
    /// collector reads only the first of several.
    #[inline]
    fn open(&mut self, set: u16) {
        if set != OPTIONS_SET && self.set.is_some_and(|(open, _)| open == set) {
            return;
        }
        self.close_set();
        self.set = Some((set, self.octets.len()));
        self.octets.extend_from_slice(&set.to_be_bytes());
        self.octets.extend_from_slice(&[0, 0]);
    }

    /// Writes the length of the open Set. No padding: it is optional, and some Sets could not have it.
    fn close_set(&mut self) {
        if let Some((_, start)) = self.set.take() {
            let length = (self.octets.len() - start) as u16;
            self.octets[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
        }
    }

    /// Appends a template record; it has to fit.
    pub(super) fn template(&mut self, set: u16, write: impl FnOnce(&mut Vec<u8>)) {
        self.open(set);
        write(&mut self.octets);
    }

    /// Appends a Data Record; it has to fit.
    #[inline]
    pub(super) fn record(&mut self, template: u16, write: impl FnOnce(&mut Vec<u8>)) {
        self.open(template);
        write(&mut self.octets);
        self.records += 1;
    }

    /// Completes the message, appends it to `out` and starts an empty one. Returns its Data Records.
    pub(super) fn finish(
        &mut self,
        export_time: u32,
        sequence: u32,
        domain: u32,
        out: &mut Vec<u8>,
    ) -> u32 {
        self.close_set();
        let length = self.octets.len() as u16;
        let head = &mut self.octets[..HEADER_LEN];
        head[0..2].copy_from_slice(&VERSION.to_be_bytes());
        head[2..4].copy_from_slice(&length.to_be_bytes());
        head[4..8].copy_from_slice(&export_time.to_be_bytes());
        head[8..12].copy_from_slice(&sequence.to_be_bytes());
        head[12..16].copy_from_slice(&domain.to_be_bytes());
        out.extend_from_slice(&self.octets);
        self.octets.truncate(HEADER_LEN);
        std::mem::take(&mut self.records)
    }
}
