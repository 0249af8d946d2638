//! Support bundles. They hold a part of the audit log, so they are for those who may read that.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use crem_api::rest::{Bundle, BundleList, BundlePhase};

use crate::clock;
use crate::journal::Since;
use crate::problem::Kind;
use crate::support::{MAX_AUDIT, Sources};

use super::auth::Admin;
use super::failure::{Failure, Failures};
use super::params::{Named, Params, Wait};
use super::{App, download, json, system};

/// Gathers what goes into a bundle. Blocks.
fn sources(app: &App) -> std::io::Result<Sources> {
    let (view, seen) = (app.engine.view(), app.watcher.seen());
    let events = match app.journal.since(0) {
        Since::All(events) => events,
        Since::Gone(_) => Vec::new(),
    };
    let before = app.audit.last().saturating_sub(MAX_AUDIT as u64);
    Ok(Sources {
        flows: app.watcher.flows().ok().map(|(_, flows)| flows),
        events,
        audit: app.audit.read(before, MAX_AUDIT)?,
        metrics: app.metrics_text(&view, &seen),
        versions: system::versions(&seen),
        view,
        seen,
    })
}

/// Begins to make a support bundle.
#[utoipa::path(post, path = "/v1/support-bundles", operation_id = "make_bundle", tag = "diagnosis",
    responses((status = 202, body = Bundle), Failures))]
pub(crate) async fn make(State(app): State<App>, Admin(who): Admin) -> Result<Response, Failure> {
    let bundle = app.support.begin(who.name, clock::now().wall_ms)?;
    let id = bundle.id.clone();
    tokio::task::spawn_blocking(move || app.support.make(&id, sources(&app)));
    let location = format!("/v1/support-bundles/{}", bundle.id);
    let mut response = json(StatusCode::ACCEPTED, &bundle);
    if let Ok(location) = location.parse() {
        response.headers_mut().insert("location", location);
    }
    Ok(response)
}

/// The support bundles that there are.
#[utoipa::path(get, path = "/v1/support-bundles", operation_id = "list_bundles", tag = "diagnosis",
    responses((status = 200, body = BundleList), Failures))]
pub(crate) async fn list(State(app): State<App>, _: Admin) -> Response {
    json(StatusCode::OK, &app.support.list())
}

/// How a support bundle stands.
#[utoipa::path(get, path = "/v1/support-bundles/{id}", operation_id = "get_bundle", tag = "diagnosis",
    params(Wait, ("id" = String, Path, description = "id of the bundle")),
    responses((status = 200, body = Bundle), Failures))]
pub(crate) async fn get(
    State(app): State<App>,
    _: Admin,
    Named(id): Named<String>,
    Params(wait): Params<Wait>,
) -> Result<Response, Failure> {
    let wait = wait.time()?;
    let mut changes = app.support.follow();
    let done = async {
        while app
            .support
            .get(&id)
            .is_ok_and(|b| b.state == BundlePhase::Running)
        {
            if changes.changed().await.is_err() {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(wait, done).await;
    Ok(json(StatusCode::OK, &app.support.get(&id)?))
}

/// The file of a support bundle, a tar archive packed with gzip.
#[utoipa::path(get, path = "/v1/support-bundles/{id}/file", operation_id = "download_bundle", tag = "diagnosis",
    params(("id" = String, Path, description = "id of the bundle")),
    responses((status = 200, body = inline(download::Octets), content_type = "application/gzip"), Failures))]
pub(crate) async fn file(
    State(app): State<App>,
    _: Admin,
    Named(id): Named<String>,
) -> Result<Response, Failure> {
    let permit = app.may_download()?;
    let name = format!("crem-support-{id}.tar.gz");
    let support = Arc::clone(&app.support);
    let file = tokio::task::spawn_blocking(move || support.read(&id)).await;
    let file = file.map_err(|e| Failure::new(Kind::Internal, e.to_string()))??;
    Ok(download::file(file, "application/gzip", &name, permit))
}

/// Removes a support bundle with its file.
#[utoipa::path(delete, path = "/v1/support-bundles/{id}", operation_id = "delete_bundle", tag = "diagnosis",
    params(("id" = String, Path, description = "id of the bundle")),
    responses((status = 204, description = "it is gone"), Failures))]
pub(crate) async fn delete(
    State(app): State<App>,
    _: Admin,
    Named(id): Named<String>,
) -> Result<Response, Failure> {
    app.support.remove(&id)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
