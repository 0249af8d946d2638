//! The account of one pair of sender and receiver function, in one direction: what they said to each
//! other, and the rules that connect one message with those before it.

use std::collections::{HashMap, HashSet};

use super::Violations;
use super::answers::Answers;
use super::rates::{Allowed, Ordinary, Sources, Volume};
use crate::wire::{Form, Repair, Seen};
use crate::{Duration, Instant};

/// Attempts of HELLO and PARAM_UPDATE.
const ATTEMPTS: u32 = 8;

/// A configuration that was sent.
#[derive(Clone, Copy, Debug)]
struct Config {
    scheme: u8,
    k: u8,
    m: u8,
    t: u16,
    sent: u32,
    accepted: bool,
}

/// A flow that got its Flow ID.
struct Flow {
    stream: usize,
    configs: HashMap<u8, Config>,
    last: Option<u8>,
    changed: Option<Instant>,
    in_force: bool,
    ordinary: Option<Ordinary>,
    volume: Volume,
    answers: Answers,
}

/// A HELLO that is out.
struct Offer {
    stream: usize,
    said: Seen,
    sent: u32,
    answered: bool,
}

/// The account of one direction.
pub(crate) struct Ledger {
    flows: HashMap<u32, Flow>,
    /// The flows that a stream was bound to since its last PARAM_UPDATE, and the one of that.
    bound: HashMap<usize, Vec<u32>>,
    offers: HashMap<u64, Offer>,
    /// Per stream: what passed the sender function.
    pub(crate) sources: Vec<Sources>,
    /// The shortest round trip that the path can have.
    pub(crate) round_trip: Duration,
    /// Octets of IP packets that the path between the gateways takes.
    pub(crate) path_mtu: u32,
    /// Sums of Expected and Received over all reports.
    pub(crate) reported: [u64; 2],
}

impl Ledger {
    pub(crate) fn new(streams: usize, round_trip: Duration, path_mtu: u32) -> Self {
        Self {
            flows: HashMap::new(),
            bound: HashMap::new(),
            offers: HashMap::new(),
            sources: vec![Sources::default(); streams],
            round_trip,
            path_mtu,
            reported: [0; 2],
        }
    }

    /// The sender function lost its memory.
    pub(crate) fn sender_restarts(&mut self) {
        self.flows.clear();
        self.offers.clear();
    }

    /// The sender function sends a message about `stream` (HELLO) or a flow; `octets` is its length.
    pub(crate) fn sender_says(
        &mut self,
        now: Instant,
        id: u32,
        said: &Seen,
        stream: Option<usize>,
        octets: usize,
        violations: &mut Violations,
    ) {
        let packet = octets as u32 + 28;
        violations.require(now, packet <= self.path_mtu, || {
            format!("{} of {packet} octets does not fit the path", said.name())
        });
        match said {
            Seen::Hello { nonce, .. } => self.hello(now, *nonce, said, stream, violations),
            Seen::ParamUpdate { .. } => self.param_update(now, id, said, violations),
            Seen::Repair(repair) => self.repair(now, id, repair, violations),
            Seen::Close { .. } => {
                self.flows.remove(&id);
            }
            _ => violations.add(now, || format!("a sender function sent {}", said.name())),
        }
    }

    /// Whether the sender function has a flow of this ID.
    pub(crate) fn knows(&self, id: u32) -> bool {
        self.flows.contains_key(&id)
    }

    fn hello(
        &mut self,
        now: Instant,
        nonce: u64,
        said: &Seen,
        stream: Option<usize>,
        violations: &mut Violations,
    ) {
        let Some(stream) = stream else {
            violations.add(now, || {
                format!("HELLO for a flow that does not exist: {said:?}")
            });
            return;
        };
        let offer = self.offers.entry(nonce).or_insert_with(|| Offer {
            stream,
            said: said.clone(),
            sent: 0,
            answered: false,
        });
        offer.sent += 1;
        let (sent, same) = (offer.sent, flow_of(&offer.said) == flow_of(said));
        violations.require(now, same, || {
            format!("one nonce in different HELLOs: {said:?}")
        });
        violations.require(now, sent <= ATTEMPTS, || format!("HELLO number {sent}"));
    }

