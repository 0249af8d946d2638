//! TLS with mutual authentication: who is let in, who is not, and that nothing counts as sent before.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Authority, Lab, collector, directory, loopback, now, packet, session, snapshot};
use crem_ipfix_io::{
    Authorised, Destination, EndReason, Exporter, ExporterConfig, ExporterEvent, Listen, TlsError,
    TlsFiles,
};
use crem_meter::seq::Flags;

const COLLECTOR: &str = "collector.lab.test";
const EXPORTER: &str = "exporter.lab.test";

fn named(name: &str) -> Authorised {
    Authorised {
        names: vec![name.to_owned()],
        fingerprints: Vec::new(),
    }
}

fn exporter(address: SocketAddr, files: &TlsFiles, collectors: &Authorised) -> Exporter {
    let destination = Destination::Tls {
        address,
        name: COLLECTOR.to_owned(),
        config: files.exporter(collectors).unwrap(),
    };
    let mut config = ExporterConfig::new(destination, session(false));
    config.flush = Duration::from_millis(20);
    config.retry = Duration::from_millis(200);
    Exporter::new(config).unwrap()
}

/// A collector that authorises, and an exporter with these files.
fn lab(collector_files: &TlsFiles, exporters: &Authorised, files: &TlsFiles) -> Lab {
    let tls = collector_files.collector(exporters).unwrap();
    let (collector, addresses) = collector(&[Listen::Tls(loopback(), tls)]);
    let exporter = exporter(addresses[0], files, &named(COLLECTOR));
    Lab::new(vec![exporter], Some(collector))
}

fn refused(mut lab: Lab) -> Lab {
    lab.until("refusal", |lab| {
        lab.exporters[0].counters().not_authorised > 0
    });
    let counters = *lab.exporters[0].counters();
    assert_eq!(
        (counters.sessions, counters.messages, counters.records),
        (0, 0, 0)
    );
    let Some((_, ExporterEvent::Failed(reason @ EndReason::NotAuthorised(_)))) = lab.events.first()
    else {
        panic!("{:?}", lab.events)
    };
    assert!(reason.to_string().starts_with("not authorised"));
    lab.until("the collector counts it", |lab| {
        lab.collector.as_ref().unwrap().counters().unauthorised > 0
    });
    assert_eq!(lab.told.began, 0);
    assert!(
        !lab.exporters[0].packet(now(), &packet(1)),
        "dropped, not sent"
    );
    lab
}

// shows: BTH-SEC-01, SEQ-SEC-01
#[test]
fn authorised_peers_exchange_everything() {
    let directory = directory("tls-good");
    let authority = Authority::new(&directory, "ca");
    let (server, print) = authority.issue(COLLECTOR, &authority);
    let (client, _) = authority.issue(EXPORTER, &authority);
    let mut lab = lab(&server, &named(EXPORTER), &client);
    lab.until("session", |lab| lab.exporters[0].session().is_some());
    // The server's tickets confirm at once: nobody waits for the time of a refusal.
    for psn in 0..20_000 {
        assert!(lab.exporters[0].packet(now(), &packet(psn)));
        if psn % 500 == 0 {
            lab.turn();
        }
    }
    assert!(lab.exporters[0].sequence(now(), &snapshot(1, 1, Flags::FINAL, 1)));
    lab.until("records", |lab| lab.told.epochs.len() == 1);
    assert!(lab.told.psns.iter().copied().eq(0..20_000));
    lab.exporters[0].close(now());
    lab.until("end", |lab| !lab.told.ended.is_empty());
    assert_eq!(
        (lab.told.issues.as_slice(), &lab.told.ended[0]),
        (&[][..], &None)
    );
    assert_eq!(lab.exporters[0].counters().records, 20_001);

    // The collector's fingerprint may be demanded on top.
    let address = lab.collector.as_ref().unwrap().addresses()[0];
    let mut pinned = named(COLLECTOR);
    pinned.fingerprints = vec![print];
    lab.exporters = vec![exporter(address, &client, &pinned)];
    lab.until("pinned", |lab| lab.exporters[0].session().is_some());
    pinned.fingerprints = vec![[7; 32]];
    lab.exporters = vec![exporter(address, &client, &pinned)];
    lab.until("wrong pin", |lab| lab.exporters[0].counters().failures > 0);
    assert!(matches!(
        lab.events.last(),
        Some((0, ExporterEvent::Failed(EndReason::Untrusted(_))))
    ));
}

// shows: SEQ-SEC-02
#[test]
fn a_certificate_of_another_authority_is_refused() {
    let directory = directory("tls-foreign");
    let authority = Authority::new(&directory, "ca");
    let foreign = Authority::new(&directory, "foreign");
    let (server, _) = authority.issue(COLLECTOR, &authority);
    let (client, _) = foreign.issue(EXPORTER, &authority);
    let mut lab = refused(lab(&server, &named(EXPORTER), &client));
    // It tries again, after a while, and a right certificate is let in then.
    let (right, _) = authority.issue(EXPORTER, &authority);
    assert!(lab.exporters[0].set_tls(right.exporter(&named(COLLECTOR)).unwrap()));
    lab.until("session", |lab| lab.exporters[0].session().is_some());
    assert!(lab.exporters[0].packet(now(), &packet(1)));
    lab.until("record", |lab| lab.told.psns.len() == 1);
}

