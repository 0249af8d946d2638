//! The exporting process: records from a data plane reach the collectors they are for, sessions are told
//! back, and either side may go away.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use common::{collector, directory, loopback, now, packet, session, snapshot};
use crem_ipfix::handover::{Batch, Control, Item};
use crem_ipfix_io::{
    Collector, CollectorEvent, Destination, ExporterConfig, ExporterEvent, Listen, MAX_BATCH,
    Service, connect_to, wait,
};
use crem_meter::seq::Flags;

fn config(address: SocketAddr) -> ExporterConfig {
    let mut config = ExporterConfig::new(Destination::Tcp(address), session(false));
    config.flush = Duration::from_millis(10);
    config.retry = Duration::from_millis(50);
    config
}

fn ignore(_: u16, _: &ExporterEvent) {}

/// A service, the collectors behind it, and what they got: packets, and (epoch, report, requests).
struct Lab {
    service: Service,
    collectors: Vec<Collector>,
    packets: Vec<usize>,
    reports: Vec<Vec<(u64, u64, u64)>>,
    issues: usize,
}

impl Lab {
    fn new(name: &str, collectors: usize) -> Self {
        let collectors: Vec<Collector> = (0..collectors)
            .map(|_| collector(&[Listen::Tcp(loopback())]).0)
            .collect();
        let mut service = Service::bind(&directory("service").join(name)).unwrap();
        for (number, collector) in (0..).zip(&collectors) {
            let config = config(collector.addresses()[0]);
            service.put(now(), number, config, &mut ignore).unwrap();
        }
        Self {
            service,
            packets: vec![0; collectors.len()],
            reports: vec![Vec::new(); collectors.len()],
            collectors,
            issues: 0,
        }
    }

    fn turn(&mut self) {
        wait(&self.service.interests(), Duration::from_millis(1)).unwrap();
        self.service.drive(now(), &mut ignore);
        for (place, collector) in self.collectors.iter_mut().enumerate() {
            let (packets, reports) = (&mut self.packets[place], &mut self.reports[place]);
            let issues = &mut self.issues;
            collector.drive(now(), &mut |_, event| {
                let CollectorEvent::Session(event) = event else {
                    return;
                };
                match event {
                    crem_ipfix::collect::Event::Record(_, Some(profile), _) => {
                        *packets += usize::from(*profile == crem_ipfix::profile::Profile::Packet);
                    }
                    crem_ipfix::collect::Event::Report(_, report, _) => {
                        reports.push((report.epoch, report.report, report.counts.requests));
                    }
                    crem_ipfix::collect::Event::Issue(..) => *issues += 1,
                    _ => {}
                }
            });
        }
    }

    fn until(&mut self, what: &str, mut so: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !so(self) {
            self.turn();
            assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        }
    }
}

/// What the service told the data plane so far.
fn controls(source: &mut UnixStream) -> Vec<Control> {
    let mut all = Vec::new();
    let mut octets = [0; Control::LEN];
    while let Ok(Control::LEN) = source.read(&mut octets) {
        all.push(Control::decode(&octets).unwrap());
    }
    all
}

fn send(source: &mut UnixStream, items: &[Item]) {
    let mut batch = Batch::new(MAX_BATCH);
    for item in items {
        assert!(batch.push(item));
    }
    source.write_all(batch.octets()).unwrap();
}

#[test]
fn records_reach_the_collectors_they_are_for() {
    let mut lab = Lab::new("route", 2);
    let mut source = connect_to(&directory("service").join("route")).unwrap();
    let mut told = Vec::new();
    lab.until("sessions", |_| {
        told.extend(controls(&mut source));
        told.len() == 2
    });
    told.sort_by_key(|control| matches!(control, Control::Begin(1, _)));
    assert_eq!(told, [Control::Begin(0, 1), Control::Begin(1, 1)]);
    let mut second = snapshot(1, 4, Flags::FINAL, 9);
    second.collector = 1;
    let mut nobody = second;
    nobody.collector = 2;
    send(
        &mut source,
        &[
            Item::Packet(packet(1)),
            Item::Sequence(snapshot(1, 3, Flags::NONE, 5)),
            Item::Sequence(second),
            Item::Sequence(nobody),
            Item::Packet(packet(2)),
        ],
    );
    lab.until("records", |lab| lab.packets == [2, 2]);
    assert_eq!(lab.reports, [vec![(1, 1, 5)], vec![(1, 1, 9)]]);
    source.write_all(&[9, 9, 9]).unwrap();
    lab.until("damage", |lab| lab.service.counters().damaged == 1);
    let counters = *lab.service.counters();
    assert_eq!(
        (counters.batches, counters.items, counters.unrouted),
        (2, 5, 1)
    );
    assert_eq!(lab.issues, 0);
}

