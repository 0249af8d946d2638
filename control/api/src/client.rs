//! A small blocking client of the local protocol.

use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::capture::{CaptureAsk, CaptureState};
use crate::protocol::{Applied, Apply, Body, ErrorReply, Get, Reply, Request, Running};
use crate::state::{Counters, Export, Flows, Status};

/// Why a question got no answer.
#[derive(Debug)]
pub enum ClientError {
    /// The socket failed, or the server closed it.
    Io(io::Error),
    /// The reply is not one of this protocol.
    Malformed(serde_json::Error),
    /// The server refused.
    Refused(ErrorReply),
    /// The server answered another question.
    Mismatch,
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(e) => write!(f, "status socket: {e}"),
            Self::Malformed(e) => write!(f, "status socket: reply not understood: {e}"),
            Self::Refused(e) => write!(f, "status socket: refused: {}", e.message),
            Self::Mismatch => f.write_str("status socket: answer to another question"),
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(e) => Some(e),
            Self::Malformed(e) => Some(e),
            Self::Refused(_) | Self::Mismatch => None,
        }
    }
}

impl From<io::Error> for ClientError {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

/// One connection to a process of the gateway.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects; `timeout` bounds each later question.
    ///
    /// # Errors
    /// No such socket, nobody listening, or no permission.
    pub fn connect(path: &Path, timeout: Duration) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Asks and waits for the reply.
    ///
    /// # Errors
    /// See [`ClientError`]; a refusal is an error too.
    pub fn ask(&mut self, get: Get) -> Result<Reply, ClientError> {
        self.request(&Request::new(get))
    }

    /// Sends a request and waits for the reply.
    ///
    /// # Errors
    /// See [`ClientError`]; a refusal is an error too.
    pub fn request(&mut self, request: &Request) -> Result<Reply, ClientError> {
        let mut line = serde_json::to_string(request).map_err(ClientError::Malformed)?;
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes())?;
        line.clear();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let reply: Reply = serde_json::from_str(&line).map_err(ClientError::Malformed)?;
        match reply.body {
            Body::Error(e) => Err(ClientError::Refused(e)),
            _ => Ok(reply),
        }
    }

    /// Asks for the status.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn status(&mut self) -> Result<Status, ClientError> {
        match self.ask(Get::Status)?.body {
            Body::Status(status) => Ok(status),
            _ => Err(ClientError::Mismatch),
        }
    }

    /// Begins or ends a capture; tells how it stands then.
    ///
    /// # Errors
    /// See [`ClientError`]; a refusal names every problem of the request.
    pub fn capture(&mut self, ask: CaptureAsk) -> Result<CaptureState, ClientError> {
        match self.request(&Request::capture(ask))?.body {
            Body::Capture(state) => Ok(state),
            _ => Err(ClientError::Mismatch),
        }
    }

    /// How the capture that runs, or the last one, stands.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn capture_state(&mut self) -> Result<CaptureState, ClientError> {
        match self.ask(Get::Capture)?.body {
            Body::Capture(state) => Ok(state),
            _ => Err(ClientError::Mismatch),
        }
    }

    /// Asks for the counters.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn counters(&mut self) -> Result<Counters, ClientError> {
        match self.ask(Get::Counters)?.body {
            Body::Counters(counters) => Ok(counters),
            _ => Err(ClientError::Mismatch),
        }
    }

    /// Asks for the flows.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn flows(&mut self) -> Result<Flows, ClientError> {
        match self.ask(Get::Flows)?.body {
            Body::Flows(flows) => Ok(flows),
            _ => Err(ClientError::Mismatch),
        }
    }

    /// Asks an exporting process for its state.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn export(&mut self) -> Result<Export, ClientError> {
        match self.ask(Get::Export)?.body {
            Body::Export(export) => Ok(export),
            _ => Err(ClientError::Mismatch),
        }
    }

    /// Asks a data plane for the document in force.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn document(&mut self) -> Result<Running, ClientError> {
        match self.ask(Get::Document)?.body {
            Body::Document(running) => Ok(running),
            _ => Err(ClientError::Mismatch),
        }
    }

    /// Brings a document into force.
    ///
    /// # Errors
    /// See [`ClientError`]; what is wrong with the document comes as a refusal.
    pub fn apply(&mut self, apply: Apply) -> Result<Applied, ClientError> {
        match self.request(&Request::apply(apply))?.body {
            Body::Applied(applied) => Ok(applied),
            _ => Err(ClientError::Mismatch),
        }
    }
}
