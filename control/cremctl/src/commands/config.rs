//! Commands on the config document.

use std::fmt::Write;
use std::path::Path;

use crem_api::rest::{JSON_PATCH, MERGE_PATCH};
use serde_json::{Value, json};

use super::{get, items, listed, pretty, query};
use crate::args::{Arguments, Change, Config, How, Kind};
use crate::client::{Ask, ask};
use crate::{Failure, table};

pub(super) async fn run(arguments: &Arguments, config: &Config) -> Result<String, Failure> {
    match config {
        Config::Show {
            part,
            revision,
            filled,
        } => {
            let part = part
                .iter()
                .map(|p| format!("/{}", p.trim_start_matches('/')));
            let query = query(&[
                ("view", revision.map(|n| format!("rev:{n}"))),
                ("filled", filled.then(|| "true".to_owned())),
            ]);
            let path = format!("/v1/config{}{query}", part.collect::<String>());
            Ok(pretty(&get(arguments, path).await?.value))
        }
        Config::Schema => Ok(pretty(&get(arguments, "/v1/schema/config").await?.value)),
        Config::Plan(change) => plan(arguments, change).await,
        Config::Apply { change, how } => {
            let method = if change.kind == Kind::Document {
                "PUT"
            } else {
                "PATCH"
            };
            write(arguments, method, "/v1/config", Some(body(change)?), how).await
        }
        Config::Confirm { revision } => commit(arguments, "confirm", *revision, None).await,
        Config::Cancel { revision } => commit(arguments, "cancel", *revision, None).await,
        Config::Extend { by, revision } => commit(arguments, "extend", *revision, Some(by)).await,
        Config::Diff { from, to } => {
            let to = match to {
                Some(to) => *to,
                None => running(arguments).await?,
            };
            listed(
                arguments,
                format!("/v1/revisions/{from}/diff/{to}"),
                table::differences,
            )
            .await
        }
        Config::History { limit } => {
            let path = format!("/v1/revisions?limit={limit}");
            listed(arguments, path, history).await
        }
        Config::Restore { revision, how } => {
            let path = format!("/v1/revisions/{revision}/restore");
            write(arguments, "POST", &path, None, how).await
        }
    }
}

/// Changes the mode of one segment and nothing else.
pub(super) async fn mode(
    arguments: &Arguments,
    segment: &str,
    mode: &str,
    how: &How,
) -> Result<String, Failure> {
    let segment = segment.replace('~', "~0").replace('/', "~1");
    let pointer = format!("/segments/{segment}/mode");
    // Unlike a merge, this does not begin a segment of another name.
    let patch = json!([{"op": "add", "path": pointer, "value": mode}]);
    let body = (JSON_PATCH, patch.to_string());
    write(arguments, "PATCH", "/v1/config", Some(body), how).await
}

async fn running(arguments: &Arguments) -> Result<u64, Failure> {
    let list = get(arguments, "/v1/revisions?limit=1").await?.value;
    let number = list["running"].as_u64();
    number.ok_or_else(|| Failure::Local("no document runs".to_owned()))
}

fn history(list: &Value) -> String {
    let members = ["at_ms", "actor", "source", "impact", "comment"];
    let row = |r: &Value| {
        let mark = match &r["number"] {
            n if *n == list["confirmed"] => " confirmed",
            n if *n == list["running"] => " pending",
            _ => "",
        };
        let first = format!("{}{mark}", r["number"]);
        std::iter::once(first)
            .chain(members.iter().map(|m| table::cell(&r[*m])))
            .collect()
    };
    let rows: Vec<Vec<String>> = items(&list["revisions"]).map(row).collect();
    let header = ["revision", "at_ms", "actor", "source", "impact", "comment"];
    table::rows(&header, &rows)
}

fn body(change: &Change) -> Result<(&'static str, String), Failure> {
    let local =
        |e: &dyn std::fmt::Display| Failure::Local(format!("{}: {e}", change.file.display()));
    let text = if change.file == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(&change.file)
    };
    let text = text.map_err(|e| local(&e))?;
    let is_json =
        change.file == Path::new("-") || change.file.extension().is_some_and(|e| e == "json");
    let syntax = if is_json {
        crem_api::Syntax::Json
    } else {
        crem_api::Syntax::Toml
    };
    let value = crem_api::value_of(&text, syntax).map_err(|e| local(&e))?;
    let media_type = match change.kind {
        Kind::Document => "application/json",
        Kind::Merge => MERGE_PATCH,
        Kind::Operations => JSON_PATCH,
    };
    Ok((media_type, value.to_string()))
}

