//! One snapshot of several: what each worker last said, put together. Workers do not wait for each other,
//! so the parts are up to a tenth of a second apart.

use std::sync::Arc;

use crate::snapshot::{SegmentSnapshot, Snapshot, WorkerSnapshot};

/// What each worker last said.
pub(super) struct Board {
    latest: Vec<Option<Snapshot>>,
    /// Workers that have listed their flows since the last list of all.
    listed: Vec<Option<Snapshot>>,
}

impl Board {
    /// Nothing was said yet by any of `workers`.
    pub(super) fn new(workers: usize) -> Self {
        Self {
            latest: vec![None; workers],
            listed: vec![None; workers],
        }
    }

    /// Takes what a worker says. Gives all together once every worker has spoken, and again whenever the
    /// first one does.
    pub(super) fn take(&mut self, snapshot: &Snapshot) -> Option<Arc<Snapshot>> {
        let worker = usize::from(snapshot.worker);
        if snapshot.flows.is_some()
            && let Some(place) = self.listed.get_mut(worker)
        {
            *place = Some(snapshot.clone());
        }
        let first = self.latest.iter().any(Option::is_none);
        *self.latest.get_mut(worker)? = Some(snapshot.clone());
        if worker == 0 || first {
            together(&self.latest).map(Arc::new)
        } else {
            None
        }
    }

    /// The flows of all workers, when the last one has listed its own.
    pub(super) fn list(&mut self) -> Option<Arc<Snapshot>> {
        let all = together(&self.listed)?;
        self.listed.iter_mut().for_each(|place| *place = None);
        Some(Arc::new(all))
    }
}

fn together(parts: &[Option<Snapshot>]) -> Option<Snapshot> {
    let parts: Vec<&Snapshot> = parts.iter().map(Option::as_ref).collect::<Option<_>>()?;
    let (first, others) = parts.split_first()?;
    let mut all = Snapshot::clone(first);
    if others.is_empty() {
        return Some(all);
    }
    all.workers = parts.iter().map(|part| worker(part)).collect();
    for other in others {
        all.generation = all.generation.min(other.generation);
        for (to, from) in all.segments.iter_mut().zip(&other.segments) {
            add(to, from);
        }
        if let (Some(to), Some(from)) = (&mut all.flows, &other.flows) {
            to.0.extend_from_slice(&from.0);
            to.1 += from.1;
        }
    }
    Some(all)
}

fn worker(part: &Snapshot) -> WorkerSnapshot {
    WorkerSnapshot {
        loops: part.loops,
        busy_loops: part.busy_loops,
        segments: part
            .segments
            .iter()
            .map(|s| (s.counters, s.times))
            .collect(),
    }
}

/// Ports, next hops and buffers are those of the first worker, which looks at them for all.
fn add(to: &mut SegmentSnapshot, from: &SegmentSnapshot) {
    to.counters.add(&from.counters);
    to.times.add(&from.times);
    // Where one worker goes without protection for a while, that is told of all.
    if from.off_reason.is_some() {
        (to.mode, to.off_reason) = (from.mode, from.off_reason);
    }
    add_named(&mut to.csf, &from.csf);
    add_named(&mut to.crf, &from.crf);
    if let (Some((counters, reason)), Some((more, other))) = (&mut to.metering, &from.metering) {
        counters.add(more);
        *reason = reason.or(*other);
    }
    to.points.extend_from_slice(&from.points);
    // Workers share what reports say of a path: one of them tells it.
    for path in &from.paths {
        if to.paths.iter().all(|known| known.peer != path.peer) {
            to.paths.push(*path);
        }
    }
}

/// A worker whose protection is off for a while lists no counters.
fn add_named(to: &mut Vec<(&'static str, u64)>, from: &[(&'static str, u64)]) {
    if to.is_empty() {
        to.extend_from_slice(from);
        return;
    }
    for ((_, value), (_, more)) in to.iter_mut().zip(from) {
        *value += more;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn said(worker: u16, frames: u64) -> Snapshot {
        let mut segment = SegmentSnapshot {
            mode: if worker == 1 { "passthrough" } else { "active" },
            off_reason: (worker == 1).then_some("a panic"),
            csf: vec![("packets", frames)],
            ..SegmentSnapshot::default()
        };
        segment.counters.lan.rx_frames = frames;
        Snapshot {
            worker,
            segments: vec![segment],
            ..Snapshot::default()
        }
    }

    #[test]
    fn all_together_are_told_once_everybody_has_spoken() {
        let mut board = Board::new(3);
        assert!(board.take(&said(0, 1)).is_none());
        assert!(board.take(&said(2, 4)).is_none());
        let all = board.take(&said(1, 2)).unwrap();
        assert_eq!(all.segments[0].counters.lan.rx_frames, 7);
        assert_eq!(all.segments[0].csf, [("packets", 7)]);
        assert_eq!(all.segments[0].mode, "passthrough", "not all of it");
        let each = all.workers.iter().map(|w| w.segments[0].0.lan.rx_frames);
        assert_eq!(each.collect::<Vec<_>>(), [1, 2, 4]);
        assert!(board.take(&said(2, 8)).is_none());
        let all = board.take(&said(0, 1)).unwrap();
        assert_eq!(all.segments[0].counters.lan.rx_frames, 11);
        // One worker is itself.
        let alone = Board::new(1).take(&said(0, 3)).unwrap();
        assert!(alone.workers.is_empty());
    }

    #[test]
    fn flows_are_listed_when_all_have_listed_theirs() {
        let mut board = Board::new(2);
        let list = |worker, left_out| Snapshot {
            flows: Some((Vec::new(), left_out)),
            ..said(worker, 0)
        };
        board.take(&list(1, 2));
        assert!(board.list().is_none());
        board.take(&said(0, 0));
        assert!(board.list().is_none());
        board.take(&list(0, 3));
        assert_eq!(board.list().unwrap().flows.as_ref().unwrap().1, 5);
        assert!(board.list().is_none());
    }
}
