//! Commands on captures.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{delete, get, items, listed, post, pretty, quoted};
use crate::args::{Arguments, Capture, NewCapture};
use crate::{Failure, client, table};

pub(super) async fn run(arguments: &Arguments, capture: &Capture) -> Result<String, Failure> {
    let at = |id: &str| format!("/v1/captures/{}", quoted(id));
    let shown = |value: &Value| {
        if arguments.json {
            pretty(value)
        } else {
            rows([value])
        }
    };
    match capture {
        Capture::Start(new) => {
            let begun = post(arguments, "/v1/captures".to_owned(), Some(asked(new))).await?;
            Ok(shown(&begun))
        }
        Capture::List => {
            let text = |list: &Value| rows(items(&list["captures"]));
            listed(arguments, "/v1/captures", text).await
        }
        Capture::Show { id } => Ok(shown(&get(arguments, at(id)).await?.value)),
        Capture::Stop { id } => {
            let ended = post(arguments, format!("{}/stop", at(id)), None).await?;
            Ok(shown(&ended))
        }
        Capture::Fetch { id, file } => fetched(arguments, format!("{}/pcapng", at(id)), file).await,
        Capture::Delete { id } => delete(arguments, at(id)).await,
    }
}

/// Copies a file, and says so where that does not go to the same place.
pub(super) async fn fetched(
    arguments: &Arguments,
    path: String,
    file: &Path,
) -> Result<String, Failure> {
    let length = client::fetch(&arguments.reach, path, file).await?;
    if file == Path::new("-") {
        return Ok(String::new());
    }
    Ok(if arguments.json {
        pretty(&json!({"file": file, "octets": length}))
    } else {
        format!("{}: {length} octets\n", file.display())
    })
}

/// The request, without what is left to the gateway.
fn asked(new: &NewCapture) -> Value {
    let given = [
        ("segment", Some(json!(new.segment))),
        ("port", new.port.as_ref().map(|port| json!(port))),
        ("kind", new.kind.as_ref().map(|kind| json!(kind))),
        ("address", new.address.map(|address| json!(address))),
        ("snap_octets", new.snap.map(Value::from)),
        ("max_frames", new.frames.map(Value::from)),
        ("max_octets", new.octets.map(Value::from)),
        ("seconds", new.seconds.map(Value::from)),
    ];
    let given = given
        .into_iter()
        .filter_map(|(k, v)| Some((k.to_owned(), v?)));
    Value::Object(given.collect::<Map<_, _>>())
}

fn rows<'a>(captures: impl IntoIterator<Item = &'a Value>) -> String {
    let header = [
        "id", "segment", "port", "state", "frames", "octets", "lost", "by", "detail",
    ];
    let row = |c: &Value| {
        let cell = |name: &str| table::cell(&c[name]);
        let port = c["asked"]["port"].as_str().unwrap_or("both");
        vec![
            cell("id"),
            table::cell(&c["asked"]["segment"]),
            port.to_owned(),
            cell("state"),
            cell("frames"),
            cell("octets"),
            cell("lost"),
            cell("actor"),
            cell("detail"),
        ]
    };
    let rows: Vec<Vec<String>> = captures.into_iter().map(row).collect();
    table::rows(&header, &rows)
}
