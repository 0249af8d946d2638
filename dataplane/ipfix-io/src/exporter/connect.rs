//! From nothing to a session: connecting, the handshake of TLS, and waiting for a refusal.

use std::io;
use std::sync::Arc;

use crem_meter::Utc;

use super::{Destination, EndReason, Exporter, State};
use crate::link::{Link, Received};
use crate::tls::{TlsError, names};

impl Exporter {
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
