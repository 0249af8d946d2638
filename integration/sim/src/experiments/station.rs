//! The node with the queue, as Path Reporter: it tells the sender function what it dropped and how the wait
//! in its queue changes.

use std::net::{IpAddr, SocketAddr};

use crem_core::config::Prefix;
use crem_core::packet::StreamKey;
use crem_core::reporter::{Observed, Reporter, ReporterConfig, SourcePrefix};
use crem_wire::Psn;
use crem_wire::crem::registry::LossCause;
use crem_wire::crem::{FlowDescriptor, Message};

use super::flow::key;
use crate::{Duration, Instant};

/// The wait is observed for one packet in so many.
const OBSERVE_EVERY: u32 = 32;

/// Address of the node.
pub(super) fn address() -> SocketAddr {
    SocketAddr::new(IpAddr::from([192, 0, 2, 99]), 50_000)
}

/// The node.
#[derive(Debug)]
pub(super) struct Station {
    reporter: Reporter,
    count: u32,
}

fn observed(flow: u16) -> Observed {
    let StreamKey {
        source,
        destination,
        qp,
        ..
    } = key(flow);
    Observed {
        flow: FlowDescriptor {
            source,
            destination,
            qp,
        },
        port: 0,
        dscp: 26,
    }
}

impl Station {
    pub(super) fn new() -> Self {
        let mut config = ReporterConfig::new(77, 50_000);
        config.sources = vec![SourcePrefix {
            prefix: Prefix::host(key(0).source),
            csf: None,
        }];
        Self {
            reporter: Reporter::new(config, 1),
            count: 0,
        }
    }

    /// The queue had no room for this packet.
    pub(super) fn on_drop(&mut self, now: Instant, flow: u16, psn: u32) {
        let cause = LossCause::QueueOverflow;
        self.reporter
            .on_drop(now, &observed(flow), Psn::new(psn), cause);
    }

    /// A packet waits this long.
    pub(super) fn on_wait(&mut self, now: Instant, flow: u16, wait: Duration) {
        self.count += 1;
        if self.count.is_multiple_of(OBSERVE_EVERY) {
            self.reporter.on_delay(now, &observed(flow), wait);
        }
    }

    /// When something is to be sent.
    pub(super) fn next(&self) -> Option<Instant> {
        self.reporter.next_timeout()
    }

    /// The next report that is due.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Message> {
        if self.next().is_some_and(|at| at <= now) {
            self.reporter.on_timeout(now);
        }
        let outgoing = self.reporter.poll_transmit()?;
        Some(Message::PathReport(outgoing.report))
    }
}
