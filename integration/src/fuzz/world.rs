//! What stands around either function while it is fuzzed: addresses, configuration, time, and messages that
//! somebody has to be able to read. What is done to the functions is in `receiver` and `sender`.

use std::net::{IpAddr, SocketAddr};

use crem_core::config::{CoreConfig, Prefix};
use crem_core::time::{Duration, Instant};
use crem_wire::crem::{Message, Parsed, parse};

/// Messages and events that wait at most.
pub(super) const QUEUED: u32 = 32;
/// Timers that may be due within one wait.
const MAX_TIMERS: u32 = 20_000;

/// A gateway; those with small numbers are peers.
pub(super) fn gateway(last: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::from([192, 0, 2, last]), 50_000)
}

/// A configuration with the gateways of a prefix of this length as peers.
pub(super) fn config(length: u8) -> CoreConfig {
    let mut config = CoreConfig::new(50_000);
    config.allowed_peers = vec![Prefix {
        address: gateway(0).ip(),
        length,
    }];
    config.max_transmits = QUEUED;
    config.max_events = QUEUED;
    config
}

/// A function in time.
pub(super) trait World {
    /// The time.
    fn now(&mut self) -> &mut Instant;

    /// When a timer of the function is due.
    fn next_timeout(&self) -> Option<Instant>;

    /// Lets due timers run, and carries out what comes of it.
    fn timeout(&mut self);

    /// Time passes; it has to get to its end.
    fn wait(&mut self, span: Duration) {
        let until = *self.now() + span;
        let mut timers = 0;
        while let Some(at) = self.next_timeout().filter(|at| *at <= until) {
            *self.now() = at.max(*self.now());
            self.timeout();
            timers += 1;
            assert!(timers < MAX_TIMERS, "time does not go on at {at:?}");
        }
        *self.now() = until;
    }
}

/// A message that is sent is one that the parser takes for the same.
pub(super) fn is_readable(message: &Message) {
    let mut octets = Vec::new();
    message.encode(&mut octets);
    assert_eq!(
        parse(&octets).as_ref(),
        Ok(&Parsed::Message(message.clone()))
    );
}
