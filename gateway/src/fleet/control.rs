//! Requests to the control process of this gateway over its local socket, as any client makes them. Each has a
//! connection of its own: what confirms a change has to come over a new one.

use std::path::PathBuf;
use std::time::Duration;

use crem_api::Impact;
use crem_api::rest::{Commit, FlowPage, Operation, Plan, Problem, Revision, Revisions, Written};
use crem_api::state::Status;
use crem_fleet::health::Health;
use crem_fleet::machine::{BoxState, Trouble, Write};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::http;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same where a document is brought into force: longer than the gateway itself takes at most.
const CHANGE_PATIENCE: Duration = Duration::from_secs(35);
/// Flows that are looked at.
const FLOWS: &str = "/v1/state/flows?limit=1000";

/// A client of the control process.
#[derive(Debug)]
pub(super) struct Control {
    socket: PathBuf,
}

/// A request.
struct Ask<'a> {
    method: &'a str,
    path: &'a str,
    headers: &'a [(&'a str, &'a str)],
    body: String,
    patience: Duration,
}

impl<'a> Ask<'a> {
    fn get(path: &'a str) -> Self {
        Self {
            method: "GET",
            path,
            headers: &[],
            body: String::new(),
            patience: PATIENCE,
        }
    }

    fn post(path: &'a str, body: String) -> Self {
        Self {
            method: "POST",
            headers: &[("content-type", "application/json")],
            body,
            ..Self::get(path)
        }
    }
}

impl Control {
    pub(super) fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// The answer, and its ETag.
    async fn ask<T: DeserializeOwned>(&self, ask: Ask<'_>) -> Result<(T, Option<String>), Trouble> {
        let patience = ask.patience;
        let asking = async {
            let mut sender = http::local(&self.socket).await?;
            let sent = http::send(&mut sender, ask.method, ask.path, ask.headers, ask.body);
            let response = sent.await?;
            let etag = response.headers().get("etag");
            let etag = etag.and_then(|v| v.to_str().ok()).map(str::to_owned);
            let status = response.status();
            Ok((status, etag, http::whole(response).await?))
        };
        let asked = tokio::time::timeout(patience, asking).await;
        let asked = asked.unwrap_or_else(|_| Err("no answer in time".to_owned()));
        let (status, etag, octets) = asked.map_err(Trouble::NoAnswer)?;
        let unreadable = |e| Trouble::NoAnswer(format!("status {status}: {e}"));
        if !status.is_success() {
            let problem = serde_json::from_slice::<Problem>(&octets).map_err(unreadable)?;
            return Err(Trouble::Problem(Box::new(problem)));
        }
        Ok((serde_json::from_slice(&octets).map_err(unreadable)?, etag))
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Trouble> {
        Ok(self.ask(Ask::get(path)).await?.0)
    }

    /// How the gateway is; with its flows where they matter.
    pub(super) async fn look(&self, with_flows: bool) -> Result<Box<BoxState>, String> {
        self.state(with_flows)
            .await
            .map_err(|trouble| match trouble {
                Trouble::Problem(problem) => format!("{}: {}", problem.title, problem.detail),
                Trouble::NoAnswer(words) => words,
            })
    }

    async fn state(&self, with_flows: bool) -> Result<Box<BoxState>, Trouble> {
        let commit: Commit = self.get("/v1/commit").await?;
        let revisions: Revisions = self.get("/v1/revisions?limit=1").await?;
        let comment = match revisions.running {
            Some(number) => {
                let path = format!("/v1/revisions/{number}");
                self.get::<Revision>(&path).await?.comment
            }
            None => None,
        };
        // Without a data plane both are refused, which says just that.
        let status = self.get::<Status>("/v1/state/dataplane").await.ok();
        let flows = if with_flows && status.is_some() {
            self.get::<FlowPage>(FLOWS).await.ok()
        } else {
            None
        };
        let flows = flows.map(|page| page.flows).unwrap_or_default();
        Ok(Box::new(BoxState {
            running: revisions.running,
            comment,
            commit,
            health: Health::of(status.as_ref(), &flows),
        }))
    }

    pub(super) async fn plan(&self, document: &Value) -> Result<(String, Plan), Trouble> {
        let ask = Ask::post("/v1/config:plan", document.to_string());
        let (plan, etag) = self.ask(ask).await?;
        let etag = etag.ok_or_else(|| Trouble::NoAnswer("a plan without an ETag".to_owned()))?;
        Ok((etag, plan))
    }

    pub(super) async fn write(
        &self,
        write: &Write,
        confirm_s: u64,
        max_impact: Impact,
    ) -> Result<Written, Trouble> {
        let impact = if max_impact == Impact::Segment {
            "segment"
        } else {
            "hot"
        };
        // The key has nothing in it but what ids have, and spaces.
        let comment = write.key.replace(' ', "%20");
        let path = format!("/v1/config?confirm={confirm_s}s&max_impact={impact}&comment={comment}");
        let headers = [
            ("content-type", "application/json"),
            ("if-match", write.etag.as_str()),
            ("idempotency-key", write.key.as_str()),
        ];
        let ask = Ask {
            method: "PUT",
            path: &path,
            headers: &headers,
            body: write.document.to_string(),
            patience: CHANGE_PATIENCE,
        };
        Ok(self.ask(ask).await?.0)
    }

    /// `confirm` or `cancel`.
    pub(super) async fn commit(&self, what: &str, revision: u64) -> Result<(), Trouble> {
        let path = format!("/v1/commit:{what}");
        let body = json!({ "revision": revision }).to_string();
        let ask = Ask {
            patience: CHANGE_PATIENCE,
            ..Ask::post(&path, body)
        };
        self.ask::<Commit>(ask).await.map(|_| ())
    }

    pub(super) async fn operation(&self, id: &str) -> Result<Box<Operation>, Trouble> {
        let path = format!("/v1/operations/{id}");
        self.get(&path).await.map(Box::new)
    }
}
