//! Pools, mbufs, batches.

use std::thread;

use crem_dpdk::{Batch, Error, HEADROOM, Mbuf, MbufError, Memory, MempoolConfig};

use super::{Case, World};

pub(super) const CASES: &[Case] = &[
    ("memory::pool_counts_and_runs_dry", pool_counts_and_runs_dry),
    (
        "memory::nodes_are_those_of_hugepages",
        nodes_are_those_of_hugepages,
    ),
    (
        "memory::impossible_pools_are_refused",
        impossible_pools_are_refused,
    ),
    ("memory::bulk_is_all_or_none", bulk_is_all_or_none),
    ("memory::octets_at_both_ends", octets_at_both_ends),
    ("memory::shared_is_immutable", shared_is_immutable),
    ("memory::shared_across_threads", shared_across_threads),
    ("memory::chain_of_three", chain_of_three),
    (
        "memory::shared_chain_counts_every_segment",
        shared_chain_counts_every_segment,
    ),
    ("memory::indirect_clone", indirect_clone),
    ("memory::header_before_clone", header_before_clone),
    ("memory::batch_keeps_order", batch_keeps_order),
    (
        "memory::batch_frees_what_it_holds",
        batch_frees_what_it_holds,
    ),
    (
        "memory::threads_with_and_without_lcore",
        threads_with_and_without_lcore,
    ),
];

fn filled(w: &World, len: u16, seed: u8) -> Mbuf {
    let octets: Vec<u8> = (0..len)
        .map(|i| (i as u8).wrapping_mul(7).wrapping_add(seed))
        .collect();
    w.small.alloc_from(&octets).unwrap()
}

fn nodes_are_those_of_hugepages(w: &World) {
    let nodes = w.large.nodes();
    match w.eal.memory() {
        Memory::NoHuge { .. } => assert!(nodes.is_empty(), "{nodes:?}"),
        Memory::Auto { .. } | Memory::Huge { .. } => {
            assert!(!nodes.is_empty());
            let place = |node: &u16| format!("/sys/devices/system/node/node{node}");
            let there = |node: &u16| std::path::Path::new(&place(node)).exists();
            assert!(nodes.iter().all(there), "{nodes:?}");
        }
    }
}

fn pool_counts_and_runs_dry(w: &World) {
    let config = MempoolConfig {
        name: "dry",
        count: 15,
        room: 512,
        cache: 0,
        socket: None,
    };
    let pool = w.eal.mempool(&config).unwrap();
    assert_eq!(
        (pool.available(), pool.in_use(), pool.count(), pool.room()),
        (15, 0, 15, 512)
    );
    let mut held: Vec<Mbuf> = (0..15).map(|_| pool.alloc().unwrap()).collect();
    assert!(pool.alloc().is_none());
    assert!(matches!(pool.alloc_from(b"x"), Err(MbufError::Empty)));
    assert_eq!(pool.in_use(), 15);
    held.pop();
    assert_eq!(pool.available(), 1);
    assert!(pool.alloc().is_some());
    drop(held);
    assert_eq!(pool.available(), 15);
}

fn impossible_pools_are_refused(w: &World) {
    let base = MempoolConfig {
        name: "bad",
        count: 100,
        room: 2176,
        cache: 0,
        socket: None,
    };
    for config in [
        MempoolConfig { count: 0, ..base },
        MempoolConfig {
            room: HEADROOM - 1,
            ..base
        },
        MempoolConfig { cache: 67, ..base },
        MempoolConfig {
            cache: 513,
            count: 4095,
            ..base
        },
    ] {
        assert!(
            matches!(w.eal.mempool(&config), Err(Error::Argument { .. })),
            "{config:?}"
        );
    }
    let huge = MempoolConfig {
        count: 2_000_000,
        room: 60_000,
        ..base
    };
    match w.eal.mempool(&huge) {
        Err(e @ Error::Pool { needed_mb, .. }) => {
            assert!(needed_mb > 100_000);
            let text = e.to_string();
            assert!(
                text.contains("bad") && text.contains("Cannot allocate memory"),
                "{text}"
            );
        }
        other => panic!("{other:?}"),
    }
}

fn bulk_is_all_or_none(w: &World) {
    let config = MempoolConfig {
        name: "bulk",
        count: 20,
        room: 512,
        cache: 0,
        socket: None,
    };
    let pool = w.eal.mempool(&config).unwrap();
    let mut batch = Batch::<32>::new();
    assert!(!pool.alloc_bulk(&mut batch, 21), "more than the pool has");
    assert_eq!((batch.len(), pool.in_use()), (0, 0));
    assert!(pool.alloc_bulk(&mut batch, 20));
    assert_eq!((batch.len(), pool.in_use()), (20, 20));
    assert!(
        !w.small.alloc_bulk(&mut batch, 13),
        "more than the batch takes"
    );
    assert!(
        batch
            .iter()
            .all(|m| m.is_empty() && m.refcnt() == 1 && m.headroom() == HEADROOM)
    );
}

