//! The ledger of the tree is complete and `docs/conformance.md` is what it says; and the check finds
//! what is wrong when something is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

use crem_integration::conformance::{Form, Ledger, Shown, document};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn every_requirement_has_its_test_or_its_reason() {
    let problems = Ledger::read(&root()).unwrap().problems();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_document_is_up_to_date() {
    let ledger = Ledger::read(&root()).unwrap();
    let found = std::fs::read_to_string(root().join("docs/conformance.md")).unwrap();
    assert!(
        found == document(&ledger),
        "docs/conformance.md: run `cargo run -p crem-integration --bin conformance`"
    );
}

#[test]
fn lists_of_vectors_that_show_something_have_cases_and_are_complete() {
    let ledger = Ledger::read(&root()).unwrap();
    let complete = include_str!("vectors.rs");
    for shown in ledger.shown.iter().filter(|s| s.form == Form::Vectors) {
        let (kind, list) = shown.name.split_once('.').unwrap();
        assert!(
            complete.contains(&format!("    \"{kind}\",")),
            "{kind} is not complete"
        );
        let path = root().join(format!("integration/testdata/vectors/{kind}.json.gz"));
        let file = std::fs::File::open(path).unwrap();
        let document: serde_json::Value =
            serde_json::from_reader(flate2::read::GzDecoder::new(file)).unwrap();
        assert!(
            document[list].as_array().is_some_and(|l| !l.is_empty()),
            "{shown}"
        );
    }
}

/// What the check says about the ledger of the tree after a change.
fn after(change: impl FnOnce(&mut Ledger)) -> Vec<String> {
    let mut ledger = Ledger::read(&root()).unwrap();
    change(&mut ledger);
    ledger.problems()
}

fn requirement<'a>(
    ledger: &'a mut Ledger,
    id: &str,
) -> &'a mut crem_integration::conformance::Requirement {
    ledger
        .register
        .sections
        .iter_mut()
        .flat_map(|s| &mut s.requirements)
        .find(|r| r.id == id)
        .unwrap()
}

#[test]
fn what_is_wrong_is_found() {
    let forget = |ledger: &mut Ledger, id: &str| {
        for shown in &mut ledger.shown {
            shown.ids.retain(|i| i != id);
        }
    };
    let found = after(|l| forget(l, "CREM-RSP-07"));
    assert!(found.contains(&"CREM-RSP-07 has neither a test nor a reason".to_owned()));
    let reason = || Some("because nobody looked into it".to_owned());
    let found = after(|l| {
        forget(l, "CREM-RSP-07");
        requirement(l, "CREM-RSP-07").reason = reason();
    });
    assert!(found.contains(&"CREM-RSP-07 must have a test, not a reason".to_owned()));
    let found = after(|l| requirement(l, "CREM-RSP-04").reason = reason());
    assert!(found.contains(&"CREM-RSP-04 has a test, its reason is out of date".to_owned()));
    let found = after(|l| {
        l.shown.clear();
        let all = l.register.sections.iter_mut();
        all.flat_map(|s| &mut s.requirements)
            .filter(|r| !r.level.needs_test())
            .for_each(|r| r.reason = reason());
    });
    assert!(
        found.iter().any(|p| p.ends_with("reasons, 40 at most")),
        "{found:?}"
    );
    let found = after(|l| {
        l.shown.push(Shown {
            file: "a.rs".to_owned(),
            name: "x".to_owned(),
            form: Form::Test,
            ids: vec!["CREM-RSP-99".to_owned()],
        });
    });
    assert!(found.contains(&"a.rs: x: CREM-RSP-99 is not in the register".to_owned()));
}

#[test]
fn a_break_that_is_missing_changed_or_did_not_fail_is_found() {
    let drawn = Ledger::read(&root()).unwrap().register.drawn().len();
    assert_eq!(drawn, 30);
    let found = after(|l| l.breaks.list.clear());
    let missing = |p: &&String| p.ends_with("nothing breaks it on purpose");
    assert_eq!(found.iter().filter(missing).count(), drawn);
    let found = after(|l| l.breaks.list[0].replace.push(' '));
    assert!(found.iter().any(|p| p.contains("not run as it stands")));
    let found = after(|l| l.breaks.list[0].test = "x::nothing".to_owned());
    assert!(
        found
            .iter()
            .any(|p| p.contains("x::nothing does not show it"))
    );
    let found = after(|l| l.breaks.failed.clear());
    assert_eq!(found.len(), drawn);
}
