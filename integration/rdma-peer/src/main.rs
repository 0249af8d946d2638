//! `rdma-peer`: one end of a software reliable connection on an interface. Only flags, the socket and
//! the clock live here.
#![forbid(unsafe_code)]

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use crem_rawsock::{
    Options, RawSock, RecvBatch, StopFlag, precise_timers, sleep_ns, wait_readable,
};
use crem_rdma_peer::{
    Endpoint, Fleet, Machine, Operation, Reader, Report, Requester, Responder, Transfer, Tuning,
    pace::Pacer,
};
use crem_wire::frame::{Mac, Tag, Tags};
use crem_wire::{Psn, Qpn};

/// Frames a receive or send call.
const BATCH: usize = 64;
/// Longest frame.
const FRAME: usize = 9_600;
/// Longest wait, to see the stop flag.
const IDLE_NS: u64 = 50_000_000;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Role {
    Requester,
    Responder,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Op {
    Write,
    Send,
    Read,
}

/// One end of a software RoCEv2 reliable connection.
#[derive(Parser)]
struct Arguments {
    /// Which end.
    #[arg(long)]
    role: Role,
    /// Interface to use.
    #[arg(long)]
    interface: String,
    /// Own IP address.
    #[arg(long)]
    local_ip: IpAddr,
    /// The peer's IP address.
    #[arg(long)]
    peer_ip: IpAddr,
    /// The peer's Ethernet address.
    #[arg(long, value_parser = parse_mac)]
    peer_mac: Mac,
    /// VLAN ID of every frame sent.
    #[arg(long)]
    vlan: Option<u16>,
    /// Tag of every frame sent as TPID and VLAN ID, such as 88a8:100; twice for two, the outer one first.
    #[arg(long = "tag", value_name = "TPID:VID", value_parser = parse_tag, conflicts_with = "vlan")]
    tags: Vec<Tag>,
    /// Own queue pair.
    #[arg(long, default_value_t = 0x11)]
    local_qp: u32,
    /// The peer's queue pair.
    #[arg(long, default_value_t = 0x11)]
    peer_qp: u32,
    /// Queue pairs from these on, all of them at once; UDP source ports and seeds count up with them.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    queue_pairs: u32,
    /// UDP source port.
    #[arg(long, default_value_t = 0xc011)]
    udp_source: u16,
    /// Packets after which the UDP source port changes; never without it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    udp_source_lasts: Option<u32>,
    /// TOS or traffic class of data; 2 is ECT(0).
    #[arg(long, default_value_t = 2)]
    tos: u8,
    /// Operation.
    #[arg(long, default_value = "write")]
    operation: Op,
    /// Path MTU: RDMA payload octets a packet.
    #[arg(long, default_value_t = 1024, value_parser = parse_mtu)]
    mtu: u16,
    /// Octets a message.
    #[arg(long, default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=0x7fff_ffff))]
    message: u32,
    /// Messages to move.
    #[arg(long)]
    messages: Option<u64>,
    /// Seconds in which messages start, if no count is given.
    #[arg(long, default_value_t = 10.0)]
    duration: f64,
    /// First PSN.
    #[arg(long, default_value_t = 0x00ff_ff00)]
    start_psn: u32,
    /// Seed of the data.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Sending rate in Mbit/s on the wire; 0 is unlimited.
    #[arg(long, default_value_t = 100)]
    rate_mbit: u64,
    /// Round-trip time in microseconds, for window and timeout; without it the timeout is measured.
    #[arg(long)]
    rtt_us: Option<u64>,
    /// Packets under way; without it twice what rate and round-trip time hold.
    #[arg(long)]
    window: Option<u64>,
    /// AckReq on every so many packets, beside the last of a message.
    #[arg(long, default_value_t = 16)]
    ack_every: u64,
    /// Resend single packets (both ends; a dialect of our own).
    #[arg(long)]
    selective_repeat: bool,
    /// Neither send nor heed congestion notifications.
    #[arg(long)]
    no_cnp: bool,
    /// Shortest sleep in microseconds: precision against processor time.
    #[arg(long, default_value_t = 100)]
    quantum_us: u64,
    /// Where to write the JSON report, beside standard output.
    #[arg(long)]
    report: Option<PathBuf>,
}

fn parse_mac(text: &str) -> Result<Mac, String> {
    let octets: Vec<u8> = text
        .split(':')
        .map(|part| u8::from_str_radix(part, 16))
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    <[u8; 6]>::try_from(octets)
        .map(Mac)
        .map_err(|_| "expected six octets".to_owned())
}

fn parse_tag(text: &str) -> Result<Tag, String> {
    let expected =
        || "expected a TPID in hexadecimal, a colon, and a VLAN ID of 0 to 4094".to_owned();
    let (tpid, vid) = text.split_once(':').ok_or_else(expected)?;
    let tpid = u16::from_str_radix(tpid, 16).map_err(|_| expected())?;
    match vid.parse() {
        Ok(tci @ 0..=4094) => Ok(Tag { tpid, tci }),
        _ => Err(expected()),
    }
}

fn parse_mtu(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(mtu @ (256 | 512 | 1024 | 2048 | 4096)) => Ok(mtu),
        _ => Err("expected 256, 512, 1024, 2048 or 4096".to_owned()),
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rdma-peer: {error}");
            ExitCode::from(2)
        }
    }
}

