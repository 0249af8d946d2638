//! Exporters and a collector over TCP, UDP and files: everything arrives once and in order, and what
//! cannot be sent is counted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::io::Read;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use common::{Lab, collector, directory, loopback, now, packet, session, snapshot};
use crem_ipfix::collect::Outcome;
use crem_ipfix_io::{
    CollectorConfig, Destination, EndReason, Exporter, ExporterConfig, ExporterError,
    ExporterEvent, Listen, probe_sctp, read_file,
};
use crem_meter::seq::Flags;

fn exporter(destination: Destination, change: impl FnOnce(&mut ExporterConfig)) -> Exporter {
    let datagrams = matches!(destination, Destination::Udp(_));
    let mut config = ExporterConfig::new(destination, session(datagrams));
    assert!(
        config.retry >= Duration::from_secs(60),
        "RFC 7011 section 10.4.4"
    );
    config.flush = Duration::from_millis(20);
    config.retry = Duration::from_millis(100);
    change(&mut config);
    Exporter::new(config).unwrap()
}

// shows: SEQ-EXP-01
#[test]
fn everything_arrives_over_tcp() {
    let (collector, addresses) = collector(&[Listen::Tcp(loopback())]);
    let exporter = exporter(Destination::Tcp(addresses[0]), |_| {});
    let mut lab = Lab::new(vec![exporter], Some(collector));
    lab.until("session", |lab| lab.exporters[0].session().is_some());
    const RECORDS: u32 = 20_000;
    for psn in 0..RECORDS {
        assert!(lab.exporters[0].packet(now(), &packet(psn)));
        if psn % 1000 == 0 {
            lab.turn();
        }
    }
    for (flags, requests) in [(Flags::NONE, 1), (Flags::NONE, 5), (Flags::FINAL, 6)] {
        assert!(lab.exporters[0].sequence(now(), &snapshot(1, 9, flags, requests)));
    }
    lab.until("records", |lab| lab.told.epochs.len() == 3);
    assert!(lab.told.psns.iter().copied().eq(0..u64::from(RECORDS)));
    lab.exporters[0].close(now());
    lab.until("end", |lab| !lab.told.ended.is_empty());
    assert_eq!(lab.told.issues, []);
    assert_eq!(lab.told.stored.len(), 1);
    assert_eq!(lab.told.stored[0].outcome, Outcome::Complete);
    let sent = *lab.exporters[0].counters();
    let got = lab.collector.as_ref().unwrap().counters().collected;
    assert_eq!((sent.messages, sent.octets), (got.messages, got.octets));
    assert_eq!(sent.records, u64::from(RECORDS) + 3);
    assert_eq!(lab.exporters[0].not_sent().records, 0);
    assert!(lab.exporters[0].next_timeout().is_none());
}

// shows: SEQ-EXP-02, SEQ-SEC-03
#[test]
fn a_restarted_collector_gets_a_session_from_its_start() {
    let (first, addresses) = collector(&[Listen::Tcp(loopback())]);
    let exporter = exporter(Destination::Tcp(addresses[0]), |_| {});
    let mut lab = Lab::new(vec![exporter], Some(first));
    lab.until("session", |lab| lab.exporters[0].session() == Some(1));
    assert!(lab.exporters[0].sequence(now(), &snapshot(1, 9, Flags::NONE, 1)));
    lab.until("report", |lab| lab.told.epochs.len() == 1);
    lab.close_collector();
    lab.until("end", |lab| lab.exporters[0].session().is_none());
    // Dropped and counted, and the snapshot of the old session is nobody's.
    assert!(!lab.exporters[0].packet(now(), &packet(1)));
    assert!(!lab.exporters[0].sequence(now(), &snapshot(1, 9, Flags::FINAL, 2)));
    let counters = *lab.exporters[0].counters();
    assert_eq!((counters.dropped_disconnected, counters.stale), (1, 1));
    let (second, _) = collector(&[Listen::Tcp(addresses[0])]);
    lab.collector = Some(second);
    lab.until("second session", |lab| {
        lab.exporters[0].session() == Some(2)
    });
    assert!(
        !lab.exporters[0].sequence(now(), &snapshot(1, 9, Flags::FINAL, 2)),
        "still stale"
    );
    assert!(lab.exporters[0].sequence(now(), &snapshot(2, 10, Flags::FINAL, 3)));
    lab.until("second report", |lab| lab.told.epochs.len() == 2);
    // The first epoch had no final report; the second session counts from 1 again.
    assert_eq!(lab.told.epochs, [(1, 1, 1), (1, 1, 3)]);
    assert_eq!(lab.told.stored[0].outcome, Outcome::Incomplete);
    assert_eq!(lab.told.issues, []);
    let ended = |event: &(usize, ExporterEvent)| matches!(event, (0, ExporterEvent::Ended(1, _)));
    assert!(lab.events.iter().any(ended), "{:?}", lab.events);
}