// shows: SEQ-SEC-02
#[test]
fn a_name_that_is_not_on_the_list_is_refused() {
    let directory = directory("tls-name");
    let authority = Authority::new(&directory, "ca");
    let (server, _) = authority.issue(COLLECTOR, &authority);
    let (client, print) = authority.issue("stranger.lab.test", &authority);
    refused(lab(&server, &named(EXPORTER), &client));
    // Listed by fingerprint it is let in.
    let listed = Authorised {
        names: Vec::new(),
        fingerprints: vec![print],
    };
    let mut good = lab(&server, &listed, &client);
    good.until("session", |lab| lab.exporters[0].session().is_some());
    let other = Authorised {
        names: Vec::new(),
        fingerprints: vec![[1; 32]],
    };
    refused(lab(&server, &other, &client));
}

// shows: SEQ-SEC-02
#[test]
fn a_collector_that_is_not_trusted_gets_nothing() {
    let directory = directory("tls-server");
    let authority = Authority::new(&directory, "ca");
    let foreign = Authority::new(&directory, "foreign");
    for (what, (server, _)) in [
        ("another authority", foreign.issue(COLLECTOR, &authority)),
        (
            "another name",
            authority.issue("other.lab.test", &authority),
        ),
    ] {
        let (client, _) = authority.issue(EXPORTER, &authority);
        let mut lab = lab(&server, &named(EXPORTER), &client);
        lab.until(what, |lab| lab.exporters[0].counters().failures > 0);
        assert!(matches!(
            lab.events[0],
            (0, ExporterEvent::Failed(EndReason::Untrusted(_)))
        ));
        assert_eq!(lab.exporters[0].counters().messages, 0);
    }
}

#[test]
fn plain_tcp_to_a_tls_collector_is_cut_off() {
    let directory = directory("tls-plain");
    let authority = Authority::new(&directory, "ca");
    let (server, _) = authority.issue(COLLECTOR, &authority);
    let tls = server.collector(&named(EXPORTER)).unwrap();
    let (collector, addresses) = collector(&[Listen::Tls(loopback(), tls)]);
    let config = ExporterConfig::new(Destination::Tcp(addresses[0]), session(false));
    let mut lab = Lab::new(vec![Exporter::new(config).unwrap()], Some(collector));
    lab.until("cut off", |lab| {
        lab.collector.as_ref().unwrap().counters().unauthorised == 1
    });
    assert_eq!(lab.told.began, 0);
    lab.until("noticed", |lab| lab.exporters[0].session().is_none());
}

#[test]
fn a_collector_that_never_answers_is_given_up() {
    let silent = TcpListener::bind(loopback()).unwrap();
    let directory = directory("tls-silent");
    let authority = Authority::new(&directory, "ca");
    let (client, _) = authority.issue(EXPORTER, &authority);
    let destination = Destination::Tls {
        address: silent.local_addr().unwrap(),
        name: COLLECTOR.to_owned(),
        config: client.exporter(&named(COLLECTOR)).unwrap(),
    };
    let mut config = ExporterConfig::new(destination, session(false));
    config.connect_timeout = Duration::from_millis(100);
    let mut lab = Lab::new(vec![Exporter::new(config).unwrap()], None);
    lab.until("given up", |lab| lab.exporters[0].counters().failures == 1);
    assert!(matches!(
        lab.events[0],
        (0, ExporterEvent::Failed(EndReason::ConnectTimeout))
    ));
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let directory = directory("tls-files");
    let authority = Authority::new(&directory, "ca");
    let (good, _) = authority.issue(EXPORTER, &authority);
    assert!(matches!(
        good.exporter(&Authorised::default()),
        Err(TlsError::Nobody)
    ));
    assert!(matches!(
        good.collector(&Authorised::default()),
        Err(TlsError::Nobody)
    ));
    assert!(matches!(
        good.exporter(&named("no name!")),
        Err(TlsError::Name(_))
    ));
    let mut missing = good.clone();
    missing.key = directory.join("missing");
    let error = missing.exporter(&named(COLLECTOR)).unwrap_err().to_string();
    assert!(error.contains("missing"), "{error}");
    let mut empty = good.clone();
    empty.certificate = directory.join("empty");
    std::fs::write(&empty.certificate, "").unwrap();
    assert!(matches!(
        empty.exporter(&named(COLLECTOR)),
        Err(TlsError::Empty(_))
    ));
    let (other, _) = authority.issue("other.lab.test", &authority);
    let mixed = TlsFiles {
        key: other.key,
        ..good
    };
    assert!(matches!(
        mixed.exporter(&named(COLLECTOR)),
        Err(TlsError::Tls(_))
    ));
    let _: Arc<rustls::ServerConfig> = {
        let (server, _) = authority.issue(COLLECTOR, &authority);
        server.collector(&named(EXPORTER)).unwrap()
    };
}

// shows: SEQ-SEC-01
#[test]
fn nothing_older_than_tls_1_3_is_offered() {
    let directory = directory("tls-version");
    let authority = Authority::new(&directory, "ca");
    let (files, _) = authority.issue(EXPORTER, &authority);
    let listener = TcpListener::bind(loopback()).unwrap();
    let mut exporter = exporter(listener.local_addr().unwrap(), &files, &named(COLLECTOR));
    let mut stream = None;
    let mut hello = Vec::new();
    let start = Instant::now();
    while hello.len() < 200 && start.elapsed() < Duration::from_secs(10) {
        exporter.drive(now());
        listener.set_nonblocking(true).unwrap();
        if let Ok((accepted, _)) = listener.accept() {
            accepted.set_nonblocking(true).unwrap();
            stream = Some(accepted);
        }
        let mut octets = [0; 2048];
        if let Some(Ok(taken)) = stream.as_mut().map(|s| s.read(&mut octets)) {
            hello.extend_from_slice(&octets[..taken]);
        }
    }
    // The extension supported_versions (43) with one version in its list, 0x0304.
    let versions = [0, 43, 0, 3, 2, 3, 4];
    assert!(hello.windows(7).any(|w| w == versions), "{hello:02x?}");
}
