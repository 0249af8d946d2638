//! A gateway that answers from a script, and `cremctl` as a process.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    dead_code,
    unreachable_pub,
    reason = "each test uses a part"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::Value;

/// Status, ETag and document of an answer.
pub type Answer = (u16, &'static str, Value);

/// A place for a file or a directory of a test; what is there goes with the value, also when the test fails.
pub struct Place(PathBuf);

impl Place {
    pub fn new(name: &str) -> Self {
        let name = format!("cremctl-{}-{name}", std::process::id());
        let place = Self(std::env::temp_dir().join(name));
        place.clear();
        place
    }

    /// With a file of this text.
    pub fn file(name: &str, text: &str) -> Self {
        let place = Self::new(name);
        std::fs::write(&place.0, text).unwrap();
        place
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn name(&self) -> String {
        self.0.display().to_string()
    }

    fn clear(&self) {
        // One of both, or neither.
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Answers requests in turn and notes them: first line, If-Match and body.
pub struct Gateway {
    pub socket: PathBuf,
    _place: Option<Place>,
    pub asked: Arc<Mutex<Vec<(String, String, String)>>>,
}

impl Gateway {
    pub fn new(name: &str, answers: Vec<Answer>) -> Self {
        let place = Place::new(name);
        let socket = place.path().to_owned();
        let listener = UnixListener::bind(&socket).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&asked);
        std::thread::spawn(move || {
            for (status, etag, value) in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut first, mut expected, mut length) = (String::new(), String::new(), 0);
                reader.read_line(&mut first).unwrap();
                loop {
                    let mut line = String::new();
                    reader.read_line(&mut line).unwrap();
                    match line.trim().to_ascii_lowercase().split_once(": ") {
                        Some(("if-match", value)) => expected = value.to_owned(),
                        Some(("content-length", value)) => length = value.parse().unwrap(),
                        Some(_) => {}
                        None => break,
                    }
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                let first = first.trim_end_matches(" HTTP/1.1\r\n").to_owned();
                let body = String::from_utf8(body).unwrap();
                notes.lock().unwrap().push((first, expected, body));
                let text = value.to_string();
                let answer = format!(
                    "HTTP/1.1 {status} X\r\nETag: {etag}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
                    text.len()
                );
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        Self {
            socket,
            _place: Some(place),
            asked,
        }
    }

    /// One that is not there.
    pub fn nowhere() -> Self {
        Self {
            socket: "/nowhere/c.sock".into(),
            _place: None,
            asked: Arc::default(),
        }
    }

    pub fn asked(&self) -> Vec<(String, String, String)> {
        self.asked.lock().unwrap().clone()
    }
}

/// Exit status, standard output, standard error.
pub fn cremctl(gateway: &Gateway, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_cremctl"))
        .arg("--socket")
        .arg(&gateway.socket)
        .args(arguments)
        .output()
        .unwrap();
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    (
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr),
    )
}
