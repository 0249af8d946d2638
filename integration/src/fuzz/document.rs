//! Config documents: the example with lines taken out, doubled and damaged, in both syntaxes.

use crem_api::{Syntax, parse, to_value};

use super::Reader;

const EXAMPLE: &str = include_str!("../../../control/api/examples/segment.toml");

/// Reads a document; one if it is a good one, which then has to be the same when written again. A bad
/// one has to say why.
///
/// # Panics
/// What must hold does not: what the fuzzer is looking for.
pub fn text(data: &[u8]) -> u64 {
    let mut reader = Reader::new(data);
    let mut lines: Vec<String> = EXAMPLE.lines().map(str::to_owned).collect();
    for _ in 0..reader.octet() % 4 {
        let at = reader.below(lines.len());
        change(&mut lines, at, &mut reader);
    }
    let mut text = lines.join("\n");
    let syntax = if reader.once_in(4) {
        text = String::from_utf8_lossy(reader.rest()).into_owned();
        Syntax::Json
    } else {
        Syntax::Toml
    };
    match parse(&text, syntax) {
        Ok(document) => {
            let value = to_value(&document).to_string();
            let again = parse(&value, Syntax::Json);
            assert_eq!(again.as_ref().ok(), Some(&document), "{value}");
            1
        }
        Err(invalid) => {
            assert!(!invalid.issues.is_empty());
            assert!(invalid.issues.iter().all(|i| !i.to_string().is_empty()));
            0
        }
    }
}

fn change(lines: &mut Vec<String>, at: usize, reader: &mut Reader<'_>) {
    let Some(line) = lines.get(at).cloned() else {
        return;
    };
    match reader.octet() % 5 {
        0 => {
            lines.remove(at);
        }
        1 => lines.insert(at, line),
        2 => {
            let values = [
                "-1",
                "1e400",
                "\"\"",
                "[]",
                "{}",
                "nan",
                "true",
                "\"::/0\"",
                "9999999999",
            ];
            let key = line.split('=').next().unwrap_or_default();
            let value = reader.pick(&values).copied().unwrap_or_default();
            lines[at] = format!("{key}= {value}");
        }
        3 => {
            let digits = reader.word().to_string();
            lines[at] = line.replace(|c: char| c.is_ascii_digit(), &digits);
        }
        _ => {
            let mut octets = line.into_bytes();
            reader.damage(&mut octets);
            lines[at] = String::from_utf8_lossy(&octets).into_owned();
        }
    }
}
