//! The first way in over the network: a box with nothing but a code on its console.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use support::{Answer, Control, ask_over};

struct New {
    control: Control,
    address: SocketAddr,
    console: Receiver<String>,
}

impl New {
    fn start() -> Self {
        let address = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let (control, console) = Control::new_box(address);
        Self {
            control,
            address,
            console,
        }
    }

    /// What is on the console: the code and the fingerprint.
    fn told(&self) -> (String, String) {
        let text = self.console.recv_timeout(Duration::from_secs(10)).unwrap();
        let after = |mark: &str| {
            let (_, rest) = text.split_once(mark).unwrap();
            let end = rest.find([',', ';', ' ']).unwrap_or(rest.len());
            rest[..end].to_owned()
        };
        assert!(text.contains(&self.address.to_string()), "{text}");
        (after("enrolment code "), after("certificate SHA-256 "))
    }

    fn ask(&self, token: Option<&str>, method: &str, path: &str, body: &Value) -> Answer {
        let mut roots = RootCertStore::empty();
        let own = self.control.state.join("first.pem");
        roots
            .add(CertificateDer::from_pem_file(own).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("crem-gateway").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let stream = StreamOwned::new(connection, TcpStream::connect(self.address).unwrap());
        let bearer = token.map(|t| format!("Bearer {t}"));
        let mut headers = vec![("Content-Type", "application/json")];
        if let Some(bearer) = &bearer {
            headers.push(("Authorization", bearer.as_str()));
        }
        ask_over(stream, method, path, &headers, body.to_string().as_bytes())
    }

    fn enrol(&self, code: &str) -> Answer {
        let ask = json!({"code": code, "name": "first"});
        self.ask(None, "POST", "/v1/enrol", &ask)
    }
}

#[test]
fn the_code_on_the_console_gives_one_admin_token() {
    let new = New::start();
    let (code, fingerprint) = new.told();
    assert_eq!(fingerprint.len(), 64);
    // Without a token there is nothing but the way in.
    let nobody = new.ask(None, "GET", "/v1/tokens", &Value::Null);
    assert_eq!(nobody.problem(), (401, "unauthenticated".to_owned()));
    let made = new.enrol(&code.to_lowercase());
    assert_eq!(made.status, 201, "{made:?}");
    let token = made.json()["token"].as_str().unwrap().to_owned();
    assert_eq!(made.json()["access"], "admin");
    let tokens = new.ask(Some(&token), "GET", "/v1/tokens", &Value::Null);
    assert_eq!(tokens.status, 200, "{tokens:?}");
    assert_eq!(
        new.enrol(&code).problem(),
        (401, "unauthenticated".to_owned())
    );
    // It is on record, and the code is nowhere.
    let audit = new.ask(Some(&token), "GET", "/v1/audit", &Value::Null).text;
    assert!(
        audit.contains("enrolled") && audit.contains("POST /v1/enrol"),
        "{audit}"
    );
    for file in std::fs::read_dir(&new.control.state).unwrap() {
        let octets = std::fs::read(file.unwrap().path()).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&octets).contains(&code));
    }
    // With a token there, a new start makes no code.
    let state = new.control.state.clone();
    let New { control, .. } = new;
    control.leave();
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let (control, console) = Control::new_box_at(&state, address);
    assert!(console.recv_timeout(Duration::from_millis(700)).is_err());
    assert!(TcpStream::connect(address).is_ok());
    drop(control);
}

#[test]
fn wrong_codes_use_the_code_up_and_addresses_wait() {
    let new = New::start();
    let (code, _) = new.told();
    for _ in 0..5 {
        assert_eq!(new.enrol("AAAA-BBBB-CCCC-DDDD").problem().0, 401);
    }
    assert_eq!(
        new.enrol(&code).problem(),
        (429, "too-many-attempts".to_owned())
    );
    // Not even from where nobody failed.
    let ask = json!({"code": code, "name": "first"});
    let local = new.control.post("/v1/enrol", &ask);
    assert_eq!(local.problem(), (401, "unauthenticated".to_owned()));
    assert!(local.text.contains("Too many wrong"), "{local:?}");
}

#[test]
fn a_token_made_otherwise_ends_the_code() {
    let new = New::start();
    let (code, _) = new.told();
    let token = json!({"name": "bot", "access": "viewer", "life": "1h"});
    assert_eq!(new.control.post("/v1/tokens", &token).status, 201);
    assert_eq!(new.enrol(&code).problem().0, 401);
    for (body, name) in [
        (json!({"code": code, "name": "a b"}), "name"),
        (json!({"code": code, "name": "a", "life": "9999h"}), "life"),
        (json!({"code": code}), "name"),
    ] {
        let refused = new.control.post("/v1/enrol", &body);
        assert_eq!(refused.problem().0, 400);
        assert!(refused.text.contains(name), "{refused:?}");
    }
}
