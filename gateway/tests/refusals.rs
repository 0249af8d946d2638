//! Bad input to the program: every problem on standard error, exit status 2, nothing started.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;
use std::process::Command;

struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("crem-gateway-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Exit status and standard error.
fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let program = env!("CARGO_BIN_EXE_crem-gateway");
    let output = Command::new(program)
        .args(arguments)
        .env_clear()
        .output()
        .unwrap();
    assert!(
        output.stdout.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    (
        output.status.code(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

const DOCUMENT: &str = r#"
    version = 1
    [segments.a]
    mode = "active"
    crem_port = 4801
    path_mtu = 4214
    lan = { interface = "crem-none0" }
    wan = { interface = "crem-none1" }
    served = { "10.0.1.0/24" = {} }
    allowed_peers = { "192.0.2.0/24" = {} }
    inband = { address = "192.0.2.1/24" }
"#;

#[test]
fn unknown_keys_and_impossible_values_are_told_at_once() {
    let files = Files::new("values");
    let text = DOCUMENT.replace("crem_port = 4801", "crem_port = 0\ncolour = \"red\"");
    let document = files.write("d.toml", &text);
    let (status, stderr) = run(&["dataplane", "--document", &document]);
    assert_eq!(status, Some(2), "{stderr}");
    assert!(stderr.contains("2 problems"), "{stderr}");
    assert!(stderr.contains("/segments/a/crem_port: found 0, expected an integer 1 to 65535"));
    assert!(
        stderr.contains("/segments/a/colour: found an unknown key"),
        "{stderr}"
    );
}

#[test]
fn a_monitor_without_prefixes_is_told_and_needs_no_addresses() {
    let files = Files::new("monitor");
    let lines = DOCUMENT.replace("active", "monitor");
    let lines: Vec<_> = lines
        .lines()
        .filter(|l| !l.contains("peers") && !l.contains("inband"))
        .collect();
    let text = lines.join("\n");
    let document = files.write("d.toml", &text);
    let (status, stderr) = run(&["dataplane", "--document", &document]);
    assert_eq!(status, Some(2), "{stderr}");
    // Only the interfaces are missing, and a small path takes repair from nobody.
    assert!(stderr.contains("2 problems"), "{stderr}");
    let document = files.write("e.toml", &text.replace("served", "# served"));
    let (status, stderr) = run(&["dataplane", "--document", &document]);
    assert_eq!(status, Some(2), "{stderr}");
    assert!(
        stderr.contains("/segments/a/served: found no prefix"),
        "{stderr}"
    );
}

#[test]
fn a_path_mtu_too_small_is_told_with_both_numbers() {
    let files = Files::new("mtu");
    let document = files.write("d.toml", &DOCUMENT.replace("4214", "1500"));
    let (status, stderr) = run(&["dataplane", "--document", &document]);
    assert_eq!(status, Some(2), "{stderr}");
    assert!(
        stderr.contains("found 1500, expected at least 4190 octets"),
        "{stderr}"
    );
}

#[test]
fn missing_interfaces_are_told() {
    let files = Files::new("interfaces");
    let document = files.write("d.toml", DOCUMENT);
    let (status, stderr) = run(&["dataplane", "--document", &document]);
    assert_eq!(status, Some(2), "{stderr}");
    for name in ["crem-none0", "crem-none1"] {
        assert!(
            stderr.contains(&format!("{name:?}, which does not exist")),
            "{stderr}"
        );
    }
}

#[test]
fn a_bootstrap_is_checked_like_a_document() {
    let files = Files::new("bootstrap");
    let document = files.write("d.toml", DOCUMENT);
    let text = format!("document = {document:?}\n[worker]\ncores = 1\n[memory]\nkind = \"much\"\n");
    let bootstrap = files.write("b.toml", &text);
    let (status, stderr) = run(&["dataplane", "--config", &bootstrap]);
    assert_eq!(status, Some(2), "{stderr}");
    assert!(
        stderr.contains("/worker/cores: found an unknown key"),
        "{stderr}"
    );
    assert!(stderr.contains("/memory/kind: found \"much\""), "{stderr}");
    // What was confirmed last, unless something else is named; here nothing was.
    let text = format!("[control]\nstate = {:?}\n", files.write("state", ""));
    let bootstrap = files.write("c.toml", &text);
    let (status, stderr) = run(&["dataplane", "--config", &bootstrap]);
    assert_eq!(status, Some(2), "{stderr}");
    assert!(stderr.contains("state/confirmed.json"), "{stderr}");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let (status, stderr) = run(&["dataplane", "--document", "/nowhere/d.toml"]);
    assert_eq!(status, Some(2), "{stderr}");
    assert!(stderr.contains("/nowhere/d.toml"), "{stderr}");
}

#[test]
fn a_file_at_the_path_of_the_status_socket_is_told_and_stays() {
    let files = Files::new("socket");
    let text = DOCUMENT
        .replace("interface = \"crem-none0\"", "vdev = \"net_null0\"")
        .replace("interface = \"crem-none1\"", "vdev = \"net_null1\"");
    let document = files.write("d.toml", &text);
    let precious = files.write("precious", "keep");
    let (status, stderr) = run(&[
        "dataplane",
        "--document",
        &document,
        "--status-socket",
        &precious,
    ]);
    assert_eq!(status, Some(2), "{stderr}");
    assert!(stderr.contains("/status/socket: found"), "{stderr}");
    assert_eq!(std::fs::read_to_string(precious).unwrap(), "keep");
}

#[test]
fn a_capture_needs_a_data_plane_that_runs() {
    let files = Files::new("capture");
    let socket = files.0.join("none.sock").display().to_string();
    let (status, text) = run(&["capture", "--status-socket", &socket, "show"]);
    assert_eq!(status, Some(1));
    assert!(text.starts_with("crem-gateway: status socket:"), "{text}");
}
