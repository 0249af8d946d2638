//! Which document a real data plane starts from, and what it says when that is not the first choice.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crem_api::client::Client;
use crem_api::state::SegmentStatus;
use nix::sched::{CloneFlags, unshare};

/// State of control, a bootstrap that names a document, and both documents.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("crem-start-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(path.join("state/revisions")).unwrap();
        symlink("revisions/1.json", path.join("state/confirmed.json")).unwrap();
        let place = Self(path);
        let bootstrap = format!(
            "document = {:?}\n[status]\nsocket = {:?}\n[control]\nstate = {:?}\n\
             [memory]\nkind = \"ordinary\"\n[sandbox]\nmode = \"off\"\n",
            place.at("named.toml"),
            place.at("d.sock"),
            place.at("state")
        );
        std::fs::write(place.at("bootstrap.toml"), bootstrap).unwrap();
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn confirmed(&self, text: &str) {
        std::fs::write(self.at("state/revisions/1.json"), text).unwrap();
    }

    fn named(&self, text: &str) {
        std::fs::write(self.at("named.toml"), text).unwrap();
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crem-gateway"));
        command
            .args(["dataplane", "--log", "warn", "--config"])
            .arg(self.at("bootstrap.toml"))
            .env_clear()
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// What the status of a data plane says that starts, and what it logged.
    fn segment(&self) -> (SegmentStatus, String) {
        let mut child = Ended(self.command().spawn().unwrap());
        let mut line = String::new();
        BufReader::new(child.0.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let mut said = String::new();
        let mut stderr = child.0.stderr.take().unwrap();
        if line != "ready\n" {
            stderr.read_to_string(&mut said).unwrap();
            panic!("{said}");
        }
        let mut client = Client::connect(&self.at("d.sock"), Duration::from_secs(5)).unwrap();
        let segment = client.status().unwrap().segments["a"].clone();
        drop(child);
        stderr.read_to_string(&mut said).unwrap();
        (segment, said)
    }

    /// What it says that does not start.
    fn refusal(&self, more: &[&str]) -> String {
        let output = self.command().args(more).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        said
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn toml(mode: &str) -> String {
    format!(
        "version = 1\n[segments.a]\nmode = \"{mode}\"\ncrem_port = 4801\npath_mtu = 1500\nrdma_mtu = 1024\n\
         lan = {{ vdev = \"net_null0\" }}\nwan = {{ vdev = \"net_null1\" }}\n"
    )
}

fn json(mode: &str) -> String {
    let document = crem_api::parse(&toml(mode), crem_api::Syntax::Toml).unwrap();
    crem_api::to_value(&document).to_string()
}

#[test]
fn what_was_confirmed_wins_over_the_document_of_the_bootstrap() {
    let place = Place::new("confirmed");
    place.confirmed(&json("block"));
    place.named(&toml("passthrough"));
    let (segment, said) = place.segment();
    assert_eq!((&segment.mode[..], segment.mode_reason), ("block", None));
    assert!(!said.contains("started from"), "{said}");
}

#[test]
fn a_confirmed_revision_that_is_damaged_leaves_the_document_of_the_bootstrap() {
    let place = Place::new("damaged");
    let whole = json("block");
    place.named(&toml("passthrough"));
    // Cut short, and gone.
    for text in [Some(&whole[..whole.len() / 2]), None] {
        match text {
            Some(text) => place.confirmed(text),
            None => std::fs::remove_file(place.at("state/revisions/1.json")).unwrap(),
        }
        let (segment, said) = place.segment();
        assert_eq!(segment.mode, "passthrough");
        let reason = segment.mode_reason.unwrap();
        let named = place.at("named.toml").display().to_string();
        let from = format!("started from {named}, because of ");
        assert!(reason.starts_with(&from), "{reason}");
        assert!(reason.contains("state/confirmed.json: "), "{reason}");
        assert!(said.contains("WARN") && said.contains(&from), "{said}");
    }
}

#[test]
fn without_any_document_that_can_be_used_each_is_told() {
    let place = Place::new("none");
    place.confirmed("{");
    place.named(&toml("passthrough").replace("4801", "0"));
    let said = place.refusal(&[]);
    assert!(said.contains("state/confirmed.json: 1 problem"), "{said}");
    assert!(said.contains("named.toml: 1 problem"), "{said}");
    assert!(said.contains("/segments/a/crem_port: found 0"), "{said}");
}

#[test]
fn who_names_a_document_for_a_start_gets_no_other() {
    let place = Place::new("explicit");
    place.confirmed(&json("passthrough"));
    place.named(&toml("passthrough"));
    let said = place.refusal(&["--document", "/nowhere/d.toml"]);
    assert!(said.contains("/nowhere/d.toml"), "{said}");
    assert!(!said.contains("confirmed.json"), "{said}");
}

#[test]
fn where_only_protection_does_not_fit_the_machine_frames_are_forwarded() {
    let run = std::thread::spawn(|| {
        if let Err(e) = unshare(CloneFlags::CLONE_NEWNET) {
            println!("skipped: no network namespace: {e}");
            return;
        }
        let place = Place::new("protection");
        // More than the pool has.
        let active = toml("active")
            + "served = { \"10.0.1.0/24\" = {} }\nallowed_peers = { \"192.0.2.0/24\" = {} }\n\
               inband = { address = \"192.0.2.1/24\" }\nlimits = { retained_frames = 16000 }\n";
        place.named(&active);
        std::fs::remove_file(place.at("state/confirmed.json")).unwrap();
        let (segment, said) = place.segment();
        assert_eq!(segment.mode, "passthrough");
        let reason = segment.mode_reason.unwrap();
        assert!(
            reason
                .starts_with("protection is off: /segments/a/limits: found retained_frames 16000"),
            "{reason}"
        );
        assert!(said.contains("protection is off"), "{said}");
        // Who names it is told instead.
        let named = place.at("named.toml").display().to_string();
        let said = place.refusal(&["--document", &named]);
        assert!(said.contains("found retained_frames 16000"), "{said}");
    });
    if let Err(panic) = run.join() {
        std::panic::resume_unwind(panic);
    }
}
