//! What the data plane and the exporting process say of themselves, made fit for clients: parts, pages,
//! filters.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use crem_api::Prefix;
use crem_api::rest::{Drop, DropList, FlowPage, PeerList, PeerState};
use crem_api::state::{Counters, Export, Flow, Role, SegmentStatus, Status};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::problem::Kind;
use crate::watcher::Seen;

use super::auth::Viewer;
use super::failure::{Failure, Failures};
use super::params::{Named, Params};
use super::{App, json};

/// Flows on a page, at most.
const MAX_PAGE: usize = 1000;

pub(super) fn absent() -> Failure {
    Failure::new(Kind::DataplaneAbsent, "The data plane does not answer.")
}

fn status_of(seen: &Seen) -> Result<&Status, Failure> {
    seen.status.as_ref().ok_or_else(absent)
}

/// The data plane as a whole.
#[utoipa::path(get, path = "/v1/state/dataplane", tag = "state",
    responses((status = 200, body = Status), Failures))]
pub(crate) async fn dataplane(State(app): State<App>, _: Viewer) -> Result<Response, Failure> {
    Ok(json(StatusCode::OK, status_of(&app.watcher.seen())?))
}

/// Its segments.
#[utoipa::path(get, path = "/v1/state/segments", tag = "state",
    responses((status = 200, body = BTreeMap<String, SegmentStatus>), Failures))]
pub(crate) async fn segments(State(app): State<App>, _: Viewer) -> Result<Response, Failure> {
    let seen = app.watcher.seen();
    Ok(json(StatusCode::OK, &status_of(&seen)?.segments))
}

/// One of them.
#[utoipa::path(get, path = "/v1/state/segments/{id}", tag = "state",
    params(("id" = String, Path, description = "id of the segment")),
    responses((status = 200, body = SegmentStatus), Failures))]
pub(crate) async fn segment(
    State(app): State<App>,
    _: Viewer,
    Named(id): Named<String>,
) -> Result<Response, Failure> {
    let seen = app.watcher.seen();
    let missing = || Failure::new(Kind::NotFound, "There is no such segment.");
    let segment = status_of(&seen)?.segments.get(&id).ok_or_else(missing)?;
    Ok(json(StatusCode::OK, segment))
}

/// Counters of everything.
#[utoipa::path(get, path = "/v1/state/counters", tag = "state",
    responses((status = 200, body = Counters), Failures))]
pub(crate) async fn counters(State(app): State<App>, _: Viewer) -> Result<Response, Failure> {
    let seen = app.watcher.seen();
    Ok(json(
        StatusCode::OK,
        seen.counters.as_ref().ok_or_else(absent)?,
    ))
}

/// Frames that ended here, by reason.
#[utoipa::path(get, path = "/v1/state/drops", tag = "state",
    responses((status = 200, body = DropList), Failures))]
pub(crate) async fn drops(State(app): State<App>, _: Viewer) -> Result<Response, Failure> {
    let seen = app.watcher.seen();
    let counters = seen.counters.as_ref().ok_or_else(absent)?;
    let drops = counters.segments.iter().flat_map(|(segment, counters)| {
        let ports = [("lan", &counters.lan), ("wan", &counters.wan)];
        let ports = ports.into_iter().flat_map(|(port, named)| {
            ["device_drops", "ring_drops"]
                .into_iter()
                .filter_map(move |name| {
                    let frames = *named.get(name)?;
                    Some((format!("{port}_{name}"), frames))
                })
        });
        let named = counters.drops.iter().map(|(n, f)| (n.clone(), *f));
        named.chain(ports).map(|(reason, frames)| Drop {
            segment: segment.clone(),
            reason,
            frames,
        })
    });
    let list = DropList {
        at_ms: seen.at_ms,
        drops: drops.collect(),
    };
    Ok(json(StatusCode::OK, &list))
}

/// What the exporting process sends to whom.
#[utoipa::path(get, path = "/v1/state/ipfix", tag = "state",
    responses((status = 200, body = Export), Failures))]
pub(crate) async fn ipfix(State(app): State<App>, _: Viewer) -> Result<Response, Failure> {
    let seen = app.watcher.seen();
    let none = || Failure::new(Kind::NotFound, "No exporting process answers.");
    Ok(json(StatusCode::OK, seen.export.as_ref().ok_or_else(none)?))
}

/// Peers, and how many flows each protects.
#[utoipa::path(get, path = "/v1/state/peers", tag = "state",
    responses((status = 200, body = PeerList), Failures))]
pub(crate) async fn peers(State(app): State<App>, _: Viewer) -> Result<Response, Failure> {
    let (at_ms, flows) = flows_of(&app).await?;
    let seen = app.watcher.seen();
    let mut peers: BTreeMap<(String, IpAddr), PeerState> = BTreeMap::new();
    let mut peer = |segment: &str, address: IpAddr, work: &mut dyn FnMut(&mut PeerState)| {
        let entry = peers.entry((segment.to_owned(), address));
        work(entry.or_insert_with(|| PeerState::new(segment, address)));
    };
    for (id, segment) in &status_of(&seen)?.segments {
        for (address, known) in &segment.peers {
            peer(id, *address, &mut |p| {
                p.next_hop_mac.clone_from(&known.next_hop_mac)
            });
        }
    }
    for flow in &flows.flows {
        let Some(matched) = flow.matched else {
            continue;
        };
        peer(&flow.segment, matched.peer.ip(), &mut |p| {
            p.answered |= matched.answered;
            p.flows += 1;
            p.protected_flows += u64::from(flow.reason.is_none());
        });
    }
    let list = PeerList {
        at_ms,
        peers: peers.into_values().collect(),
    };
    Ok(json(StatusCode::OK, &list))
}

