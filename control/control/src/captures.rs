//! Captures: which there are, and their files. The data plane takes the frames and writes the file, into a
//! directory of ours; one at a time. Here they are begun, ended, counted and removed, each file with its record.
//! All of it blocks. Who may do so is decided elsewhere.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crem_api::capture::{CaptureAsk, CaptureEnd, CaptureState};
use crem_api::client::ClientError;
use crem_api::protocol::ErrorCode;
use crem_api::rest::{Capture, CaptureList, CapturePhase, NewCapture, Problem};
use crem_api::{Invalid, Issue};

use crate::digest::random_hex;
use crate::plane::SocketPlane;
use crate::problem::{self, Kind, problem};

/// Captures that are kept, running or not.
const MAX_CAPTURES: usize = 16;
/// Octets that their files may take together.
const QUOTA: u64 = 1 << 30;
/// Octets of the disk that are left to everything else.
const RESERVE: u64 = 64 << 20;
/// What a file has besides the frames, at most: a header, and a block around each frame.
const FILE_OVERHEAD: u64 = 4096;
const FRAME_OVERHEAD: u64 = 64;
/// Longest wait for the end of a capture that was told to end.
const ENDING: Duration = Duration::from_secs(3);
/// Where the data plane points at in what is wrong with a request.
const ASKED: &str = "/capture/start";

/// The captures of a gateway.
#[derive(Debug)]
pub struct Captures {
    directory: PathBuf,
    plane: SocketPlane,
    known: Mutex<BTreeMap<String, Capture>>,
}

