//! A real journald gets what the control process logs, with its fields: in a mount namespace of its own, whose `/run`
//! is empty, so that nothing of it is seen outside.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

const JOURNALD: &str = "/lib/systemd/systemd-journald";

/// Starts journald and the process given, has it take a document, and ends both; the journal is `$PLACE/journal`.
/// Standard error is a file here and `JOURNAL_STREAM` names it, which is how the service manager tells of a journal.
const SCRIPT: &str = r#"
set -eu
mount -t tmpfs none /run
mkdir -p /run/systemd/journal /run/log/journal
"$JOURNALD" >/dev/null 2>&1 &
journald=$!
trap 'kill $journald 2>/dev/null; wait $journald || true' EXIT
for _ in $(seq 100); do [ -S /run/systemd/journal/socket ] && break; sleep 0.05; done
: >"$PLACE/stderr"
JOURNAL_STREAM=$(stat -c %d:%i "$PLACE/stderr")
export JOURNAL_STREAM
"$GATEWAY" control --log info --state "$PLACE/state" --socket "$PLACE/c.sock" \
    --status-socket "$PLACE/d.sock" --import "$PLACE/document.json" >"$PLACE/stdout" 2>>"$PLACE/stderr" &
control=$!
for _ in $(seq 200); do grep -q ready "$PLACE/stdout" && break; sleep 0.05; done
kill $control
wait $control
journalctl --directory=/run/log/journal --sync >/dev/null 2>&1 || true
journalctl --directory=/run/log/journal -o json --no-pager >"$PLACE/journal"
"#;

fn place() -> PathBuf {
    let path = std::env::temp_dir().join(format!("crem-journal-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    let document = r#"{"version": 1, "segments": {"a": {"mode": "passthrough", "crem_port": 4801, "path_mtu": 1500,
        "lan": {"vdev": "net_null0"}, "wan": {"vdev": "net_null1"}}}}"#;
    std::fs::write(path.join("document.json"), document).unwrap();
    path
}

#[test]
fn journald_gets_messages_with_their_fields() {
    if !nix::unistd::geteuid().is_root() || !Path::new(JOURNALD).exists() {
        println!("skipped: a journald of its own takes root and {JOURNALD}");
        return;
    }
    let place = place();
    let ran = Command::new("unshare")
        .args(["--mount", "sh", "-c", SCRIPT])
        .env("JOURNALD", JOURNALD)
        .env("GATEWAY", env!("CARGO_BIN_EXE_crem-gateway"))
        .env("PLACE", &place)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    let text = std::fs::read_to_string(place.join("stderr")).unwrap_or_default();
    assert!(ran.status.success(), "{said} {text}");
    // Nothing twice: what is in the journal is not told as text as well.
    assert_eq!(text, "");
    let journal = std::fs::read_to_string(place.join("journal")).unwrap();
    let entries: Vec<BTreeMap<String, Value>> = journal
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let ours: Vec<_> = entries
        .iter()
        .filter(|e| {
            e.get("SYSLOG_IDENTIFIER")
                .is_some_and(|i| i == "crem-gateway")
        })
        .collect();
    assert!(!ours.is_empty(), "{journal}");
    // Events have their kind and, where there is one, their revision; each entry has a priority of syslog.
    let event = ours
        .iter()
        .find(|e| e.contains_key("CREM_KIND") && e.contains_key("CREM_REVISION"));
    let event = event.unwrap_or_else(|| panic!("no event: {journal}"));
    assert_eq!(event["CREM_REVISION"], "1");
    assert!(
        ours.iter()
            .all(|e| e.contains_key("PRIORITY") && e.contains_key("MESSAGE"))
    );
    std::fs::remove_dir_all(place).unwrap();
}
