//! The config document: reading it, planning and making changes.

use axum::extract::{Request, State};
use axum::http::header::{ETAG, IF_MATCH, LOCATION};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use crem_api::Impact;
use crem_api::rest::{Plan, Written};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use crate::digest::sha256;
use crate::engine::WriteRequest;
use crate::plan::{Base, Edit, describe, plan as planned};
use crate::problem::Kind;
use crate::view::View;

use super::auth::{Admin, Identity, Noted, Viewer};
use super::failure::{Failure, Failures};
use super::params::{Named, Params, milliseconds};
use super::{App, body, json};

/// Longest comment and key, octets.
const MAX_TEXT: usize = 256;

/// Which document is read.
#[derive(Deserialize, IntoParams, Default)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    /// `running` (default), `confirmed`, or `rev:N`.
    #[param(pattern = "^(running|confirmed|rev:[0-9]{1,18})$")]
    view: Option<String>,
    /// Whether defaults are filled in.
    #[serde(default)]
    filled: bool,
}

/// How a change is made.
#[derive(Deserialize, IntoParams, Default)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct How {
    /// Time for confirming, 1s to 3600s; without it the change is confirmed by coming into force.
    #[param(
        pattern = "^(([1-9][0-9]{0,2}|[12][0-9]{3}|3[0-5][0-9]{2}|3600)s|([1-9]|[1-5][0-9]|60)m|1h|([1-9][0-9]{3,5}|[12][0-9]{6}|3[0-5][0-9]{5}|3600000)ms)$"
    )]
    confirm: Option<String>,
    /// What it may disturb at most; `hot` without it.
    max_impact: Option<Impact>,
    /// Why, in words, at most 256 octets.
    #[param(max_length = 256)]
    comment: Option<String>,
}

/// Headers of a write. They are read by hand: their absence has problems of its own.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code, reason = "only described")]
pub(super) struct Conditions {
    /// ETag of the document that runs, `"0"` while there is none, `*` for any.
    #[param(
        rename = "If-Match",
        pattern = r#"^(\*|"[0-9]{1,18}(-[0-9a-f]{8})?")$"#
    )]
    if_match: String,
    /// The same key with the same request gets the same answer for 24 hours.
    #[param(rename = "Idempotency-Key", min_length = 1, max_length = 256)]
    idempotency_key: Option<String>,
}

/// The document, or what is there of it.
#[utoipa::path(get, path = "/v1/config", operation_id = "get_config", tag = "config", params(Which),
    responses((status = 200, body = Value, headers(("ETag" = String, description = "for If-Match"))), Failures))]
pub(crate) async fn get(
    State(app): State<App>,
    _: Viewer,
    Params(which): Params<Which>,
) -> Result<Response, Failure> {
    show(&app, &which, "").await
}

/// A part of the document, by its keys.
#[utoipa::path(get, path = "/v1/config/{*part}", operation_id = "get_config_part", tag = "config",
    params(("part" = String, Path, description = "keys, such as segments/a/policy; ~1 stands for /"), Which),
    responses((status = 200, body = Value, headers(("ETag" = String, description = "for If-Match"))), Failures))]
pub(crate) async fn get_part(
    State(app): State<App>,
    _: Viewer,
    Named(part): Named<String>,
    Params(which): Params<Which>,
) -> Result<Response, Failure> {
    show(&app, &which, &format!("/{part}")).await
}

async fn show(app: &App, which: &Which, pointer: &str) -> Result<Response, Failure> {
    let view = app.engine.view();
    let number = match which.view.as_deref() {
        None | Some("running") => view.machine.running(),
        Some("confirmed") => view.machine.confirmed(),
        Some(text) => {
            let number = text.strip_prefix("rev:").and_then(|n| n.parse().ok());
            let expected = || {
                let detail = format!("view: found {text:?}, expected running, confirmed or rev:N.");
                Failure::new(Kind::BadRequest, detail)
            };
            Some(number.ok_or_else(expected)?)
        }
    };
    let none = || Failure::new(Kind::NotFound, "There is no such document.");
    let number = number.ok_or_else(none)?;
    let revision = view.revisions.get(&number).ok_or_else(none)?;
    let mut value = document_of(app, &view, number).await?;
    if which.filled {
        let document = crate::plan::parse(&value).map_err(crate::problem::invalid)?;
        value = crem_api::to_value(&document);
    }
    let part = value.pointer(pointer).ok_or_else(none)?;
    let mut response = json(StatusCode::OK, part);
    tag(&mut response, &revision.etag());
    Ok(response)
}