pub(super) async fn flows_of(app: &App) -> Result<(u64, Arc<crem_api::state::Flows>), Failure> {
    let watcher = app.watcher.clone();
    let listed = tokio::task::spawn_blocking(move || watcher.flows()).await;
    listed.ok().and_then(Result::ok).ok_or_else(absent)
}

/// Which flows.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    /// Flows on the page, 1 to 1000; 100 without it.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
    /// Only flows of this segment.
    segment: Option<String>,
    /// Only this side of flows.
    role: Option<Role>,
    /// Only flows in this state.
    state: Option<String>,
    /// Only flows that are not protected for this reason.
    reason: Option<String>,
    /// Only flows that are (`true`) or are not (`false`) protected.
    protected: Option<bool>,
    /// Only flows from or to this network, such as `10.0.1.0/24`.
    #[param(format = "cidr")]
    network: Option<String>,
}

/// Flows in a fixed order, each with the reason when it is not protected.
#[utoipa::path(get, path = "/v1/state/flows", tag = "state", params(Filter),
    responses((status = 200, body = FlowPage), Failures))]
pub(crate) async fn flows(
    State(app): State<App>,
    _: Viewer,
    Params(filter): Params<Filter>,
) -> Result<Response, Failure> {
    let limit = filter.limit.unwrap_or(100);
    if !(1..=MAX_PAGE).contains(&limit) {
        let detail = format!("limit: found {limit}, expected 1 to {MAX_PAGE}.");
        return Err(Failure::new(Kind::BadRequest, detail));
    }
    let network = filter.network.as_deref().map(str::parse::<Prefix>);
    let network = network.transpose().map_err(|_| {
        Failure::new(
            Kind::BadRequest,
            "network: expected a network such as 10.0.1.0/24.",
        )
    })?;
    let (at_ms, all) = flows_of(&app).await?;
    let page = page(&all.flows, &filter, network.as_ref(), limit);
    let page = FlowPage {
        at_ms,
        left_out: all.left_out,
        ..page
    };
    Ok(json(StatusCode::OK, &page))
}

fn page(all: &[Flow], filter: &Filter, network: Option<&Prefix>, limit: usize) -> FlowPage {
    let mut page = FlowPage::default();
    let mut last = None;
    for flow in all.iter().filter(|flow| fits(filter, network, flow)) {
        page.total += 1;
        let key = flow_key(flow);
        if filter.cursor.as_ref().is_some_and(|cursor| key <= *cursor) {
            continue;
        }
        if page.flows.len() < limit {
            page.flows.push(flow.clone());
            last = Some(key);
        } else if page.next_cursor.is_none() {
            page.next_cursor = last.take();
        }
    }
    page
}

fn fits(filter: &Filter, network: Option<&Prefix>, flow: &Flow) -> bool {
    let is = |wanted: &Option<String>, found: Option<&str>| {
        wanted.as_ref().is_none_or(|w| Some(w.as_str()) == found)
    };
    is(&filter.segment, Some(&flow.segment))
        && is(&filter.state, Some(&flow.state))
        && is(&filter.reason, flow.reason.as_deref())
        && filter.role.is_none_or(|role| role == flow.role)
        && filter.protected.is_none_or(|p| p == flow.reason.is_none())
        && network.is_none_or(|n| n.contains(flow.source) || n.contains(flow.destination))
}

/// What flows are ordered by: the order stays while flows come and go, so that pages fit together.
pub fn flow_key(flow: &Flow) -> String {
    format!(
        "{}|{:?}|{}|{}|{:06x}|{}",
        flow.segment, flow.role, flow.source, flow.destination, flow.qp, flow.space
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn flows(count: u32) -> Vec<Flow> {
        let mut flows: Vec<Flow> = (0..count)
            .map(|n| {
                let reason = if n % 2 == 0 { "null" } else { "\"mtu\"" };
                let text = format!(
                    r#"{{"segment":"a","role":"csf","source":"10.0.1.{}","destination":"10.0.2.1",
                    "qp":{n},"space":"requests","state":"x","reason":{reason}}}"#,
                    n % 4
                );
                serde_json::from_str(&text).unwrap()
            })
            .collect();
        flows.sort_by_cached_key(flow_key);
        flows
    }

    fn filter(text: &str) -> Filter {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn pages_show_every_flow_once_also_when_flows_go_between_them() {
        let mut all = flows(25);
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let filter = Filter {
                cursor: cursor.clone(),
                ..filter("{}")
            };
            let page = page(&all, &filter, None, 10);
            seen.extend(page.flows.iter().map(flow_key));
            // One that was shown goes.
            all.remove(0);
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen.len(), 25);
        seen.dedup();
        assert_eq!(seen.len(), 25);
    }

    #[test]
    fn filters_choose() {
        let all = flows(20);
        let total = |text: &str, network: Option<&str>| {
            let network = network.map(|n| n.parse().unwrap());
            page(&all, &filter(text), network.as_ref(), 5).total
        };
        assert_eq!(total("{}", None), 20);
        assert_eq!(total(r#"{"protected":true}"#, None), 10);
        assert_eq!(total(r#"{"reason":"mtu"}"#, None), 10);
        assert_eq!(total(r#"{"reason":"breaker"}"#, None), 0);
        assert_eq!(total(r#"{"role":"crf"}"#, None), 0);
        assert_eq!(total("{}", Some("10.0.1.2/32")), 5);
        assert_eq!(total("{}", Some("10.0.2.0/24")), 20);
        assert_eq!(total("{}", Some("10.0.3.0/24")), 0);
    }
}
