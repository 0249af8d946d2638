//! From nothing to a session: looking up a name, connecting, the handshake of TLS, and waiting for a refusal.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use crem_meter::Utc;

use super::{Destination, EndReason, Exporter, State};
use crate::link::{Link, Received};
use crate::tls::{TlsError, names};

/// How far the time between attempts grows.
const MAX_BACK_OFF: u32 = 10;

impl Exporter {
    /// Where it stands, in a word.
    pub const fn state(&self) -> &'static str {
        match &self.state {
            State::Waiting { .. } => "waiting",
            State::Resolving { .. } => "resolving",
            State::Connecting { .. } => "connecting",
            State::Handshaking { .. } | State::Confirming { .. } => "handshake",
            State::Open(_) => "session",
            State::Closed => "closed",
        }
    }

    /// Until the next attempt: the configured time after the last one at least, more after failures in a
    /// row, and up to a tenth more so that many exporters do not come at once.
    pub(super) fn wait(&mut self, now: Utc) -> State {
        let times = 2u32.saturating_pow(self.failures).min(MAX_BACK_OFF);
        self.failures = self.failures.saturating_add(1);
        let delay = self.config.retry.saturating_mul(times);
        let mut jitter =
            self.config.seed ^ self.counters.attempts.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        jitter = (jitter ^ jitter >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40;
        let delay = delay + delay.mul_f64(jitter as f64 / f64::from(1 << 24) / 10.0);
        State::Waiting {
            until: self.attempt.after(delay).max(now),
        }
    }

    /// The next attempt: by name, or at once.
    pub(super) fn attempt(&mut self, now: Utc) -> (State, bool) {
        if self.config.host.is_none() {
            return self.connect(now);
        }
        self.attempt = now;
        let until = now.after(self.config.connect_timeout);
        self.lookup_due = true;
        (State::Resolving { until }, false)
    }

    /// The host name to look up now, once for each attempt; answer with [`Exporter::found`].
    pub fn lookup(&mut self) -> Option<&str> {
        if !std::mem::take(&mut self.lookup_due) {
            return None;
        }
        self.config.host.as_deref()
    }

    /// What a name that was looked up stands for. An answer that comes too late is of no use.
    pub fn found(&mut self, now: Utc, address: io::Result<IpAddr>) {
        if !matches!(self.state, State::Resolving { .. }) {
            return;
        }
        self.state = match address {
            Ok(address) => {
                if let Some(own) = self.config.destination.address_mut() {
                    own.set_ip(address);
                }
                self.connect(now).0
            }
            Err(error) => self.fail(now, EndReason::Unknown(error)),
        };
    }

    pub(super) fn connect(&mut self, now: Utc) -> (State, bool) {
        self.attempt = now;
        self.counters.attempts += 1;
        let until = now.after(self.config.connect_timeout);
        let link = match &self.config.destination {
            Destination::Tcp(address) | Destination::Tls { address, .. } => Link::tcp(*address),
            Destination::Sctp(address) => Link::sctp(*address),
            Destination::Udp(address) => Link::udp(*address),
            Destination::File(path) => Link::file(path),
        };
        match link {
            Ok(link @ (Link::Udp(_) | Link::File(_))) => (self.open(now, link), true),
            Ok(link) => (State::Connecting { link, until }, true),
            Err(error) => (self.fail(now, EndReason::Broken(error)), false),
        }
    }

    pub(super) fn connected(&mut self, now: Utc, link: Link) -> (State, bool) {
        if let Err(error) = link.keep_alive(self.config.stall_timeout) {
            return (self.fail(now, EndReason::Broken(error)), false);
        }
        let Destination::Tls { name, config, .. } = &self.config.destination else {
            return (self.open(now, link), true);
        };
        let tls = names(std::slice::from_ref(name))
            .map_err(|error: TlsError| io::Error::other(error.to_string()))
            .and_then(|mut names| {
                names
                    .pop()
                    .ok_or_else(|| io::ErrorKind::InvalidInput.into())
            })
            .and_then(|name| link.into_tls_client(Arc::clone(config), name));
        match tls {
            Ok(link) => {
                let until = now.after(self.config.connect_timeout);
                (State::Handshaking { link, until }, true)
            }
            Err(error) => (self.fail(now, EndReason::Untrusted(error)), false),
        }
    }

    pub(super) fn handshake(&mut self, now: Utc, mut link: Link, until: Utc) -> (State, bool) {
        let received = link.flush().and_then(|()| link.receive(&mut [0; 512]));
        match received {
            Ok(Received::End) => (self.fail(now, EndReason::ClosedByCollector), false),
            Err(error) if refusal(&error) => {
                (self.fail(now, EndReason::NotAuthorised(error)), false)
            }
            Err(error) => (self.fail(now, EndReason::Untrusted(error)), false),
            Ok(_) if !link.is_handshaking() => {
                let until = now.after(self.config.confirm);
                (State::Confirming { link, until }, true)
            }
            Ok(_) if now >= until => (self.fail(now, EndReason::ConnectTimeout), false),
            Ok(_) => (State::Handshaking { link, until }, false),
        }
    }

    /// The client's part of the handshake ends before the server has judged its certificate. A refusal
    /// comes as an alert, or the connection just ends; anything else is acceptance.
    pub(super) fn confirm(&mut self, now: Utc, mut link: Link, until: Utc) -> (State, bool) {
        let received = link.flush().and_then(|()| link.receive(&mut [0; 512]));
        match received {
            Ok(Received::Data(_)) => (self.open(now, link), true),
            Ok(Received::Nothing) if now >= until => (self.open(now, link), true),
            Ok(Received::Nothing) => (State::Confirming { link, until }, false),
            Ok(Received::End) => {
                let error = io::Error::from(io::ErrorKind::ConnectionAborted);
                (self.fail(now, EndReason::NotAuthorised(error)), false)
            }
            Err(error) => (self.fail(now, EndReason::NotAuthorised(error)), false),
        }
    }
}

/// Whether the collector said that it does not accept our certificate.
pub(super) fn refusal(error: &io::Error) -> bool {
    use rustls::AlertDescription as Alert;
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::AlertReceived(alert)) = inner else {
        return false;
    };
    matches!(
        alert,
        Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::CertificateRequired
    )
}
