//! The way of records from a worker to the auxiliary thread: batches of octets that go round. All of
//! them are made at the start; the worker fills one, hands it over and takes an empty one. If none is
//! there, records are lost and counted.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use crem_ipfix::handover::{Batch, Control, Item};
use crem_meter::flow::FlowRecord;
use crem_meter::point::Place;
use crem_meter::seq::SequenceRecord;
use crem_meter::{Meter, PacketRecord, Sink};

use super::Shared;

/// Octets of a batch at most; the exporting process takes no larger one.
pub const MAX_BATCH: usize = 64 * 1024;
/// Batches of a worker: 2 MiB, some 30,000 records of packets.
pub const BATCHES: usize = 32;
/// Octets of a batch that has room for the records of a turn of meters that go.
const ROOM: usize = 16 * 1024;
/// Beginnings and ends of sessions that may wait for the worker.
const CONTROLS: usize = 64;

/// What comes out of the ring, in order.
#[derive(Debug)]
pub enum Handover {
    /// Records.
    Batch(Box<Batch>),
    /// All state behind earlier records is gone: what follows is as of another data plane.
    Restart,
    /// Meters to be freed, where that may take its time.
    Free(Box<Meter>),
}

/// The worker's end.
#[derive(Debug)]
pub struct Outbox {
    current: Option<Box<Batch>>,
    full: SyncSender<Handover>,
    spare: Receiver<Box<Batch>>,
    pub(super) controls: Receiver<Control>,
    pub(super) shared: Arc<Shared>,
    restart: bool,
    /// Batches handed over.
    pub batches: u64,
    /// Records and other items put into batches.
    pub items: u64,
    /// Items that found no room.
    pub lost: u64,
}

/// The other end.
#[derive(Debug)]
pub struct Inlet {
    pub(crate) full: Receiver<Handover>,
    pub(crate) spare: SyncSender<Box<Batch>>,
    pub(crate) controls: SyncSender<Control>,
}

/// Both ends of a ring of `batches` batches.
pub fn ring(batches: usize, shared: Arc<Shared>) -> (Outbox, Inlet) {
    // Two more: a restart, which always finds a place then, and meters to be freed.
    let (full_in, full_out) = sync_channel(batches + 2);
    let (spare_in, spare_out) = sync_channel(batches);
    let (controls_in, controls_out) = sync_channel(CONTROLS);
    for _ in 0..batches {
        // There is room for all.
        let _ = spare_in.try_send(Box::new(Batch::new(MAX_BATCH)));
    }
    let outbox = Outbox {
        current: None,
        full: full_in,
        spare: spare_out,
        controls: controls_out,
        shared,
        restart: false,
        batches: 0,
        items: 0,
        lost: 0,
    };
    let inlet = Inlet {
        full: full_out,
        spare: spare_in,
        controls: controls_in,
    };
    (outbox, inlet)
}

impl Outbox {
    #[inline]
    fn put(&mut self, push: impl Fn(&mut Batch) -> bool) -> bool {
        // The second time with another batch.
        for _ in 0..2 {
            if self.current.is_none() {
                self.current = self.spare.try_recv().ok();
            }
            let Some(batch) = &mut self.current else {
                break;
            };
            if push(batch) {
                self.items += 1;
                return true;
            }
            if !self.hand_over() {
                break;
            }
        }
        self.lost += 1;
        false
    }

    /// Puts in something that is no record.
    pub fn item(&mut self, item: &Item) -> bool {
        self.put(|batch| batch.push(item))
    }

    /// Hands over what is there. `false` if something is and could not be.
    pub fn hand_over(&mut self) -> bool {
        if self.restart && !self.tell_restart() {
            return false;
        }
        let Some(batch) = self.current.take_if(|batch| !batch.is_empty()) else {
            return true;
        };
        match self.full.try_send(Handover::Batch(batch)) {
            Ok(()) => {
                self.batches += 1;
                true
            }
            Err(TrySendError::Full(back) | TrySendError::Disconnected(back)) => {
                if let Handover::Batch(batch) = back {
                    self.current = Some(batch);
                }
                false
            }
        }
    }

