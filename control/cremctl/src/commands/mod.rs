//! Each command as requests, and its answer as text.

mod capture;
mod config;
mod machine;
mod peer;
mod show;
mod support;
pub(crate) mod top;

use std::fmt::Write;

use serde_json::{Value, json};

use crate::args::{Arguments, Command, Token};
use crate::client::{Answer, Ask, ask};
use crate::{Failure, table};

/// Carries a command out.
///
/// # Errors
/// What the gateway or this machine has against it.
pub(crate) async fn run(arguments: &Arguments) -> Result<String, Failure> {
    match &arguments.command {
        Command::Config(config) => config::run(arguments, config).await,
        Command::Show(show) => show::run(arguments, show).await,
        Command::Top(top) => top::run(arguments, top).await,
        Command::Mode { segment, mode, how } => config::mode(arguments, segment, mode, how).await,
        Command::Capture(capture) => capture::run(arguments, capture).await,
        Command::Peer(peer) => peer::run(arguments, peer).await,
        Command::Support(support) => support::run(arguments, support).await,
        Command::Token(token) => self::token(arguments, token).await,
        Command::Enrol { code, name, life } => enrol(arguments, code, name, life).await,
        Command::Audit { after } => {
            let path = format!("/v1/audit?after={after}");
            let members = [
                "seq", "at_ms", "actor", "via", "action", "revision", "outcome",
            ];
            listed(arguments, path, |v| {
                table::objects(&members, items(&v["records"]))
            })
            .await
        }
        // Done before a gateway is needed.
        Command::Completion { .. } | Command::Man { .. } => Ok(String::new()),
    }
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

async fn get(arguments: &Arguments, path: impl Into<String>) -> Result<Answer, Failure> {
    ask(&arguments.reach, Ask::get(path)).await
}

/// One request whose answer is shown as a table, or as it came.
async fn listed(
    arguments: &Arguments,
    path: impl Into<String>,
    text: impl FnOnce(&Value) -> String,
) -> Result<String, Failure> {
    let value = get(arguments, path).await?.value;
    Ok(if arguments.json {
        pretty(&value)
    } else {
        text(&value)
    })
}

/// A request that removes something.
async fn delete(arguments: &Arguments, path: String) -> Result<String, Failure> {
    let request = Ask {
        method: "DELETE",
        ..Ask::get(path)
    };
    ask(&arguments.reach, request).await?;
    Ok(if arguments.json { "null\n" } else { "" }.to_owned())
}

/// A request that has something done, with or without a body.
async fn post(arguments: &Arguments, path: String, body: Option<Value>) -> Result<Value, Failure> {
    let request = Ask {
        method: "POST",
        path,
        headers: Vec::new(),
        body: body.map(|body| ("application/json", body.to_string())),
    };
    Ok(ask(&arguments.reach, request).await?.value)
}

/// What may not stand in a query as it is.
fn quoted(text: &str) -> String {
    let mut out = String::new();
    for octet in text.bytes() {
        if octet.is_ascii_alphanumeric() || b"-_.~".contains(&octet) {
            out.push(char::from(octet));
        } else {
            // Writing to a string does not fail.
            let _ = write!(out, "%{octet:02X}");
        }
    }
    out
}

fn query(parts: &[(&str, Option<String>)]) -> String {
    let given = parts
        .iter()
        .filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let given: Vec<String> = given.map(|(n, v)| format!("{n}={}", quoted(v))).collect();
    if given.is_empty() {
        String::new()
    } else {
        format!("?{}", given.join("&"))
    }
}

async fn enrol(
    arguments: &Arguments,
    code: &str,
    name: &str,
    life: &str,
) -> Result<String, Failure> {
    let body = json!({"code": code, "name": name, "life": life});
    let request = Ask {
        method: "POST",
        path: "/v1/enrol".to_owned(),
        headers: Vec::new(),
        body: Some(("application/json", body.to_string())),
    };
    let made = ask(&arguments.reach, request).await?.value;
    Ok(if arguments.json {
        pretty(&made)
    } else {
        format!("{}\n", table::cell(&made["token"]))
    })
}

async fn token(arguments: &Arguments, token: &Token) -> Result<String, Failure> {
    match token {
        Token::Create { name, access, life } => {
            let new = json!({"name": name, "access": access, "life": life});
            let made = post(arguments, "/v1/tokens".to_owned(), Some(new)).await?;
            Ok(if arguments.json {
                pretty(&made)
            } else {
                format!("{}\n", table::cell(&made["token"]))
            })
        }
        Token::List => {
            let text = |all: &Value| {
                let members = ["name", "access", "expires_ms"];
                let row = |(id, t): (&String, &Value)| {
                    let rest = members.iter().map(|m| table::cell(&t[*m]));
                    std::iter::once(id.clone()).chain(rest).collect()
                };
                let rows: Vec<Vec<String>> =
                    all.as_object().into_iter().flatten().map(row).collect();
                table::rows(&["id", "name", "access", "expires_ms"], &rows)
            };
            listed(arguments, "/v1/tokens", text).await
        }
        Token::Delete { id } => delete(arguments, format!("/v1/tokens/{}", quoted(id))).await,
    }
}