async fn plan(arguments: &Arguments, change: &Change) -> Result<String, Failure> {
    let request = Ask {
        method: "POST",
        path: "/v1/config:plan".to_owned(),
        headers: Vec::new(),
        body: Some(body(change)?),
    };
    let plan = ask(&arguments.reach, request).await?.value;
    if plan["valid"] == false {
        let mut problem = crem_api::rest::Problem {
            kind: "urn:crem:problem:validation".to_owned(),
            title: "The document has problems".to_owned(),
            status: 422,
            detail: "It would not be accepted.".to_owned(),
            ..Default::default()
        };
        problem.errors = serde_json::from_value(plan["errors"].clone()).unwrap_or_default();
        return Err(Failure::Problem(Box::new(problem)));
    }
    if arguments.json {
        return Ok(pretty(&plan));
    }
    let mut text = table::differences(&plan["diff"]);
    let _ = writeln!(text, "impact: {}", table::cell(&plan["impact"]));
    if plan["confirm_required"] == true {
        text.push_str("needs --confirm\n");
    }
    Ok(text)
}

async fn write(
    arguments: &Arguments,
    method: &str,
    path: &str,
    body: Option<(&'static str, String)>,
    how: &How,
) -> Result<String, Failure> {
    let expected = match &how.if_match {
        Some(etag) => etag.clone(),
        None => match get(arguments, "/v1/config").await {
            Ok(answer) => answer.etag.unwrap_or_default(),
            // No document yet.
            Err(Failure::Problem(problem)) if problem.status == 404 => "\"0\"".to_owned(),
            Err(failure) => return Err(failure),
        },
    };
    let query = query(&[
        ("confirm", how.confirm.clone()),
        ("max_impact", how.max_impact.clone()),
        ("comment", how.comment.clone()),
    ]);
    let request = Ask {
        method,
        path: format!("{path}{query}"),
        headers: vec![("if-match", expected)],
        body,
    };
    let written = ask(&arguments.reach, request).await?.value;
    Ok(if arguments.json {
        pretty(&written)
    } else {
        outcome(&written)
    })
}

fn outcome(written: &Value) -> String {
    if written["changed"] == false {
        return "nothing to change\n".to_owned();
    }
    let mut text = table::differences(&written["diff"]);
    let revision = &written["revision"];
    let _ = match written["pending"]["remaining_ms"].as_u64() {
        Some(ms) => writeln!(
            text,
            "revision {revision} runs and is rolled back in {} s: cremctl config confirm {revision}",
            ms / 1000
        ),
        None => writeln!(
            text,
            "revision {revision} runs, impact {}",
            table::cell(&written["impact"])
        ),
    };
    if written["restart_needed"] == true {
        text.push_str("the data plane takes it at its next start\n");
    }
    text
}

async fn commit(
    arguments: &Arguments,
    verb: &str,
    revision: Option<u64>,
    by: Option<&String>,
) -> Result<String, Failure> {
    let revision = match revision {
        Some(revision) => revision,
        None => {
            let commit = get(arguments, "/v1/commit").await?.value;
            let none = || Failure::Local("no commit waits to be confirmed".to_owned());
            commit["revision"].as_u64().ok_or_else(none)?
        }
    };
    let mut which = json!({"revision": revision});
    if let Some(by) = by {
        which["by"] = json!(by);
    }
    let request = Ask {
        method: "POST",
        path: format!("/v1/commit:{verb}"),
        headers: Vec::new(),
        body: Some(("application/json", which.to_string())),
    };
    let commit = ask(&arguments.reach, request).await?.value;
    Ok(if arguments.json {
        pretty(&commit)
    } else {
        waiting(&commit)
    })
}

pub(super) fn waiting(commit: &Value) -> String {
    match commit["remaining_ms"].as_u64() {
        Some(ms) => format!(
            "{}: revision {} of {} is rolled back to {} in {} s\n",
            table::cell(&commit["state"]),
            commit["revision"],
            table::cell(&commit["actor"]),
            table::cell(&commit["rollback_to"]),
            ms / 1000
        ),
        None => "no commit waits\n".to_owned(),
    }
}
