//! `ipfix-replay --to DESTINATION [options] CAPTURE…`: meters every frame of captures as an Observation
//! Point of the gateway does, and exports packet records, aggregate flows and sequence reports to one
//! collector. Prints what it exported as one line of JSON. Exit status: 0 all was sent, 1 not all,
//! 2 wrong use, 3 no session.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use crem_integration::pcap::Capture;
use crem_ipfix::element::Mapping;
use crem_ipfix::profile::QpOctets;
use crem_ipfix::session::{
    FlowProfile, PacketProfile, SelectionSequence, SequenceProfile, SessionConfig, Transport,
    datagram_size,
};
use crem_ipfix_io::{
    Authorised, Destination, Exporter, ExporterConfig, ExporterEvent, Interest, TlsFiles, wait,
};
use crem_meter::flow::{FlowConfig, FlowRecord};
use crem_meter::point::Place;
use crem_meter::scope::{Scope, Scopes};
use crem_meter::select::Selection;
use crem_meter::seq::{ObserverConfig, Provision, SequenceRecord, Statement};
use crem_meter::{
    Encapsulation, Meter, PacketConfig, PacketRecord, PointConfig, Prefix, Sink, Utc,
};
use crem_wire::frame::{ParseConfig, parse};
use serde_json::json;

#[derive(Parser)]
#[command(about = "Meters captures and exports the records to one collector")]
struct Arguments {
    /// file:PATH, tcp:ADDRESS, udp:ADDRESS or tls:ADDRESS.
    #[arg(long)]
    to: String,
    /// For TLS: DNS name of the collector.
    #[arg(long, default_value = "collector.lab.test")]
    name: String,
    /// For TLS: our certificate.
    #[arg(long, default_value = "exporter.crt")]
    certificate: PathBuf,
    /// For TLS: its key.
    #[arg(long, default_value = "exporter.key")]
    key: PathBuf,
    /// For TLS: the authority of the collector's certificate.
    #[arg(long, default_value = "ca.crt")]
    authority: PathBuf,
    /// Which records: any of p (packets), f (flows), s (sequence).
    #[arg(long, default_value = "pfs")]
    records: String,
    /// One in so many packets is selected; 1 selects all, without a Selection Process.
    #[arg(long, default_value_t = 1)]
    one_in: u32,
    /// Octets of destination QP and PSN in the BTH profiles, 3 or 4.
    #[arg(long, default_value_t = 3)]
    qp_octets: u8,
    /// Private Enterprise Number; the default is the one for documentation.
    #[arg(long, default_value_t = 32473)]
    pen: u32,
    /// Captures, pcap or pcap.gz.
    #[arg(required = true)]
    captures: Vec<PathBuf>,
}

/// Point, Observation Domain and Selection Sequence.
const POINT: u64 = 12;
const DOMAIN: u32 = 7;
const SELECTION: u64 = 9001;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("ipfix-replay: {error}");
            ExitCode::from(2)
        }
    }
}

type Failure = Box<dyn std::error::Error>;

fn now() -> Utc {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Utc(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let captures = arguments
        .captures
        .iter()
        .map(|path| Capture::read(path).map_err(|error| format!("{}: {error}", path.display())))
        .collect::<Result<Vec<_>, _>>()?;
    let mut replay = Replay::new(arguments)?;
    if !replay.connect()? {
        replay.report();
        return Ok(3);
    }
    for capture in &captures {
        for frame in capture.frames() {
            replay.frame(frame)?;
        }
    }
    let complete = replay.finish()?;
    replay.report();
    Ok(u8::from(!complete))
}

/// Records of each kind that the meters made.
#[derive(Default)]
struct Made {
    packets: u64,
    flows: u64,
    reports: u64,
    refused: u64,
}

/// Hands records to the exporter.
struct ToExporter<'a> {
    exporter: &'a mut Exporter,
    made: &'a mut Made,
    now: Utc,
}

impl ToExporter<'_> {
    fn count(&mut self, taken: bool) -> bool {
        self.made.refused += u64::from(!taken);
        taken
    }
}