#[test]
fn a_second_collector_that_reconnects_leaves_the_first_alone() {
    let (steady, steady_at) = collector(&[Listen::Tcp(loopback())]);
    let flaky = TcpListener::bind(loopback()).unwrap();
    let exporters = vec![
        exporter(Destination::Tcp(steady_at[0]), |_| {}),
        exporter(Destination::Tcp(flaky.local_addr().unwrap()), |_| {}),
    ];
    let mut lab = Lab::new(exporters, Some(steady));
    lab.until("sessions", |lab| {
        lab.exporters.iter().all(|e| e.session().is_some())
    });
    assert!(lab.exporters[0].sequence(now(), &snapshot(1, 9, Flags::NONE, 1)));
    drop(flaky.accept().unwrap());
    lab.until("reconnect", |lab| lab.exporters[1].session() == Some(2));
    assert_eq!(lab.exporters[0].session(), Some(1));
    assert!(lab.exporters[0].sequence(now(), &snapshot(1, 9, Flags::FINAL, 2)));
    lab.until("reports", |lab| lab.told.epochs.len() == 2);
    assert_eq!(lab.told.epochs, [(1, 1, 1), (1, 2, 2)]);
    assert_eq!(lab.told.issues, []);
}

#[test]
fn a_collector_that_takes_nothing_costs_records_and_then_its_session() {
    let slow = TcpListener::bind(loopback()).unwrap();
    let address = slow.local_addr().unwrap();
    let exporter = exporter(Destination::Tcp(address), |config| {
        config.queue = 64 * 1024;
        config.stall_timeout = Duration::from_millis(300);
        config.retry = Duration::from_secs(3600);
    });
    let mut lab = Lab::new(vec![exporter], None);
    lab.until("session", |lab| lab.exporters[0].session().is_some());
    let (_held, _) = slow.accept().unwrap();
    // More than kernel buffers and queue hold together.
    let mut psn = 0;
    let start = Instant::now();
    while lab.exporters[0].counters().dropped_full == 0 {
        // Less than the queue holds: only a full socket makes it full.
        for _ in 0..500 {
            lab.exporters[0].packet(now(), &packet(psn));
            psn += 1;
        }
        lab.exporters[0].drive(now());
        assert!(start.elapsed() < Duration::from_secs(10));
    }
    assert!(lab.exporters[0].queued() <= 64 * 1024);
    lab.until("stall", |lab| lab.exporters[0].session().is_none());
    let counters = *lab.exporters[0].counters();
    assert_eq!(counters.stalled, 1);
    assert!(matches!(
        lab.events.last(),
        Some((0, ExporterEvent::Ended(1, EndReason::Stalled)))
    ));
    // Every record is sent, or counted as not sent; at most one message was still open.
    let accounted = counters.records + counters.dropped_full + counters.lost;
    assert!(
        (u64::from(psn) - 31..=u64::from(psn)).contains(&accounted),
        "{counters:?} of {psn}"
    );
    assert_eq!(
        lab.exporters[0].not_sent().records,
        counters.dropped_full + counters.lost
    );
}

#[test]
fn partial_writes_keep_messages_whole() {
    let listener = TcpListener::bind(loopback()).unwrap();
    let address = listener.local_addr().unwrap();
    // Reads a little, sleeps, reads on: the socket is full most of the time.
    let reader = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut all, mut buffer) = (Vec::new(), [0; 50_000]);
        loop {
            match stream.read(&mut buffer).unwrap() {
                0 => return all,
                octets => all.extend_from_slice(&buffer[..octets]),
            }
            if all.len() % 7 == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    });
    let exporter = exporter(Destination::Tcp(address), |config| {
        config.queue = 256 * 1024
    });
    let mut lab = Lab::new(vec![exporter], None);
    lab.until("session", |lab| lab.exporters[0].session().is_some());
    let mut taken = 0;
    for psn in 0..200_000 {
        taken += u64::from(lab.exporters[0].packet(now(), &packet(psn)));
        if psn % 500 == 0 {
            lab.exporters[0].drive(now());
        }
    }
    lab.run(Duration::from_millis(100));
    lab.until("sent", |lab| lab.exporters[0].queued() == 0);
    lab.exporters[0].close(now());
    let all = reader.join().unwrap();
    let path = directory("partial").join("stream.ipfix");
    std::fs::write(&path, all).unwrap();
    let config = CollectorConfig::new(common::mapping());
    let mut issues = 0;
    let counters = read_file(&path, &config, now(), &mut |_, event| {
        if let crem_ipfix_io::CollectorEvent::Session(crem_ipfix::collect::Event::Issue(..)) = event
        {
            issues += 1;
        }
    })
    .unwrap();
    assert_eq!((issues, counters.packets), (0, taken));
    assert_eq!(lab.exporters[0].not_sent().records, 200_000 - taken);
}

