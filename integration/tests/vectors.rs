//! The committed vectors pass, and the runner finds what is wrong when something is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crem_fec::{Engine, Isa};
use crem_integration::vectors::run_directory;
use serde_json::{Value, json};

/// Kinds whose every case has a product function.
const COMPLETE: &[&str] = &[
    "coding",
    "collector",
    "ecn",
    "frames",
    "icrc",
    "ipfix",
    "messages",
    "plan",
    "policy",
    "seq_traces",
];

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/vectors")
}

#[test]
fn committed_vectors_pass() {
    let report = run_directory(&testdata()).unwrap();
    for file in &report.files {
        assert!(
            file.tally.failures.is_empty(),
            "{}: {:?}",
            file.name,
            file.tally.failures
        );
        if COMPLETE.contains(&file.name.as_str()) {
            assert!(
                file.tally.passed > 0 && file.tally.not_covered == 0,
                "{}",
                file.name
            );
        }
    }
    let names: Vec<&str> = report.files.iter().map(|file| file.name.as_str()).collect();
    assert!(COMPLETE.iter().all(|name| names.contains(name)));
}

#[test]
fn coding_vectors_pass_with_every_instruction_set_forced() {
    let json = Path::new(env!("CARGO_TARGET_TMPDIR")).join("forced.out");
    let run = |isa: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vectors"));
        command
            .arg(testdata())
            .arg("--json")
            .arg(&json)
            .env("CREM_FEC_ISA", isa);
        command.output().unwrap()
    };
    let mut forced = 0;
    for isa in Isa::ALL {
        let output = run(isa.name());
        let text = String::from_utf8(output.stdout).unwrap();
        if Engine::with_isa(isa).is_ok() {
            assert!(
                output.status.success() && text.contains(" 0 failed"),
                "{}: {text}",
                isa.name()
            );
            forced += 1;
        } else {
            assert!(
                text.contains("FAILED coding: CREM_FEC_ISA"),
                "{}: {text}",
                isa.name()
            );
        }
    }
    assert!(forced > 0);
    assert_eq!(run("abacus").status.code(), Some(1));
}

/// A directory with one file, and what the program says about it.
fn run_program(name: &str, document: &Value) -> (Option<i32>, String, Value) {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&directory).unwrap();
    let kind = name.split('-').next().unwrap();
    fs::write(directory.join(format!("{kind}.json")), document.to_string()).unwrap();
    let json = directory.join("report/vectors.out");
    let output = Command::new(env!("CARGO_BIN_EXE_vectors"))
        .args([directory.as_os_str(), "--json".as_ref(), json.as_os_str()])
        .output()
        .unwrap();
    let report = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap(),
        report,
    )
}

#[test]
fn wrong_expectations_fail_by_name() {
    let document = json!({
        "products": [[2, 2, 4], [2, 2, 5], ["x"]],
        "coefficients": [[0, 0, 0xfd]],
        "novelties": [1, 2],
    });
    let (status, output, report) = run_program("coding-wrong", &document);
    assert_eq!(status, Some(1));
    assert!(
        output.contains("FAILED coding: products[1]: product: expected 5, found 4"),
        "{output}"
    );
    assert!(
        output.contains("FAILED coding: products[2]: unexpected shape"),
        "{output}"
    );
    assert_eq!(
        output.lines().last(),
        Some("2 passed, 2 failed, 2 not covered")
    );
    assert_eq!(
        report["files"]["coding"]["failures"][0]["case"],
        "products[1]"
    );
}

#[test]
fn unknown_kinds_are_not_covered() {
    let (status, output, report) = run_program("weather", &json!({"cases": [1, 2, 3]}));
    assert_eq!(status, Some(0));
    assert_eq!(
        output.lines().last(),
        Some("0 passed, 0 failed, 3 not covered")
    );
    assert_eq!(report["not_covered"], 3);
}

#[test]
fn what_cannot_be_run_is_status_2() {
    let empty = Path::new(env!("CARGO_TARGET_TMPDIR")).join("empty");
    fs::create_dir_all(&empty).unwrap();
    let broken = Path::new(env!("CARGO_TARGET_TMPDIR")).join("broken");
    fs::create_dir_all(&broken).unwrap();
    fs::write(broken.join("plan.json"), "{").unwrap();
    let missing = empty.join("missing");
    for directory in [&empty, &broken, &missing] {
        let output = Command::new(env!("CARGO_BIN_EXE_vectors"))
            .arg(directory)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(directory.to_str().unwrap()), "{error}");
    }
    let usage = Command::new(env!("CARGO_BIN_EXE_vectors"))
        .output()
        .unwrap();
    assert_eq!(usage.status.code(), Some(2));
}
