//! The fleet agent with a real etcd and a real control process: documents come through etcd and in no other way.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod world;

use std::process::Command;
use std::time::Duration;

use rcgen::{CertificateParams, CertifiedIssuer, DistinguishedName, DnType, KeyPair, SanType};
use serde_json::{Value, json};
use world::World;

const BASE: &str = "/crem/v1/fleets/f/base";
const HALTED: &str = "/crem/v1/fleets/f/rollout/halted";
const QUICK: &str = "[rollout]\nconfirm_s = 10\nsettle_s = 1\n";

fn base(k: u64) -> Value {
    json!({
        "version": 1,
        "segments": {"a": {
            "mode": "passthrough", "crem_port": 4801, "path_mtu": 1500,
            "lan": {"interface": "lan0"}, "wan": {"interface": "wan0"},
            "policy": {"k": k},
        }},
    })
}

fn k(world: &World) -> Value {
    world.api("/v1/config?view=confirmed")["segments"]["a"]["policy"]["k"].clone()
}

#[test]
fn documents_come_from_layers_and_bad_ones_are_told_and_left_out() {
    let Some(mut world) = World::new("layers") else {
        return;
    };
    world.start_agent(QUICK);
    assert_eq!(world.wait_state("none")["pair"], "gw-a");
    let site = json!({"segments": {"a": {"path_mtu": 4200}}});
    world.put("/crem/v1/sites/s/overlay", &site);
    world.put(
        "/crem/v1/nodes/gw-a/overlay",
        &json!({"segments": {"a": {"policy": {"m_max": 9}}}}),
    );
    world.wait_state("refused");
    world.put(BASE, &base(16));
    let status = world.wait_state("applied");
    assert_eq!(status["applied"], status["desired"]);
    let document = world.api("/v1/config?view=confirmed");
    assert_eq!(document["segments"]["a"]["path_mtu"], 4200);
    assert_eq!(
        document["segments"]["a"]["policy"],
        json!({"k": 16, "m_max": 9})
    );
    assert_eq!(world.api("/v1/commit")["state"], "none");
    // A wrong one changes nothing, and says where it is wrong.
    world.put(BASE, &base(1_000));
    let status = world.wait_state("refused");
    let problem = &status["problem"];
    assert_eq!(problem["type"], "urn:crem:problem:validation");
    assert_eq!(problem["errors"][0]["pointer"], "/segments/a/policy/k");
    assert_eq!(world.read(HALTED).unwrap()["node"], "gw-a");
    let revisions = || {
        world.api("/v1/revisions")["revisions"]
            .as_array()
            .unwrap()
            .len()
    };
    let before = revisions();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!((k(&world), revisions()), (json!(16), before));
    world.put_text(BASE, "{\"version\": 1,");
    let status = world.wait_status("a broken layer", |s| {
        s["problem"]["type"] == "urn:crem:problem:fleet-layer"
    });
    assert!(
        status["problem"]["errors"][0]["detail"]
            .as_str()
            .unwrap()
            .contains(BASE)
    );
    // The next good one goes on.
    world.put(BASE, &base(20));
    let status = world.wait_state("applied");
    assert_eq!(k(&world), 20);
    let local = std::fs::read_to_string(world.folder.join("status.json")).unwrap();
    let mut local = serde_json::from_str::<Value>(&local).unwrap();
    let agent = local.as_object_mut().unwrap().remove("agent");
    assert_eq!(local, world.status());
    assert_eq!(agent.unwrap()["etcd"], true);
    // The same as numbers.
    let told = |world: &World, line: String| {
        let line = format!("{line}\n");
        world::until(&line, || world.metrics().contains(&line).then_some(()));
    };
    let revision = status["desired"].as_str().unwrap().split('-').next();
    told(
        &world,
        format!(
            "crem_fleet_revision{{kind=\"desired\"}} {}",
            revision.unwrap()
        ),
    );
    told(&world, "crem_fleet_agent_up 1".to_owned());
    told(&world, "crem_fleet_etcd_up 1".to_owned());
    told(&world, "crem_fleet_state{state=\"applied\"} 1".to_owned());
    told(
        &world,
        "crem_fleet_documents_total{outcome=\"applied\"} 2".to_owned(),
    );
    told(
        &world,
        "crem_fleet_failures_total{reason=\"fleet-layer\"} 1".to_owned(),
    );
    world.kill_etcd();
    told(&world, "crem_fleet_etcd_up 0".to_owned());
}