type Failure = Box<dyn std::error::Error>;

fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.local_ip.is_ipv4() != arguments.peer_ip.is_ipv4() {
        return Err("local and peer address are of different families".into());
    }
    let stop = StopFlag::install()?;
    precise_timers();
    let sock = RawSock::open(&arguments.interface, Options::default())?;
    let machine = machine(arguments, Mac(sock.mac()))?;
    let quantum = arguments.quantum_us * 1_000;
    let mut end = End::new(sock, machine, quantum);
    println!("ready");
    // The responder stays: its last acknowledgment may be lost.
    let serve = arguments.role == Role::Responder;
    while !stop.is_set() && (serve || !end.machine.done()) {
        end.turn()?;
    }
    let report = serde_json::to_string(&end.report())?;
    println!("{report}");
    if let Some(path) = &arguments.report {
        std::fs::write(path, report)?;
    }
    Ok(())
}

/// One queue pair, or all of them.
fn machine(arguments: &Arguments, local_mac: Mac) -> Result<Box<dyn Machine>, Failure> {
    if arguments.queue_pairs == 1 {
        return queue_pair(arguments, local_mac, 0, arguments.rate_mbit);
    }
    let all = (0..arguments.queue_pairs).map(|number| queue_pair(arguments, local_mac, number, 0));
    let rate = match arguments.role {
        Role::Requester => arguments.rate_mbit,
        // It answers.
        Role::Responder => 0,
    };
    let pacer = Pacer::new(rate, tuning(arguments, rate).burst_ns, 1);
    let first = Qpn::new(arguments.local_qp);
    let all: Result<Vec<_>, Failure> = all.collect();
    Ok(Box::new(Fleet::new(all?, first, pacer)))
}

/// The queue pair of a number, at a rate of its own.
fn queue_pair(
    arguments: &Arguments,
    local_mac: Mac,
    number: u32,
    rate: u64,
) -> Result<Box<dyn Machine>, Failure> {
    let mut tags = Tags::NONE;
    if let Some(vlan) = arguments.vlan {
        tags.push(Tag::vlan(vlan));
    }
    if !arguments.tags.iter().all(|tag| tags.push(*tag)) {
        return Err("more than two tags".into());
    }
    let endpoint = Endpoint {
        local_mac,
        peer_mac: arguments.peer_mac,
        tags,
        local_ip: arguments.local_ip,
        peer_ip: arguments.peer_ip,
        udp_source: arguments.udp_source.wrapping_add(number as u16),
        udp_source_lasts: arguments.udp_source_lasts,
        local_qp: Qpn::new(arguments.local_qp + number),
        peer_qp: Qpn::new(arguments.peer_qp + number),
        tos: arguments.tos,
    };
    let mut transfer = transfer(arguments);
    transfer.seed += u64::from(number);
    let tuning = tuning(arguments, rate);
    Ok(match (arguments.role, transfer.operation) {
        (Role::Responder, _) => Box::new(Responder::new(endpoint, transfer, tuning)),
        (Role::Requester, Operation::Read) => Box::new(Reader::new(endpoint, transfer, tuning)),
        (Role::Requester, _) => Box::new(Requester::new(endpoint, transfer, tuning)),
    })
}