impl Sink for ToExporter<'_> {
    fn packet(&mut self, record: &PacketRecord) -> bool {
        self.made.packets += 1;
        let taken = self.exporter.packet(self.now, record);
        self.count(taken)
    }

    fn flow(&mut self, place: Place, record: &FlowRecord) -> bool {
        self.made.flows += 1;
        let taken = self
            .exporter
            .flow(self.now, place.is_after_repair(), record);
        self.count(taken)
    }

    fn sequence(&mut self, record: &SequenceRecord) -> bool {
        self.made.reports += 1;
        let taken = self.exporter.sequence(self.now, record);
        self.count(taken)
    }
}

struct Replay {
    meter: Meter,
    exporter: Exporter,
    made: Made,
    events: Vec<String>,
    /// Times of frames never go back, whatever the clock does.
    last: Utc,
    frames: u64,
}

impl Replay {
    fn new(arguments: &Arguments) -> Result<Self, Failure> {
        let has = |kind| arguments.records.contains(kind);
        let meter = meter(arguments, has('p'), has('f'), has('s'))?;
        let mut config = ExporterConfig::new(
            destination(arguments)?,
            Arc::new(session(arguments, has('p'), has('f'), has('s'))?),
        );
        config.queue = 64 << 20;
        config.flush = Duration::from_millis(50);
        Ok(Self {
            meter,
            exporter: Exporter::new(config)?,
            made: Made::default(),
            events: Vec::new(),
            last: Utc(0),
            frames: 0,
        })
    }

    /// Lets the exporter work, waiting a little for its socket.
    fn turn(&mut self) -> Result<(), Failure> {
        let interests: Vec<Interest<'_>> = self.exporter.interest().into_iter().collect();
        wait(&interests, Duration::from_millis(5))?;
        self.drive();
        Ok(())
    }

    fn drive(&mut self) {
        self.exporter.drive(now());
        while let Some(event) = self.exporter.poll_event() {
            match &event {
                ExporterEvent::Began(session) => {
                    for observer in self.meter.collector(0) {
                        observer.begin_session(*session);
                    }
                    self.events.push("began".to_owned());
                }
                ExporterEvent::Ended(_, reason) => self.events.push(format!("ended: {reason}")),
                ExporterEvent::Failed(reason) => self.events.push(format!("failed: {reason}")),
            }
        }
    }

    /// Waits for a session; `false` if the first attempt fails.
    fn connect(&mut self) -> Result<bool, Failure> {
        let start = Instant::now();
        while self.events.is_empty() && start.elapsed() < Duration::from_secs(15) {
            self.turn()?;
        }
        Ok(self.exporter.session().is_some())
    }

    fn frame(&mut self, frame: &[u8]) -> Result<(), Failure> {
        let time = Utc(now().0.max(self.last.0 + 1));
        self.last = time;
        let parsed = parse(frame, &ParseConfig::default());
        let mut sink = ToExporter {
            exporter: &mut self.exporter,
            made: &mut self.made,
            now: time,
        };
        self.meter
            .observe(Place::LanIngress, time, frame, &parsed, &mut sink);
        self.frames += 1;
        if self.frames.is_multiple_of(64) {
            self.drive();
            // Datagrams have no flow control: their reader gets a moment.
            while self.exporter.queued() > 16 << 20 {
                self.turn()?;
            }
        }
        Ok(())
    }

    /// Exports what is open, and sends everything.
    fn finish(&mut self) -> Result<bool, Failure> {
        let mut sink = ToExporter {
            exporter: &mut self.exporter,
            made: &mut self.made,
            now: self.last,
        };
        self.meter.flush(&mut sink);
        if let Some((sequence, stats)) = self
            .meter
            .packets(Place::LanIngress)
            .and_then(|packets| packets.selection())
        {
            self.exporter.set_selection(sequence, stats);
        }
        let start = Instant::now();
        // The open message leaves after its time.
        while start.elapsed() < Duration::from_millis(200)
            || (self.exporter.queued() > 0 && start.elapsed() < Duration::from_secs(20))
        {
            self.turn()?;
        }
        self.exporter.close(now());
        self.drive();
        let made = &self.made;
        let all = made.packets + made.flows + made.reports;
        Ok(made.refused == 0 && self.exporter.counters().records == all)
    }

    fn report(&self) {
        let counters = self.exporter.counters();
        println!(
            "{}",
            json!({
                "frames": self.frames,
                "packets": self.made.packets,
                "flows": self.made.flows,
                "reports": self.made.reports,
                "sent_records": counters.records,
                "sent_messages": counters.messages,
                "not_authorised": counters.not_authorised,
                "events": self.events,
            })
        );
    }
}