impl Captures {
    /// Those whose files and records are in a directory; it is made if need be. Files without a record go.
    ///
    /// # Errors
    /// The directory cannot be used.
    pub fn open(directory: &Path, plane: SocketPlane) -> io::Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        let mut known = BTreeMap::new();
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let record = fs::read(path.with_extension("json")).ok();
            let record = record.and_then(|r| serde_json::from_slice::<Capture>(&r).ok());
            match record {
                Some(capture) => {
                    known.insert(capture.id.clone(), capture);
                }
                None => fs::remove_file(&path)?,
            }
        }
        Ok(Self {
            directory: directory.to_path_buf(),
            plane,
            known: Mutex::new(known),
        })
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Capture>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, id: &str) -> PathBuf {
        self.directory.join(id).with_extension("pcapng")
    }

    /// All of them, as they stand now.
    pub fn list(&self) -> CaptureList {
        let mut known = self.known();
        self.look(&mut known);
        let mut captures: Vec<Capture> = known.values().cloned().collect();
        captures.sort_by_key(|capture| capture.at_ms);
        CaptureList {
            free_octets: self.room(&known),
            captures,
        }
    }

    /// One of them, as it stands now.
    ///
    /// # Errors
    /// There is none with this id.
    pub fn get(&self, id: &str) -> Result<Capture, Box<Problem>> {
        let mut known = self.known();
        self.look(&mut known);
        known.get(id).cloned().ok_or_else(missing)
    }

    /// Begins one.
    ///
    /// # Errors
    /// Everything that is wrong with the request, another capture runs, or there is no room for the file.
    pub fn start(
        &self,
        asked: NewCapture,
        actor: String,
        at_ms: u64,
    ) -> Result<Capture, Box<Problem>> {
        let mut known = self.known();
        self.look(&mut known);
        if known.len() >= MAX_CAPTURES {
            let detail = format!("There are {MAX_CAPTURES} captures; remove one.");
            return Err(problem(Kind::NoRoom, detail));
        }
        let id = random_hex::<6>().map_err(internal)?;
        let request = asked.request(self.file(&id));
        let issues = request.problems();
        if !issues.is_empty() {
            return Err(refused(issues));
        }
        let (room, needed) = (self.room(&known), largest(&request));
        if needed > room {
            let detail = format!(
                "The file may take {needed} octets and {room} are left: ask for less, or remove captures."
            );
            return Err(problem(Kind::NoRoom, detail));
        }
        let begun = self.ask(CaptureAsk::Start(Box::new(request)))?;
        let mut capture = Capture {
            id: id.clone(),
            actor,
            at_ms,
            asked,
            state: CapturePhase::Running,
            detail: None,
            frames: 0,
            octets: 0,
            lost: 0,
            file_octets: 0,
        };
        self.update(&mut capture, Some(&begun));
        self.keep(&capture).map_err(internal)?;
        known.insert(id, capture.clone());
        Ok(capture)
    }

    /// Ends one that runs and waits until its file is complete; one that is over stays as it is.
    ///
    /// # Errors
    /// There is none with this id, or the data plane does not end it.
    pub fn stop(&self, id: &str) -> Result<Capture, Box<Problem>> {
        if self.get(id)?.state == CapturePhase::Running {
            self.ask(CaptureAsk::Stop)?;
        }
        let until = Instant::now() + ENDING;
        loop {
            let capture = self.get(id)?;
            if capture.state != CapturePhase::Running {
                return Ok(capture);
            }
            if Instant::now() > until {
                let detail = "The data plane has not ended it yet.";
                return Err(problem(Kind::CaptureRunning, detail));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Removes one with its file; one that runs is ended before.
    ///
    /// # Errors
    /// There is none with this id, or it cannot be ended or removed.
    pub fn remove(&self, id: &str) -> Result<(), Box<Problem>> {
        self.stop(id)?;
        let mut known = self.known();
        for path in [self.file(id), self.file(id).with_extension("json")] {
            match fs::remove_file(path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(internal(e)),
                _ => {}
            }
        }
        known.remove(id).map(|_| ()).ok_or_else(missing)
    }

    /// The file of one that is over, with its length.
    ///
    /// # Errors
    /// There is none with this id, it still runs, or its file cannot be read.
    pub fn read(&self, id: &str) -> Result<(fs::File, u64), Box<Problem>> {
        let capture = self.get(id)?;
        if capture.state == CapturePhase::Running {
            let detail = "Its file is not complete: stop it, or wait for its end.";
            return Err(problem(Kind::CaptureRunning, detail));
        }
        let file = fs::File::open(self.file(id)).map_err(internal)?;
        let length = file.metadata().map_err(internal)?.len();
        Ok((file, length))
    }

    /// Octets that new files may take: of the quota, and of the disk.
    fn room(&self, known: &BTreeMap<String, Capture>) -> u64 {
        let used: u64 = known.values().map(|capture| capture.file_octets).sum();
        let disk = nix::sys::statvfs::statvfs(&self.directory);
        let disk = disk.map_or(0, |disk| disk.blocks_available() * disk.fragment_size());
        (QUOTA.saturating_sub(used)).min(disk.saturating_sub(RESERVE))
    }

    /// Asks the data plane how the one that runs stands; none runs without being asked about.
    fn look(&self, known: &mut BTreeMap<String, Capture>) {
        for capture in known.values_mut() {
            if capture.state != CapturePhase::Running {
                continue;
            }
            let asked = self.plane.connect().and_then(|mut c| c.capture_state());
            match asked {
                Ok(state) => self.update(capture, Some(&state)),
                Err(ClientError::Io(e)) if is_absence(&e) => self.update(capture, None),
                // It is busy: nothing is known anew.
                Err(_) => {}
            }
            if capture.state != CapturePhase::Running
                && let Err(error) = self.keep(capture)
            {
                tracing::warn!("the record of capture {}: {error}", capture.id);
            }
        }
    }

    /// Takes over what the data plane says of its capture, if it is this one.
    fn update(&self, capture: &mut Capture, said: Option<&CaptureState>) {
        let file = self.file(&capture.id);
        capture.file_octets = fs::metadata(&file).map_or(0, |file| file.len());
        let ours = |state: &&CaptureState| state.request.as_ref().is_some_and(|r| r.file == file);
        let Some(state) = said.filter(ours) else {
            capture.state = CapturePhase::Lost;
            return;
        };
        (capture.frames, capture.octets) = (state.frames, state.octets);
        capture.lost = state.lost;
        (capture.state, capture.detail) = match &state.ended {
            None => (CapturePhase::Running, None),
            Some(CaptureEnd::Frames) => (CapturePhase::Frames, None),
            Some(CaptureEnd::Octets) => (CapturePhase::Octets, None),
            Some(CaptureEnd::Time) => (CapturePhase::Time, None),
            Some(CaptureEnd::Stopped) => (CapturePhase::Stopped, None),
            Some(CaptureEnd::Failed(why)) => (CapturePhase::Failed, Some(why.clone())),
        };
    }

    fn keep(&self, capture: &Capture) -> io::Result<()> {
        let path = self.file(&capture.id).with_extension("json");
        fs::write(path, serde_json::to_vec(capture)?)
    }

    fn ask(&self, ask: CaptureAsk) -> Result<CaptureState, Box<Problem>> {
        let asked = self
            .plane
            .connect()
            .and_then(|mut client| client.capture(ask));
        asked.map_err(|error| match error {
            ClientError::Refused(error) if error.code == ErrorCode::Invalid => {
                if error.issues.iter().any(|issue| issue.pointer == ASKED) {
                    let detail = "There is one at a time: stop it, or wait for its end.";
                    return problem(Kind::CaptureRunning, detail);
                }
                refused(error.issues)
            }
            ClientError::Refused(error) => problem(Kind::ApplyFailed, error.message),
            error => problem(Kind::DataplaneAbsent, format!("{error}.")),
        })
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

fn missing() -> Box<Problem> {
    problem(Kind::NotFound, "There is no such capture.")
}

fn internal(error: io::Error) -> Box<Problem> {
    problem(Kind::Internal, error.to_string())
}

/// What is wrong with a request, with pointers into the request of the API.
fn refused(mut issues: Vec<Issue>) -> Box<Problem> {
    for issue in &mut issues {
        let place = issue.pointer.strip_prefix(ASKED);
        issue.pointer = place.unwrap_or(&issue.pointer).to_owned();
    }
    problem::invalid(Invalid { issues })
}

/// Octets that the file of a capture may take.
fn largest(request: &crem_api::capture::CaptureRequest) -> u64 {
    let frames = request.max_frames.min(request.max_octets);
    let octets = request.max_octets.min(
        request
            .max_frames
            .saturating_mul(request.snap_octets.into()),
    );
    octets + frames * FRAME_OVERHEAD + FILE_OVERHEAD
}
