//! The API over the network: who gets in, with what, and what each refusal looks like.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};
use serde_json::{Value, json};
use support::{Answer, Control, ask_over, document};

/// An authority with its certificate in `NAME.pem`.
struct Authority(Issuer<'static, KeyPair>);

impl Authority {
    fn new(directory: &Path, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(directory.join(format!("{name}.pem")), certificate.pem()).unwrap();
        Self(Issuer::new(params, key))
    }

    /// A certificate for a DNS name in `NAME.pem`, with its key in `NAME.key`.
    fn issue(&self, directory: &Path, name: &str) {
        self.issue_until(directory, name, 4000);
    }

    fn issue_until(&self, directory: &Path, name: &str, year: i32) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let certificate = params.signed_by(&key, &self.0).unwrap();
        std::fs::write(directory.join(format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(directory.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

struct Network {
    control: Control,
    address: SocketAddr,
}

impl Network {
    fn new() -> Self {
        let (control, _) = Control::start(true);
        let directory = control.state.clone();
        let (ca, other) = (
            Authority::new(&directory, "ca"),
            Authority::new(&directory, "other"),
        );
        for name in ["gateway.example", "ops.example", "guest.example"] {
            ca.issue(&directory, name);
        }
        other.issue(&directory, "stranger.example");
        ca.issue_until(&directory, "ended.example", 2020);
        let address = free();
        let path = |name: &str| directory.join(name).display().to_string();
        let mut whole = document(32);
        whole["management"] = json!({
            "listeners": {address.to_string(): {}},
            "tls": {
                "certificate": path("gateway.example.pem"), "key": path("gateway.example.key"),
                "client_authorities": path("ca.pem"),
            },
            "clients": {"ops.example": {"access": "admin"}},
        });
        let headers = [("If-Match", "\"0\""), ("Content-Type", "application/json")];
        let put = control.ask("PUT", "/v1/config", &headers, whole.to_string().as_bytes());
        assert_eq!(put.status, 200, "{put:?}");
        let end = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < end, "no listener");
            std::thread::sleep(Duration::from_millis(50));
        }
        Self { control, address }
    }

    fn connect(
        &self,
        certificate: Option<&str>,
        version: &'static SupportedProtocolVersion,
    ) -> StreamOwned<ClientConnection, TcpStream> {
        let directory = &self.control.state;
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(directory.join("ca.pem")).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots);
        let config = match certificate {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let file = |end: &str| directory.join(format!("{name}.{end}"));
                let chain = vec![CertificateDer::from_pem_file(file("pem")).unwrap()];
                let key = PrivateKeyDer::from_pem_file(file("key")).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let name = ServerName::try_from("gateway.example").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        StreamOwned::new(connection, TcpStream::connect(self.address).unwrap())
    }

    fn ask(
        &self,
        certificate: Option<&str>,
        token: Option<&str>,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Answer {
        let stream = self.connect(certificate, &rustls::version::TLS13);
        let bearer = token.map(|t| format!("Bearer {t}"));
        let mut headers = vec![
            ("If-Match", "*"),
            ("Content-Type", "application/merge-patch+json"),
        ];
        headers.extend(bearer.as_deref().map(|b| ("Authorization", b)));
        ask_over(stream, method, path, &headers, body.to_string().as_bytes())
    }

    fn token(&self, access: &str, life: &str) -> String {
        let new = json!({"name": access, "access": access, "life": life});
        let made = self.control.post("/v1/tokens", &new).json();
        made["token"].as_str().unwrap().to_owned()
    }
}

fn k(value: u64) -> Value {
    json!({"segments": {"a": {"policy": {"k": value}}}})
}

#[test]
fn certificates_and_tokens_open_as_far_as_their_role_goes() {
    let network = Network::new();
    let get =
        |certificate, token| network.ask(certificate, token, "GET", "/v1/config", &Value::Null);
    let refused = get(None, None);
    assert_eq!(refused.problem(), (401, "unauthenticated".to_owned()));
    assert_eq!(refused.headers["www-authenticate"], "Bearer");
    assert_eq!(get(Some("guest.example"), None).problem().0, 401);
    assert_eq!(get(Some("ops.example"), None).status, 200);
    let (viewer, operator) = (
        network.token("viewer", "1h"),
        network.token("operator", "1h"),
    );
    assert_eq!(get(None, Some(&viewer)).status, 200);
    for token in [&viewer, &operator] {
        let write = network.ask(None, Some(token), "PATCH", "/v1/config", &k(33));
        assert_eq!(write.problem(), (403, "forbidden".to_owned()));
    }
    let written = network.ask(Some("ops.example"), None, "PATCH", "/v1/config", &k(33));
    assert_eq!(written.json()["changed"], true);
    let history = network.control.get("/v1/revisions").json();
    assert_eq!(history["revisions"][0]["actor"], "ops.example");
    let audit = network.control.get("/v1/audit").text;
    assert!(
        audit.contains("viewer (token ") && audit.contains("\"403\""),
        "{audit}"
    );
    // Without any right it is known that the process is there, and no more.
    let open = network.ask(None, None, "GET", "/livez", &Value::Null);
    assert_eq!((open.status, open.text.as_str()), (200, "ok\n"));
    assert_eq!(
        network
            .ask(None, None, "GET", "/metrics", &Value::Null)
            .problem()
            .0,
        401
    );
}

#[test]
fn ended_and_deleted_tokens_open_nothing_and_guessing_is_slowed_down() {
    let network = Network::new();
    let get = |token: &str| network.ask(None, Some(token), "GET", "/v1/config", &Value::Null);
    let short = network.token("viewer", "1s");
    std::thread::sleep(Duration::from_millis(1100));
    let ended = get(&short);
    assert_eq!(ended.problem().0, 401);
    assert!(ended.text.contains("expired"), "{ended:?}");
    let deleted = network.token("admin", "1h");
    let id = deleted.split('_').nth(1).unwrap();
    let path = format!("/v1/tokens/{id}");
    assert_eq!(network.control.ask("DELETE", &path, &[], b"").status, 204);
    assert_eq!(get(&deleted).problem().0, 401);
    for _ in 0..3 {
        assert_eq!(get("crem_00_00").problem().0, 401);
    }
    let good = network.token("viewer", "1h");
    let slowed = get(&good);
    assert_eq!(slowed.problem(), (429, "too-many-attempts".to_owned()));
    assert_eq!(slowed.headers["retry-after"], "60");
    // A certificate is not guessed.
    assert_eq!(
        network
            .ask(Some("ops.example"), None, "GET", "/v1/config", &Value::Null)
            .status,
        200
    );
}

#[test]
fn operators_capture_and_test_peers_and_bundles_are_for_admins() {
    let network = Network::new();
    let (viewer, operator, admin) = (
        network.token("viewer", "1h"),
        network.token("operator", "1h"),
        network.token("admin", "1h"),
    );
    let status = |token: &String, method, path: &str| {
        network
            .ask(None, Some(token), method, path, &Value::Null)
            .status
    };
    for (method, path, least) in [
        ("GET", "/v1/captures", 0),
        ("GET", "/v1/captures/none", 0),
        ("POST", "/v1/captures", 1),
        ("POST", "/v1/captures/none/stop", 1),
        ("GET", "/v1/captures/none/pcapng", 1),
        ("DELETE", "/v1/captures/none", 1),
        ("POST", "/v1/peers/none/test", 1),
        ("GET", "/v1/peers/none/compatibility", 0),
        ("POST", "/v1/support-bundles", 2),
        ("GET", "/v1/support-bundles", 2),
        ("GET", "/v1/support-bundles/none/file", 2),
        ("GET", "/v1/schema/config", 0),
    ] {
        let refused = [&viewer, &operator, &admin].map(|token| status(token, method, path) == 403);
        assert_eq!(refused, [least > 0, least > 1, false], "{method} {path}");
    }
}

/// Every operation of the description is closed to whoever shows nothing, and to a viewer if it changes
/// something or tells of access.
#[test]
fn no_operation_is_open_by_oversight() {
    let network = Network::new();
    let viewer = network.token("viewer", "1h");
    let description: Value = serde_json::from_str(&crem_control::http::openapi()).unwrap();
    let mut tried = 0;
    for (path, operations) in description["paths"].as_object().unwrap() {
        let place = [
            ("{part}", "version"),
            ("{id}", "none"),
            ("{number}", "1"),
            ("{other}", "1"),
        ]
        .iter()
        .fold(path.clone(), |path, (name, value)| {
            path.replace(name, value)
        });
        for method in operations.as_object().unwrap().keys() {
            let method = method.to_ascii_uppercase();
            let ask = |token| network.ask(None, token, &method, &place, &Value::Null);
            let nobody = ask(None);
            // Who comes first has nothing but the code on the console.
            if ["/livez", "/readyz", "/v1/enrol"].contains(&path.as_str()) {
                assert_ne!(nobody.status, 401, "{method} {path}");
                continue;
            }
            let refused = (401, "unauthenticated".to_owned());
            assert_eq!(nobody.problem(), refused, "{method} {path}");
            tried += 1;
            let closed = [
                "/v1/audit",
                "/v1/tokens",
                "/v1/support-bundles",
                "/v1/captures/{id}/pcapng",
            ];
            let closed = closed.iter().any(|beginning| path.starts_with(beginning));
            let reads = (method == "GET" && !closed) || path == "/v1/config:plan";
            // Whoever follows events is answered without end.
            if path != "/v1/events" {
                assert_eq!(ask(Some(&viewer)).status == 403, !reads, "{method} {path}");
            }
        }
    }
    assert!(tried > 30, "{tried}");
}

#[test]
fn tls_1_2_is_spoken() {
    let network = Network::new();
    let stream = network.connect(Some("ops.example"), &rustls::version::TLS12);
    assert_eq!(ask_over(stream, "GET", "/v1/version", &[], b"").status, 200);
}

/// What is wrong with a certificate is told in words, and it opens nothing.
#[test]
fn a_wrong_certificate_gets_a_problem_document() {
    let network = Network::new();
    let cases = [
        ("stranger.example", "none of our authorities issued it"),
        ("guest.example", "no name that the document has as a client"),
        ("ended.example", "expired"),
    ];
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for (name, words) in cases {
            for path in ["/v1/config", "/v1/version", "/metrics"] {
                let stream = network.connect(Some(name), version);
                let refused = ask_over(stream, "GET", path, &[], b"");
                assert_eq!(refused.problem(), (401, "unauthenticated".to_owned()));
                assert!(refused.text.contains(words), "{name}: {refused:?}");
            }
        }
    }
    // Who wears it may still have a token.
    let token = network.token("viewer", "1h");
    let read = network.ask(
        Some("stranger.example"),
        Some(&token),
        "GET",
        "/v1/version",
        &Value::Null,
    );
    assert_eq!(read.status, 200);
    let written = network.ask(
        Some("stranger.example"),
        Some(&token),
        "PATCH",
        "/v1/config",
        &k(33),
    );
    assert_eq!(written.problem(), (403, "forbidden".to_owned()));
}

/// The kinds of trouble that a client of the network may meet, each with its problem document.
#[test]
fn each_kind_of_trouble_over_the_network_has_its_problem_document() {
    let network = Network::new();
    let admin = Some("ops.example");
    let viewer = network.token("viewer", "1h");
    let short = network.token("admin", "1s");
    std::thread::sleep(Duration::from_millis(1100));
    let whole = [("If-Match", "*"), ("Content-Type", "application/json")];
    let merge = "application/merge-patch+json";
    let put = |headers: &[(&str, &str)], body: &[u8]| {
        let stream = network.connect(admin, &rustls::version::TLS13);
        ask_over(stream, "PUT", "/v1/config", headers, body)
    };
    let patch = |certificate, token| network.ask(certificate, token, "PATCH", "/v1/config", &k(33));
    let stale = |etag: &str| {
        let stream = network.connect(admin, &rustls::version::TLS13);
        let headers = [("If-Match", etag), ("Content-Type", merge)];
        ask_over(stream, "PATCH", "/v1/config", &headers, b"{\"workers\":1}")
    };
    let mut unknown = document(32);
    unknown["segments"]["a"]["colour"] = json!("red");
    let cases = [
        (
            "a wrong certificate",
            patch(Some("stranger.example"), None),
            401,
            "unauthenticated",
        ),
        (
            "an expired token",
            patch(None, Some(&short)),
            401,
            "unauthenticated",
        ),
        (
            "a viewer's write",
            patch(None, Some(&viewer)),
            403,
            "forbidden",
        ),
        ("a stale If-Match", stale("\"0\""), 412, "revision-conflict"),
        (
            "an unknown field",
            put(&whole, unknown.to_string().as_bytes()),
            422,
            "validation",
        ),
        (
            "a 10 MB body",
            put(&whole, &vec![b' '; 10_000_000]),
            413,
            "too-large",
        ),
    ];
    for (what, answer, status, name) in cases {
        assert_eq!(answer.problem(), (status, name.to_owned()), "{what}");
        let problem = answer.json();
        match what {
            "a stale If-Match" => assert!(
                problem["current_etag"]
                    .as_str()
                    .unwrap()
                    .starts_with("\"1-")
            ),
            "an unknown field" => {
                assert_eq!(problem["errors"][0]["pointer"], "/segments/a/colour");
                assert_eq!(problem["errors"][0]["code"], "unknown_key");
            }
            _ => {}
        }
    }
    let running = network.control.get("/v1/revisions").json();
    assert_eq!(running["running"], 1, "nothing was changed");
}

#[test]
fn a_new_certificate_needs_no_restart() {
    let network = Network::new();
    let stream = network.connect(None, &rustls::version::TLS13);
    assert_eq!(ask_over(stream, "GET", "/livez", &[], b"").status, 200);
    // Another one under another path: a change of the document, which is asked for a time to confirm.
    let ca = Authority::new(&network.control.state, "ca");
    ca.issue(&network.control.state, "gateway.example");
    let patch = json!({"management": {"clients": {"ops.example": {"access": "viewer"}}}});
    assert_eq!(network.control.change("?confirm=60s", &patch).status, 202);
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        // Fails until the listener uses the certificate of the new authority.
        let mut stream = network.connect(None, &rustls::version::TLS13);
        if stream.conn.complete_io(&mut stream.sock).is_ok() {
            break;
        }
        assert!(Instant::now() < end, "the old certificate is still in use");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// In a network namespace of its own, so that the listeners are the only ones there.
#[test]
fn who_locks_himself_out_is_let_in_again() {
    let run = std::thread::spawn(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        let up = std::process::Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status();
        assert!(up.unwrap().success());
        let network = Network::new();
        let (old, new) = (network.address, free());
        let open = |address: SocketAddr| TcpStream::connect(address).is_ok();
        let until = |what: &str, so: &dyn Fn() -> bool| {
            let end = Instant::now() + Duration::from_secs(20);
            while !so() {
                assert!(Instant::now() < end, "{what}");
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        let listeners = json!({old.to_string(): null, new.to_string(): {}});
        let mistake = json!({"management": {"listeners": listeners}});
        // Over the very listener that goes: the answer is there before it does.
        let path = "/v1/config?confirm=3s";
        let answer = network.ask(Some("ops.example"), None, "PATCH", path, &mistake);
        assert_eq!(answer.status, 202, "{answer:?}");
        until("the mistake", &|| !open(old) && open(new));
        until("the way back", &|| open(old) && !open(new));
        let commit = network.control.get("/v1/commit").json();
        assert_eq!(commit["state"], "none");
        let way = network.ask(
            Some("ops.example"),
            None,
            "GET",
            "/v1/version",
            &Value::Null,
        );
        assert_eq!(way.status, 200);
    });
    run.join().unwrap();
}