fn destination(arguments: &Arguments) -> Result<Destination, Failure> {
    let (kind, rest) = arguments
        .to
        .split_once(':')
        .ok_or("--to: expected KIND:REST")?;
    let address = || rest.parse::<SocketAddr>();
    Ok(match kind {
        "file" => Destination::File(rest.into()),
        "tcp" => Destination::Tcp(address()?),
        "udp" => Destination::Udp(address()?),
        "tls" => {
            let files = TlsFiles {
                certificate: arguments.certificate.clone(),
                key: arguments.key.clone(),
                authorities: arguments.authority.clone(),
            };
            let authorised = Authorised {
                names: vec![arguments.name.clone()],
                fingerprints: Vec::new(),
            };
            Destination::Tls {
                address: address()?,
                name: arguments.name.clone(),
                config: files.exporter(&authorised)?,
            }
        }
        _ => return Err("--to: expected file, tcp, udp or tls".into()),
    })
}

fn selection(arguments: &Arguments) -> Selection {
    match arguments.one_in {
        0 | 1 => Selection::All,
        n => Selection::Count {
            interval: 1,
            space: n - 1,
        },
    }
}

fn session(
    arguments: &Arguments,
    packets: bool,
    flows: bool,
    sequence: bool,
) -> Result<SessionConfig, Failure> {
    let datagrams = arguments.to.starts_with("udp:");
    let selection = selection(arguments);
    Ok(SessionConfig {
        domain: DOMAIN,
        transport: if datagrams {
            Transport::Datagram {
                max_message: datagram_size(Some(1500), false),
                refresh: Duration::from_secs(600),
            }
        } else {
            Transport::Stream { max_message: 1400 }
        },
        mapping: Arc::new(Mapping::consecutive(arguments.pen, 1)?),
        qp: match arguments.qp_octets {
            3 => QpOctets::Three,
            4 => QpOctets::Four,
            _ => return Err("--qp-octets: expected 3 or 4".into()),
        },
        packets: packets.then(|| PacketProfile {
            unselected: !selection.is_active(),
            selections: selection
                .is_active()
                .then_some(SelectionSequence {
                    id: SELECTION,
                    point: POINT,
                    selection,
                })
                .into_iter()
                .collect(),
            time_error: 1000.0,
        }),
        flows: flows.then_some(FlowProfile {
            opcode: false,
            before: true,
            after: false,
            active_timeout: 60,
            idle_timeout: 15,
        }),
        sequence: (sequence && !datagrams).then_some(SequenceProfile {
            namespaces: true,
            contexts: 1024,
        }),
        metering_process: 1,
        exporting_process: 1,
    })
}

fn meter(
    arguments: &Arguments,
    packets: bool,
    flows: bool,
    sequence: bool,
) -> Result<Meter, Failure> {
    let all = |text: &str| text.parse::<Prefix>();
    let mut scopes = Vec::new();
    let mut provisions = Vec::new();
    for prefix in [all("0.0.0.0/0")?, all("::/0")?] {
        scopes.push(Scope {
            source: prefix,
            destination: prefix,
            encapsulation: Encapsulation::AnyTags,
        });
        provisions.push(Provision {
            source: prefix,
            destination: prefix,
            qp: None,
            pkey: None,
            context: None,
            window: 4096,
            generation: None,
            statement: Statement {
                only_send_and_write: true,
                complete_and_unambiguous: true,
                packets_per_second: 1_000_000,
                longest_retry: Duration::from_secs(4),
            },
        });
    }
    let point = PointConfig {
        place: Place::LanIngress,
        base: POINT,
        packets: packets.then(|| PacketConfig {
            selection: selection(arguments),
            selection_sequence: SELECTION,
            rate_limit: None,
            seed: 1,
        }),
        flows: flows.then(FlowConfig::default),
        sequences: if sequence && !arguments.to.starts_with("udp:") {
            vec![(ObserverConfig::default(), provisions)]
        } else {
            Vec::new()
        },
    };
    let scopes = Scopes::new(scopes).ok_or("too many scopes")?;
    Ok(Meter::new(scopes, &[point], 0, 1 << 30)?)
}