fn transfer(arguments: &Arguments) -> Transfer {
    Transfer {
        operation: match arguments.operation {
            Op::Write => Operation::Write,
            Op::Send => Operation::Send,
            Op::Read => Operation::Read,
        },
        mtu: arguments.mtu,
        message_octets: arguments.message,
        messages: arguments.messages,
        duration_ns: (arguments.duration * 1e9) as u64,
        start_psn: Psn::new(arguments.start_psn),
        seed: arguments.seed,
    }
}

fn tuning(arguments: &Arguments, rate_mbit: u64) -> Tuning {
    let rtt_ns = arguments.rtt_us.map(|us| us * 1_000);
    // Mbit/s times microseconds are bits; the floor keeps a short path busy.
    let in_rtt = rate_mbit * arguments.rtt_us.unwrap_or(20_000) / 8;
    let bandwidth_delay = in_rtt / u64::from(arguments.mtu);
    Tuning {
        rate_mbit,
        window: arguments
            .window
            .unwrap_or_else(|| (2 * bandwidth_delay).max(128)),
        rtt_ns,
        ack_every: arguments.ack_every,
        burst_ns: (5 * arguments.quantum_us * 1_000).max(500_000),
        selective_repeat: arguments.selective_repeat,
        react_to_cnp: !arguments.no_cnp,
    }
}

/// A machine on its socket.
struct End {
    sock: RawSock,
    machine: Box<dyn Machine>,
    batch: RecvBatch,
    out: Vec<Vec<u8>>,
    used: usize,
    start: Instant,
    quantum: u64,
    refused: u64,
}

impl End {
    fn new(sock: RawSock, machine: Box<dyn Machine>, quantum: u64) -> Self {
        Self {
            sock,
            machine,
            batch: RecvBatch::new(BATCH, FRAME),
            out: vec![Vec::new(); BATCH],
            used: 0,
            start: Instant::now(),
            quantum,
            refused: 0,
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn turn(&mut self) -> Result<(), Failure> {
        let received = self.take_in()?;
        let now = self.now();
        self.machine.on_timeout(now);
        self.send(now)?;
        let wait = self
            .machine
            .next_wake()
            .map_or(IDLE_NS, |at| at.saturating_sub(self.now()));
        if received {
            // A stream is coming in: let some more gather.
            sleep_ns(wait.clamp(1_000, self.quantum.max(1_000)));
        } else if wait > 0 {
            wait_readable([self.sock.as_fd()], Some(wait.clamp(self.quantum, IDLE_NS)))?;
        }
        Ok(())
    }

    fn take_in(&mut self) -> Result<bool, Failure> {
        let now = self.now();
        let mut any = false;
        loop {
            let machine = &mut self.machine;
            let more = self.sock.recv(&mut self.batch, |frame| {
                any = true;
                machine.on_frame(now, frame.octets);
            })?;
            if !more {
                return Ok(any);
            }
        }
    }

    fn send(&mut self, now: u64) -> Result<(), Failure> {
        loop {
            self.used = 0;
            while let Some(place) = self.out.get_mut(self.used) {
                if !self.machine.poll_transmit(now, place) {
                    break;
                }
                self.used += 1;
            }
            let filled = self.out.get(..self.used).unwrap_or_default();
            if filled.is_empty() {
                return Ok(());
            }
            self.refused += self.sock.send(filled)?.refused;
            if self.used < BATCH {
                return Ok(());
            }
        }
    }

    fn report(&self) -> Report {
        let mut report = self.machine.report(self.now());
        report.kernel_drops = self.sock.kernel_drops();
        report.send_refused = self.refused;
        report
    }
}
