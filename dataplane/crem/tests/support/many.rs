//! Both functions of a path with thousands of flows, each of which sends a packet now and then: for
//! measuring what a flow takes and what a packet costs.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::rc::Rc;

use crem_core::actions::{Actions, SlotId};
use crem_core::config::{CoreConfig, Prefix};
use crem_core::crf::{Crf, Same};
use crem_core::csf::Csf;
use crem_core::packet::{Desc, Namespace, PsnSpace, StreamKey};
use crem_core::time::{Duration, Instant};
use crem_wire::crem::Message;
use crem_wire::{Psn, Qpn};

pub(crate) const RTT: Duration = Duration::from_millis(20);

pub(crate) type Buf = Rc<()>;

fn address(last: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::from([192, 0, 2, last]), 50_000)
}

fn config(flows: u32) -> CoreConfig {
    let mut config = CoreConfig::new(50_000);
    config.allowed_peers = vec![Prefix::host(address(1).ip()), Prefix::host(address(2).ip())];
    config.csf.report_budget = 60 * flows;
    config.crf.report_budget = 60 * flows;
    config.csf.hello_rate = 100_000;
    config.csf.hello_outstanding = flows;
    config.csf.start_after = 4;
    config.max_transmits = 100_000;
    config.domain_rtt = Some(RTT);
    config
}

/// Both functions with a path of half a round trip each way.
pub(crate) struct Pair {
    pub(crate) csf: Csf<Buf>,
    pub(crate) crf: Crf<Buf>,
    to_wan: Actions<Buf>,
    to_lan: Actions<Buf>,
    pub(crate) now: Instant,
    /// Messages under way: when they arrive, whether at the receiver.
    mail: VecDeque<(Instant, bool, Message)>,
    frame: Buf,
    burst: Vec<Desc<Buf>>,
    /// One packet in so many does not arrive; none with 0.
    pub(crate) loss: u32,
    sent: u32,
}

impl Pair {
    pub(crate) fn new(flows: u32) -> Self {
        let mut to_wan = Actions::default();
        to_wan.free_slots.extend((0..1024).map(SlotId));
        let mut crf = Crf::new(config(flows), [2; 32]);
        crf.compare_with(Same(|a, b| a.buf == b.buf));
        Self {
            csf: Csf::new(config(flows), [1; 32]),
            crf,
            to_wan,
            to_lan: Actions::default(),
            now: Instant(1_000_000_000),
            mail: VecDeque::new(),
            frame: Rc::new(()),
            burst: Vec::new(),
            loss: 0,
            sent: 0,
        }
    }

    fn desc(&self, flow: u32, psn: u32) -> Desc<Buf> {
        Desc {
            key: StreamKey {
                namespace: Namespace(0),
                source: IpAddr::from([10, 0, 1, 1]),
                destination: IpAddr::from([10, 0, 2, 1]),
                qp: Qpn::new(flow),
                space: PsnSpace::Requests,
            },
            psn: Psn::new(psn),
            opcode: 7,
            payload_len: 1040,
            payload_off: 42,
            mtu_seen: None,
            read_length: None,
            ce: false,
            dscp: 26,
            buf: self.frame.clone(),
        }
    }

    /// A packet of each of `flows`, in one burst.
    pub(crate) fn burst(&mut self, flows: Range<u32>, psn: u32) {
        let mut burst = core::mem::take(&mut self.burst);
        burst.clear();
        burst.extend(flows.map(|flow| self.desc(flow, psn)));
        self.csf.on_burst(self.now, &burst, &mut self.to_wan);
        burst.retain(|_| {
            self.sent += 1;
            self.loss == 0 || !self.sent.is_multiple_of(self.loss)
        });
        self.crf.on_burst(self.now, &burst, &mut self.to_lan);
        self.burst = burst;
        self.collect();
    }

    fn collect(&mut self) {
        let slots = self.to_wan.emit.iter().filter_map(|emit| emit.slot);
        self.to_wan.free_slots.extend(slots);
        self.to_wan.clear();
        self.to_lan.clear();
        let arrives = self.now + RTT / 2;
        while let Some(sent) = self.csf.poll_transmit() {
            self.mail.push_back((arrives, true, sent.message));
        }
        while let Some(sent) = self.crf.poll_transmit() {
            self.mail.push_back((arrives, false, sent.message));
        }
        while self.csf.poll_event().or(self.crf.poll_event()).is_some() {}
    }

    /// Time passes: timers run and messages arrive. REPAIR messages get lost.
    pub(crate) fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            let mail = self.mail.front().map(|(at, ..)| *at);
            let next = [mail, self.csf.next_timeout(), self.crf.next_timeout()];
            let Some(next) = next.into_iter().flatten().min().filter(|at| *at <= until) else {
                break;
            };
            self.now = self.now.max(next);
            while let Some((_, receiver, message)) = self.mail.pop_front_if(|m| m.0 <= self.now) {
                if receiver {
                    let (from, out) = (address(1), &mut self.to_lan);
                    self.crf
                        .on_message(self.now, from, &message, &|_| true, out);
                } else {
                    let (from, out) = (address(2), &mut self.to_wan);
                    self.csf.on_message(self.now, from, &message, false, out);
                }
            }
            self.csf.on_timeout(self.now, &mut self.to_wan);
            self.crf.on_timeout(self.now, &mut self.to_lan);
            self.collect();
        }
        self.now = until;
    }

    /// Every one of `flows` sends a packet, `burst` of them at a time, within one round trip.
    pub(crate) fn round(&mut self, flows: u32, burst: u32, psn: u32) {
        let bursts = flows.div_ceil(burst);
        for n in 0..bursts {
            self.burst(n * burst..((n + 1) * burst).min(flows), psn);
            self.wait(RTT / bursts);
        }
    }

    /// Flows protected at the sender and bound at the receiver.
    pub(crate) fn protected(&self) -> (usize, usize) {
        let sending = self.csf.flows().filter(|f| f.unprotected.is_none());
        let restoring = self.crf.flows().filter(|f| f.config.is_some());
        (sending.count(), restoring.count())
    }
}
