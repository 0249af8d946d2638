//! Bodies of requests of the REST API: changes of the document in all three forms and at any part of it, and the
//! small ones.

use std::sync::LazyLock;

use crem_api::rest::{Enrol, Extension, NewCapture, NewToken, Which};
use crem_api::{Document, Syntax, from_value, value_of};
use crem_control::plan::{Base, Edit, plan};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Reader;

const EXAMPLE: &str = include_str!("../../../control/api/examples/segment.toml");

/// What runs while changes come.
static RUNNING: LazyLock<(Value, Document)> = LazyLock::new(|| {
    let value = value_of(EXAMPLE, Syntax::Toml).unwrap_or_else(|e| panic!("{e}"));
    let document = from_value(&value).unwrap_or_else(|e| panic!("{e}"));
    (value, document)
});

/// Small bodies that are good ones.
const BODIES: [&str; 5] = [
    r#"{"revision":7}"#,
    r#"{"revision":7,"by":"30s"}"#,
    r#"{"segment":"a","port":"lan"}"#,
    r#"{"name":"x","access":"viewer","life":"24h"}"#,
    r#"{"code":"123","name":"x"}"#,
];

/// Reads a body; one if a document would be accepted, which then has to be the same when it is read again, or a small
/// body is understood. A refusal has words.
///
/// # Panics
/// What must hold does not: what the fuzzer is looking for.
pub fn body(data: &[u8]) -> u64 {
    let mut reader = Reader::new(data);
    if reader.once_in(4) {
        return small(&mut reader);
    }
    let (running, document) = &*RUNNING;
    let base = Base {
        value: running,
        document: Some(document),
    };
    let edit = edit(&mut reader);
    let edit = if reader.once_in(2) {
        Ok(edit)
    } else {
        edit.at(&pointer(&mut reader), running)
    };
    match edit.and_then(|edit| plan(base, edit)) {
        Ok(planned) => {
            assert_eq!(from_value(&planned.value).as_ref(), Ok(&planned.document));
            1
        }
        Err(invalid) => {
            assert!(!invalid.issues.is_empty());
            assert!(invalid.issues.iter().all(|i| !i.to_string().is_empty()));
            0
        }
    }
}

fn small(reader: &mut Reader<'_>) -> u64 {
    let mut octets = reader
        .pick(&BODIES)
        .map_or_else(Vec::new, |body| body.as_bytes().to_vec());
    reader.damage(&mut octets);
    kept::<Which>(&octets)
        + kept::<Extension>(&octets)
        + kept::<NewCapture>(&octets)
        + kept::<NewToken>(&octets)
        + kept::<Enrol>(&octets)
}

fn kept<T: Serialize + DeserializeOwned>(octets: &[u8]) -> u64 {
    let Ok(body) = serde_json::from_slice::<T>(octets) else {
        return 0;
    };
    let text = |body: &T| serde_json::to_string(body).unwrap_or_default();
    let again = serde_json::from_str(&text(&body)).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(text(&body), text(&again));
    1
}

fn edit(reader: &mut Reader<'_>) -> Edit {
    match reader.octet() % 4 {
        0 => Edit::Operations(
            (0..reader.octet() % 40)
                .map(|_| operation(reader))
                .collect(),
        ),
        1 => Edit::Replace(value(reader)),
        2 => Edit::Merge(value(reader)),
        _ => {
            let text = reader.rest();
            Edit::Merge(serde_json::from_slice(text).unwrap_or_default())
        }
    }
}

fn operation(reader: &mut Reader<'_>) -> Value {
    let kinds = ["add", "remove", "replace", "move", "copy", "copy", "test"];
    json!({
        "op": reader.pick(&kinds), "path": pointer(reader), "from": pointer(reader), "value": value(reader),
    })
}

/// A place of the document or one that is like it.
fn pointer(reader: &mut Reader<'_>) -> String {
    let keys = [
        "segments", "wan-a", "a", "policy", "k", "limits", "peers", "workers", "0", "-", "",
    ];
    let depth = match reader.octet() {
        deep @ 250.. => 100 * usize::from(deep - 249),
        flat => usize::from(flat % 5),
    };
    let key = reader.pick(&keys).copied().unwrap_or_default();
    let mut pointer = String::new();
    for _ in 0..depth {
        let next = if depth > 5 {
            Some(&key)
        } else {
            reader.pick(&keys)
        };
        pointer.push('/');
        pointer.push_str(next.copied().unwrap_or_default());
    }
    pointer
}

fn value(reader: &mut Reader<'_>) -> Value {
    match reader.octet() % 8 {
        0 => Value::Null,
        1 => json!(reader.octet()),
        2 => json!("active"),
        3 => json!([]),
        4 => json!({}),
        5 => json!({"segments": {"a": {"policy": {"k": reader.octet()}}}}),
        6 => json!({"workers": reader.octet() % 4}),
        _ => json!(reader.octet().is_multiple_of(2)),
    }
}
