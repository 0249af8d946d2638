//! How the data plane is told and asked: over its local socket, with bounded waits. It may be absent at
//! any time; that is an answer, not an error.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crem_api::client::{Client, ClientError};
use crem_api::protocol::{Apply, ErrorCode};
use crem_api::state::Status;
use crem_api::{Change, Impact, Invalid};
use serde_json::Value;

/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the data plane did with a document.
#[derive(Clone, PartialEq, Debug)]
pub enum Taken {
    /// It is in force.
    InForce(Impact),
    /// No data plane answers; the next one starts from the confirmed document.
    Absent,
    /// It is a document, but this data plane would have to start anew for it.
    NeedsRestart(Vec<Change>),
    /// It is not acceptable on this machine.
    Refused(Invalid),
    /// Something else went wrong, in words.
    Failed(String),
}

/// A data plane, or what stands for one in tests.
pub trait Plane: Send {
    /// Brings a document into force, or with `dry_run` says what would happen.
    fn apply(&mut self, revision: u64, document: &Value, dry_run: bool) -> Taken;

    /// What tells the data plane that answers now from one that starts later; none while none answers.
    fn instance(&mut self) -> Option<String>;
}

/// What tells one start of a data plane from another; older versions have only their process id.
pub fn instance(status: &Status) -> String {
    format!("{}/{}", status.pid, status.instance)
}

/// The data plane at a socket.
#[derive(Clone, Debug)]
pub struct SocketPlane {
    socket: PathBuf,
}

impl SocketPlane {
    /// The data plane that serves this socket; nothing is connected yet.
    pub fn new(socket: &Path) -> Self {
        Self {
            socket: socket.to_path_buf(),
        }
    }

    /// A new connection.
    ///
    /// # Errors
    /// Nobody is there.
    pub fn connect(&self) -> Result<Client, ClientError> {
        Client::connect(&self.socket, PATIENCE)
    }
}

impl Plane for SocketPlane {
    fn apply(&mut self, revision: u64, document: &Value, dry_run: bool) -> Taken {
        let Ok(mut client) = self.connect() else {
            return Taken::Absent;
        };
        let apply = Apply {
            revision: Some(revision),
            max_impact: Impact::Segment,
            dry_run,
            document: document.clone(),
        };
        match client.apply(apply) {
            Ok(applied) => Taken::InForce(applied.impact),
            Err(ClientError::Refused(error)) => match error.code {
                ErrorCode::Invalid => Taken::Refused(Invalid {
                    issues: error.issues,
                }),
                ErrorCode::Impact => Taken::NeedsRestart(error.changes),
                // A data plane from before documents could be brought to it.
                ErrorCode::Unknown | ErrorCode::Malformed => Taken::NeedsRestart(Vec::new()),
                ErrorCode::Forbidden | ErrorCode::Version | ErrorCode::Timeout => {
                    Taken::Failed(error.message)
                }
            },
            Err(error) => Taken::Failed(error.to_string()),
        }
    }

    fn instance(&mut self) -> Option<String> {
        let status = self.connect().ok()?.status().ok()?;
        Some(instance(&status))
    }
}
