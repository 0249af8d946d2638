//! The commit that waits, and operations.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use crem_api::rest::{Commit, Extension, Operation, OperationState, Which};

use crate::clock;
use crate::engine::CommitRequest;
use crate::problem::Kind;

use super::auth::{Noted, Operator, Viewer};
use super::failure::{Failure, Failures};
use super::params::{Named, Params, Wait, milliseconds};
use super::{App, body, json};

/// The commit under way.
#[utoipa::path(get, path = "/v1/commit", operation_id = "get_commit", tag = "config",
    responses((status = 200, body = Commit), Failures))]
pub(crate) async fn get(State(app): State<App>, _: Viewer) -> Response {
    json(StatusCode::OK, &app.engine.view().commit(clock::now()))
}

/// Keeps the change. It has to come over a connection that began after the change was in force.
#[utoipa::path(post, path = "/v1/commit:confirm", operation_id = "confirm_commit", tag = "config", request_body = Which,
    responses((status = 200, body = Commit), Failures))]
pub(crate) async fn confirm(
    State(app): State<App>,
    Operator(who): Operator,
    request: Request,
) -> Result<Response, Failure> {
    let which: Which = body::json(request).await?;
    let connected_ms = who.connected_ms;
    ask(
        &app,
        which.revision,
        CommitRequest::Confirm { connected_ms },
    )
    .await
}

/// Gives the change up at once.
#[utoipa::path(post, path = "/v1/commit:cancel", operation_id = "cancel_commit", tag = "config", request_body = Which,
    responses((status = 200, body = Commit), Failures))]
pub(crate) async fn cancel(
    State(app): State<App>,
    _: Operator,
    request: Request,
) -> Result<Response, Failure> {
    let which: Which = body::json(request).await?;
    ask(&app, which.revision, CommitRequest::Cancel).await
}

/// Waits longer.
#[utoipa::path(post, path = "/v1/commit:extend", operation_id = "extend_commit", tag = "config", request_body = Extension,
    responses((status = 200, body = Commit), Failures))]
pub(crate) async fn extend(
    State(app): State<App>,
    _: Operator,
    request: Request,
) -> Result<Response, Failure> {
    let extension: Extension = body::json(request).await?;
    let by_ms = milliseconds("by", &extension.by)?;
    ask(&app, extension.revision, CommitRequest::Extend { by_ms }).await
}

async fn ask(app: &App, revision: u64, request: CommitRequest) -> Result<Response, Failure> {
    app.engine.commit(revision, request).await?;
    let mut response = json(StatusCode::OK, &app.engine.view().commit(clock::now()));
    response.extensions_mut().insert(Noted {
        revision: Some(revision),
        comment: None,
    });
    Ok(response)
}

/// A write and what became of it.
#[utoipa::path(get, path = "/v1/operations/{id}", operation_id = "get_operation", tag = "config",
    params(("id" = String, Path, description = "id of the operation"), Wait),
    responses((status = 200, body = Operation), Failures))]
pub(crate) async fn operation(
    State(app): State<App>,
    _: Viewer,
    Named(id): Named<String>,
    Params(wait): Params<Wait>,
) -> Result<Response, Failure> {
    let wait = wait.time()?;
    let mut changes = app.engine.follow();
    let over = changes.wait_for(|view| {
        let operation = view.operations.get(&id);
        operation.is_none_or(|o| o.state != OperationState::Running)
    });
    // Over or not, what there is is told.
    let _ = tokio::time::timeout(wait, over).await;
    let view = app.engine.view();
    let missing = || Failure::new(Kind::NotFound, "There is no such operation any more.");
    let mut operation = view.operations.get(&id).ok_or_else(missing)?.clone();
    operation.idempotency = None;
    Ok(json(StatusCode::OK, &operation))
}