#[test]
fn etcd_may_go_and_come_back() {
    let Some(mut world) = World::bare("away") else {
        return;
    };
    world.start_control();
    // Nobody needs it to start.
    world.start_agent("[rollout]\nconfirm_s = 5\nsettle_s = 1\n");
    std::thread::sleep(Duration::from_millis(300));
    world.start_etcd(&[]);
    world.put(BASE, &base(16));
    world.wait_state("applied");
    world.kill_etcd();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(k(&world), 16, "what runs goes on");
    world.start_etcd(&[]);
    world.put(BASE, &base(17));
    let status = world.wait_status("17", |s| s["applied"] == s["desired"] && s["running"] == 2);
    assert_eq!(
        (&status["state"], k(&world)),
        (&json!("applied"), json!(17))
    );
    // What is not confirmed when etcd goes comes back, and is tried again.
    world.put(BASE, &base(18));
    world.wait_state("rolling_out");
    world.kill_etcd();
    let pending = || world.api("/v1/commit")["state"] == "pending";
    world::until("it is given up", || (!pending()).then_some(()));
    assert_eq!(k(&world), 17);
    world.start_etcd(&[]);
    world.wait_state("applied");
    assert_eq!(k(&world), 18);
}

#[test]
fn an_agent_that_is_killed_goes_on_or_leaves_what_ran_before() {
    let Some(mut world) = World::new("killed") else {
        return;
    };
    world.start_agent("[rollout]\nconfirm_s = 6\nsettle_s = 2\n");
    world.put(BASE, &base(16));
    world.wait_state("applied");
    world.put(BASE, &base(17));
    let pending = |world: &World| (world.api("/v1/commit")["state"] == "pending").then_some(());
    world::until("the change is in force", || pending(&world));
    world.kill_agent();
    world.restart_agent();
    world.wait_status("it went on", |s| {
        s["state"] == "applied" && s["running"] == 2
    });
    assert_eq!(k(&world), 17);
    assert_eq!(
        world.api("/v1/revisions")["revisions"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    // Nobody comes back: the gateway takes the change back by itself.
    world.put(BASE, &base(18));
    world::until("the change is in force", || pending(&world));
    world.kill_agent();
    world::until("it is taken back", || {
        pending(&world).is_none().then_some(())
    });
    assert_eq!(k(&world), 17);
    assert!(
        world.read("/crem/v1/fleets/f/rollout/locks/gw-a").is_some(),
        "nobody else begins meanwhile"
    );
    // Who comes later tries it once more.
    world.restart_agent();
    world.wait_status("18", |s| {
        s["state"] == "applied" && s["applied"] == s["desired"]
    });
    assert_eq!(k(&world), 18);
    assert!(world.read("/crem/v1/fleets/f/rollout/locks/gw-a").is_none());
}

#[test]
fn changes_at_the_gateway_are_told_and_the_status_goes_with_the_agent() {
    let Some(mut world) = World::new("local") else {
        return;
    };
    world.start_agent(QUICK);
    world.put(BASE, &base(16));
    world.wait_state("applied");
    world.put_by_hand("/v1/config/segments/a/policy/k", &json!(21));
    world.wait_state("changed_locally");
    assert_eq!(k(&world), 21);
    // Another setting brings the document of the fleet back.
    world.kill_agent();
    world.start_agent(&format!("local_changes = \"revert\"\n{QUICK}"));
    world.wait_status("16", |s| s["state"] == "applied" && s["running"] == 3);
    assert_eq!(k(&world), 16);
    world.kill_agent();
    world::until("the lease ends", || world.status().is_null().then_some(()));
}

fn named(kind: DnType, name: &str) -> DistinguishedName {
    let mut all = DistinguishedName::new();
    all.push(kind, name);
    all
}

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = named(DnType::CommonName, "authority");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    /// Writes a certificate and its key.
    fn issue(&self, world: &World, name: &str) {
        let mut params = CertificateParams::new(vec![format!("{name}.example")]).unwrap();
        params
            .subject_alt_names
            .push(SanType::IpAddress([127, 0, 0, 1].into()));
        // etcd with users refuses clients whose certificates have a common name.
        params.distinguished_name = named(DnType::OrganizationName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let file = |kind: &str| world.folder.join(format!("{name}.{kind}"));
        std::fs::write(file("pem"), certificate.pem()).unwrap();
        std::fs::write(file("key"), key.serialize_pem()).unwrap();
    }
}

/// A user with the rights that docs/fleet.md lists, and no others.
fn make_user(world: &World, password: &str) {
    let name = |name: &str| json!({"name": name, "password": password});
    let grant = |user: &str, role: &str| json!({"user": user, "role": role, "name": user});
    let mut steps = vec![
        ("/v3/auth/user/add", name("root")),
        ("/v3/auth/role/add", json!({"name": "root"})),
        ("/v3/auth/user/grant", grant("root", "root")),
        ("/v3/auth/user/add", name("gw-a")),
        ("/v3/auth/role/add", json!({"name": "agent"})),
    ];
    let rights = [
        ("READ", "/crem/v1/fleets/f/", Some("/crem/v1/fleets/f0")),
        (
            "READWRITE",
            "/crem/v1/fleets/f/rollout/",
            Some("/crem/v1/fleets/f/rollout0"),
        ),
        ("READ", "/crem/v1/sites/s/overlay", None),
        ("READ", "/crem/v1/nodes/gw-a/overlay", None),
        ("READWRITE", "/crem/v1/nodes/gw-a/status", None),
    ];
    for (kind, from, to) in rights {
        let mut right = json!({"permType": kind, "key": world::base64(from)});
        if let Some(to) = to {
            right["range_end"] = world::base64(to).into();
        }
        let body = json!({"name": "agent", "perm": right});
        steps.push(("/v3/auth/role/grant", body));
    }
    steps.push(("/v3/auth/user/grant", grant("gw-a", "agent")));
    steps.push(("/v3/auth/enable", json!({})));
    for (path, body) in steps {
        let answer = world.etcd_answer(path, &body).unwrap();
        assert!(answer["header"].is_object(), "{path}: {answer}");
    }
}

#[test]
fn etcd_is_spoken_to_with_certificates_and_passwords() {
    let Some(mut world) = World::bare("tls") else {
        return;
    };
    let authority = Authority::new();
    std::fs::write(world.folder.join("ca.pem"), authority.0.pem()).unwrap();
    for name in ["etcd", "gw-a"] {
        authority.issue(&world, name);
    }
    Authority::new().issue(&world, "stranger");
    let path = |name: &str| world.folder.join(name).display().to_string();
    let (ca, pem, key) = (path("ca.pem"), path("etcd.pem"), path("etcd.key"));
    let flags = [
        "--client-cert-auth",
        "--trusted-ca-file",
        &ca,
        "--cert-file",
        &pem,
        "--key-file",
        &key,
    ];
    world.start_etcd(&flags);
    world.start_control();
    world.put(BASE, &base(16));
    make_user(&world, "correct horse");
    std::fs::write(world.folder.join("password"), "correct horse\n").unwrap();
    let etcd = |who: &str| {
        let path = |name: &str| world.folder.join(name).display().to_string();
        format!(
            "authorities = {ca:?}\ncertificate = {:?}\nkey = {:?}\nuser = \"gw-a\"\npassword_file = {:?}\n{QUICK}",
            path(&format!("{who}.pem")),
            path(&format!("{who}.key")),
            path("password"),
        )
    };
    let (url, stranger, own) = (world.secure(), etcd("stranger"), etcd("gw-a"));
    world.start_agent_at(&url, &stranger, "");
    std::thread::sleep(Duration::from_secs(1));
    let commit = world.api("/v1/revisions");
    assert!(
        commit["running"].is_null(),
        "a certificate of somebody else opens nothing"
    );
    world.kill_agent();
    let log = std::fs::read_to_string(world.folder.join("agent.log")).unwrap();
    assert!(
        log.contains("the gateway goes on with what it has"),
        "{log}"
    );
    world.start_agent_at(&url, &own, "");
    let confirmed = || world.api("/v1/revisions")["confirmed"].as_u64();
    assert_eq!(world::until("the document is confirmed", confirmed), 1);
    assert_eq!(k(&world), 16);
    let log = std::fs::read_to_string(world.folder.join("agent.log")).unwrap();
    assert!(!log.contains("correct horse"));
}

#[test]
fn wrong_settings_are_told_all_at_once() {
    let folder = std::env::temp_dir().join(format!("crem-fleet-settings-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("fleet.toml");
    std::fs::write(&file, "node = \"A\"\n[etcd]\nendpoints = {}\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_crem-gateway"))
        .args(["fleet".as_ref(), "--config".as_ref(), file.as_os_str()])
        .output()
        .unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    for pointer in ["/node: ", "/fleet: ", "/etcd/endpoints: "] {
        assert!(said.contains(pointer), "{said}");
    }
}
