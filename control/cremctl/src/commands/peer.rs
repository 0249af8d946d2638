//! Commands on one peer.

use std::fmt::Write;

use serde_json::Value;

use super::{items, listed, post, pretty, query, quoted};
use crate::args::{Arguments, Peer};
use crate::{Failure, table};

pub(super) async fn run(arguments: &Arguments, peer: &Peer) -> Result<String, Failure> {
    match peer {
        Peer::Test { id, echoes } => {
            let query = query(&[("echoes", echoes.map(|n| n.to_string()))]);
            let path = format!("/v1/peers/{}/test{query}", quoted(id));
            let tested = post(arguments, path, None).await?;
            Ok(if arguments.json {
                pretty(&tested)
            } else {
                test(&tested)
            })
        }
        Peer::Compatibility { id } => {
            let path = format!("/v1/peers/{}/compatibility", quoted(id));
            listed(arguments, path, compatibility).await
        }
    }
}

fn test(tested: &Value) -> String {
    let echo = &tested["echo"];
    let cell = |value: &Value| table::cell(value);
    let mut text = format!(
        "echoes: {} of {} came back, round trip {} / {} / {} us (least, median, most)\n\
         longest both ways: {} octets of {} tried\n",
        cell(&echo["received"]),
        cell(&echo["sent"]),
        cell(&echo["rtt_min_us"]),
        cell(&echo["rtt_median_us"]),
        cell(&echo["rtt_max_us"]),
        cell(&echo["mtu_both_ways"]),
        cell(&echo["mtu_tried"]),
    );
    let members = [
        "direction",
        "flows",
        "protected",
        "packets",
        "lost",
        "rtt_min_us",
        "rtt_median_us",
        "symbol_octets",
    ];
    text.push_str(&table::objects(&members, items(&tested["flows"])));
    sentences(&mut text, items(&tested["findings"]));
    text
}

fn compatibility(seen: &Value) -> String {
    let members = ["pointer", "configured", "least", "most", "meaning"];
    let mut text = table::objects(&members, items(&seen["settings"]));
    let mismatches = items(&seen["mismatches"]).map(|m| {
        format!(
            "{}: {} ({} flows)",
            table::cell(&m["pointer"]),
            table::cell(&m["text"]),
            m["flows"]
        )
    });
    let lines: Vec<Value> = mismatches.map(Value::String).collect();
    if lines.is_empty() {
        let answers = seen["answers"] == true;
        text.push_str(if answers {
            "everything fits\n"
        } else {
            "the peer has not answered\n"
        });
    }
    sentences(&mut text, lines.iter());
    text
}

fn sentences<'a>(text: &mut String, lines: impl Iterator<Item = &'a Value>) {
    for line in lines {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", table::cell(line));
    }
}
