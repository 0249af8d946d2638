//! Requests to a control process over its local socket: one connection with any number of requests in turn.
//! What is asked and what has to come back is not decided here; nothing is asked twice.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::scenario::Failure;

/// Longest wait for an answer: longer than what the API takes at most for one.
const PATIENCE: Duration = Duration::from_secs(40);
/// Longest answer, octets.
const MOST: usize = 64 << 20;

/// A connection.
#[derive(Debug)]
pub(crate) struct Http(BufReader<UnixStream>);

/// A request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ask<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    /// `If-Match` and the like.
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) body: &'a str,
}

impl<'a> Ask<'a> {
    pub(crate) fn get(path: &'a str) -> Self {
        Self {
            method: "GET",
            path,
            ..Self::default()
        }
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) etag: Option<String>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The document in it; null if there is none.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Status and text of an answer that is not the expected one.
    pub(crate) fn words(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        format!("{}: {}", self.status, text.get(..400).unwrap_or(&text))
    }
}

impl Http {
    /// A new connection.
    pub(crate) fn connect(socket: &Path) -> Result<Self, Failure> {
        Self::connect_for(socket, PATIENCE)
    }

    /// A new connection that waits so long for answers.
    pub(crate) fn connect_for(socket: &Path, patience: Duration) -> Result<Self, Failure> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a request and waits for the answer.
    pub(crate) fn ask(&mut self, ask: Ask<'_>) -> Result<Answer, Failure> {
        let mut head = format!("{} {} HTTP/1.1\r\nHost: gateway\r\n", ask.method, ask.path);
        for (name, value) in ask.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", ask.body.len()));
        head.push_str(ask.body);
        self.0.get_mut().write_all(head.as_bytes())?;
        self.answer()
    }

    fn answer(&mut self) -> Result<Answer, Failure> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|s| s.parse().ok());
        let mut answer = Answer {
            status: status.ok_or_else(|| format!("no answer: {first:?}"))?,
            etag: None,
            body: Vec::new(),
        };
        let mut length = 0;
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(": ") else {
                break;
            };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse()?,
                "etag" => answer.etag = Some(value.to_owned()),
                "transfer-encoding" => return Err("an answer of unknown length".into()),
                _ => {}
            }
        }
        if length > MOST {
            return Err(format!("an answer of {length} octets").into());
        }
        answer.body.resize(length, 0);
        self.0.read_exact(&mut answer.body)?;
        Ok(answer)
    }

    /// Without its end.
    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err("the connection was closed".into());
        }
        Ok(line.trim_end().to_owned())
    }
}