    fn param_update(&mut self, now: Instant, id: u32, said: &Seen, violations: &mut Violations) {
        let Seen::ParamUpdate {
            config,
            scheme,
            k,
            m,
            t,
            ..
        } = *said
        else {
            return;
        };
        let spacing = self.round_trip * 2;
        // What the stream was bound to before is over.
        if let Some(stream) = self.flows.get(&id).map(|flow| flow.stream)
            && let Some(bound) = self.bound.insert(stream, vec![id])
        {
            for other in bound.iter().filter(|other| **other != id) {
                if self.flows.get(other).is_some_and(|f| f.stream == stream) {
                    self.flows.remove(other);
                }
            }
        }
        let Some(flow) = self.flows.get_mut(&id) else {
            violations.add(now, || format!("PARAM_UPDATE for the unknown flow {id:#x}"));
            return;
        };
        let new = Config {
            scheme,
            k,
            m,
            t,
            sent: 1,
            accepted: false,
        };
        let known = flow.configs.get_mut(&config);
        if let Some(known) = known.filter(|_| flow.last == Some(config)) {
            known.sent += 1;
            let same = (known.scheme, known.k, known.m, known.t) == (scheme, k, m, t);
            let sent = known.sent;
            violations.require(now, same, || {
                format!("one Config ID, two meanings: {said:?}")
            });
            violations.require(now, sent <= ATTEMPTS, || {
                format!("PARAM_UPDATE number {sent}")
            });
            return;
        }
        flow.configs.insert(config, new);
        flow.last = Some(config);
        // What comes before the first one in force is no change.
        if !flow.in_force {
            return;
        }
        let before = flow.changed.replace(now);
        if let Some(gap) = before.map(|before| now.since(before)) {
            violations.require(now, gap >= spacing, || {
                format!("configuration changed after {gap:?}, two round trips are {spacing:?}")
            });
        }
    }

    fn repair(&mut self, now: Instant, id: u32, repair: &Repair, violations: &mut Violations) {
        let round_trip = self.round_trip;
        let Some(flow) = self.flows.get_mut(&id) else {
            violations.add(now, || format!("REPAIR for the unknown flow {id:#x}"));
            return;
        };
        let Some(config) = flow.configs.get(&repair.config).filter(|c| c.accepted) else {
            violations.add(now, || {
                format!("REPAIR under a configuration not acknowledged: {repair:?}")
            });
            return;
        };
        let k = config.k;
        // Information about a stretch without packets is of no block that was formed.
        let fits = repair.k <= k || repair.form == Form::Info && repair.present.is_empty();
        violations.require(now, fits, || format!("k above the agreed {k}: {repair:?}"));
        let fits = repair.form == Form::Info || repair.t == config.t;
        let t = config.t;
        violations.require(now, fits, || format!("T is not the agreed {t}: {repair:?}"));
        let scheme = config.scheme;
        let agreed = repair.form == Form::Copy || repair.scheme == scheme;
        violations.require(now, agreed, || {
            format!("scheme is not the agreed {scheme}: {repair:?}")
        });
        flow.answers.repair(now, repair, round_trip, violations);
        let sources = &self.sources[flow.stream];
        match repair.form {
            Form::Ordinary => {
                let wrong = flow
                    .ordinary
                    .as_mut()
                    .and_then(|o| o.spend(repair.config, repair.t, sources));
                if let Some(wrong) = wrong {
                    violations.add(now, || format!("{wrong}: {repair:?}"));
                }
            }
            Form::Coded | Form::Copy => {
                if let Some((sent, limit)) = flow.volume.spend(now, sources) {
                    violations.add(now, || {
                        format!("{sent} coded symbols and copies in a second, {limit} allowed")
                    });
                }
            }
            Form::Info => {}
        }
    }