fn octets_at_both_ends(w: &World) {
    let mut m = w.small.alloc().unwrap();
    assert_eq!(
        (m.len(), m.headroom(), m.tailroom(), m.port()),
        (0, HEADROOM, 2048, u16::MAX)
    );
    m.append(6).unwrap().copy_from_slice(b"middle");
    m.prepend(6).unwrap().copy_from_slice(b"first ");
    m.append(5).unwrap().copy_from_slice(b" last");
    assert_eq!(m.data(), b"first middle last");
    assert_eq!(m.contiguous(), Some(&b"first middle last"[..]));
    assert_eq!(
        (m.len(), m.headroom(), m.tailroom()),
        (17, HEADROOM - 6, 2048 - 11)
    );
    m.trim_front(6).unwrap();
    m.trim_back(5).unwrap();
    m.data_mut().unwrap()[0] = b'M';
    assert_eq!(m.data(), b"Middle");
    assert_eq!(m.trim_front(7), Err(MbufError::TooShort));
    assert_eq!(m.trim_back(7), Err(MbufError::TooShort));
    assert_eq!(m.prepend(HEADROOM + 1).unwrap_err(), MbufError::NoRoom);
    assert_eq!(m.append(2043).unwrap_err(), MbufError::NoRoom);
    assert_eq!(m.data(), b"Middle");
    assert!(matches!(
        w.small.alloc_from(&[0; 2049]),
        Err(MbufError::NoRoom)
    ));
    assert!(matches!(
        w.small.alloc_from(&[0; 70_000]),
        Err(MbufError::NoRoom)
    ));
}

fn shared_is_immutable(w: &World) {
    let mut m = filled(w, 100, 1);
    let copy = m.data().to_vec();
    let mut held = m.share();
    assert_eq!((m.refcnt(), held.refcnt(), w.small.in_use()), (2, 2, 1));
    assert_eq!(m.id(), held.id());
    for h in [&mut m, &mut held] {
        assert_eq!(h.data_mut().unwrap_err(), MbufError::Shared);
        assert_eq!(h.append(1).unwrap_err(), MbufError::Shared);
        assert_eq!(h.prepend(1).unwrap_err(), MbufError::Shared);
        assert_eq!(h.trim_front(1), Err(MbufError::Shared));
        assert_eq!(h.trim_back(1), Err(MbufError::Shared));
    }
    let (_, why) = m.chain(filled(w, 1, 0)).unwrap_err();
    assert_eq!(why, MbufError::Shared);
    let mut alone = filled(w, 1, 0);
    let (held, why) = alone.chain(held).unwrap_err();
    assert_eq!(why, MbufError::Shared);
    drop(held);
    assert_eq!(m.data(), copy);
    assert!(m.data_mut().is_ok());
}

fn shared_across_threads(w: &World) {
    let m = filled(w, 1000, 3);
    let copy = m.data().to_vec();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (mine, copy) = (m.share(), copy.clone());
            thread::spawn(move || {
                for _ in 0..20_000 {
                    let again = mine.share();
                    assert!(again.refcnt() >= 2);
                }
                assert_eq!(mine.data(), copy);
            })
        })
        .collect();
    for t in threads {
        t.join().unwrap();
    }
    assert_eq!(m.refcnt(), 1);
}

fn chained(w: &World) -> (Mbuf, Vec<u8>) {
    let mut m = filled(w, 1400, 1);
    m.chain(filled(w, 1400, 2)).unwrap();
    m.chain(filled(w, 1400, 3)).unwrap();
    let all = m.segments().collect::<Vec<_>>().concat();
    (m, all)
}

fn chain_of_three(w: &World) {
    let (mut m, mut all) = chained(w);
    assert_eq!(
        (m.len(), m.segment_count(), m.data().len()),
        (4200, 3, 1400)
    );
    assert_eq!(m.contiguous(), None);
    assert_eq!(
        all,
        [1, 2, 3]
            .map(|s| filled(w, 1400, s).data().to_vec())
            .concat()
    );
    let mut part = [0; 1600];
    for offset in [0, 1, 1399, 1400, 1401, 2600] {
        assert!(m.copy_to(offset, &mut part));
        assert_eq!(part, all[offset..offset + 1600]);
    }
    assert!(!m.copy_to(2601, &mut part), "one octet too many");
    assert!(!m.copy_to(4201, &mut []), "beyond the end");
    assert!(m.copy_to(4200, &mut []));
    m.append(4).unwrap().copy_from_slice(b"tail");
    all.extend_from_slice(b"tail");
    m.trim_front(1400).unwrap();
    m.trim_back(4).unwrap();
    assert_eq!(m.len(), 2800);
    assert_eq!(m.data(), b"", "the first segment is empty now");
    assert_eq!(m.segments().collect::<Vec<_>>().concat(), all[1400..4200]);
    assert_eq!(w.small.in_use(), 3);
}

