//! Answers as text for people: tables with a header, one line a thing. What a value means is not decided
//! here.

use std::fmt::Write;

use crem_api::rest::Problem;
use serde_json::Value;

/// Rows under a header, in columns as wide as they have to be.
pub(crate) fn rows(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = header.iter().map(|h| h.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    let header: Vec<String> = header.iter().map(|h| h.to_uppercase()).collect();
    for row in std::iter::once(&header).chain(rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            // Writing to a string does not fail.
            let _ = write!(line, "{cell:<width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A value in one cell.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        other => other.to_string(),
    }
}

/// Rows of the members of objects.
pub(crate) fn objects<'a>(
    members: &[&str],
    objects: impl IntoIterator<Item = &'a Value>,
) -> String {
    let row = |object: &Value| members.iter().map(|m| cell(&object[*m])).collect();
    let found: Vec<Vec<String>> = objects.into_iter().map(row).collect();
    rows(members, &found)
}

/// Differences, one a line.
pub(crate) fn differences(list: &Value) -> String {
    let mut text = String::new();
    for d in list.as_array().into_iter().flatten() {
        let place = d["pointer"]
            .as_str()
            .filter(|p| !p.is_empty())
            .unwrap_or("/");
        let _ = match d["op"].as_str() {
            Some("add") => writeln!(text, "+ {place}: {}", d["new"]),
            Some("remove") => writeln!(text, "- {place}: {}", d["old"]),
            _ => writeln!(text, "~ {place}: {} -> {}", d["old"], d["new"]),
        };
    }
    text
}

/// A problem in words.
pub(crate) fn problem(problem: &Problem) -> String {
    let mut text = format!("cremctl: {}. {}\n", problem.title, problem.detail);
    for error in &problem.errors {
        let place = if error.pointer.is_empty() {
            "/"
        } else {
            &error.pointer
        };
        let _ = writeln!(text, "  {place}: {}", error.detail);
    }
    for field in &problem.fields {
        let _ = writeln!(text, "  {}: {:?}", field.pointer, field.impact);
    }
    if let Some(diff) = &problem.diff {
        for difference in diff {
            let _ = writeln!(text, "  {difference}");
        }
    }
    if let Some(commit) = &problem.commit {
        let revision = commit.revision.unwrap_or(0);
        let seconds = commit.remaining_ms.unwrap_or(0) / 1000;
        let owner = commit.actor.as_deref().unwrap_or("somebody");
        let _ = writeln!(
            text,
            "  revision {revision} of {owner} waits, {seconds} s are left"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let list = [
            json!({"a": "x", "b": null}),
            json!({"a": "long", "b": true}),
        ];
        assert_eq!(objects(&["a", "b"], &list), "A     B\nx     -\nlong  yes\n");
    }

    #[test]
    fn differences_say_what_happened() {
        let list = json!([
            {"op": "replace", "pointer": "/a", "old": 1, "new": 2},
            {"op": "remove", "pointer": "/b", "old": {}},
            {"op": "add", "pointer": "", "new": {}},
        ]);
        assert_eq!(differences(&list), "~ /a: 1 -> 2\n- /b: {}\n+ /: {}\n");
    }
}
