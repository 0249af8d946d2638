//! A sender and a receiver function with a WAN between them, in one thread, from one seed. Symbols are
//! really coded, restored packets really decoded and compared octet for octet with what was sent.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use crem_core::actions::{Actions, DecodeJob, Decoded, Delivery, Outcome, SlotId, SourceRef};
use crem_core::config::{CoreConfig, Prefix};
use crem_core::crf::Crf;
use crem_core::csf::Csf;
use crem_core::packet::{Desc, Namespace, PsnSpace, StreamKey};
use crem_core::time::{Duration, Instant};
use crem_fec::{
    EncodeJob, Engine, Equation, MIN_PAYLOAD, PositionSet, Row, Scheme, Scratch, Source, Symbol,
};
use crem_wire::crem::{Message, RepairHeader};
use crem_wire::{Bitmap, Psn, Qpn};

pub(crate) type Buf = Rc<Vec<u8>>;
pub(crate) const MS: Duration = Duration::from_millis(1);
/// Octets of the check value at the end of every payload: stands for the ICRC.
const CHECK: usize = 8;
const MAX_T: usize = 4200;
const SLOTS: u32 = 4096;

pub(crate) fn gateway_a() -> SocketAddr {
    SocketAddr::new(IpAddr::from([192, 0, 2, 1]), 50_000)
}

pub(crate) fn gateway_b() -> SocketAddr {
    SocketAddr::new(IpAddr::from([192, 0, 2, 2]), 50_000)
}

/// What the path does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    /// One way.
    pub(crate) delay: Duration,
    /// Up to this is added per datagram, which reorders.
    pub(crate) jitter: Duration,
    /// Loss of sources and REPAIR, per million.
    pub(crate) loss_ppm: u32,
    /// After a loss the next ones are lost with this, per million.
    pub(crate) burst_ppm: u32,
    /// Loss of other messages, both ways, per million.
    pub(crate) control_loss_ppm: u32,
    /// REPAIR symbols with a wrong octet, per million.
    pub(crate) corrupt_ppm: u32,
    /// CE marks on sources and REPAIR, per million.
    pub(crate) ce_ppm: u32,
    /// Nothing passes.
    pub(crate) down: bool,
}

impl Path {
    pub(crate) fn new(rtt_ms: u32, loss_ppm: u32) -> Self {
        Self {
            delay: MS * rtt_ms / 2,
            jitter: Duration::ZERO,
            loss_ppm,
            burst_ppm: 0,
            control_loss_ppm: 0,
            corrupt_ppm: 0,
            ce_ppm: 0,
            down: false,
        }
    }
}

enum Item {
    Source(Desc<Buf>),
    Repair(RepairHeader, Option<Buf>, bool),
    ToB(Message),
    ToA(Message),
}

/// What came of the source packets.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    /// Lost packets delivered from repair.
    pub(crate) restored: u64,
    /// Delivered packets that differ from what was sent.
    pub(crate) wrong: u64,
    /// Packets delivered more often than they arrived and were restored.
    pub(crate) twice: u64,
    /// Packets delivered behind a later one of their flow.
    pub(crate) out_of_order: u64,
    pub(crate) repair: u64,
}

#[derive(Clone)]
struct Record {
    payload: Buf,
    lost: bool,
    delivered: u32,
}

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) path: Path,
    pub(crate) csf: Csf<Buf>,
    pub(crate) crf: Crf<Buf>,
    pub(crate) tally: Tally,
    pub(crate) cfg: CoreConfig,
    /// Code jobs that went on with symbols begun before.
    pub(crate) joined: u64,
    rng: u64,
    in_loss: bool,
    serial: u64,
    queue: BTreeMap<(Instant, u64), Item>,
    out_a: Actions<Buf>,
    out_b: Actions<Buf>,
    slots: Vec<Vec<u8>>,
    engine: Engine,
    scratch: Scratch,
    records: HashMap<(StreamKey, u32), Record>,
    by_check: HashMap<[u8; CHECK], (StreamKey, u32)>,
    highest: HashMap<StreamKey, Psn>,
}

pub(crate) fn config() -> CoreConfig {
    let mut cfg = CoreConfig::new(50_000);
    cfg.allowed_peers = vec![
        Prefix::host(gateway_a().ip()),
        Prefix::host(gateway_b().ip()),
    ];
    cfg
}

