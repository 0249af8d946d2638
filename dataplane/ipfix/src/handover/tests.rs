//! Every record comes out as it went in; anything else is refused.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn addresses() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    prop_oneof![
        any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (a.into(), b.into())),
        any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (a.into(), b.into())),
    ]
}

fn direction(egress: bool) -> Direction {
    if egress {
        Direction::Egress
    } else {
        Direction::Ingress
    }
}

prop_compose! {
    fn packets()(
        (source, destination) in addresses(),
        numbers: [u64; 3],
        ports: (u16, u16),
        tos: u8,
        egress: bool,
        selected: bool,
        bth: [u8; 12],
    ) -> Item {
        Item::Packet(PacketRecord {
            point: numbers[0],
            time: Utc(numbers[1]),
            source,
            destination,
            source_port: ports.0,
            destination_port: ports.1,
            tos,
            direction: direction(egress),
            selection: selected.then_some(numbers[2]),
            bth: Bth::parse(&bth).unwrap(),
        })
    }
}

prop_compose! {
    fn flows()(
        (source, destination) in addresses(),
        numbers: [u64; 5],
        ports: (u16, u16, u16),
        qp in 0..1u32 << 24,
        opcode: Option<u8>,
        post: bool,
        egress: bool,
    ) -> Item {
        Item::Flow(post, FlowRecord {
            point: numbers[0],
            direction: direction(egress),
            key: FlowKey {
                source,
                destination,
                source_port: ports.0,
                destination_port: ports.1,
                pkey: ports.2,
                qp: Qpn::new(qp),
                opcode,
            },
            start: Utc(numbers[1]),
            end: Utc(numbers[2]),
            packets: numbers[3],
            octets: numbers[4],
        })
    }
}

prop_compose! {
    fn sequences()(
        (source, destination) in addresses(),
        numbers: [u64; 12],
        small: [u32; 4],
        words: [u16; 3],
        qp in 0..1u32 << 24,
    ) -> Item {
        Item::Sequence(SequenceRecord {
            point: numbers[0],
            collector: words[0],
            session: small[0],
            context: small[1],
            epoch: numbers[1],
            key: ConnectionKey {
                source,
                destination,
                qp: Qpn::new(qp),
                pkey: words[1],
                context: numbers[2],
            },
            flags: Flags(words[2]),
            window: small[2],
            start: Utc(numbers[3]),
            end: Utc(numbers[4]),
            counts: Counts {
                skipped: numbers[5],
                filled: numbers[6],
                expired: numbers[7],
                abandoned: numbers[8],
                pending: small[3],
                repeated: numbers[9],
                requests: numbers[10],
                unclassified_late: numbers[11],
            },
        })
    }
}

fn all() -> impl Strategy<Value = Item> {
    prop_oneof![
        packets(),
        flows(),
        sequences(),
        any::<[u64; 3]>().prop_map(|[s, observed, selected]| {
            Item::Selection(s, SelectionStats { observed, selected })
        }),
        any::<(u64, u64)>().prop_map(|(packets, octets)| Item::Ignored(packets, octets)),
    ]
}

proptest! {
    #[test]
    fn records_come_out_as_they_went_in(records in proptest::collection::vec(all(), 0..40)) {
        let mut batch = Batch::new(65536);
        for (n, record) in records.iter().enumerate() {
            let before = batch.octets().len();
            prop_assert!(batch.push(record));
            prop_assert!(batch.octets().len() - before <= MAX_ITEM, "item {n}");
        }
        let found: Vec<Item> = items(batch.octets()).unwrap().collect::<Result<_, _>>().unwrap();
        prop_assert_eq!(found, records);
    }

    #[test]
    fn anything_else_is_refused_or_read(octets: Vec<u8>, cut: prop::sample::Index, records in proptest::collection::vec(all(), 1..4)) {
        if let Ok(items) = items(&octets) {
            let _ = items.count();
        }
        let mut batch = Batch::new(65536);
        for record in &records {
            batch.push(record);
        }
        let cut = 1 + cut.index(batch.octets().len() - 1);
        let read: Vec<_> = items(&batch.octets()[..cut]).unwrap().collect();
        let whole = read.iter().take_while(|item| item.is_ok()).count();
        prop_assert!(whole < records.len());
        prop_assert!(read.len() <= whole + 1);
    }
}

#[test]
fn a_full_batch_takes_nothing_more_and_says_so() {
    let mut batch = Batch::new(400);
    let item = Item::Ignored(1, 2);
    let mut taken = 0;
    while batch.push(&item) {
        taken += 1;
    }
    assert_eq!(items(batch.octets()).unwrap().count(), taken);
    assert!(batch.octets().len() <= 400);
    assert!(!batch.push(&item));
    assert_eq!((batch.take_dropped(), batch.take_dropped()), (2, 0));
    batch.clear();
    assert!(batch.is_empty() && batch.push(&item));
}

#[test]
fn formats_are_told_apart() {
    assert_eq!(items(&[]).err(), Some(BatchError::Damaged));
    assert_eq!(items(&[9, 0]).err(), Some(BatchError::Format(9)));
    for control in [Control::Begin(3, 70_000), Control::End(65_535)] {
        assert_eq!(Control::decode(&control.encode()), Ok(control));
    }
    assert_eq!(
        Control::decode(&[2, 0, 0, 0, 0, 0, 0, 0]),
        Err(BatchError::Format(2))
    );
    assert_eq!(
        Control::decode(&[1, 7, 0, 0, 0, 0, 0, 0]),
        Err(BatchError::Damaged)
    );
}
