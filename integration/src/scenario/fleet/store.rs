//! Keys of etcd as whoever writes documents sees them: reading and writing one, from a namespace.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nix::sched::{CloneFlags, setns};
use serde_json::{Value, json};

use super::super::Failure;

/// Where etcd listens without being told otherwise.
const ADDRESS: &str = "127.0.0.1:2379";
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The keys.
#[derive(Debug)]
pub(super) struct Store {
    namespace: PathBuf,
}

impl Store {
    pub(super) fn new(namespace: PathBuf) -> Self {
        Self { namespace }
    }

    /// Writes a key.
    pub(super) fn put(&self, key: &str, value: &str) -> Result<(), Failure> {
        let body = json!({"key": STANDARD.encode(key), "value": STANDARD.encode(value)});
        let answer = self.ask("/v3/kv/put", &body)?;
        if answer["header"].is_object() {
            Ok(())
        } else {
            Err(format!("{key}: {answer}").into())
        }
    }

    /// What is in a key.
    pub(super) fn read(&self, key: &str) -> Result<Option<Value>, Failure> {
        let answer = self.ask("/v3/kv/range", &json!({"key": STANDARD.encode(key)}))?;
        let Some(text) = answer["kvs"][0]["value"].as_str() else {
            return Ok(None);
        };
        Ok(Some(serde_json::from_slice(&STANDARD.decode(text)?)?))
    }

    /// A namespace is entered by a thread, so each request has one.
    fn ask(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        let (namespace, body) = (self.namespace.clone(), body.to_string());
        let request = format!(
            "POST {path} HTTP/1.0\r\nHost: etcd\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let asking = std::thread::spawn(move || -> Result<String, Failure> {
            setns(File::open(namespace)?.as_fd(), CloneFlags::CLONE_NEWNET)?;
            let mut stream = TcpStream::connect(ADDRESS)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(request.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        });
        let answer = asking.join().map_err(|_| "the asking thread panicked")??;
        let (_, body) = answer.split_once("\r\n\r\n").ok_or("no answer of etcd")?;
        Ok(serde_json::from_str(body)?)
    }
}