// shows: SEQ-ID-06
#[test]
fn a_restarted_data_plane_has_other_epochs_in_the_same_session() {
    let mut lab = Lab::new("restart", 1);
    let path = directory("service").join("restart");
    let mut first = connect_to(&path).unwrap();
    lab.until("session", |_| !controls(&mut first).is_empty());
    send(
        &mut first,
        &[Item::Sequence(snapshot(1, 1, Flags::NONE, 500))],
    );
    lab.until("report", |lab| lab.reports[0].len() == 1);
    drop(first);
    lab.until("gone", |lab| !lab.service.is_connected());
    let mut second = connect_to(&path).unwrap();
    let mut told = Vec::new();
    lab.until("told again", |_| {
        told.extend(controls(&mut second));
        !told.is_empty()
    });
    assert_eq!(told, [Control::Begin(0, 1)]);
    // The same context and number, another epoch.
    send(
        &mut second,
        &[Item::Sequence(snapshot(1, 1, Flags::FINAL, 7))],
    );
    lab.until("second report", |lab| lab.reports[0].len() == 2);
    assert_eq!(lab.reports[0], [(1, 1, 500), (2, 1, 7)]);
    assert_eq!(lab.issues, 0);
}

#[test]
fn a_collector_that_goes_away_is_told_to_the_data_plane() {
    let mut lab = Lab::new("end", 1);
    let mut source = connect_to(&directory("service").join("end")).unwrap();
    lab.until("session", |_| !controls(&mut source).is_empty());
    let gone = lab.collectors.pop().unwrap();
    gone.close(&mut |_, _| {});
    let mut told = Vec::new();
    lab.until("end", |_| {
        told.extend(controls(&mut source));
        told.first() == Some(&Control::End(0))
    });
    send(&mut source, &[Item::Packet(packet(1))]);
    lab.until("dropped", |lab| {
        lab.service.exporters()[&0].not_sent().records == 1
    });
}

#[test]
fn a_socket_is_replaced_only_if_nobody_listens() {
    let path = directory("service").join("replace");
    let first = Service::bind(&path).unwrap();
    let error = Service::bind(&path).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    // As after a crash: the file is there, nobody listens.
    drop(first);
    let second = Service::bind(&path).unwrap();
    assert!(second.next_timeout().is_none());
    second.close(now(), &mut ignore);
    assert!(!path.exists());
}

// shows: SEQ-ID-06, SEQ-ID-07
#[test]
fn collectors_come_and_go_and_sessions_of_others_go_on() {
    let mut lab = Lab::new("change", 2);
    let mut source = connect_to(&directory("service").join("change")).unwrap();
    let mut told = Vec::new();
    lab.until("sessions", |_| {
        told.extend(controls(&mut source));
        told.len() == 2
    });
    // One is put anew: another session with another number, and its counters count on.
    send(&mut source, &[Item::Packet(packet(1))]);
    lab.until("a record each", |lab| lab.packets == [1, 1]);
    let again = config(lab.collectors[1].addresses()[0]);
    lab.service.put(now(), 1, again, &mut ignore).unwrap();
    told.clear();
    lab.until("a second session", |_| {
        told.extend(controls(&mut source));
        told.len() == 2
    });
    assert_eq!(told, [Control::End(1), Control::Begin(1, 2)]);
    let mut late = snapshot(1, 4, Flags::NONE, 9);
    late.collector = 1;
    send(
        &mut source,
        &[Item::Sequence(late), Item::Packet(packet(2))],
    );
    lab.until("a record more", |lab| lab.packets == [2, 2]);
    assert_eq!(lab.reports[1], [], "a snapshot of the session before");
    let counters = *lab.service.exporters()[&1].counters();
    assert_eq!(
        (counters.sessions, counters.records, counters.stale),
        (2, 2, 1)
    );
    // It goes, and comes back.
    lab.service.remove(now(), 1, &mut ignore);
    send(&mut source, &[Item::Packet(packet(3))]);
    lab.until("only the first", |lab| lab.packets == [3, 2]);
    let again = config(lab.collectors[1].addresses()[0]);
    lab.service.put(now(), 1, again, &mut ignore).unwrap();
    told.clear();
    lab.until("a third session", |_| {
        told.extend(controls(&mut source));
        told.len() == 2
    });
    assert_eq!(told, [Control::End(1), Control::Begin(1, 3)]);
    assert_eq!(lab.service.exporters()[&0].session(), Some(1));
    assert_eq!(lab.issues, 0);
}
