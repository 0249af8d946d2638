//! `wan`: joins two interfaces through an [`Impairer`]. Only input and output live here.
#![forbid(unsafe_code)]

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use crem_rawsock::{
    Options, RawSock, RecvBatch, StopFlag, precise_timers, sleep_ns, wait_readable,
};
use crem_wan::{Config, Impairer, Report, Side};

/// Frames a receive call.
const BATCH: usize = 64;
/// Longest frame.
const FRAME: usize = 9_600;
/// How often the loop runs while frames are under way: the precision of the delay.
const GRANULARITY_NS: u64 = 100_000;
/// Longest wait when nothing is under way, to see the stop flag.
const IDLE_NS: u64 = 50_000_000;

/// Joins two Ethernet interfaces and impairs what passes between them.
#[derive(Parser)]
struct Arguments {
    /// Interface of side A.
    #[arg(long)]
    a: String,
    /// Interface of side B.
    #[arg(long)]
    b: String,
    /// JSON document of the link; without it frames pass unchanged.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Where to write the JSON report at the end, beside standard output.
    #[arg(long)]
    report: Option<PathBuf>,
    /// Where to write one line for every frame lost, dropped or corrupted.
    #[arg(long)]
    log: Option<PathBuf>,
    /// Seconds to run; without it until SIGTERM or SIGINT.
    #[arg(long)]
    duration: Option<f64>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wan: {error}");
            ExitCode::from(2)
        }
    }
}

type Failure = Box<dyn std::error::Error>;

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let config = read_config(arguments)?;
    let stop = StopFlag::install()?;
    precise_timers();
    let mut link = Link::open(arguments, &config)?;
    println!("ready");
    let end = arguments.duration.map(Duration::from_secs_f64);
    while !stop.is_set() && end.is_none_or(|end| link.start.elapsed() < end) {
        link.turn()?;
    }
    let report = serde_json::to_string(&link.report())?;
    println!("{report}");
    if let Some(path) = &arguments.report {
        std::fs::write(path, report)?;
    }
    if let Some(path) = &arguments.log {
        let lines: String = link
            .impairer
            .log()
            .iter()
            .map(|e| e.line() + "\n")
            .collect();
        std::fs::write(path, lines)?;
    }
    Ok(())
}

fn read_config(arguments: &Arguments) -> Result<Config, Failure> {
    let config: Config = match &arguments.config {
        Some(path) => serde_json::from_str(&std::fs::read_to_string(path)?)
            .map_err(|error| format!("{}: {error}", path.display()))?,
        None => Config::default(),
    };
    let problems = config.problems();
    if problems.is_empty() {
        Ok(config)
    } else {
        Err(problems.join("; ").into())
    }
}

/// The two sockets around the impairer.
struct Link {
    impairer: Impairer,
    a: RawSock,
    b: RawSock,
    batch: RecvBatch,
    out: Vec<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    start: Instant,
    /// Frames the kernel would not send: toward A, toward B.
    refused: [u64; 2],
}

impl Link {
    fn open(arguments: &Arguments, config: &Config) -> Result<Self, Failure> {
        Ok(Self {
            impairer: Impairer::new(config),
            a: RawSock::open(&arguments.a, Options::default())?,
            b: RawSock::open(&arguments.b, Options::default())?,
            batch: RecvBatch::new(BATCH, FRAME),
            out: Vec::new(),
            spare: Vec::new(),
            start: Instant::now(),
            refused: [0; 2],
        })
    }

    /// Waits, takes what arrived, sends what is due.
    fn turn(&mut self) -> Result<(), Failure> {
        let wait = match self.impairer.next_due() {
            // While frames are under way more are about to come: one sleep for all of them.
            Some(due) => {
                sleep_ns(due.saturating_sub(self.now()).clamp(1_000, GRANULARITY_NS));
                0
            }
            None => IDLE_NS,
        };
        let [a, b] = wait_readable([self.a.as_fd(), self.b.as_fd()], Some(wait))?;
        if a {
            self.take_in(Side::A)?;
        }
        if b {
            self.take_in(Side::B)?;
        }
        self.send_due(Side::A)?;
        self.send_due(Side::B)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn take_in(&mut self, side: Side) -> Result<(), Failure> {
        loop {
            let now = self.now();
            let (impairer, spare) = (&mut self.impairer, &mut self.spare);
            let sock = if side == Side::A {
                &mut self.a
            } else {
                &mut self.b
            };
            let more = sock.recv(&mut self.batch, |frame| {
                let mut buffer = spare.pop().unwrap_or_default();
                buffer.clear();
                buffer.extend_from_slice(frame.octets);
                spare.extend(impairer.offer(now, side, buffer));
            })?;
            if !more {
                return Ok(());
            }
        }
    }

    fn send_due(&mut self, side: Side) -> Result<(), Failure> {
        self.impairer.take_due(self.now(), side, &mut self.out);
        if self.out.is_empty() {
            return Ok(());
        }
        let (sock, [to_a, to_b]) = (
            if side == Side::A {
                &mut self.a
            } else {
                &mut self.b
            },
            &mut self.refused,
        );
        let sent = sock.send(&self.out)?;
        *(if side == Side::A { to_a } else { to_b }) += sent.refused;
        self.spare.append(&mut self.out);
        Ok(())
    }

    fn report(&self) -> Report {
        let mut report = self.impairer.report();
        let [to_a, to_b] = self.refused;
        report.a_to_b.kernel_drops = self.a.kernel_drops();
        report.a_to_b.send_refused = to_b;
        report.b_to_a.kernel_drops = self.b.kernel_drops();
        report.b_to_a.send_refused = to_a;
        report
    }
}
