//! What the data plane and the exporting process say of themselves: asked once a second from a thread of
//! its own, flows when somebody wants them. Readers get the last answer with its age.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crem_api::client::{Client, ClientError};
use crem_api::state::{Counters, Export, Flows, SegmentStatus, Status};
use tokio::sync::watch;

use crate::engine::Engine;
use crate::journal::Journal;
use crate::plane;
use crate::{audit, clock};

/// The mode that is noted.
const BYPASS: &str = "bypass";
/// Between two questions.
const PERIOD: Duration = Duration::from_secs(1);
/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Flows younger than this are not asked for again.
const FRESH: Duration = Duration::from_millis(500);

/// The last answers.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Seen {
    /// When, milliseconds since 1970.
    pub at_ms: u64,
    /// Status of the data plane; none while it does not answer.
    pub status: Option<Status>,
    /// Its counters.
    pub counters: Option<Counters>,
    /// What the exporting process says; none while there is none.
    pub export: Option<Export>,
}

/// Where to ask.
#[derive(Clone, Debug)]
pub struct Sockets {
    /// The data plane.
    pub dataplane: PathBuf,
    /// The exporting process.
    pub export: PathBuf,
}

/// Flows with the time at which they were listed.
type Listed = (Instant, u64, Arc<Flows>);

/// The way to what was seen.
#[derive(Clone, Debug)]
pub struct Watcher {
    sockets: Sockets,
    seen: watch::Receiver<Arc<Seen>>,
    flows: Arc<Mutex<Option<Listed>>>,
}

impl Watcher {
    /// Starts the thread. It ends with the last [`Watcher`].
    ///
    /// # Errors
    /// No thread.
    pub fn start(
        sockets: Sockets,
        engine: Engine,
        journal: Arc<Journal>,
        audit: Arc<audit::Log>,
    ) -> std::io::Result<Self> {
        let publish = watch::Sender::new(Arc::new(Seen::default()));
        let watcher = Self {
            sockets: sockets.clone(),
            seen: publish.subscribe(),
            flows: Arc::default(),
        };
        std::thread::Builder::new()
            .name("crem-watch".to_owned())
            .spawn(move || look(&sockets, &engine, (&journal, &audit), &publish))?;
        Ok(watcher)
    }

    /// The last answers.
    pub fn seen(&self) -> Arc<Seen> {
        Arc::clone(&self.seen.borrow())
    }

    /// Flows, at most half a second old. Blocks for as long as the data plane takes.
    ///
    /// # Errors
    /// The data plane gave no answer.
    pub fn flows(&self) -> Result<(u64, Arc<Flows>), ClientError> {
        // Who comes while the question is out waits for the same answer.
        let mut listed = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, at_ms, flows)) = &*listed
            && at.elapsed() < FRESH
        {
            return Ok((*at_ms, Arc::clone(flows)));
        }
        let mut flows = Client::connect(&self.sockets.dataplane, PATIENCE)?.flows()?;
        flows.flows.sort_by_cached_key(crate::http::state::flow_key);
        let flows = Arc::new(flows);
        let at_ms = clock::now().wall_ms;
        *listed = Some((Instant::now(), at_ms, Arc::clone(&flows)));
        Ok((at_ms, flows))
    }
}

fn look(
    sockets: &Sockets,
    engine: &Engine,
    (journal, audit): (&Journal, &audit::Log),
    publish: &watch::Sender<Arc<Seen>>,
) {
    let (mut client, mut instance) = (None, None::<String>);
    while !publish.is_closed() {
        let seen = ask(sockets, &mut client);
        let before = publish.borrow().status.is_some();
        match &seen.status {
            Some(status) => {
                let now = plane::instance(status);
                if instance.as_ref() != Some(&now) {
                    let text = format!("A data plane answers, version {}.", status.version);
                    journal.push(seen.at_ms, "dataplane_started", text, status.revision);
                    engine.plane_seen(now.clone());
                    instance = Some(now);
                }
                let last = publish.borrow().status.clone();
                for text in bypass_changes(&last.unwrap_or_default(), status) {
                    journal.push(seen.at_ms, "bypass", text.as_str(), status.revision);
                    audit.system(seen.at_ms, "bypass", status.revision.unwrap_or(0), &text);
                }
            }
            None if before => {
                let text = "The data plane does not answer any more.";
                journal.push(seen.at_ms, "dataplane_absent", text, None);
            }
            None => {}
        }
        publish.send_replace(Arc::new(seen));
        std::thread::sleep(PERIOD);
    }
}

/// Segments whose mode `bypass` began or ended between two answers, in words: it ends by itself, without a request that
/// would be on record.
fn bypass_changes(last: &Status, now: &Status) -> Vec<String> {
    let change = |(id, segment): (&String, &SegmentStatus)| {
        let before = last.segments.get(id).is_some_and(|s| s.mode == BYPASS);
        match (before, segment.mode == BYPASS, &segment.bypass) {
            (false, true, Some(bypass)) => Some(format!(
                "segment {id}: bypass begins for {} s, relay {}: {}",
                bypass.ends_in_s, bypass.relay, bypass.reason
            )),
            (true, false, _) => {
                let why = segment.mode_reason.as_deref().unwrap_or("a document");
                Some(format!(
                    "segment {id}: bypass ended, {} again: {why}",
                    segment.mode
                ))
            }
            _ => None,
        }
    };
    now.segments.iter().filter_map(change).collect()
}

fn ask(sockets: &Sockets, client: &mut Option<Client>) -> Seen {
    let both = |client: &mut Option<Client>| {
        if client.is_none() {
            *client = Client::connect(&sockets.dataplane, PATIENCE).ok();
        }
        let asked = client.as_mut()?;
        let answers = asked.status().and_then(|s| Ok((s, asked.counters()?)));
        answers.map_err(|_| *client = None).ok()
    };
    // A connection that the data plane closed is not yet a data plane that is gone.
    let answers = both(client).or_else(|| both(client));
    let (status, counters) = answers.unzip();
    let export = export(&sockets.export);
    Seen {
        at_ms: clock::now().wall_ms,
        status,
        counters,
        export,
    }
}

fn export(socket: &Path) -> Option<Export> {
    Client::connect(socket, PATIENCE).ok()?.export().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crem_api::state::BypassStatus;

    fn status(mode: &str, reason: Option<&str>) -> Status {
        let segment = SegmentStatus {
            mode: mode.to_owned(),
            mode_reason: reason.map(str::to_owned),
            bypass: Some(BypassStatus {
                relay: "none".to_owned(),
                ends_in_s: 60,
                then: "active".to_owned(),
                reason: "new cable".to_owned(),
            }),
            ..SegmentStatus::default()
        };
        Status {
            segments: [("a".to_owned(), segment)].into(),
            ..Status::default()
        }
    }

    #[test]
    fn bypass_is_noted_when_it_begins_and_when_it_ends_by_itself() {
        let (active, bypass) = (status("active", None), status("bypass", None));
        assert!(bypass_changes(&active, &active).is_empty());
        assert!(bypass_changes(&bypass, &bypass).is_empty());
        assert_eq!(
            bypass_changes(&active, &bypass),
            ["segment a: bypass begins for 60 s, relay none: new cable"]
        );
        // Also where it was in force before anybody looked.
        assert_eq!(bypass_changes(&Status::default(), &bypass).len(), 1);
        assert_eq!(
            bypass_changes(&bypass, &status("active", Some("the time is over"))),
            ["segment a: bypass ended, active again: the time is over"]
        );
    }
}
