//! The first token, for the code on the console.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use crem_api::rest::{Access, Enrol, TokenMade};

use crate::clock;
use crate::enrol::Refused;
use crate::problem::Kind;

use super::auth::{Connection, Peer};
use super::failure::{Failure, Failures};
use super::params::milliseconds;
use super::system::{described, legal_name};
use super::{App, body, json};

/// Longest life of a token that was got with a code, seconds: long enough to set other ways up.
const MAX_LIFE_S: u64 = 30 * 86_400;

/// Exchanges the code that a box without any other access shows on its console for an admin token, once.
#[utoipa::path(post, path = "/v1/enrol", tag = "system", security(()), request_body = Enrol,
    responses((status = 201, body = TokenMade), Failures))]
pub(crate) async fn enrol(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let from = address(&request);
    let now = clock::now();
    if from.is_some_and(|from| !app.attempts.may_try(from, now.wall_ms)) {
        let detail = "Too many failed attempts came from this address; wait for a minute.";
        return Err(Failure::new(Kind::TooManyAttempts, detail));
    }
    let ask: Enrol = body::json(request).await?;
    let bad = |detail: String| Failure::new(Kind::BadRequest, detail);
    let life_ms = milliseconds("life", &ask.life)?;
    if !(1000..=MAX_LIFE_S * 1000).contains(&life_ms) {
        return Err(bad(format!("life: expected 1s to {MAX_LIFE_S}s.")));
    }
    legal_name(&ask.name).map_err(bad)?;
    if let Err(refused) = app.enrolment.redeem(&ask.code, now.boot_ms) {
        if let (Some(from), Refused::Wrong) = (from, refused) {
            app.attempts.failed(from, now.wall_ms);
        }
        return Err(Failure::new(Kind::Unauthenticated, refused.told()));
    }
    let tokens = Arc::clone(&app.tokens);
    let name = ask.name.clone();
    let made = tokio::task::spawn_blocking(move || {
        tokens.create(&name, Access::Admin, now.wall_ms, life_ms / 1000)
    });
    let failed = |e: &dyn std::fmt::Display| Failure::new(Kind::Internal, e.to_string());
    let (id, token, known) = made
        .await
        .map_err(|e| failed(&e))?
        .map_err(|e| failed(&e))?;
    let text = format!(
        "{} has got the first token ({id}) with the enrolment code.",
        ask.name
    );
    app.audit.system(now.wall_ms, "enrolled", 0, &text);
    app.journal.push(now.wall_ms, "enrolled", text, None);
    let made = TokenMade {
        id,
        token,
        info: described(&known),
    };
    Ok(json(StatusCode::CREATED, &made))
}

fn address(request: &Request) -> Option<IpAddr> {
    match &request.extensions().get::<Connection>()?.peer {
        Peer::Remote { address, .. } => Some(address.ip()),
        Peer::Local { .. } => None,
    }
}
