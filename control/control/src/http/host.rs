//! What this machine is and has, beside what the data plane says of itself.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use crem_api::rest::{
    ConfinementList, DnsState, DriftList, InterfaceList, RouteList, SyslogState, TimeState,
};

use super::auth::Viewer;
use super::failure::{Failure, Failures};
use super::{App, json};

/// What each process gave up: capabilities, system calls, places to write.
#[utoipa::path(get, path = "/v1/state/confinement", tag = "state",
    responses((status = 200, body = ConfinementList), Failures))]
pub(crate) async fn confinement(State(app): State<App>, _: Viewer) -> Result<Response, Failure> {
    let seen = app.watcher.seen();
    let list = ConfinementList {
        control: (*app.confinement).clone(),
        dataplane: seen.status.as_ref().and_then(|s| s.confinement.clone()),
        export: seen.export.as_ref().and_then(|e| e.confinement.clone()),
    };
    Ok(json(StatusCode::OK, &list))
}

/// Interfaces of this machine with their addresses, as the kernel has them.
#[utoipa::path(get, path = "/v1/state/interfaces", tag = "state",
    responses((status = 200, body = InterfaceList), Failures))]
pub(crate) async fn interfaces(State(app): State<App>, _: Viewer) -> Response {
    let machine = app.machine.borrow().clone();
    json(StatusCode::OK, &machine.interfaces)
}

/// Routes of the main table.
#[utoipa::path(get, path = "/v1/state/routes", tag = "state",
    responses((status = 200, body = RouteList), Failures))]
pub(crate) async fn routes(State(app): State<App>, _: Viewer) -> Response {
    let machine = app.machine.borrow().clone();
    json(StatusCode::OK, &machine.routes)
}

/// What the machine has other than `management` of the document.
#[utoipa::path(get, path = "/v1/state/drift", tag = "state",
    responses((status = 200, body = DriftList), Failures))]
pub(crate) async fn drift(State(app): State<App>, _: Viewer) -> Response {
    let machine = app.machine.borrow().clone();
    let names = [&machine.dns.error, &machine.time.error];
    let failures = machine.failures.iter().chain(names.into_iter().flatten());
    let list = DriftList {
        at_ms: machine.interfaces.at_ms,
        drift: machine.drift.clone(),
        failures: failures.cloned().collect(),
    };
    json(StatusCode::OK, &list)
}

/// Resolvers that this machine asks.
#[utoipa::path(get, path = "/v1/state/dns", tag = "state",
    responses((status = 200, body = DnsState), Failures))]
pub(crate) async fn dns(State(app): State<App>, _: Viewer) -> Response {
    let machine = app.machine.borrow().clone();
    json(StatusCode::OK, &machine.dns)
}

/// Time servers, and when the clock was last set by one.
#[utoipa::path(get, path = "/v1/state/time", tag = "state",
    responses((status = 200, body = TimeState), Failures))]
pub(crate) async fn time(State(app): State<App>, _: Viewer) -> Response {
    let machine = app.machine.borrow().clone();
    json(StatusCode::OK, &machine.time)
}

/// Syslog servers, and what they got.
#[utoipa::path(get, path = "/v1/state/syslog", tag = "state",
    responses((status = 200, body = BTreeMap<String, SyslogState>), Failures))]
pub(crate) async fn syslog(State(app): State<App>, _: Viewer) -> Response {
    let all: BTreeMap<String, SyslogState> = app.syslog.all();
    json(StatusCode::OK, &all)
}
