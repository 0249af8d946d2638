//! Events as they happen (server-sent events), with a way back in after a lost connection.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use crem_api::rest::Event;
use serde::Deserialize;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use utoipa::IntoParams;

use crate::journal::{Journal, Since};
use crate::problem::Kind;

use super::App;
use super::auth::Viewer;
use super::failure::{Failure, Failures};
use super::params::Params;

/// A comment after so long without an event, so that both ends notice when the other one is gone.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Clients that follow at once.
const MAX_FOLLOWERS: usize = 64;

/// Which events.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    /// Only events of these types, separated by commas.
    types: Option<String>,
}

/// Events from now on, or from after `Last-Event-ID`. An event `reset` says that some are gone and the
/// state has to be asked for anew.
#[utoipa::path(get, path = "/v1/events", operation_id = "follow_events", tag = "state", params(Which, ("Last-Event-ID" = Option<u64>, Header, description = "number of the last event seen")),
    responses((status = 200, body = Event, content_type = "text/event-stream"), Failures))]
pub(crate) async fn follow(
    State(app): State<App>,
    _: Viewer,
    Params(which): Params<Which>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let last = match headers.get("last-event-id") {
        None => app.journal.last(),
        Some(value) => {
            let number = value
                .to_str()
                .ok()
                .and_then(|text| text.trim().parse().ok());
            number.ok_or_else(|| Failure::new(Kind::BadRequest, "Last-Event-ID is a number."))?
        }
    };
    if app.journal.followers() >= MAX_FOLLOWERS {
        let detail = "Too many clients follow events already.";
        return Err(Failure::new(Kind::TooManyAttempts, detail));
    }
    let types = which
        .types
        .map(|t| t.split(',').map(str::to_owned).collect());
    let (send, receive) = mpsc::channel(16);
    tokio::spawn(pass(Arc::clone(&app.journal), last, types, send));
    let body = Body::new(Stream(receive));
    Ok(([("content-type", "text/event-stream")], body).into_response())
}

/// Passes events on until the client is gone.
async fn pass(
    journal: Arc<Journal>,
    mut last: u64,
    types: Option<Vec<String>>,
    to: mpsc::Sender<String>,
) {
    let mut changes = journal.follow();
    if to.send(": CREM events\n\n".to_owned()).await.is_err() {
        return;
    }
    loop {
        // Marked before looking, so that what comes meanwhile is looked at next.
        changes.mark_unchanged();
        match journal.since(last) {
            Since::All(events) => {
                for event in events {
                    last = event.id;
                    let wanted = types.as_ref().is_none_or(|t| t.contains(&event.kind));
                    if wanted && to.send(written(&event)).await.is_err() {
                        return;
                    }
                }
            }
            Since::Gone(newest) => {
                last = newest;
                let reset = format!("id: {newest}\nevent: reset\ndata: {{}}\n\n");
                if to.send(reset).await.is_err() {
                    return;
                }
            }
        }
        let more = tokio::time::timeout(HEARTBEAT, changes.changed()).await;
        let gone = match more {
            Ok(changed) => changed.is_err(),
            Err(_) => to.send(":\n\n".to_owned()).await.is_err(),
        };
        if gone {
            return;
        }
    }
}

fn written(event: &Event) -> String {
    let data = serde_json::to_string(event).unwrap_or_default();
    format!("id: {}\nevent: {}\ndata: {data}\n\n", event.id, event.kind)
}

struct Stream(mpsc::Receiver<String>);

impl axum::body::HttpBody for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
        let next = self.0.poll_recv(context);
        next.map(|text| text.map(|text| Ok(hyper::body::Frame::data(text.into()))))
    }
}