    /// Whether some hundred records find room.
    pub fn has_room(&mut self) -> bool {
        let room = |batch: &Option<Box<Batch>>| batch.as_ref().map_or(0, |batch| batch.room());
        if room(&self.current) < ROOM {
            self.hand_over();
        }
        if self.current.is_none() {
            self.current = self.spare.try_recv().ok();
        }
        room(&self.current) >= ROOM
    }

    /// Has meters freed by the other end. If it does not come to that, they are freed here.
    pub fn free(&self, meter: Meter) {
        let _ = self.full.try_send(Handover::Free(Box::new(meter)));
    }

    /// What made the records is gone. Those that are not handed over yet go first.
    pub fn restart(&mut self) {
        self.hand_over();
        self.restart = true;
        self.tell_restart();
    }

    fn tell_restart(&mut self) -> bool {
        self.restart = self.full.try_send(Handover::Restart).is_err();
        !self.restart
    }
}

impl Sink for Outbox {
    #[inline]
    fn packet(&mut self, record: &PacketRecord) -> bool {
        self.put(|batch| batch.packet(record))
    }

    fn flow(&mut self, place: Place, record: &FlowRecord) -> bool {
        self.put(|batch| batch.flow(place, record))
    }

    fn sequence(&mut self, record: &SequenceRecord) -> bool {
        self.put(|batch| batch.sequence(record))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crem_ipfix::handover::items;

    fn ignored(n: u64) -> Item {
        Item::Ignored(n, 0)
    }

    fn numbers(batch: &Batch) -> Vec<u64> {
        let number = |item| match item {
            Ok(Item::Ignored(n, _)) => n,
            other => panic!("{other:?}"),
        };
        items(batch.octets()).unwrap().map(number).collect()
    }

    #[test]
    fn records_come_out_in_order_and_a_full_ring_loses_the_newest() {
        let (mut outbox, inlet) = ring(2, super::super::shared(0));
        let mut n = 0;
        while outbox.lost == 0 {
            outbox.item(&ignored(n));
            n += 1;
        }
        // It goes on when there is room again.
        let taken = |inlet: &Inlet| match inlet.full.try_recv() {
            Ok(Handover::Batch(mut batch)) => {
                let found = numbers(&batch);
                batch.clear();
                inlet.spare.try_send(batch).unwrap();
                found
            }
            other => panic!("{other:?}"),
        };
        let mut all = taken(&inlet);
        assert!(outbox.item(&ignored(n)));
        outbox.hand_over();
        all.extend(taken(&inlet));
        all.extend(taken(&inlet));
        let lost = n - 1;
        let expected: Vec<u64> = (0..=n).filter(|n| *n != lost).collect();
        assert_eq!(all, expected);
        assert_eq!((outbox.items, outbox.lost), (n, 1));
        assert!(inlet.full.try_recv().is_err());
    }

    #[test]
    fn a_restart_stands_between_what_was_and_what_comes_even_if_the_ring_is_full() {
        let (mut outbox, inlet) = ring(1, super::super::shared(0));
        outbox.item(&ignored(1));
        outbox.restart();
        outbox.restart();
        assert!(!outbox.item(&ignored(2)), "the only batch is in the ring");
        let Ok(Handover::Batch(mut batch)) = inlet.full.try_recv() else {
            panic!("no batch");
        };
        batch.clear();
        inlet.spare.try_send(batch).unwrap();
        outbox.item(&ignored(3));
        outbox.hand_over();
        let kind = |handover| match handover {
            Handover::Restart => "restart",
            Handover::Batch(_) => "batch",
            Handover::Free(_) => "free",
        };
        let mut kinds: Vec<&str> = inlet.full.try_iter().map(kind).collect();
        assert!(outbox.hand_over());
        kinds.extend(inlet.full.try_iter().map(kind));
        assert_eq!(kinds, ["restart", "restart", "batch"]);
    }

    #[test]
    fn an_end_that_is_gone_loses_records_and_nothing_else() {
        let (mut outbox, inlet) = ring(2, super::super::shared(0));
        drop(inlet);
        let records = 3 * MAX_BATCH as u64 / 17;
        for n in 0..records {
            outbox.item(&ignored(n));
        }
        assert!(outbox.lost > 0 && outbox.lost + outbox.items == records);
    }
}