pub(super) async fn document_of(app: &App, view: &View, number: u64) -> Result<Value, Failure> {
    if view.machine.running() == Some(number) {
        return Ok(Value::clone(&view.value));
    }
    let path = app.metrics.directory().to_path_buf();
    let read = tokio::task::spawn_blocking(move || {
        let octets = std::fs::read(path.join(format!("revisions/{number}.json")))?;
        serde_json::from_slice(&octets).map_err(std::io::Error::other)
    });
    match read.await {
        Ok(Ok(value)) => Ok(value),
        // Pruned just now.
        _ => Err(Failure::new(
            Kind::NotFound,
            format!("There is no revision {number}."),
        )),
    }
}

pub(super) fn tag(response: &mut Response, etag: &str) {
    if let Ok(value) = HeaderValue::from_str(etag) {
        response.headers_mut().insert(ETAG, value);
    }
}

/// Replaces the document.
#[utoipa::path(put, path = "/v1/config", operation_id = "put_config", tag = "config", params(How, Conditions),
    request_body(content = Value, content_type = "application/json"),
    responses((status = 200, body = Written), (status = 202, body = Written, description = "it waits to be confirmed"), Failures))]
pub(crate) async fn put(
    State(app): State<App>,
    Admin(who): Admin,
    Params(how): Params<How>,
    request: Request,
) -> Result<Response, Failure> {
    let (headers, octets) = body::read(request).await?;
    let edit = body::edit(&headers, &octets, true)?;
    let Edit::Replace(_) = edit else {
        let detail = "A whole document is application/json.";
        return Err(Failure::new(Kind::UnsupportedMediaType, detail));
    };
    write(&app, who, how, &headers, Ask::new("put", edit, &octets)).await
}

/// Changes the document.
#[utoipa::path(patch, path = "/v1/config", operation_id = "patch_config", tag = "config", params(How, Conditions),
    request_body(content((Value = "application/merge-patch+json"), (Value = "application/json-patch+json"))),
    responses((status = 200, body = Written), (status = 202, body = Written, description = "it waits to be confirmed"), Failures))]
pub(crate) async fn patch(
    State(app): State<App>,
    Admin(who): Admin,
    Params(how): Params<How>,
    request: Request,
) -> Result<Response, Failure> {
    edited(&app, who, how, request, "patch", "").await
}

/// Replaces or adds a part of the document.
#[utoipa::path(put, path = "/v1/config/{*part}", operation_id = "put_config_part", tag = "config",
    params(("part" = String, Path, description = "keys, such as segments/a/policy"), How, Conditions),
    request_body(content = Value, content_type = "application/json"),
    responses((status = 200, body = Written), (status = 202, body = Written, description = "it waits to be confirmed"), Failures))]
pub(crate) async fn put_part(
    State(app): State<App>,
    Admin(who): Admin,
    Named(part): Named<String>,
    Params(how): Params<How>,
    request: Request,
) -> Result<Response, Failure> {
    edited(&app, who, how, request, "put", &part).await
}

/// Changes a part of the document.
#[utoipa::path(patch, path = "/v1/config/{*part}", operation_id = "patch_config_part", tag = "config",
    params(("part" = String, Path, description = "keys, such as segments/a/policy"), How, Conditions),
    request_body(content((Value = "application/merge-patch+json"), (Value = "application/json-patch+json"))),
    responses((status = 200, body = Written), (status = 202, body = Written, description = "it waits to be confirmed"), Failures))]
pub(crate) async fn patch_part(
    State(app): State<App>,
    Admin(who): Admin,
    Named(part): Named<String>,
    Params(how): Params<How>,
    request: Request,
) -> Result<Response, Failure> {
    edited(&app, who, how, request, "patch", &part).await
}

/// Removes a part of the document.
#[utoipa::path(delete, path = "/v1/config/{*part}", operation_id = "delete_config_part", tag = "config",
    params(("part" = String, Path, description = "keys, such as segments/a/peers/10.0.2.0~124"), How, Conditions),
    responses((status = 200, body = Written), (status = 202, body = Written, description = "it waits to be confirmed"), Failures))]
pub(crate) async fn delete_part(
    State(app): State<App>,
    Admin(who): Admin,
    Named(part): Named<String>,
    Params(how): Params<How>,
    request: Request,
) -> Result<Response, Failure> {
    let view = app.engine.view();
    if view.value.pointer(&format!("/{part}")).is_none() {
        return Err(Failure::new(Kind::NotFound, "There is no such part."));
    }
    let ask = Ask::new("patch", Edit::Merge(Value::Null), b"").at(&part);
    write(&app, who, how, request.headers(), ask).await
}