pub(crate) fn key(qp: u32) -> StreamKey {
    StreamKey {
        namespace: Namespace(0),
        source: IpAddr::from([10, 0, 1, 1]),
        destination: IpAddr::from([10, 0, 2, 1]),
        qp: Qpn::new(qp),
        space: PsnSpace::Requests,
    }
}

impl World {
    pub(crate) fn new(cfg: CoreConfig, path: Path, seed: u64) -> Self {
        let free_slots = (0..SLOTS).map(SlotId).collect();
        let mut seed_b = [3; 32];
        seed_b[..8].copy_from_slice(&seed.to_le_bytes());
        Self {
            now: Instant(1_000_000_000),
            path,
            csf: Csf::new(cfg.clone(), [seed as u8; 32]),
            crf: Crf::new(cfg.clone(), seed_b),
            tally: Tally::default(),
            cfg,
            joined: 0,
            rng: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            in_loss: false,
            serial: 0,
            queue: BTreeMap::new(),
            out_a: Actions {
                free_slots,
                ..Actions::default()
            },
            out_b: Actions::default(),
            slots: vec![Vec::new(); SLOTS as usize],
            engine: Engine::detect(),
            scratch: Scratch::new(255, MAX_T),
            records: HashMap::new(),
            by_check: HashMap::new(),
            highest: HashMap::new(),
        }
    }

