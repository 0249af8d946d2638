//! Lines of the local protocol between processes: good requests and replies, damaged, cut and joined, and octets
//! that are none.

use crem_api::protocol::{Ask, Body, ErrorReply, Reply, Request};

use super::Reader;

/// What clients and servers say to each other.
const LINES: [&str; 9] = [
    r#"{"v":1,"get":"status"}"#,
    r#"{"v":1,"get":"flows"}"#,
    r#"{"v":1,"get":"document"}"#,
    r#"{"v":1,"apply":{"revision":7,"max_impact":"hot","dry_run":true,"document":{"version":1,"segments":{"a":{"mode":"block"}}}}}"#,
    r#"{"v":2,"get":"status"}"#,
    r#"{"v":1,"at_ms":7,"flows":{"flows":[],"left_out":0}}"#,
    r#"{"v":1,"at_ms":7,"applied":{"generation":3,"impact":"segment","changes":[{"pointer":"/workers","impact":"process"}]}}"#,
    r#"{"v":1,"at_ms":7,"error":{"code":"invalid","message":"x","issues":[{"pointer":"/a","code":"out_of_range","limit":[1,9],"found":"0","expected":"1 to 9"}]}}"#,
    r#"{"v":1,"at_ms":0,"document":{"generation":0,"document":{"policy":{"epsilon":1e-4}}}}"#,
];

/// Reads a line as a server and as a client would; counts what was understood. That, and every refusal, has to be
/// the same when it was written and read again.
///
/// # Panics
/// What must hold does not: what the fuzzer is looking for.
pub fn line(data: &[u8]) -> u64 {
    let mut reader = Reader::new(data);
    let text = damaged(&mut reader);
    let asked = match Request::parse(&text) {
        Ok(request) => {
            request_is_kept(&request);
            1
        }
        Err(refusal) => {
            refusal_is_kept(refusal);
            0
        }
    };
    // A client takes what it does not know of a reply as absent, and never what is no reply.
    let replied = serde_json::from_str::<Reply>(&text).map_or(0, |reply| {
        let again: Reply = read(&reply.to_line());
        assert_eq!(again, reply, "{text}");
        1
    });
    asked + replied
}

fn read(line: &str) -> Reply {
    assert!(line.ends_with('\n') && line.trim_end().lines().count() == 1);
    serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))
}

fn request_is_kept(request: &Request) {
    let text = serde_json::to_string(request).unwrap_or_default();
    assert_eq!(Request::parse(&text).as_ref(), Ok(request), "{text}");
    if let Ask::Apply(apply) = &request.ask {
        // Whatever it says, it is a document or has problems that have words.
        if let Err(invalid) = crem_api::from_value(&apply.document) {
            assert!(invalid.issues.iter().all(|i| !i.to_string().is_empty()));
            refusal_is_kept(ErrorReply::invalid(invalid));
        }
    }
}

fn refusal_is_kept(refusal: ErrorReply) {
    assert!(!refusal.message.is_empty());
    let reply = Reply::new(1, Body::Error(refusal));
    assert_eq!(read(&reply.to_line()), reply);
}

fn damaged(reader: &mut Reader<'_>) -> String {
    let mut octets = reader
        .pick(&LINES)
        .copied()
        .unwrap_or_default()
        .as_bytes()
        .to_vec();
    match reader.octet() % 6 {
        0 => reader.damage(&mut octets),
        1 => octets.truncate(reader.below(octets.len() + 1)),
        2 => {
            let other = reader.pick(&LINES).copied().unwrap_or_default();
            octets.truncate(reader.below(octets.len() + 1));
            octets.extend(other.bytes().skip(reader.below(other.len())));
        }
        3 => octets = exchanged(octets, reader),
        4 => octets = reader.rest().to_vec(),
        _ => {}
    }
    String::from_utf8_lossy(&octets).into_owned()
}

/// A value in place of another.
fn exchanged(octets: Vec<u8>, reader: &mut Reader<'_>) -> Vec<u8> {
    let values = [
        "null",
        "-1",
        "1e400",
        "\"\"",
        "[]",
        "{}",
        "true",
        "18446744073709551616",
        "0.1",
        "[[[[[[]]]]]]",
    ];
    let value = reader.pick(&values).copied().unwrap_or_default();
    let text = String::from_utf8_lossy(&octets).into_owned();
    let places: Vec<usize> = text.match_indices(':').map(|(at, _)| at + 1).collect();
    let Some(&at) = reader.pick(&places) else {
        return octets;
    };
    let (before, after) = text.split_at(at);
    let end = after.find([',', '}']).unwrap_or(after.len());
    format!("{before}{value}{}", after.get(end..).unwrap_or_default()).into_bytes()
}
