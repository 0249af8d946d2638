//! Revisions: the history of the document.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use crem_api::diff::{Difference, diff as differences};
use crem_api::rest::{Revision, Revisions, Written};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::plan::Edit;
use crate::problem::Kind;
use crate::view::View;

use super::auth::{Admin, Viewer};
use super::config::{Ask, Conditions, How, document_of, tag, write};
use super::failure::{Failure, Failures};
use super::params::{Named, Params, number};
use super::{App, json};

/// Revisions on a page, at most.
const MAX_PAGE: usize = 200;

/// A page of the history.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Page {
    /// Revisions on it, 1 to 200; 50 without it.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<usize>,
    /// Only revisions before this one.
    #[param(maximum = 9_007_199_254_740_991.0)]
    before: Option<u64>,
}

/// The history, newest first.
#[utoipa::path(get, path = "/v1/revisions", operation_id = "list_revisions", tag = "config", params(Page),
    responses((status = 200, body = Revisions), Failures))]
pub(crate) async fn list(
    State(app): State<App>,
    _: Viewer,
    Params(page): Params<Page>,
) -> Result<Response, Failure> {
    let limit = page.limit.unwrap_or(50);
    if !(1..=MAX_PAGE).contains(&limit) {
        let detail = format!("limit: found {limit}, expected 1 to {MAX_PAGE}.");
        return Err(Failure::new(Kind::BadRequest, detail));
    }
    let view = app.engine.view();
    let before = number("before", page.before)?.unwrap_or(u64::MAX);
    let newest_first = view.revisions.range(..before).rev();
    let list = Revisions {
        revisions: newest_first.take(limit).map(|(_, r)| r.clone()).collect(),
        running: view.machine.running(),
        confirmed: view.machine.confirmed(),
    };
    Ok(json(StatusCode::OK, &list))
}

/// A revision, or that there is none.
fn find(view: &View, number: u64) -> Result<&Revision, Failure> {
    let missing = || Failure::new(Kind::NotFound, format!("There is no revision {number}."));
    view.revisions.get(&number).ok_or_else(missing)
}

/// What is known of a revision.
#[utoipa::path(get, path = "/v1/revisions/{number}", operation_id = "get_revision", tag = "config",
    params(("number" = u64, Path, description = "number of the revision")),
    responses((status = 200, body = Revision), Failures))]
pub(crate) async fn get(
    State(app): State<App>,
    _: Viewer,
    Named(number): Named<u64>,
) -> Result<Response, Failure> {
    let view = app.engine.view();
    Ok(json(StatusCode::OK, find(&view, number)?))
}

/// The document of a revision.
#[utoipa::path(get, path = "/v1/revisions/{number}/config", operation_id = "get_revision_config", tag = "config",
    params(("number" = u64, Path, description = "number of the revision")),
    responses((status = 200, body = Value), Failures))]
pub(crate) async fn document(
    State(app): State<App>,
    _: Viewer,
    Named(number): Named<u64>,
) -> Result<Response, Failure> {
    let view = app.engine.view();
    let etag = find(&view, number)?.etag();
    let mut response = json(StatusCode::OK, &document_of(&app, &view, number).await?);
    tag(&mut response, &etag);
    Ok(response)
}

/// What differs from one revision to another.
#[utoipa::path(get, path = "/v1/revisions/{number}/diff/{other}", operation_id = "diff_revisions", tag = "config",
    params(("number" = u64, Path, description = "from this revision"), ("other" = u64, Path, description = "to this one")),
    responses((status = 200, body = Vec<Difference>), Failures))]
pub(crate) async fn diff(
    State(app): State<App>,
    _: Viewer,
    Named((number, other)): Named<(u64, u64)>,
) -> Result<Response, Failure> {
    let view = app.engine.view();
    for n in [number, other] {
        find(&view, n)?;
    }
    let old = document_of(&app, &view, number).await?;
    let new = document_of(&app, &view, other).await?;
    Ok(json(StatusCode::OK, &differences(&old, &new)))
}

/// Makes a new revision with the document of an old one.
#[utoipa::path(post, path = "/v1/revisions/{number}/restore", operation_id = "restore_revision", tag = "config",
    params(("number" = u64, Path, description = "number of the revision"), How, Conditions),
    responses((status = 200, body = Written), (status = 202, body = Written, description = "it waits to be confirmed"), Failures))]
pub(crate) async fn restore(
    State(app): State<App>,
    Admin(who): Admin,
    Named(number): Named<u64>,
    Params(how): Params<How>,
    request: Request,
) -> Result<Response, Failure> {
    let view = app.engine.view();
    find(&view, number)?;
    let value = document_of(&app, &view, number).await?;
    let digest = format!("restore {number}");
    let ask = Ask::new("restore", Edit::Replace(value), digest.as_bytes());
    write(&app, who, how, request.headers(), ask).await
}
