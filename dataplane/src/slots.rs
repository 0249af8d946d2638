//! Symbol slots: buffers in which repair symbols are computed with room before them for every header, so
//! that a REPAIR goes out as it was computed.

use crem_core::actions::SlotId;

use crate::buffer::{Buffer, Pool};

/// Octets before a symbol. More than Ethernet with two tags, IPv6, UDP and the longest REPAIR header with
/// both bitmaps take (22 + 40 + 8 + 84), and such that octet 2 of the symbol lies on a cache line when
/// the frame starts on one.
pub const RESERVE: u16 = 190;

/// The slots of one segment. Names are handed to the core once, at start; memory is taken from the pool
/// when the first contribution to a symbol is computed.
#[derive(Debug)]
pub struct Slots<B> {
    buffers: Vec<Option<B>>,
}

impl<B: Buffer> Slots<B> {
    /// `count` empty slots.
    pub fn new(count: u32) -> Self {
        Self {
            buffers: (0..count).map(|_| None).collect(),
        }
    }

    /// The names of all slots.
    pub fn names(&self) -> impl Iterator<Item = SlotId> + use<B> {
        (0..u32::try_from(self.buffers.len()).unwrap_or(u32::MAX)).map(SlotId)
    }

    /// Takes the buffer of a slot for a symbol of `t` octets. With `first` an empty or unfit slot gets a
    /// buffer from the pool; without, it has none if the pool was empty the first time.
    pub fn take(&mut self, slot: SlotId, t: u16, first: bool, pool: &impl Pool<B>) -> Option<B> {
        let place = self.buffers.get_mut(usize::try_from(slot.0).ok()?)?;
        let len = RESERVE.checked_add(t)?;
        let fits = |b: &B| b.octets().len() == usize::from(len);
        match place.take().filter(fits) {
            Some(buffer) => Some(buffer),
            None if first => pool.take(len),
            None => None,
        }
    }

    /// Puts a buffer back.
    pub fn put(&mut self, slot: SlotId, buffer: B) {
        let place = usize::try_from(slot.0)
            .ok()
            .and_then(|i| self.buffers.get_mut(i));
        if let Some(place) = place {
            *place = Some(buffer);
        }
    }

    /// Takes the finished symbol out of a slot.
    pub fn finish(&mut self, slot: SlotId) -> Option<B> {
        self.buffers.get_mut(usize::try_from(slot.0).ok()?)?.take()
    }

    /// Frees every buffer.
    pub fn clear(&mut self) {
        self.buffers.iter_mut().for_each(|b| *b = None);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::buffer::heap::HeapPool;

    #[test]
    fn a_slot_keeps_its_buffer_until_it_is_finished() {
        let (pool, mut slots) = (HeapPool::default(), Slots::new(2));
        let name = slots.names().last().unwrap();
        assert!(slots.take(name, 100, false, &pool).is_none());
        let buffer = slots.take(name, 100, true, &pool).unwrap();
        assert_eq!(buffer.octets().len(), 290);
        slots.put(name, buffer);
        let buffer = slots.take(name, 100, false, &pool).unwrap();
        slots.put(name, buffer);
        // A slot that the core used for another length before starts anew.
        let buffer = slots.take(name, 50, true, &pool).unwrap();
        slots.put(name, buffer);
        assert!(slots.finish(name).is_some() && slots.finish(name).is_none());
        assert_eq!(pool.taken.get(), 2);
    }
}
