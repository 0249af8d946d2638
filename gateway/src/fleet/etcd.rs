//! Requests to etcd over its JSON gateway: one connection for requests, another one for what is followed. Which
//! requests, and what answers mean, is in `crem_fleet::wire`.

use std::time::Duration;

use crem_fleet::settings;
use crem_fleet::wire::{self, Event, path};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::http::{self, Sender, words};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// What is told of an answer that is no JSON, characters.
const MAX_WORDS: usize = 200;
/// Changes on their way.
const QUEUE: usize = 64;

/// A client of etcd.
#[derive(Debug)]
pub(super) struct Etcd {
    settings: settings::Etcd,
    /// The endpoint in use.
    turn: usize,
    sender: Option<Sender>,
    token: Option<String>,
}

/// Keys that are followed; dropping it ends that.
#[derive(Debug)]
pub(super) struct Watch {
    events: mpsc::Receiver<Event>,
    task: JoinHandle<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watch {
    /// The next event; the end is one too.
    pub(super) async fn next(&mut self) -> Event {
        let event = self.events.recv().await;
        event.unwrap_or_else(|| Event::Over("the connection was closed".to_owned()))
    }
}

impl Etcd {
    pub(super) fn new(settings: settings::Etcd) -> Self {
        Self {
            settings,
            turn: 0,
            sender: None,
            token: None,
        }
    }

    /// Asks. After a failure the next request goes to the next endpoint.
    pub(super) async fn ask(&mut self, path: &str, body: &Value) -> Result<Value, String> {
        let asked = tokio::time::timeout(PATIENCE, self.ask_as_user(path, body)).await;
        let asked = asked.unwrap_or_else(|_| Err("no answer in time".to_owned()));
        if asked.is_err() {
            self.sender = None;
            self.turn = self.turn.wrapping_add(1);
        }
        asked.map_err(|e| format!("{}: {e}", self.name()))
    }

    fn name(&self) -> &'static str {
        "etcd"
    }

    /// A token that is no longer taken is replaced once.
    async fn ask_as_user(&mut self, path: &str, body: &Value) -> Result<Value, String> {
        for again in [true, false] {
            self.authenticate().await?;
            let (status, answer) = self.exchange(path, body).await?;
            if status < 300 {
                return Ok(answer);
            }
            let why = answer["error"].as_str().or(answer["message"].as_str());
            let why = why.map_or_else(|| format!("status {status}"), str::to_owned);
            if status != 401 || !again || self.token.take().is_none() {
                return Err(why);
            }
        }
        Err("the token is not taken".to_owned())
    }

    async fn authenticate(&mut self) -> Result<(), String> {
        let Some((user, file)) = &self.settings.user else {
            return Ok(());
        };
        if self.token.is_some() {
            return Ok(());
        }
        let named = |e: std::io::Error| format!("{}: {e}", file.display());
        let password = std::fs::read_to_string(file).map_err(named)?;
        let body = wire::credentials(user, password.trim_end_matches(['\r', '\n']));
        let (_, answer) = self.exchange(path::AUTHENTICATE, &body).await?;
        let refused = || {
            let why = answer["error"].as_str().unwrap_or("no token");
            format!("the user is not let in: {why}")
        };
        self.token = Some(wire::token(&answer).ok_or_else(refused)?.to_owned());
        Ok(())
    }

    async fn connect(&self) -> Result<Sender, String> {
        let endpoints = &self.settings.endpoints;
        let endpoint = endpoints
            .iter()
            .cycle()
            .nth(self.turn % endpoints.len().max(1));
        let endpoint = endpoint.ok_or("there is no endpoint")?;
        http::remote(endpoint, &self.settings).await
    }

    async fn exchange(&mut self, path: &str, body: &Value) -> Result<(u16, Value), String> {
        let mut sender = match self.sender.take().filter(|s| !s.is_closed()) {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let response = self.post(&mut sender, path, body.to_string()).await?;
        let status = response.status().as_u16();
        let octets = http::whole(response).await?;
        self.sender = Some(sender);
        let answer = serde_json::from_slice(&octets).map_err(|_| {
            let text = String::from_utf8_lossy(&octets);
            let text: String = text.trim_end().chars().take(MAX_WORDS).collect();
            format!("status {status}: {text}")
        });
        Ok((status, answer?))
    }

    async fn post(
        &self,
        sender: &mut Sender,
        path: &str,
        body: String,
    ) -> Result<hyper::Response<Incoming>, String> {
        let mut headers = vec![
            ("content-type", "application/json"),
            // A member that has lost the others does not answer as if it knew.
            ("grpc-metadata-hasleader", "true"),
        ];
        if let Some(token) = &self.token {
            headers.push(("authorization", token));
        }
        http::send(sender, "POST", path, &headers, body).await
    }

    /// Follows keys from a revision on.
    pub(super) async fn watch(
        &mut self,
        ranges: &[(String, Option<String>)],
        from: u64,
    ) -> Result<Watch, String> {
        let opening = async {
            let mut sender = self.connect().await?;
            let body = wire::watch(ranges, from);
            self.post(&mut sender, path::WATCH, body).await
        };
        let opened = tokio::time::timeout(PATIENCE, opening).await;
        let response = opened.map_err(|_| "no watch in time".to_owned())??;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("the watch was answered with {status}"));
        }
        let (sender, events) = mpsc::channel(QUEUE);
        let task = tokio::spawn(async move {
            let why = follow(response.into_body(), &sender).await;
            // Nobody listens any more: as good.
            let _ = sender.send(Event::Over(why)).await;
        });
        Ok(Watch { events, task })
    }
}

/// Reads lines until the end; tells why it ended.
async fn follow(mut body: Incoming, events: &mpsc::Sender<Event>) -> String {
    let mut line = Vec::new();
    while let Some(frame) = body.frame().await {
        let data = match frame.map_err(words) {
            Ok(frame) => frame.into_data().unwrap_or_default(),
            Err(why) => return why,
        };
        for part in data.split_inclusive(|&c| c == b'\n') {
            line.extend_from_slice(part);
            if line.len() > wire::MAX_LINE {
                return "a line that is too long".to_owned();
            }
            if line.ends_with(b"\n") {
                let event = Event::parse(&line);
                line.clear();
                let over = matches!(event, Event::Over(_));
                if events.send(event).await.is_err() || over {
                    return "the watch is over".to_owned();
                }
            }
        }
    }
    "the connection was closed".to_owned()
}