/// Writes what the body of a request says of `part`, of the whole document if that is empty.
async fn edited(
    app: &App,
    who: Identity,
    how: How,
    request: Request,
    source: &'static str,
    part: &str,
) -> Result<Response, Failure> {
    let (headers, octets) = body::read(request).await?;
    let edit = body::edit(&headers, &octets, source == "put")?;
    let ask = Ask::new(source, edit, &octets).at(part);
    write(app, who, how, &headers, ask).await
}

/// What is asked for, besides how.
pub(super) struct Ask {
    pub(super) source: &'static str,
    pub(super) edit: Edit,
    pointer: String,
    digest: String,
}

impl Ask {
    pub(super) fn new(source: &'static str, edit: Edit, octets: &[u8]) -> Self {
        Self {
            source,
            edit,
            pointer: String::new(),
            digest: sha256(octets),
        }
    }

    fn at(mut self, part: &str) -> Self {
        if !part.is_empty() {
            self.pointer = format!("/{part}");
        }
        self
    }
}

pub(super) async fn write(
    app: &App,
    who: Identity,
    how: How,
    headers: &HeaderMap,
    ask: Ask,
) -> Result<Response, Failure> {
    let too_long = |what: &str| {
        let detail = format!("{what} has at most {MAX_TEXT} octets.");
        Err(Failure::new(Kind::BadRequest, detail))
    };
    if how.comment.as_ref().is_some_and(|c| c.len() > MAX_TEXT) {
        return too_long("comment");
    }
    let key = headers.get("idempotency-key");
    if key.is_some_and(|k| k.len() > MAX_TEXT || k.is_empty()) {
        return too_long("Idempotency-Key");
    }
    let confirm = how.confirm.as_deref();
    let window_ms = confirm.map(|c| milliseconds("confirm", c)).transpose()?;
    let content = format!(
        "{} {} {window_ms:?} {:?} {}",
        ask.source, ask.pointer, how.max_impact, ask.digest
    );
    let idempotency = key.map(|key| {
        let owner = [who.name.as_bytes(), b"\n", key.as_bytes()].concat();
        (sha256(&owner), sha256(content.as_bytes()))
    });
    let request = WriteRequest {
        edit: ask.edit,
        pointer: ask.pointer,
        source: ask.source,
        expected: expected(headers)?,
        window_ms,
        max_impact: how.max_impact.unwrap_or(Impact::Hot),
        comment: how.comment.clone(),
        idempotency,
        actor: who.name,
    };
    let written = app.engine.write(request).await;
    let noted = Noted {
        revision: written.as_ref().ok().and_then(|w| w.revision),
        comment: how.comment,
    };
    let mut response = match written {
        Ok(written) => answer(app, &written),
        Err(problem) => Failure(problem).into_response(),
    };
    response.extensions_mut().insert(noted);
    Ok(response)
}

fn answer(app: &App, written: &Written) -> Response {
    let status = if written.pending.is_some() {
        StatusCode::ACCEPTED
    } else {
        StatusCode::OK
    };
    let mut response = json(status, written);
    tag(&mut response, &app.engine.view().etag());
    let place = written.operation.as_ref();
    let place = place.and_then(|id| HeaderValue::from_str(&format!("/v1/operations/{id}")).ok());
    if let Some(place) = place {
        response.headers_mut().insert(LOCATION, place);
    }
    response
}

/// ETags of `If-Match`, none for `*`.
fn expected(headers: &HeaderMap) -> Result<Option<Vec<String>>, Failure> {
    let Some(value) = headers.get(IF_MATCH) else {
        let detail = "Send If-Match with the ETag of the document that you saw, or * for any.";
        return Err(Failure::new(Kind::PreconditionRequired, detail));
    };
    let text = value.to_str().unwrap_or_default().trim();
    Ok((text != "*").then(|| text.split(',').map(|t| t.trim().to_owned()).collect()))
}

/// What a change would do: nothing is changed, and a commit that waits is not touched.
#[utoipa::path(post, path = "/v1/config:plan", operation_id = "plan_config", tag = "config",
    request_body(content((Value = "application/json"), (Value = "application/merge-patch+json"), (Value = "application/json-patch+json"))),
    responses((status = 200, body = Plan), Failures))]
pub(crate) async fn plan(
    State(app): State<App>,
    _: Viewer,
    request: Request,
) -> Result<Response, Failure> {
    let (headers, octets) = body::read(request).await?;
    let edit = body::edit(&headers, &octets, true)?;
    let view = app.engine.view();
    let base = Base {
        value: &view.value,
        document: view.document.as_deref(),
    };
    let plan = describe(view.machine.running(), planned(base, edit));
    let mut response = json(StatusCode::OK, &plan);
    tag(&mut response, &view.etag());
    Ok(response)
}
