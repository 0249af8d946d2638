//! `docs/conformance.md` from the ledger. Names of tests, no line numbers: moving code changes nothing.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{Form, Ledger, Requirement, Shown};

const HEAD: &str = "\
# Conformance

Written by `cargo run -p crem-integration --bin conformance`; a test fails when it is out of date. Each line
is a requirement of the protocol documents in our words, how strongly it is asked for, and the tests that
show it. A name in `code` is a Rust test, `kind.list` a list of test vectors, *name* a scenario with both
gateways in network namespaces.
";

const DECISIONS: &str = "
## Decisions

Where the documents are silent. What goes beyond them is in [beyond-the-draft.md](beyond-the-draft.md).

| decision | shown by |
|---|---|
";

const BROKEN: &str = "
## Broken on purpose

For these requirements, drawn by a seed, the product was changed so that the behaviour is gone; the test
passed before and failed after. `make break-on-purpose` does it again.

| id | broken | test that failed |
|---|---|---|
";

/// The document.
pub fn write(ledger: &Ledger) -> String {
    let tests = ledger.tests();
    let mut text = HEAD.to_owned();
    summary(ledger, &tests, &mut text);
    for section in &ledger.register.sections {
        line(&mut text, format_args!("\n## {}\n", section.title));
        line(&mut text, format_args!("| id | level | what | shown by |"));
        line(&mut text, format_args!("|---|---|---|---|"));
        for requirement in &section.requirements {
            row(requirement, &tests, &mut text);
        }
    }
    text.push_str(DECISIONS);
    for id in &ledger.register.decisions {
        if let Some(shown) = tests.get(id.as_str()) {
            line(&mut text, format_args!("| {id} | {} |", links(shown)));
        }
    }
    text.push_str(BROKEN);
    for of in &ledger.breaks.list {
        if let Some(failed) = ledger.breaks.failed.get(&of.id) {
            let function = failed.test.rsplit("::").next().unwrap_or_default();
            line(
                &mut text,
                format_args!("| {} | {} | `{function}` |", of.id, of.what),
            );
        }
    }
    text
}

fn summary(ledger: &Ledger, tests: &BTreeMap<&str, Vec<&Shown>>, text: &mut String) {
    let all = ledger.register.requirements().count();
    let shown = ledger
        .register
        .ids()
        .filter(|id| tests.contains_key(id))
        .count();
    let reasons = ledger
        .register
        .requirements()
        .filter(|requirement| requirement.reason.is_some())
        .count();
    let sentence = format_args!(
        "\n{all} requirements: {shown} shown by tests, {reasons} with a reason why not."
    );
    line(text, sentence);
}

fn row(requirement: &Requirement, tests: &BTreeMap<&str, Vec<&Shown>>, text: &mut String) {
    let shown = match (&requirement.reason, tests.get(requirement.id.as_str())) {
        (_, Some(shown)) => links(shown),
        (Some(reason), None) => format!("no test: {reason}"),
        (None, None) => "nothing".to_owned(),
    };
    line(
        text,
        format_args!(
            "| {} | {} | {} | {shown} |",
            requirement.id,
            requirement.level.name(),
            requirement.text
        ),
    );
}

fn links(shown: &[&Shown]) -> String {
    let link = |shown: &&Shown| {
        let Shown {
            file, name, form, ..
        } = shown;
        match form {
            Form::Scenario => format!("[*{name}*](../{file})"),
            Form::Test | Form::Vectors => format!("[`{name}`](../{file})"),
        }
    };
    shown.iter().map(link).collect::<Vec<_>>().join(", ")
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{arguments}");
}
