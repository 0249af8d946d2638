//! What the tests of this crate share: records, sessions, certificates, and a loop that drives exporters
//! and a collector in one thread over loopback.
#![allow(dead_code, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crem_ipfix::collect::{Event, Issue, Stored};
use crem_ipfix::element::Mapping;
use crem_ipfix::profile::QpOctets;
use crem_ipfix::session::{
    FlowProfile, PacketProfile, SequenceProfile, SessionConfig, Transport, datagram_size,
};
use crem_ipfix_io::{
    Collector, CollectorConfig, CollectorEvent, Exporter, ExporterEvent, Interest, TlsFiles, wait,
};
use crem_meter::point::Direction;
use crem_meter::seq::{ConnectionKey, Counts, Flags, SequenceRecord};
use crem_meter::{PacketRecord, Utc};
use crem_wire::roce::Bth;
use crem_wire::{Psn, Qpn};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

pub fn now() -> Utc {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Utc(since.as_nanos() as u64)
}

pub fn mapping() -> Arc<Mapping> {
    Arc::new(Mapping::consecutive(32473, 1).unwrap())
}

pub fn session(datagrams: bool) -> Arc<SessionConfig> {
    let transport = if datagrams {
        Transport::Datagram {
            max_message: datagram_size(Some(1500), false),
            refresh: Duration::from_secs(600),
        }
    } else {
        Transport::Stream { max_message: 1400 }
    };
    Arc::new(SessionConfig {
        domain: 7,
        transport,
        mapping: mapping(),
        qp: QpOctets::Three,
        packets: Some(PacketProfile {
            unselected: true,
            ..PacketProfile::default()
        }),
        flows: Some(FlowProfile {
            opcode: false,
            before: true,
            after: false,
            active_timeout: 60,
            idle_timeout: 15,
        }),
        sequence: (!datagrams).then_some(SequenceProfile {
            namespaces: false,
            contexts: 16,
        }),
        metering_process: 1,
        exporting_process: 1,
    })
}

pub fn packet(psn: u32) -> PacketRecord {
    PacketRecord {
        point: 12,
        time: now(),
        source: "10.0.0.1".parse().unwrap(),
        destination: "10.0.0.2".parse().unwrap(),
        source_port: 49152,
        destination_port: 4791,
        tos: 3,
        direction: Direction::Ingress,
        selection: None,
        bth: Bth {
            psn: Psn::new(psn),
            ..Bth::parse(&[4, 0, 0xff, 0xff, 0, 0, 1, 0x23, 0, 0, 0, 0]).unwrap()
        },
    }
}

pub fn snapshot(session: u32, epoch: u64, flags: Flags, requests: u64) -> SequenceRecord {
    SequenceRecord {
        point: 12,
        collector: 0,
        session,
        context: 0,
        epoch,
        key: ConnectionKey {
            source: "10.0.0.1".parse().unwrap(),
            destination: "10.0.0.2".parse().unwrap(),
            qp: Qpn::new(0x123),
            pkey: 0xffff,
            context: 0,
        },
        flags,
        window: 64,
        start: Utc::from_millis(1000),
        end: Utc::from_millis(2000),
        counts: Counts {
            requests,
            ..Counts::default()
        },
    }
}

/// What a collector told.
#[derive(Default)]
pub struct Told {
    pub psns: Vec<u64>,
    pub issues: Vec<Issue>,
    pub stored: Vec<Stored>,
    pub ended: Vec<Option<String>>,
    pub began: usize,
    pub epochs: Vec<(u64, u64, u64)>,
}

impl Told {
    fn hear(&mut self, event: &CollectorEvent<'_>) {
        match event {
            CollectorEvent::Began => self.began += 1,
            CollectorEvent::Ended(reason) => self.ended.push(reason.map(ToOwned::to_owned)),
            CollectorEvent::Session(event) => match event {
                Event::Issue(_, issue) => self.issues.push((*issue).clone()),
                Event::Stored(_, stored) => self.stored.push(**stored),
                Event::Report(_, report, _) => {
                    self.epochs
                        .push((report.epoch, report.report, report.counts.requests));
                }
                Event::Record(_, Some(crem_ipfix::profile::Profile::Packet), record) => {
                    let (pen, number) = mapping().by_name("rocev2BthPacketSequenceNumber").unwrap();
                    let kind = crem_ipfix::element::DataType::Unsigned32;
                    let psn = record.get(pen, number, kind).unwrap().as_u64().unwrap();
                    self.psns.push(psn);
                }
                _ => {}
            },
        }
    }
}

/// Exporters and a collector in one thread.
pub struct Lab {
    pub exporters: Vec<Exporter>,
    pub collector: Option<Collector>,
    pub told: Told,
    pub events: Vec<(usize, ExporterEvent)>,
}

impl Lab {
    pub fn new(exporters: Vec<Exporter>, collector: Option<Collector>) -> Self {
        Self {
            exporters,
            collector,
            told: Told::default(),
            events: Vec::new(),
        }
    }

    /// Drives everything once, waiting a few milliseconds at most.
    pub fn turn(&mut self) {
        {
            let mut interests: Vec<Interest<'_>> = self
                .exporters
                .iter()
                .filter_map(Exporter::interest)
                .collect();
            if let Some(collector) = &self.collector {
                interests.extend(collector.interests());
            }
            wait(&interests, Duration::from_millis(2)).unwrap();
        }
        let time = now();
        for (place, exporter) in self.exporters.iter_mut().enumerate() {
            exporter.drive(time);
            while let Some(event) = exporter.poll_event() {
                self.events.push((place, event));
            }
        }
        if let Some(collector) = &mut self.collector {
            let told = &mut self.told;
            collector.drive(time, &mut |_, event| told.hear(&event));
        }
    }

    /// Drives until something is so; panics after ten seconds.
    pub fn until(&mut self, what: &str, mut so: impl FnMut(&Self) -> bool) {
        let start = Instant::now();
        while !so(self) {
            self.turn();
            assert!(
                start.elapsed() < Duration::from_secs(10),
                "{what}: {:?}",
                self.events
            );
        }
    }

    pub fn run(&mut self, time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            self.turn();
        }
    }

    pub fn close_collector(&mut self) {
        if let Some(collector) = self.collector.take() {
            let told = &mut self.told;
            collector.close(&mut |_, event| told.hear(&event));
        }
    }
}

pub fn collector(listen: &[crem_ipfix_io::Listen]) -> (Collector, Vec<SocketAddr>) {
    let collector = Collector::new(CollectorConfig::new(mapping()), listen).unwrap();
    let addresses = collector.addresses();
    (collector, addresses)
}

pub fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// A directory for the files of a test.
pub fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

/// A certificate authority in a directory.
pub struct Authority {
    directory: PathBuf,
    file: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new(directory: &Path, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        let certificate = params.self_signed(&key).unwrap();
        let file = directory.join(format!("{name}.pem"));
        std::fs::write(&file, certificate.pem()).unwrap();
        Self {
            directory: directory.to_path_buf(),
            file,
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate for a DNS name, whose holder trusts `trusted`; and its fingerprint.
    pub fn issue(&self, name: &str, trusted: &Authority) -> (TlsFiles, [u8; 32]) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let stem = format!(
            "{name}-{}",
            self.file.file_stem().unwrap().to_string_lossy()
        );
        let files = TlsFiles {
            certificate: self.directory.join(format!("{stem}.crt")),
            key: self.directory.join(format!("{stem}.key")),
            authorities: trusted.file.clone(),
        };
        std::fs::write(&files.certificate, certificate.pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        (files, crem_ipfix_io::fingerprint(certificate.der()))
    }
}
