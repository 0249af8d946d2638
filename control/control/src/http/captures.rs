//! Captures of frames. Whoever reads may see which there are; what is in them is for operators, since frames hold
//! what hosts say to each other.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use crem_api::rest::{Capture, CaptureList, NewCapture, Problem};

use crate::captures::Captures;
use crate::clock;
use crate::problem::Kind;

use super::auth::{Operator, Viewer};
use super::failure::{Failure, Failures};
use super::params::Named;
use super::{App, body, download, json};

/// Does something that takes time with the captures.
async fn with<T: Send + 'static>(
    app: &App,
    work: impl FnOnce(&Captures) -> Result<T, Box<Problem>> + Send + 'static,
) -> Result<T, Failure> {
    let captures = Arc::clone(&app.captures);
    let done = tokio::task::spawn_blocking(move || work(&captures)).await;
    match done {
        Ok(done) => done.map_err(Failure::from),
        Err(error) => Err(Failure::new(Kind::Internal, error.to_string())),
    }
}

/// The captures that there are.
#[utoipa::path(get, path = "/v1/captures", operation_id = "list_captures", tag = "diagnosis",
    responses((status = 200, body = CaptureList), Failures))]
pub(crate) async fn list(State(app): State<App>, _: Viewer) -> Result<Response, Failure> {
    let list = with(&app, |captures| Ok(captures.list())).await?;
    Ok(json(StatusCode::OK, &list))
}

/// Begins a capture. There is one at a time.
#[utoipa::path(post, path = "/v1/captures", operation_id = "start_capture", tag = "diagnosis",
    request_body = NewCapture, responses((status = 201, body = Capture), Failures))]
pub(crate) async fn start(
    State(app): State<App>,
    Operator(who): Operator,
    request: Request,
) -> Result<Response, Failure> {
    let asked: NewCapture = body::json(request).await?;
    let at_ms = clock::now().wall_ms;
    let text = format!("{} captures frames of segment {}.", who.name, asked.segment);
    let begun = with(&app, move |captures| captures.start(asked, who.name, at_ms)).await?;
    app.journal.push(at_ms, "capture_started", text, None);
    Ok(json(StatusCode::CREATED, &begun))
}

/// How a capture stands.
#[utoipa::path(get, path = "/v1/captures/{id}", operation_id = "get_capture", tag = "diagnosis",
    params(("id" = String, Path, description = "id of the capture")),
    responses((status = 200, body = Capture), Failures))]
pub(crate) async fn get(
    State(app): State<App>,
    _: Viewer,
    Named(id): Named<String>,
) -> Result<Response, Failure> {
    let capture = with(&app, move |captures| captures.get(&id)).await?;
    Ok(json(StatusCode::OK, &capture))
}

/// Ends a capture; its file stays. One that is over stays as it is.
#[utoipa::path(post, path = "/v1/captures/{id}/stop", operation_id = "stop_capture", tag = "diagnosis",
    params(("id" = String, Path, description = "id of the capture")),
    responses((status = 200, body = Capture), Failures))]
pub(crate) async fn stop(
    State(app): State<App>,
    _: Operator,
    Named(id): Named<String>,
) -> Result<Response, Failure> {
    let capture = with(&app, move |captures| captures.stop(&id)).await?;
    Ok(json(StatusCode::OK, &capture))
}

/// Removes a capture with its file; one that runs is ended.
#[utoipa::path(delete, path = "/v1/captures/{id}", operation_id = "delete_capture", tag = "diagnosis",
    params(("id" = String, Path, description = "id of the capture")),
    responses((status = 204, description = "it is gone"), Failures))]
pub(crate) async fn delete(
    State(app): State<App>,
    _: Operator,
    Named(id): Named<String>,
) -> Result<Response, Failure> {
    with(&app, move |captures| captures.remove(&id)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The file of a capture that is over. Who takes it is in the audit log.
#[utoipa::path(get, path = "/v1/captures/{id}/pcapng", operation_id = "download_capture", tag = "diagnosis",
    params(("id" = String, Path, description = "id of the capture")),
    responses((status = 200, body = inline(download::Octets), content_type = "application/x-pcapng"), Failures))]
pub(crate) async fn pcapng(
    State(app): State<App>,
    _: Operator,
    Named(id): Named<String>,
) -> Result<Response, Failure> {
    let permit = app.may_download()?;
    let name = format!("{id}.pcapng");
    let file = with(&app, move |captures| captures.read(&id)).await?;
    Ok(download::file(file, "application/x-pcapng", &name, permit))
}
