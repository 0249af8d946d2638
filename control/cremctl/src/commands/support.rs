//! Commands on support bundles.

use serde_json::Value;

use super::capture::fetched;
use super::{delete, get, items, listed, post, pretty, quoted};
use crate::args::{Arguments, Support};
use crate::{Failure, table};

const MEMBERS: [&str; 6] = ["id", "state", "octets", "at_ms", "actor", "detail"];

pub(super) async fn run(arguments: &Arguments, support: &Support) -> Result<String, Failure> {
    let at = |id: &str| format!("/v1/support-bundles/{}", quoted(id));
    let shown = |value: &Value| {
        if arguments.json {
            pretty(value)
        } else {
            table::objects(&MEMBERS, [value])
        }
    };
    match support {
        Support::Make { file } => {
            let begun = post(arguments, "/v1/support-bundles".to_owned(), None).await?;
            let id = begun["id"].as_str().unwrap_or_default().to_owned();
            let mut made = begun;
            while made["state"] == "running" {
                made = get(arguments, format!("{}?wait=20s", at(&id))).await?.value;
            }
            if made["state"] != "succeeded" {
                return Err(Failure::Local(table::cell(&made["detail"])));
            }
            match file {
                Some(file) => fetched(arguments, format!("{}/file", at(&id)), file).await,
                None => Ok(shown(&made)),
            }
        }
        Support::List => {
            let text = |list: &Value| table::objects(&MEMBERS, items(&list["bundles"]));
            listed(arguments, "/v1/support-bundles", text).await
        }
        Support::Show { id } => Ok(shown(&get(arguments, at(id)).await?.value)),
        Support::Fetch { id, file } => fetched(arguments, format!("{}/file", at(id)), file).await,
        Support::Delete { id } => delete(arguments, at(id)).await,
    }
}
