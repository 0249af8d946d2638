//! Messages to syslog servers over each transport, with real sockets: their form, their level, servers that come
//! and go, and a server that takes nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::Read;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crem_api::SyslogLevel;
use crem_control::syslog::message::Line;
use crem_control::syslog::{Feed, QUEUE};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use support::{Control, document};

const PATIENCE: Duration = Duration::from_secs(15);

fn line(level: SyslogLevel, text: &str) -> Line {
    Line {
        at_ms: 1_700_000_000_000,
        level,
        id: "test".to_owned(),
        text: text.to_owned(),
        fields: vec![("revision", "7".to_owned())],
    }
}

/// A control process whose log is what the test says, with one server.
fn with_server(server: Value) -> (Control, Feed) {
    let feed = Feed::default();
    let control = Control::logging(feed.clone());
    let mut document = document(32);
    document["management"] = json!({"syslog": {"one": server}});
    let headers = [("If-Match", "*"), ("Content-Type", "application/json")];
    let put = control.ask(
        "PUT",
        "/v1/config",
        &headers,
        document.to_string().as_bytes(),
    );
    assert_eq!(put.status, 200, "{put:?}");
    (control, feed)
}

/// The next connection; a test that gets none fails and does not hang.
fn accepted(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let end = Instant::now() + PATIENCE;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                return stream;
            }
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn state(control: &Control, so: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + PATIENCE;
    loop {
        let all = control.get("/v1/state/syslog").json();
        if so(&all["one"]) {
            return all["one"].clone();
        }
        assert!(Instant::now() < end, "{all}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// One message of a stream: its length, a space, and so many octets.
fn framed(stream: &mut impl Read) -> String {
    let (mut length, mut octet) = (0, [0]);
    loop {
        stream.read_exact(&mut octet).unwrap();
        match octet[0] {
            b' ' => break,
            digit => length = length * 10 + usize::from(digit - b'0'),
        }
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message).unwrap();
    String::from_utf8(message).unwrap()
}

#[test]
fn datagrams_have_what_matters_enough() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let port = socket.local_addr().unwrap().port();
    let server = json!({
        "host": "127.0.0.1", "port": port, "transport": "udp", "level": "warning", "facility": 1
    });
    let (control, feed) = with_server(server);
    state(&control, |s| s["connected"] == true);
    feed.push(line(SyslogLevel::Info, "nobody has to act"));
    feed.push(line(SyslogLevel::Warning, "somebody has to"));
    let mut octets = [0; 4096];
    let length = socket.recv(&mut octets).unwrap();
    let text = String::from_utf8_lossy(&octets[..length]).into_owned();
    assert!(
        text.starts_with("<12>1 2023-11-14T22:13:20.000Z "),
        "{text}"
    );
    assert!(text.contains(" crem-gateway "), "{text}");
    assert!(
        text.ends_with(" test [crem@32473 revision=\"7\"] \u{feff}somebody has to"),
        "{text}"
    );
    assert_eq!(state(&control, |s| s["sent"] == 1)["dropped"], 0);
    let metrics = control.get("/metrics").text;
    for line in [
        "crem_syslog_up{server=\"one\"} 1",
        "crem_syslog_messages_total{server=\"one\"} 1",
        "crem_syslog_messages_dropped_total{server=\"one\"} 0",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

#[test]
fn a_stream_that_breaks_is_opened_again_and_what_waits_is_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (control, feed) =
        with_server(json!({"host": "127.0.0.1", "port": port, "transport": "tcp"}));
    let mut stream = accepted(&listener);
    feed.push(line(SyslogLevel::Info, "first"));
    assert!(framed(&mut stream).ends_with("first"));
    drop(stream);
    state(&control, |s| s["connected"] == false);
    feed.push(line(SyslogLevel::Error, "while it was away"));
    let mut stream = accepted(&listener);
    let text = framed(&mut stream);
    assert!(
        text.starts_with("<131>1 ") && text.ends_with("while it was away"),
        "{text}"
    );
    assert_eq!(
        state(&control, |s| s["connections"] == 2)["error"],
        Value::Null
    );
}

#[test]
fn a_server_that_is_away_costs_lines_that_are_counted_and_nothing_waits() {
    // A port that nobody listens at.
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let (control, feed) =
        with_server(json!({"host": "127.0.0.1", "port": port, "transport": "tcp"}));
    state(&control, |s| s["error"].is_string());
    let began = Instant::now();
    for n in 0..QUEUE + 500 {
        feed.push(line(SyslogLevel::Info, &n.to_string()));
    }
    assert!(began.elapsed() < Duration::from_secs(1));
    // The server comes; the newest lines are there, and the others were counted.
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let mut stream = accepted(&listener);
    assert!(framed(&mut stream).ends_with("\u{feff}500"));
    let state = state(&control, |s| s["sent"] == QUEUE);
    assert_eq!(state["dropped"], 500);
}

#[test]
fn tls_takes_only_a_server_that_the_authorities_know() {
    let directory = std::env::temp_dir().join(format!("crem-syslog-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let authority = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let path = directory.join(name);
        std::fs::write(&path, certificate.pem()).unwrap();
        (Issuer::new(params, key), path.display().to_string())
    };
    let (ours, ours_path) = authority("ours.pem");
    let (_, others_path) = authority("others.pem");
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &ours).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let config = Arc::new(config);
    let server = |authorities: &str, port: u16| {
        json!({
            "host": "localhost", "port": port, "transport": "tls", "authorities": authorities
        })
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (control, feed) = with_server(server(&others_path, port));
    let accept = || {
        let stream = accepted(&listener);
        StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream)
    };
    let mut refused = accept();
    assert!(refused.read(&mut [0]).is_err());
    state(&control, |s| s["error"].is_string() && s["sent"] == 0);
    // Where messages go is changed without having to be confirmed.
    let patch = json!({"management": {"syslog": {"one": server(&ours_path, port)}}});
    assert_eq!(control.change("", &patch).status, 200);
    let mut stream = loop {
        // One of before the change may come first.
        let mut stream = accept();
        if stream.conn.complete_io(&mut stream.sock).is_ok() && !stream.conn.is_handshaking() {
            break stream;
        }
    };
    state(&control, |s| s["connected"] == true);
    feed.push(line(SyslogLevel::Info, "in TLS"));
    assert!(framed(&mut stream).ends_with("in TLS"));
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn documents_that_cannot_be_carried_out_are_refused_with_their_places() {
    let (control, _dataplane) = Control::start(true);
    let mut document = document(32);
    document["management"] = json!({
        "syslog": {
            "a": {"host": "log.example", "transport": "tls"},
            "b": {"host": "not a name", "transport": "udp"},
            "c": {"host": "x", "transport": "smoke"},
        },
        "interfaces": {"a name too long for it": {}, "m0": {"addresses": {"192.0.2.0/24": {}}}},
        "routes": {"192.0.2.1/24": {}},
    });
    let plan = control.post("/v1/config:plan", &document).json();
    let errors = plan["errors"].to_string();
    for pointer in [
        "/management/syslog/b/host",
        "/management/syslog/c/transport",
        "/management/interfaces/a name too long for it",
        "/management/interfaces/m0/addresses/192.0.2.0~124",
        "/management/routes/192.0.2.1~124",
    ] {
        assert!(errors.contains(pointer), "{pointer} in {errors}");
    }
    document["management"] = json!({
        "syslog": {"a": {"host": "log.example", "transport": "tls"}},
        "routes": {"192.0.2.0/24": {}, "0.0.0.0/0": {"gateway": "2001:db8::1"}},
    });
    let plan = control.post("/v1/config:plan", &document).json();
    let errors = plan["errors"].to_string();
    for pointer in [
        "/management/syslog/a/authorities",
        "/management/routes/192.0.2.0~124",
        "/management/routes/0.0.0.0~10/gateway",
    ] {
        assert!(errors.contains(pointer), "{pointer} in {errors}");
    }
}
