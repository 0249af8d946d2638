//! The REST API: paths, roles and the documents that go in and out. Decisions are made in
//! [`engine`](crate::engine) and [`plan`](crate::plan); connections begin in [`serve`](crate::serve).
#![allow(unused_qualifications, reason = "written by the macros of utoipa")]

pub mod auth;
mod body;
mod captures;
mod commits;
mod config;
mod download;
mod enrol;
mod events;
mod failure;
mod history;
mod host;
mod params;
mod peers;
mod ports;
pub mod state;
mod support;
mod system;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use crem_api::Confinement;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use utoipa::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Attempts, Tokens};
use crate::audit;
use crate::captures::Captures;
use crate::engine::Engine;
use crate::enrol::Enrolment;
use crate::journal::Journal;
use crate::link::Links;
use crate::lldp;
use crate::metrics::Metrics;
use crate::problem::Kind;
use crate::support::Bundles;
use crate::syslog::Board;
use crate::view::View;
use crate::watcher::Watcher;

use failure::Failure;

/// Files that may be sent at once.
pub const DOWNLOADS: usize = 8;
/// Tests of peers that may run at once.
pub const TESTS: usize = 2;
/// Longest body of a request, octets.
pub const MAX_BODY: usize = 4 << 20;
/// Longest time for a request but for those that follow something.
const REQUEST_TIME: Duration = Duration::from_secs(30);

/// What handlers work with.
#[derive(Clone)]
pub struct App {
    /// Changes go through it.
    pub engine: Engine,
    /// What the data plane says.
    pub watcher: Watcher,
    /// What happened.
    pub journal: Arc<Journal>,
    /// Who did what.
    pub audit: Arc<audit::Log>,
    /// Tokens.
    pub tokens: Arc<Tokens>,
    /// The first way in.
    pub enrolment: Arc<Enrolment>,
    /// Failed attempts.
    pub attempts: Arc<Attempts>,
    /// Neighbours that were heard.
    pub neighbours: lldp::Shared,
    /// What drivers say of links.
    pub links: Arc<Mutex<Links>>,
    /// How syslog servers stand.
    pub syslog: Board,
    /// The machine as it was seen last.
    pub machine: crate::host::Seen,
    /// What this process gave up.
    pub confinement: Arc<Confinement>,
    /// Metrics of this process and of the data plane.
    pub metrics: Arc<Metrics>,
    /// Captures of frames.
    pub captures: Arc<Captures>,
    /// Bundles for those who help.
    pub support: Arc<Bundles>,
    /// Files that may be sent at once.
    pub downloads: Arc<Semaphore>,
    /// Tests of peers that may run at once.
    pub tests: Arc<Semaphore>,
}

impl App {
    /// All metrics as text.
    fn metrics_text(&self, view: &View, seen: &crate::watcher::Seen) -> String {
        let machine = self.machine.borrow().clone();
        self.metrics
            .render(view, seen, &machine, &self.syslog.all())
    }

    /// The right to send a file, for as long as that takes.
    fn may_download(&self) -> Result<OwnedSemaphorePermit, Failure> {
        let permit = Arc::clone(&self.downloads).try_acquire_owned();
        let full = |_| {
            Failure::new(
                Kind::TooManyAttempts,
                "Too many files are being sent already.",
            )
        };
        permit.map_err(full)
    }
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "CREM gateway",
        description = "Management of a CREM gateway. Every answer that is no success is a problem \
                       document (RFC 9457) with a type that begins with urn:crem:problem:.",
        license(name = "Apache-2.0 OR MIT", identifier = "Apache-2.0 OR MIT")
    ),
    security(("token" = []), ("certificate" = [])),
    modifiers(&Ways),
    tags(
        (name = "config", description = "The config document, changes of it, its history"),
        (name = "state", description = "What the data plane does"),
        (name = "diagnosis", description = "Looking closer: frames, peers, a bundle for those who help"),
        (name = "system", description = "This process and access to it"),
    )
)]
struct Api;

/// How clients show who they are over the network. Over the local socket the system says it.
struct Ways;

impl utoipa::Modify for Ways {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let token = Http::builder().scheme(HttpAuthScheme::Bearer);
        let token = token.description(Some("A token of POST /v1/tokens."));
        let certificate = SecurityScheme::MutualTls {
            description: Some(
                "A certificate with the name of a client of the document.".to_owned(),
            ),
            deprecated: None,
            extensions: None,
        };
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(token.build()));
        components.add_security_scheme("certificate", certificate);
    }
}

fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(system::livez))
        .routes(routes!(system::readyz))
        .routes(routes!(system::metrics))
        .routes(routes!(system::version))
        .routes(routes!(system::openapi))
        .routes(routes!(system::schema))
        .routes(routes!(config::get, config::put, config::patch))
        .routes(routes!(
            config::get_part,
            config::put_part,
            config::patch_part,
            config::delete_part
        ))
        .routes(routes!(config::plan))
        .routes(routes!(commits::get))
        .routes(routes!(commits::confirm))
        .routes(routes!(commits::cancel))
        .routes(routes!(commits::extend))
        .routes(routes!(commits::operation))
        .routes(routes!(history::list))
        .routes(routes!(history::get))
        .routes(routes!(history::document))
        .routes(routes!(history::diff))
        .routes(routes!(history::restore))
        .routes(routes!(state::dataplane))
        .routes(routes!(state::segments))
        .routes(routes!(state::segment))
        .routes(routes!(state::peers))
        .routes(routes!(state::counters))
        .routes(routes!(state::drops))
        .routes(routes!(state::ipfix))
        .routes(routes!(state::flows))
        .routes(routes!(host::confinement))
        .routes(routes!(host::interfaces))
        .routes(routes!(host::routes))
        .routes(routes!(host::drift))
        .routes(routes!(host::dns))
        .routes(routes!(host::time))
        .routes(routes!(host::syslog))
        .routes(routes!(ports::ports))
        .routes(routes!(ports::neighbours))
        .routes(routes!(events::follow))
        .routes(routes!(captures::list, captures::start))
        .routes(routes!(captures::get, captures::delete))
        .routes(routes!(captures::stop))
        .routes(routes!(captures::pcapng))
        .routes(routes!(peers::test))
        .routes(routes!(peers::compatibility))
        .routes(routes!(support::list, support::make))
        .routes(routes!(support::get, support::delete))
        .routes(routes!(support::file))
        .routes(routes!(system::audit))
        .routes(routes!(system::list_tokens, system::create_token))
        .routes(routes!(system::delete_token))
        .routes(routes!(enrol::enrol))
}

/// The OpenAPI document, version 3.1, as it is committed in `docs/openapi.json`.
pub fn openapi() -> String {
    let document = routes().into_openapi();
    // What the router writes for "all that follows" is a plain parameter there.
    let text = document.to_pretty_json().unwrap_or_default();
    let mut text = text.replace("{*part}", "{part}");
    text.push('\n');
    text
}

/// The service.
pub fn router(app: App) -> Router {
    let (router, _) = routes().split_for_parts();
    router
        .fallback(|| async {
            Failure::new(Kind::NotFound, "No resource has this path.").into_response()
        })
        .method_not_allowed_fallback(|| async {
            Failure::new(Kind::MethodNotAllowed, "See /v1/openapi.json.").into_response()
        })
        .layer(middleware::from_fn_with_state(app.clone(), around))
        .with_state(app)
}

/// What every request goes through: who asks, a limit of time, the audit log, headers of the answer.
async fn around(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let caller = auth::identify(&app, &request);
    let id = request.headers().get("x-request-id").cloned();
    let change = to_be_recorded(&request);
    let action = format!("{} {}", request.method(), request.uri().path());
    let follows = request.uri().path() == "/v1/events";
    request.extensions_mut().insert(caller.clone());
    let answered = next.run(request);
    let mut response = if follows {
        answered.await
    } else {
        tokio::time::timeout(REQUEST_TIME, answered)
            .await
            .unwrap_or_else(|_| {
                let detail = "See the operations for what becomes of it.";
                Failure::new(Kind::Timeout, detail).into_response()
            })
    };
    if change {
        let (noted, status) = (auth::noted(&response), response.status());
        auth::record(&app, &caller, action, noted, status).await;
    }
    app.metrics.answered(response.status());
    let headers = response.headers_mut();
    if let Some(id) = id {
        headers.insert("x-request-id", id);
    }
    for (name, value) in [
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
    ] {
        headers
            .entry(HeaderName::from_static(name))
            .or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Whether the audit log is to have a request: every change, and whoever takes what frames hold.
fn to_be_recorded(request: &Request) -> bool {
    let path = request.uri().path();
    match *request.method() {
        Method::GET | Method::HEAD | Method::OPTIONS => path.ends_with("/pcapng"),
        _ => !path.ends_with(":plan"),
    }
}

/// A JSON answer.
fn json(status: StatusCode, value: &impl serde::Serialize) -> Response {
    // Text keys, numbers and strings only: there is nothing in it that JSON cannot hold.
    let text = serde_json::to_string(value).unwrap_or_default();
    (status, [("content-type", "application/json")], text).into_response()
}
