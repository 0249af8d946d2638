//! Rules of the workspace that the compiler does not know: the tier rule, where `unsafe` may stand,
//! which crates build without std, and what may not be in the tree.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Tier of every crate, see docs/ARCHITECTURE.md. A crate that is missing here fails the test.
const TIERS: &[(&str, u32)] = &[
    ("crem-fec", 0),
    ("crem-wire", 0),
    ("crem-core", 1),
    ("crem-api", 1),
    ("crem-meter", 1),
    ("dpdk-sys", 1),
    ("crem-dpdk", 2),
    ("crem-ipfix", 2),
    ("crem-confine", 2),
    ("crem-control", 2),
    ("crem-fleet", 2),
    ("cremctl", 2),
    ("crem-dataplane", 3),
    ("crem-ipfix-io", 3),
    ("crem-gateway", 4),
    ("crem-bench-dataplane", 5),
    ("crem-bench-fec", 5),
    ("crem-integration", 5),
    ("crem-rawsock", 5),
    ("crem-rdma-peer", 5),
    ("crem-sim", 5),
    ("crem-wan", 5),
];

/// Crates that may contain `unsafe`; `crem-fec` only below `src/arch/`.
const UNSAFE_CRATES: &[&str] = &["dpdk-sys", "crem-dpdk", "crem-fec"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// `crate, dependency` pairs that break the tier rule: a product crate depends only on lower tiers;
/// test programs (tier 5) may also use each other.
fn violations(dependencies: &[(String, String)], tiers: &BTreeMap<&str, u32>) -> Vec<String> {
    dependencies
        .iter()
        .filter_map(|(from, to)| {
            let (from_tier, to_tier) = (tiers[from.as_str()], tiers[to.as_str()]);
            let fine = to_tier < from_tier || (from_tier == 5 && to_tier == 5);
            (!fine).then(|| format!("{from} (tier {from_tier}) depends on {to} (tier {to_tier})"))
        })
        .collect()
}

fn tiers() -> BTreeMap<&'static str, u32> {
    TIERS.iter().copied().collect()
}

// shows: SEQ-SEC-07
#[test]
fn crates_depend_only_on_lower_tiers() {
    let tiers = tiers();
    let mut dependencies = Vec::new();
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        assert!(
            tiers.contains_key(name),
            "{name} has no tier: add it to TIERS and docs/ARCHITECTURE.md"
        );
        for dependency in package["dependencies"].as_array().unwrap() {
            let to = dependency["name"].as_str().unwrap();
            let product = dependency["kind"].as_str() != Some("dev");
            if product && tiers.contains_key(to) {
                dependencies.push((name.to_owned(), to.to_owned()));
            }
        }
    }
    let broken = violations(&dependencies, &tiers);
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_tier_rule_sees_a_violation() {
    let upward = [("crem-wire".to_owned(), "crem-core".to_owned())];
    assert_eq!(violations(&upward, &tiers()).len(), 1);
    let sideways = [("crem-core".to_owned(), "crem-api".to_owned())];
    assert_eq!(violations(&sideways, &tiers()).len(), 1);
}

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                rust_files(&path, found);
            }
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

#[test]
fn unsafe_is_forbidden_outside_its_three_places() {
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        if UNSAFE_CRATES.contains(&name) {
            continue;
        }
        for target in package["targets"].as_array().unwrap() {
            let kind = target["kind"][0].as_str().unwrap();
            if kind != "lib" && kind != "bin" {
                continue;
            }
            let path = target["src_path"].as_str().unwrap();
            let source = std::fs::read_to_string(path).unwrap();
            assert!(
                source.contains("#![forbid(unsafe_code)]"),
                "{path} lacks forbid(unsafe_code)"
            );
        }
    }
}

#[test]
fn fec_has_unsafe_only_below_arch() {
    let source = root().join("fec/src");
    let mut files = Vec::new();
    rust_files(&source, &mut files);
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        let has_unsafe = code.into_iter().any(|line| {
            line.split(|c: char| !c.is_alphanumeric() && c != '_')
                .any(|word| word == "unsafe")
        });
        let below_arch = file.starts_with(source.join("arch"));
        assert!(
            below_arch || !has_unsafe,
            "{} has unsafe code",
            file.display()
        );
    }
}

#[test]
fn every_file_says_what_lives_in_it() {
    let mut files = Vec::new();
    rust_files(&root(), &mut files);
    assert!(files.len() > 30);
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let first = text
            .lines()
            .find(|line| !line.trim().is_empty())
            .unwrap_or("");
        assert!(
            first.starts_with("//!") || first.starts_with("/*!"),
            "{} opens without //!",
            file.display()
        );
    }
}

#[test]
fn product_files_stay_short() {
    // 500 lines without tests is the aim; what is longer needs a reason and gets no longer.
    const LIMIT: usize = 500;
    let mut files = Vec::new();
    rust_files(&root(), &mut files);
    let mut long = Vec::new();
    for file in files {
        let relative = file
            .strip_prefix(root())
            .unwrap()
            .to_string_lossy()
            .into_owned();
        if relative.contains("/tests/") || relative.ends_with("tests.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let product = text
            .lines()
            .take_while(|line| !line.starts_with("#[cfg(test)]"))
            .count();
        if product > LIMIT {
            long.push(format!("{relative}: {product} lines"));
        }
    }
    assert!(
        long.is_empty(),
        "longer than {LIMIT} lines without tests:\n{}",
        long.join("\n")
    );
}