    /// The sender function gets a message.
    pub(crate) fn sender_hears(&mut self, now: Instant, id: u32, said: &Seen) {
        match said {
            Seen::HelloAck { nonce, .. } => self.hello_ack(id, *nonce),
            Seen::ParamAck { config, status: 0 } => self.param_ack(id, *config),
            Seen::BlockRequest { request, lost, .. } => {
                self.request(id, *request, lost.len() as u64);
            }
            Seen::RangeRequest {
                request, ranges, ..
            } => {
                self.request(id, *request, union(ranges));
            }
            Seen::LossReport {
                expected, received, ..
            } => {
                self.reported[0] += u64::from(*expected);
                self.reported[1] += u64::from(*received);
                if let Some(flow) = self.flows.get_mut(&id) {
                    let sources = &self.sources[flow.stream];
                    flow.volume.sources(now, sources);
                    flow.volume
                        .report(u64::from(expected.saturating_sub(*received)));
                }
            }
            Seen::Close { .. } => {
                self.flows.remove(&id);
            }
            _ => {}
        }
    }

    fn hello_ack(&mut self, id: u32, nonce: u64) {
        // An answer to no offer that is out binds nothing; the draft has it discarded.
        let Some(offer) = self.offers.get_mut(&nonce) else {
            return;
        };
        let stream = offer.stream;
        // An offer is answered once; under an ID that another flow has it is not answered at all.
        if offer.answered
            || self
                .flows
                .get(&id)
                .is_some_and(|flow| flow.stream != stream)
        {
            return;
        }
        offer.answered = true;
        self.sources[stream].restart();
        let fresh = Flow {
            stream,
            configs: HashMap::new(),
            last: None,
            changed: None,
            in_force: false,
            ordinary: None,
            volume: Volume::default(),
            answers: Answers::default(),
        };
        self.flows.insert(id, fresh);
        self.bound.entry(stream).or_default().push(id);
    }

    fn param_ack(&mut self, id: u32, config: u8) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let sources = &self.sources[flow.stream];
        let Some(known) = flow.configs.get_mut(&config).filter(|c| !c.accepted) else {
            return;
        };
        known.accepted = true;
        flow.in_force = true;
        let allowed = Allowed {
            m: known.m,
            k: known.k,
            t: known.t,
        };
        match &mut flow.ordinary {
            Some(ordinary) => ordinary.configure(config, allowed, sources),
            None => flow.ordinary = Some(Ordinary::new(config, allowed, sources)),
        }
    }

    fn request(&mut self, id: u32, request: u16, named: u64) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.answers.request(request, named);
        }
    }

    /// The stream that a HELLO_ACK answers an offer for.
    pub(crate) fn offered(&self, said: &Seen) -> Option<usize> {
        match said {
            Seen::HelloAck { nonce, .. } => Some(self.offers.get(nonce)?.stream),
            _ => None,
        }
    }

    /// The receiver function sends a message.
    pub(crate) fn receiver_says(&self, now: Instant, said: &Seen, violations: &mut Violations) {
        match said {
            Seen::HelloAck { .. }
            | Seen::ParamAck { .. }
            | Seen::BlockRequest { .. }
            | Seen::RangeRequest { .. }
            | Seen::LossReport { .. }
            | Seen::Close { .. } => {}
            _ => violations.add(now, || format!("a receiver function sent {}", said.name())),
        }
    }
}

/// PSNs that ranges name, each once however many name it (AMB-RANGE).
fn union(ranges: &[(u32, u8)]) -> u64 {
    let named = ranges.iter().flat_map(|(start, count)| {
        (0..u32::from(*count)).map(move |n| start.wrapping_add(n) & 0xff_ffff)
    });
    named.collect::<HashSet<u32>>().len() as u64
}

/// What of a HELLO stays as it is under one nonce; limits follow the configuration.
fn flow_of(said: &Seen) -> Option<Seen> {
    let mut said = said.clone();
    let Seen::Hello { offer, .. } = &mut said else {
        return None;
    };
    (offer.schemes, offer.max_k, offer.max_m, offer.max_t) = (0, 0, 0, 0);
    Some(said)
}