    pub(crate) fn random(&mut self) -> u64 {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        self.rng.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn chance(&mut self, ppm: u32) -> bool {
        self.random() % 1_000_000 < u64::from(ppm)
    }

    // ---- traffic

    /// A packet with `len` octets of random payload.
    pub(crate) fn packet(&mut self, key: StreamKey, psn: u32, len: usize) -> Desc<Buf> {
        let mut payload: Vec<u8> = (0..len.max(MIN_PAYLOAD + CHECK) - CHECK)
            .map(|_| self.random() as u8)
            .collect();
        payload.extend_from_slice(&check(&payload));
        Desc {
            key,
            psn: Psn::new(psn),
            opcode: 0x07,
            payload_len: payload.len() as u16,
            payload_off: 0,
            mtu_seen: None,
            read_length: None,
            ce: false,
            dscp: 26,
            buf: Rc::new(payload),
        }
    }

    /// Packets pass the sender: forwarded first, then observed.
    pub(crate) fn send(&mut self, burst: &[Desc<Buf>]) {
        for packet in burst {
            self.tally.sent += 1;
            let lost = self.loses();
            let record = Record {
                payload: packet.buf.clone(),
                lost,
                delivered: 0,
            };
            self.records.insert((packet.key, packet.psn.get()), record);
            let value = packet
                .buf
                .last_chunk::<CHECK>()
                .copied()
                .unwrap_or_default();
            self.by_check.insert(value, (packet.key, packet.psn.get()));
            self.tally.lost += u64::from(lost);
            if !lost {
                let mut packet = packet.clone();
                packet.ce = self.chance(self.path.ce_ppm);
                self.enqueue(Item::Source(packet));
            }
        }
        self.csf.on_burst(self.now, burst, &mut self.out_a);
        self.drain_a();
    }

    /// The sender's packets `first ..`, one every `gap`, all of `len` octets.
    pub(crate) fn stream(
        &mut self,
        key: StreamKey,
        psns: std::ops::Range<u32>,
        gap: Duration,
        len: usize,
    ) {
        for psn in psns {
            let packet = self.packet(key, psn & 0xff_ffff, len);
            self.send(&[packet]);
            self.wait(gap);
        }
    }

    fn loses(&mut self) -> bool {
        let ppm = if self.in_loss {
            self.path.burst_ppm.max(self.path.loss_ppm)
        } else {
            self.path.loss_ppm
        };
        self.in_loss = self.path.down || self.chance(ppm);
        self.in_loss
    }

    fn enqueue(&mut self, item: Item) {
        let jitter = self.path.jitter.as_nanos() as u64;
        let extra = if jitter == 0 {
            0
        } else {
            self.random() % jitter
        };
        let at = self.now + self.path.delay + Duration::from_nanos(extra);
        self.serial += 1;
        self.queue.insert((at, self.serial), item);
    }

    // ---- time

    pub(crate) fn wait(&mut self, span: Duration) {
        let until = self.now + span;
        loop {
            let arrival = self.queue.keys().next().map(|at| at.0);
            let next = [arrival, self.csf.next_timeout(), self.crf.next_timeout()]
                .into_iter()
                .flatten()
                .min();
            let Some(next) = next.filter(|at| *at <= until) else {
                break;
            };
            self.now = self.now.max(next);
            while let Some(entry) = self.queue.first_entry().filter(|e| e.key().0 <= self.now) {
                let item = entry.remove();
                self.arrive(item);
            }
            if self.csf.next_timeout().is_some_and(|at| at <= self.now) {
                self.csf.on_timeout(self.now, &mut self.out_a);
                self.drain_a();
            }
            if self.crf.next_timeout().is_some_and(|at| at <= self.now) {
                self.crf.on_timeout(self.now, &mut self.out_b);
                self.drain_b();
            }
        }
        self.now = until;
    }

    fn arrive(&mut self, item: Item) {
        match item {
            Item::Source(packet) => self.crf.on_burst(self.now, &[packet], &mut self.out_b),
            Item::Repair(header, symbol, ce) => {
                let symbol = symbol.map(|buf| (buf, 0));
                self.crf
                    .on_repair(self.now, gateway_a(), &header, symbol, ce, &mut self.out_b);
            }
            Item::ToB(message) => {
                if let Message::Hello(hello) = &message {
                    self.csf.peer_alive(gateway_b(), None);
                    assert!(hello.flow.destination == key(0).destination);
                }
                let csf = &self.csf;
                let usable = |id| !csf.uses(gateway_a(), id);
                self.crf
                    .on_message(self.now, gateway_a(), &message, &usable, &mut self.out_b);
            }
            Item::ToA(message) => {
                self.csf
                    .on_message(self.now, gateway_b(), &message, false, &mut self.out_a);
                self.drain_a();
            }
        }
        self.drain_b();
    }

    // ---- the sender's data plane

    fn drain_a(&mut self) {
        let out = std::mem::take(&mut self.out_a);
        for job in &out.code {
            self.joined += u64::from(!job.first);
            let sources = &out.sources[job.sources.start as usize..job.sources.end as usize];
            let rows = &out.rows[job.rows.start as usize..job.rows.end as usize];
            let sources: Vec<_> = sources.iter().map(|s| source(s)).collect();
            for row in rows {
                let mut symbol = std::mem::take(&mut self.slots[row.slot.0 as usize]);
                symbol.resize(job.t.into(), 0);
                let mut target = [Row {
                    index: row.index,
                    symbol: &mut symbol,
                }];
                let scheme = Scheme::from_number(job.scheme).expect("a scheme");
                let encode =
                    EncodeJob::new(scheme, &mut target, &sources, job.first).expect("a valid job");
                self.engine.encode(&mut [encode]);
                self.slots[row.slot.0 as usize] = symbol;
            }
        }
        for emit in &out.emit {
            assert_eq!(emit.to, gateway_b());
            self.tally.repair += 1;
            let symbol = emit.slot.map(|slot| self.slots[slot.0 as usize].clone());
            if self.loses() {
                continue;
            }
            let ce = self.chance(self.path.ce_ppm);
            let symbol = symbol.map(|octets| Rc::new(self.maybe_corrupt(octets)));
            self.enqueue(Item::Repair(emit.header, symbol, ce));
        }
        let mut out = out;
        out.free_slots
            .extend(out.emit.iter().filter_map(|e| e.slot));
        out.clear();
        self.out_a = out;
        while let Some(transmit) = self.csf.poll_transmit() {
            if !self.path.down && !self.chance(self.path.control_loss_ppm) {
                self.enqueue(Item::ToB(transmit.message));
            }
        }
    }

    fn maybe_corrupt(&mut self, mut octets: Vec<u8>) -> Vec<u8> {
        if self.chance(self.path.corrupt_ppm) {
            let at = self.random() as usize % octets.len();
            octets[at] ^= 0x40;
        }
        octets
    }

    // ---- the receiver's data plane

    fn drain_b(&mut self) {
        let mut next = 0;
        while let Some(job) = self.out_b.decode.get(next).cloned() {
            let mut decoded = self.decode(&job);
            self.crf.on_decoded(self.now, &mut decoded, &mut self.out_b);
            next += 1;
        }
        let delivered: Vec<_> = self.out_b.deliver.drain(..).collect();
        self.out_b.clear();
        for (how, buf) in delivered {
            self.delivered(how, &buf);
        }
        while let Some(transmit) = self.crf.poll_transmit() {
            assert_eq!(transmit.to, gateway_a());
            if !self.path.down && !self.chance(self.path.control_loss_ppm) {
                self.enqueue(Item::ToA(transmit.message));
            }
        }
    }

    fn decode(&mut self, job: &DecodeJob) -> Decoded<Buf> {
        let out = &self.out_b;
        let sources = &out.sources[job.sources.start as usize..job.sources.end as usize];
        let sources: Vec<_> = sources.iter().map(|s| source(s)).collect();
        let symbols = &out.symbols[job.symbols.start as usize..job.symbols.end as usize];
        let symbols: Vec<_> = symbols
            .iter()
            .map(|s| Symbol {
                equation: Equation {
                    scheme: Scheme::from_number(s.scheme).expect("a scheme"),
                    index: s.index,
                    set: PositionSet::from_words(s.set.words()),
                },
                octets: s.buf[usize::from(s.off)..usize::from(s.off) + usize::from(job.t)].into(),
            })
            .collect();
        let unknowns = &out.unknowns[job.unknowns.start as usize..job.unknowns.end as usize];
        let wanted: Bitmap = unknowns.iter().map(|u| u.position).collect();
        let solve = crem_fec::DecodeJob {
            t: job.t.into(),
            min_payload: MIN_PAYLOAD,
            sources: &sources,
            symbols: &symbols,
            unknown: PositionSet::from_words(wanted.words()),
        };
        let solved = self
            .engine
            .decode(&solve, &mut self.scratch)
            .expect("a valid job");
        let found: HashMap<_, _> = solved.outcomes().collect();
        let outcomes = unknowns
            .iter()
            .map(|u| (u.position, outcome(found.get(&u.position), u)))
            .collect();
        Decoded {
            id: job.id,
            outcomes,
            corrupt_sources: Bitmap::EMPTY,
        }
    }

    fn delivered(&mut self, how: Delivery, buf: &Buf) {
        let value = buf.last_chunk::<CHECK>().copied().unwrap_or_default();
        let known = self.by_check.get(&value).copied();
        let found = known.and_then(|key| Some((key, self.records.get_mut(&key)?)));
        let Some((found, record)) = found.filter(|(_, record)| record.payload == *buf) else {
            self.tally.wrong += 1;
            return;
        };
        record.delivered += 1;
        if how == Delivery::Restored && record.lost && record.delivered == 1 {
            self.tally.restored += 1;
        }
        self.tally.twice += u64::from(record.lost && record.delivered > 1);
        let psn = Psn::new(found.1);
        let highest = self.highest.entry(found.0).or_insert(psn);
        if highest.is_after(psn) {
            self.tally.out_of_order += 1;
        } else {
            *highest = psn;
        }
    }
}

/// Restores need the check value right and a packet to take headers from.
fn outcome(
    found: Option<&crem_fec::Outcome<'_>>,
    unknown: &crem_core::actions::Unknown<Buf>,
) -> Outcome<Buf> {
    match found {
        Some(crem_fec::Outcome::Restored(payload)) => {
            let (body, value) = payload.split_at(payload.len() - CHECK);
            if check(body) != value {
                Outcome::Corrupt
            } else if unknown.before.is_none() && unknown.after.is_none() {
                Outcome::NoNeighbour
            } else {
                let payload_len = payload.len() as u16;
                Outcome::Restored {
                    buf: Rc::new(payload.to_vec()),
                    payload_off: 0,
                    payload_len,
                }
            }
        }
        Some(crem_fec::Outcome::BadSymbol) => Outcome::Corrupt,
        _ => Outcome::Undetermined,
    }
}

fn source(source: &SourceRef<Buf>) -> Source<'_> {
    let (off, len) = (usize::from(source.off), usize::from(source.len));
    Source {
        position: source.position,
        payload: source.buf[off..off + len].into(),
    }
}

fn check(octets: &[u8]) -> [u8; CHECK] {
    let hash = octets.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, b| {
        (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3)
    });
    hash.to_le_bytes()
}
