//! Who asks, and what they may.

use std::net::SocketAddr;

use axum::extract::{FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::response::Response;
use crem_api::rest::Access;

use crate::access::Rejected;
use crate::problem::Kind;
use crate::tls::Shown;
use crate::{audit, clock};

use super::App;
use super::failure::Failure;

/// Who is at the other end of a connection, before any request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Peer {
    /// A process of this machine, by its user.
    Local {
        /// Its user.
        uid: u32,
        /// Whether that is the administrator of this machine or of this process.
        trusted: bool,
    },
    /// Somebody over the network.
    Remote {
        /// Their address.
        address: SocketAddr,
        /// Their certificate.
        shown: Shown,
    },
}

/// A connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connection {
    /// Who.
    pub peer: Peer,
    /// When it began, on the boot clock.
    pub began_ms: u64,
}

/// Whoever asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Name for history and audit.
    pub name: String,
    /// `socket`, `token` or `mtls`.
    pub via: &'static str,
    /// From where.
    pub address: Option<String>,
    /// What they may.
    pub access: Access,
    /// When their connection began, on the boot clock.
    pub connected_ms: u64,
}

/// Whoever asks, or why nobody does.
#[derive(Clone, Debug)]
pub(crate) struct Caller(Result<Identity, Failure>);

/// Finds out who asks.
pub(crate) fn identify(app: &App, request: &Request) -> Caller {
    let nobody = |detail: &str| Caller(Err(Failure::new(Kind::Unauthenticated, detail)));
    let Some(connection) = request.extensions().get::<Connection>() else {
        return nobody("This connection has no peer.");
    };
    match &connection.peer {
        Peer::Local { uid, trusted } => Caller(Ok(Identity {
            name: format!("uid:{uid}"),
            via: "socket",
            address: None,
            access: if *trusted {
                Access::Admin
            } else {
                Access::Viewer
            },
            connected_ms: connection.began_ms,
        })),
        Peer::Remote { address, shown } => match (request.headers().get(AUTHORIZATION), shown) {
            (Some(value), _) => Caller(token(app, *address, value.to_str().ok(), connection)),
            (None, Shown::Accepted(names)) => {
                let known = certificate(app, *address, names, connection);
                known.map_or_else(
                    || nobody("Your certificate has no name that the document has as a client."),
                    |i| Caller(Ok(i)),
                )
            }
            (None, Shown::Refused(why)) => nobody(&format!("Your certificate: {why}.")),
            (None, Shown::Nothing) => nobody("Show a token or a certificate."),
        },
    }
}

fn token(
    app: &App,
    address: SocketAddr,
    value: Option<&str>,
    connection: &Connection,
) -> Result<Identity, Failure> {
    let now_ms = clock::now().wall_ms;
    if !app.attempts.may_try(address.ip(), now_ms) {
        let detail = "Too many failed attempts came from this address; wait for a minute.";
        return Err(Failure::new(Kind::TooManyAttempts, detail));
    }
    let text = value
        .and_then(|v| v.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map_or("", |(_, text)| text.trim());
    match app.tokens.check(text, now_ms) {
        Ok((id, token)) => Ok(Identity {
            name: format!("{} (token {id})", token.name),
            via: "token",
            address: Some(address.to_string()),
            access: token.access,
            connected_ms: connection.began_ms,
        }),
        Err(rejected) => {
            app.attempts.failed(address.ip(), now_ms);
            let detail = match rejected {
                Rejected::Unknown => "This token is not known.",
                Rejected::Expired => "This token has expired.",
            };
            Err(Failure::new(Kind::Unauthenticated, detail))
        }
    }
}

/// The client of the document whose name is in the certificate.
fn certificate(
    app: &App,
    address: SocketAddr,
    names: &[String],
    connection: &Connection,
) -> Option<Identity> {
    let view = app.engine.view();
    let clients = &view.document.as_ref()?.management.as_ref()?.clients;
    let (name, access) = names
        .iter()
        .find_map(|name| Some((name, clients.get(name)?.access)))?;
    Some(Identity {
        name: name.clone(),
        via: "mtls",
        address: Some(address.to_string()),
        access,
        connected_ms: connection.began_ms,
    })
}

/// What the audit log says of an answer besides who asked and for what.
#[derive(Clone, Default)]
pub(crate) struct Noted {
    pub(crate) revision: Option<u64>,
    pub(crate) comment: Option<String>,
}

/// What a handler noted.
pub(crate) fn noted(response: &Response) -> Noted {
    response
        .extensions()
        .get::<Noted>()
        .cloned()
        .unwrap_or_default()
}

/// Writes a change, or an attempt at one, into the audit log.
pub(crate) async fn record(
    app: &App,
    caller: &Caller,
    action: String,
    noted: Noted,
    status: StatusCode,
) {
    let (actor, via, address) = match &caller.0 {
        Ok(i) => (i.name.clone(), i.via.to_owned(), i.address.clone()),
        Err(_) => ("unknown".to_owned(), "none".to_owned(), None),
    };
    let record = audit::Record {
        at_ms: clock::now().wall_ms,
        actor,
        via,
        address,
        action,
        revision: noted.revision,
        comment: noted.comment,
        outcome: status.as_u16().to_string(),
        ..audit::Record::default()
    };
    let log = std::sync::Arc::clone(&app.audit);
    // It is flushed to the device: nothing to do on a thread that serves others.
    let _ = tokio::task::spawn_blocking(move || log.append(record)).await;
}

macro_rules! roles {
    ($($(#[$doc:meta])* $name:ident = $access:ident;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name(#[allow(dead_code, reason = "not everybody asks who")] pub(crate) Identity);

        impl<S: Send + Sync> FromRequestParts<S> for $name {
            type Rejection = Failure;

            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
                demand(parts, Access::$access).map(Self)
            }
        }
    )*};
}

roles! {
    /// Somebody who may read.
    Viewer = Viewer;
    /// Somebody who may confirm and cancel.
    Operator = Operator;
    /// Somebody who may change the document.
    Admin = Admin;
}

fn demand(parts: &Parts, access: Access) -> Result<Identity, Failure> {
    let caller = parts.extensions.get::<Caller>();
    let identity = match caller {
        Some(Caller(Ok(identity))) => identity,
        Some(Caller(Err(failure))) => return Err(failure.clone()),
        None => return Err(Failure::new(Kind::Unauthenticated, "Nobody asks.")),
    };
    if identity.access >= access {
        return Ok(identity.clone());
    }
    let detail = format!(
        "This takes the role {access:?}, and yours is {:?}.",
        identity.access
    );
    Err(Failure::new(Kind::Forbidden, detail.to_lowercase()))
}
