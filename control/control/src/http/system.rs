//! This process: whether it is well, its version and metrics, the audit log, access to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use crem_api::rest::{AuditPage, NewToken, TokenInfo, TokenMade, VersionInfo};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::{MAX_LIFE_S, Token};
use crate::clock;
use crate::problem::Kind;
use crate::watcher::Seen;

use super::auth::{Admin, Viewer};
use super::failure::{Failure, Failures};
use super::params::{Named, Params, milliseconds, number};
use super::{App, body, json};

/// Records on a page of the audit log, at most.
const MAX_PAGE: usize = 1000;

/// Whether this process answers.
#[utoipa::path(get, path = "/livez", tag = "system", security(()),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn livez() -> &'static str {
    "ok\n"
}

/// Whether the data plane forwards.
#[utoipa::path(get, path = "/readyz", tag = "system", security(()),
    responses((status = 200, body = String, content_type = "text/plain"), Failures))]
pub(crate) async fn readyz(State(app): State<App>) -> Result<&'static str, Failure> {
    if app.watcher.seen().status.is_some() {
        Ok("ok\n")
    } else {
        let detail = "The data plane does not answer.";
        Err(Failure::new(Kind::DataplaneAbsent, detail))
    }
}

/// Metrics in the text format of Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "system",
    responses((status = 200, body = String, content_type = "text/plain"), Failures))]
pub(crate) async fn metrics(State(app): State<App>, _: Viewer) -> Response {
    let text = app.metrics_text(&app.engine.view(), &app.watcher.seen());
    let media_type = "text/plain; version=0.0.4";
    ([("content-type", media_type)], text).into_response()
}

/// Versions of the programs.
#[utoipa::path(get, path = "/v1/version", tag = "system",
    responses((status = 200, body = VersionInfo), Failures))]
pub(crate) async fn version(State(app): State<App>, _: Viewer) -> Response {
    json(StatusCode::OK, &versions(&app.watcher.seen()))
}

pub(crate) fn versions(seen: &Seen) -> VersionInfo {
    VersionInfo {
        control: env!("CARGO_PKG_VERSION").to_owned(),
        dataplane: seen.status.as_ref().map(|s| s.version.clone()),
        document_format: crem_api::FORMAT_VERSION,
    }
}

/// This description.
#[utoipa::path(get, path = "/v1/openapi.json", tag = "system",
    responses((status = 200, body = Value), Failures))]
pub(crate) async fn openapi(_: Viewer) -> Response {
    ([("content-type", "application/json")], super::openapi()).into_response()
}

/// The JSON schema of the config document.
#[utoipa::path(get, path = "/v1/schema/config", operation_id = "config_schema", tag = "config",
    responses((status = 200, body = Value, content_type = "application/schema+json"), Failures))]
pub(crate) async fn schema(_: Viewer) -> Response {
    let text = crem_api::schema::config().to_string();
    ([("content-type", "application/schema+json")], text).into_response()
}

/// A page of the audit log.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Page {
    /// Only records after this number.
    #[param(maximum = 9_007_199_254_740_991.0)]
    after: Option<u64>,
    /// Records on it, 1 to 1000; 100 without it.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Who changed what, or tried to.
#[utoipa::path(get, path = "/v1/audit", tag = "system", params(Page),
    responses((status = 200, body = AuditPage), Failures))]
pub(crate) async fn audit(
    State(app): State<App>,
    _: Admin,
    Params(page): Params<Page>,
) -> Result<Response, Failure> {
    let limit = page.limit.unwrap_or(100);
    if !(1..=MAX_PAGE).contains(&limit) {
        let detail = format!("limit: found {limit}, expected 1 to {MAX_PAGE}.");
        return Err(Failure::new(Kind::BadRequest, detail));
    }
    let log = Arc::clone(&app.audit);
    let after = number("after", page.after)?.unwrap_or(0);
    let read = tokio::task::spawn_blocking(move || log.read(after, limit)).await;
    let failed = |e: &dyn std::fmt::Display| Failure::new(Kind::Internal, e.to_string());
    let records = read.map_err(|e| failed(&e))?.map_err(|e| failed(&e))?;
    Ok(json(StatusCode::OK, &AuditPage { records }))
}

/// Whether a token may have this name.
pub(crate) fn legal_name(name: &str) -> Result<(), String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    if (1..=64).contains(&name.len()) && name.chars().all(legal) {
        return Ok(());
    }
    Err("name: expected 1 to 64 letters, digits and -_.@".to_owned())
}

pub(crate) fn described(token: &Token) -> TokenInfo {
    TokenInfo {
        name: token.name.clone(),
        access: token.access,
        created_ms: token.created_ms,
        expires_ms: token.expires_ms,
    }
}

/// The tokens by id; their texts are known to their owners only.
#[utoipa::path(get, path = "/v1/tokens", tag = "system",
    responses((status = 200, body = BTreeMap<String, TokenInfo>), Failures))]
pub(crate) async fn list_tokens(State(app): State<App>, _: Admin) -> Response {
    let tokens = app.tokens.list();
    let tokens: BTreeMap<_, _> = tokens.iter().map(|(id, t)| (id, described(t))).collect();
    json(StatusCode::OK, &tokens)
}

/// Makes a token. The answer has its text, once.
#[utoipa::path(post, path = "/v1/tokens", tag = "system", request_body = NewToken,
    responses((status = 201, body = TokenMade), Failures))]
pub(crate) async fn create_token(
    State(app): State<App>,
    _: Admin,
    request: Request,
) -> Result<Response, Failure> {
    let new: NewToken = body::json(request).await?;
    let life_ms = milliseconds("life", &new.life)?;
    let bad = |detail: String| Failure::new(Kind::BadRequest, detail);
    if !(1000..=MAX_LIFE_S * 1000).contains(&life_ms) {
        return Err(bad(format!("life: expected 1s to {MAX_LIFE_S}s.")));
    }
    legal_name(&new.name).map_err(bad)?;
    let tokens = Arc::clone(&app.tokens);
    let (now_ms, access) = (clock::now().wall_ms, new.access);
    let made = tokio::task::spawn_blocking(move || {
        tokens.create(&new.name, access, now_ms, life_ms / 1000)
    });
    let failed = |e: &dyn std::fmt::Display| Failure::new(Kind::Internal, e.to_string());
    let (id, token, known) = made
        .await
        .map_err(|e| failed(&e))?
        .map_err(|e| failed(&e))?;
    let made = TokenMade {
        id,
        token,
        info: described(&known),
    };
    // Somebody has access: the code on the console has served.
    app.enrolment.disarm();
    Ok(json(StatusCode::CREATED, &made))
}

/// Deletes a token; it opens nothing from then on.
#[utoipa::path(delete, path = "/v1/tokens/{id}", tag = "system",
    params(("id" = String, Path, description = "id of the token")),
    responses((status = 204, description = "it is gone"), Failures))]
pub(crate) async fn delete_token(
    State(app): State<App>,
    _: Admin,
    Named(id): Named<String>,
) -> Result<Response, Failure> {
    let tokens = Arc::clone(&app.tokens);
    let deleted = tokio::task::spawn_blocking(move || tokens.delete(&id)).await;
    match deleted {
        Ok(Ok(true)) => Ok(StatusCode::NO_CONTENT.into_response()),
        Ok(Ok(false)) => Err(Failure::new(Kind::NotFound, "There is no such token.")),
        Ok(Err(e)) => Err(Failure::new(Kind::Internal, e.to_string())),
        Err(e) => Err(Failure::new(Kind::Internal, e.to_string())),
    }
}
