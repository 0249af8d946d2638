//! The committed description of the API is the one that the program makes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use serde_json::Value;

/// Writes the file anew with `CREM_WRITE_OPENAPI=1`.
#[test]
fn the_committed_description_is_the_one_that_is_served() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let made = crem_control::http::openapi();
    if std::env::var_os("CREM_WRITE_OPENAPI").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == made,
        "docs/openapi.json has drifted: CREM_WRITE_OPENAPI=1 cargo test -p crem-control --test openapi"
    );
}

#[test]
fn every_operation_names_its_problems() {
    let document: Value = serde_json::from_str(&crem_control::http::openapi()).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() > 25, "{}", paths.len());
    let mut ids = std::collections::BTreeSet::new();
    for (path, methods) in paths {
        assert!(!path.contains('*'), "{path}");
        for (method, operation) in methods.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id.to_owned()), "{id} twice");
            let responses = operation["responses"].as_object().unwrap();
            if path != "/livez" {
                let problem = &responses["4XX"]["content"]["application/problem+json"];
                assert!(problem.is_object(), "{method} {path}");
            }
        }
    }
}
