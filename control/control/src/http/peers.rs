//! One peer: a test of the path to it, and whether its settings fit ours.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use crem_api::Document;
use crem_api::Segment;
use crem_api::rest::{Compatibility, PeerTest};
use crem_api::state::{Flows, SegmentStatus};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::echo::{self, Plan};
use crate::peers::{self, About};
use crate::problem::Kind;
use crate::watcher::Seen;

use super::auth::{Operator, Viewer};
use super::failure::{Failure, Failures};
use super::params::{Named, Params};
use super::state::{absent, flows_of};
use super::{App, json};

/// Echoes of a test without another number, and at most.
const ECHOES: u16 = 20;
const MAX_ECHOES: u16 = 100;

/// A peer that the document has or that flows are matched to, and all that is known around it.
struct Known {
    id: String,
    segment: String,
    address: IpAddr,
    document: Arc<Document>,
    seen: Arc<Seen>,
    flows: Arc<Flows>,
    at_ms: u64,
}

impl Known {
    async fn find(app: &App, id: String) -> Result<Self, Failure> {
        let missing = || {
            Failure::new(
                Kind::NotFound,
                "There is no such peer; see /v1/state/peers.",
            )
        };
        let (segment, address) = peers::parse_id(&id).ok_or_else(missing)?;
        let segment = segment.to_owned();
        let document = app.engine.view().document.clone().ok_or_else(missing)?;
        let (at_ms, flows) = flows_of(app).await?;
        let known = Self {
            id: peers::id(&segment, address),
            segment,
            address,
            document,
            seen: app.watcher.seen(),
            flows,
            at_ms,
        };
        let config = known.config().ok_or_else(missing)?;
        let configured = config.peers.values().any(|peer| peer.address == address);
        let matched = peers::flows_of(&known.flows.flows, &known.segment, address).count() > 0;
        let seen = known.status()?.peers.contains_key(&address);
        if configured || matched || seen {
            Ok(known)
        } else {
            Err(missing())
        }
    }

    fn config(&self) -> Option<&Segment> {
        let mut segments = self.document.segments.iter();
        let found = segments.find(|(id, _)| id.as_str() == self.segment);
        found.map(|(_, segment)| segment)
    }

    fn status(&self) -> Result<&SegmentStatus, Failure> {
        let status = self.seen.status.as_ref().ok_or_else(absent)?;
        status.segments.get(&self.segment).ok_or_else(absent)
    }

    /// How echoes to it are sent.
    fn plan(&self, count: u16) -> Result<Plan, Failure> {
        let inband = self.status()?.inband.as_ref();
        let no_station = || {
            let detail =
                "The segment has no in-band address: its mode has none, or it is not in force yet.";
            Failure::new(Kind::NotReady, detail)
        };
        let inband = inband.ok_or_else(no_station)?;
        let from = inband.address.split('/').next().unwrap_or_default();
        let path_mtu = self.config().map_or(0, |config| u32::from(config.path_mtu));
        let mtu = std::fs::read_to_string(format!("/sys/class/net/{}/mtu", inband.interface));
        let mtu = mtu.ok().and_then(|text| text.trim().parse().ok());
        Ok(Plan {
            interface: inband.interface.clone(),
            from: from.parse().map_err(|_| no_station())?,
            to: self.address,
            count,
            longest: mtu.unwrap_or(path_mtu).min(path_mtu),
        })
    }
}

/// How much.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct HowMuch {
    /// Echoes to send, 1 to 100; 20 without it.
    #[param(minimum = 1, maximum = 100)]
    echoes: Option<u16>,
}

/// Tries the path to a peer: echoes between the in-band addresses for loss, round-trip time and the length that
/// passes both ways, beside what flows of that peer show. Takes up to 15 s.
#[utoipa::path(post, path = "/v1/peers/{id}/test", operation_id = "test_peer", tag = "diagnosis",
    params(HowMuch, ("id" = String, Path, description = "id of the peer, SEGMENT@ADDRESS")),
    responses((status = 200, body = PeerTest), Failures))]
pub(crate) async fn test(
    State(app): State<App>,
    _: Operator,
    Named(id): Named<String>,
    Params(how): Params<HowMuch>,
) -> Result<Response, Failure> {
    let count = how.echoes.unwrap_or(ECHOES);
    if !(1..=MAX_ECHOES).contains(&count) {
        let detail = format!("echoes: found {count}, expected 1 to {MAX_ECHOES}.");
        return Err(Failure::new(Kind::BadRequest, detail));
    }
    let full = |_| Failure::new(Kind::TooManyAttempts, "Another test runs already.");
    let permit = Arc::clone(&app.tests).try_acquire_owned().map_err(full)?;
    let known = Known::find(&app, id).await?;
    let plan = known.plan(count)?;
    let tried = tokio::task::spawn_blocking(move || {
        let report = echo::run(&plan);
        // Held until it is over, also if nobody waits for the answer any more.
        drop(permit);
        report
    });
    let echo = tried
        .await
        .map_err(|e| Failure::new(Kind::Internal, e.to_string()))?;
    let own = peers::flows_of(&known.flows.flows, &known.segment, known.address);
    let flows = peers::reports(own, known.at_ms);
    let path = known
        .status()?
        .peers
        .get(&known.address)
        .and_then(|p| p.path.clone());
    let path_mtu = known.config().map_or(0, |config| config.path_mtu);
    let report = PeerTest {
        findings: peers::findings(&echo, &flows, path.as_ref(), path_mtu),
        path_at_ms: known.seen.at_ms,
        id: known.id,
        segment: known.segment,
        address: known.address,
        echo,
        flows,
        path,
    };
    Ok(json(StatusCode::OK, &report))
}

/// Whether both gateways' settings fit together, as far as flows show it.
#[utoipa::path(get, path = "/v1/peers/{id}/compatibility", operation_id = "peer_compatibility", tag = "diagnosis",
    params(("id" = String, Path, description = "id of the peer, SEGMENT@ADDRESS")),
    responses((status = 200, body = Compatibility), Failures))]
pub(crate) async fn compatibility(
    State(app): State<App>,
    _: Viewer,
    Named(id): Named<String>,
) -> Result<Response, Failure> {
    let known = Known::find(&app, id).await?;
    let config = known.config().ok_or_else(absent)?;
    let counters = known.seen.counters.as_ref();
    let about = About {
        segment: &known.segment,
        address: known.address,
        config,
        messages: counters
            .and_then(|c| c.segments.get(&known.segment))
            .map(|s| &s.messages),
    };
    let own = peers::flows_of(&known.flows.flows, &known.segment, known.address);
    let seen = peers::compatibility(&about, own, known.at_ms);
    Ok(json(StatusCode::OK, &seen))
}