fn shared_chain_counts_every_segment(w: &World) {
    let (m, all) = chained(w);
    let held = m.share();
    drop(m);
    assert_eq!(w.small.in_use(), 3, "the second handle keeps all three");
    assert_eq!((held.segment_count(), held.refcnt()), (3, 1));
    assert_eq!(held.segments().collect::<Vec<_>>().concat(), all);
}

fn indirect_clone(w: &World) {
    let mut m = filled(w, 1000, 5);
    let copy = m.data().to_vec();
    let mut c = m.clone_indirect(&w.small).unwrap();
    assert!(m.is_direct() && !c.is_direct());
    assert_eq!((m.refcnt(), c.refcnt(), w.small.in_use()), (2, 1, 2));
    assert_eq!(c.data().as_ptr(), m.data().as_ptr(), "nothing is copied");
    assert_eq!(m.data_mut().unwrap_err(), MbufError::Shared);
    assert_eq!(c.data_mut().unwrap_err(), MbufError::Shared);
    assert_eq!(c.prepend(1).unwrap_err(), MbufError::Shared);
    assert_eq!(c.append(1).unwrap_err(), MbufError::Shared);
    c.trim_front(10).unwrap();
    c.trim_back(20).unwrap();
    assert_eq!(c.data(), &copy[10..980]);
    assert_eq!(m.data(), copy);
    drop(m);
    assert_eq!(c.data(), &copy[10..980], "the clone keeps the octets");
    let config = MempoolConfig {
        name: "none",
        count: 1,
        room: HEADROOM,
        cache: 0,
        socket: None,
    };
    let tiny = w.eal.mempool(&config).unwrap();
    let last = tiny.alloc().unwrap();
    assert!(matches!(c.clone_indirect(&tiny), Err(MbufError::Empty)));
    drop(last);
    let of_clone = c.clone_indirect(&tiny).unwrap();
    drop(c);
    assert_eq!(of_clone.data(), &copy[10..980]);
}

fn header_before_clone(w: &World) {
    let held = filled(w, 1000, 9);
    let mut payload = held.clone_indirect(&w.small).unwrap();
    payload.trim_front(42).unwrap();
    let mut sent = w.small.alloc_from(&[0xAA; 42]).unwrap();
    sent.chain(payload).unwrap();
    assert_eq!((sent.len(), sent.segment_count()), (1000, 2));
    let all = sent.segments().collect::<Vec<_>>().concat();
    assert_eq!(all, [&[0xAA; 42][..], &held.data()[42..]].concat());
    drop(sent);
    assert_eq!((held.refcnt(), w.small.in_use()), (1, 1));
}

fn batch_keeps_order(w: &World) {
    let mut b = Batch::<4>::new();
    for seed in 0..4 {
        b.push(filled(w, 8, seed)).unwrap();
    }
    let back = b.push(filled(w, 8, 4)).unwrap_err();
    assert_eq!(back.data()[0], 4);
    assert_eq!((b.len(), b.spare(), w.small.in_use()), (4, 0, 5));
    b.drop_front(1);
    assert_eq!(b.iter().map(|m| m.data()[0]).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(b.pop().unwrap().data()[0], 3);
    b[0].data_mut().unwrap()[0] = 77;
    let mut drain = b.drain();
    assert_eq!(drain.len(), 2);
    assert_eq!(drain.next().unwrap().data()[0], 77);
    drop(drain);
    assert!(b.is_empty() && b.pop().is_none());
}

fn batch_frees_what_it_holds(w: &World) {
    let mut b = Batch::<32>::new();
    assert!(w.small.alloc_bulk(&mut b, 32));
    let kept = b[31].share();
    b.drop_front(40);
    assert_eq!((b.len(), w.small.in_use(), kept.refcnt()), (0, 1, 1));
    b.push(chained(w).0).unwrap();
    b.clear();
    assert_eq!(w.small.in_use(), 1, "all segments of a chain are freed");
    assert!(w.small.alloc_bulk(&mut b, 8));
}

fn threads_with_and_without_lcore(w: &World) {
    for register in [false, true] {
        let (pool, registrar) = (w.small.clone(), w.eal.registrar());
        let from_here: Vec<Mbuf> = (0..50).map(|_| pool.alloc().unwrap()).collect();
        let left = thread::spawn(move || {
            let guard = register.then(|| registrar.register().unwrap());
            let again = register.then(|| registrar.register().unwrap());
            drop(again);
            drop(from_here);
            for _ in 0..1000 {
                let mut batch = Batch::<32>::new();
                assert!(pool.alloc_bulk(&mut batch, 32));
            }
            drop(guard);
            pool.alloc().unwrap()
        });
        drop(left.join().unwrap());
        assert_eq!(w.small.in_use(), 0, "registered: {register}");
    }
}