#[test]
fn datagrams_arrive_and_a_closed_port_does_not_end_the_session() {
    let (collector, addresses) = collector(&[Listen::Udp(loopback())]);
    let exporter = exporter(Destination::Udp(addresses[0]), |_| {});
    let mut lab = Lab::new(vec![exporter], Some(collector));
    lab.until("templates", |lab| lab.told.began == 1);
    for psn in 0..500 {
        assert!(lab.exporters[0].packet(now(), &packet(psn)));
    }
    lab.until("records", |lab| lab.told.psns.len() == 500);
    assert!(lab.told.psns.iter().copied().eq(0..500));
    assert_eq!(lab.told.issues, []);
    lab.close_collector();
    for psn in 0..500 {
        lab.exporters[0].packet(now(), &packet(psn));
        lab.exporters[0].drive(now());
    }
    lab.run(Duration::from_millis(60));
    assert_eq!(lab.exporters[0].session(), Some(1));
    assert!(lab.exporters[0].counters().datagram_errors > 0);
}

#[test]
fn files_hold_a_session() {
    let path = directory("files").join("export.ipfix");
    let exporter = exporter(Destination::File(path.clone()), |_| {});
    let mut lab = Lab::new(vec![exporter], None);
    lab.until("session", |lab| lab.exporters[0].session().is_some());
    for psn in 0..100 {
        assert!(lab.exporters[0].packet(now(), &packet(psn)));
    }
    assert!(lab.exporters[0].sequence(now(), &snapshot(1, 1, Flags::FINAL, 1)));
    lab.exporters[0].close(now());
    let config = CollectorConfig::new(common::mapping());
    let mut issues = Vec::new();
    let counters = read_file(&path, &config, now(), &mut |_, event| {
        if let crem_ipfix_io::CollectorEvent::Session(crem_ipfix::collect::Event::Issue(_, issue)) =
            event
        {
            issues.push(issue.to_string());
        }
    })
    .unwrap();
    assert_eq!(issues, [""; 0]);
    assert_eq!((counters.packets, counters.reports), (100, 1));
    // What is not IPFIX is said to be so.
    let other = directory("files").join("other");
    std::fs::write(&other, b"not a message at all").unwrap();
    let error = read_file(&other, &config, now(), &mut |_, _| {}).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
}

#[test]
fn attempts_become_rarer_and_never_too_frequent() {
    // A port that was just given back: nobody listens.
    let address = TcpListener::bind(loopback()).unwrap().local_addr().unwrap();
    let mut exporter = exporter(Destination::Tcp(address), |config| {
        config.retry = Duration::from_secs(60);
        config.seed = 5;
    });
    let mut time = now();
    let mut attempts = Vec::new();
    for _ in 0..6 {
        let before = exporter.counters().failures;
        let begun = time;
        while exporter.counters().failures == before {
            exporter.drive(time);
        }
        attempts.push(begun);
        time = exporter.next_timeout().unwrap();
        // A moment earlier nothing happens.
        exporter.drive(crem_meter::Utc(time.0 - 1));
        assert_eq!(exporter.counters().failures, before + 1);
    }
    let gaps: Vec<u64> = attempts
        .windows(2)
        .map(|pair| pair[1].since(pair[0]).as_secs())
        .collect();
    for (gap, least) in gaps.iter().zip([60, 120, 240, 480, 600]) {
        assert!((least..=least * 11 / 10).contains(gap), "{gaps:?}");
    }
    let failed = std::iter::from_fn(|| exporter.poll_event()).count();
    assert_eq!(failed, 6);
}

// shows: SEQ-EXP-01, SEQ-SEC-01
#[test]
fn configurations_that_cannot_be_meant() {
    let address = "192.0.2.1:4739".parse().unwrap();
    let error = |config: ExporterConfig| Exporter::new(config).err().unwrap();
    let open = ExporterConfig::new(Destination::Tcp(address), session(false));
    assert_eq!(error(open), ExporterError::Unprotected);
    let datagrams = ExporterConfig::new(Destination::Udp(address), session(false));
    assert_eq!(error(datagrams), ExporterError::Transport);
    let streams = ExporterConfig::new(Destination::Tcp(address), session(true));
    assert_eq!(error(streams), ExporterError::Transport);
    let mut small = ExporterConfig::new(Destination::File("/dev/null".into()), session(false));
    small.queue = 1400;
    assert_eq!(error(small), ExporterError::Queue(1400));
}

#[test]
fn sctp_is_probed() {
    match probe_sctp() {
        Ok(()) => {}
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
            assert!(error.to_string().contains("no SCTP"), "{error}");
            let mut exporter = exporter(Destination::Sctp(loopback()), |_| {});
            exporter.drive(now());
            let event = exporter.poll_event();
            let said = matches!(&event, Some(ExporterEvent::Failed(EndReason::Broken(e)))
                if e.to_string().contains("no SCTP"));
            assert!(said, "{event:?}");
        }
    }
}
