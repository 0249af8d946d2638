//! Many clients of control processes at once, each with a connection that it keeps: what they are answered and
//! after what time.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::http::{Ask, Http};
use crate::scenario::Failure;
use crate::scenario::gateway::SEGMENT;

/// Stack of a client: it does little.
const STACK: usize = 256 << 10;

/// What clients were answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Clients.
    pub clients: u32,
    /// Requests that were answered as they should.
    pub answered: u64,
    /// Requests without an answer, or with another one.
    pub failed: u64,
    /// The first that failed.
    pub first_failure: Option<String>,
    /// Answers a second.
    pub per_second: f64,
    /// Times from request to answer, milliseconds: median, 99 %, longest.
    pub answer_ms: [f64; 3],
}

/// What one client saw.
#[derive(Debug, Default)]
struct Seen {
    answer_us: Vec<u32>,
    failed: u64,
    first_failure: Option<String>,
}

/// Clients at work.
#[derive(Debug)]
pub(crate) struct Clients {
    begun: Instant,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Seen>>,
}

impl Clients {
    /// Starts so many clients, spread over the sockets; each asks again so long after an answer.
    pub(crate) fn start(count: u32, pause: Duration, sockets: &[PathBuf]) -> Result<Self, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for (number, socket) in (0..count).zip(sockets.iter().cycle()) {
            let (stop, socket) = (Arc::clone(&stop), socket.clone());
            let thread = std::thread::Builder::new().stack_size(STACK);
            threads.push(thread.spawn(move || client(number, pause, &socket, &stop))?);
        }
        Ok(Self {
            begun: Instant::now(),
            stop,
            threads,
        })
    }

    /// Ends them.
    pub(crate) fn finish(self) -> Result<Load, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let seconds = self.begun.elapsed().as_secs_f64();
        let mut load = Load {
            clients: self.threads.len() as u32,
            ..Load::default()
        };
        let mut all = Vec::new();
        for thread in self.threads {
            let seen = thread.join().map_err(|_| "a client panicked")?;
            all.extend(seen.answer_us);
            load.failed += seen.failed;
            load.first_failure = load.first_failure.or(seen.first_failure);
        }
        all.sort_unstable();
        load.answered = all.len() as u64;
        load.per_second = load.answered as f64 / seconds;
        load.answer_ms = [0.5, 0.99, 1.0].map(|share| quantile(&all, share));
        Ok(load)
    }
}

/// Milliseconds that a share of times, which are in order, does not exceed.
fn quantile(times_us: &[u32], share: f64) -> f64 {
    let rank = (share * times_us.len() as f64).ceil() as usize;
    let time = times_us.get(rank.saturating_sub(1));
    f64::from(time.copied().unwrap_or(0)) / 1e3
}

/// What clients ask in turn, and whether it comes with a body.
const PATHS: [&str; 7] = [
    "/v1/state/flows?limit=100",
    "/v1/state/counters",
    "/v1/config?filled=true",
    "/v1/commit",
    "/metrics",
    "/v1/state/dataplane",
    "/v1/config:plan",
];

fn client(number: u32, pause: Duration, socket: &Path, stop: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let mut connection = None;
    // Not all at the same moment.
    std::thread::sleep(pause / 64 * (number % 64));
    for turn in number as usize.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let begun = Instant::now();
        match one(&mut connection, socket, turn) {
            Ok(()) => seen.answer_us.push(begun.elapsed().as_micros() as u32),
            Err(failure) => {
                connection = None;
                seen.failed += 1;
                seen.first_failure.get_or_insert(failure.to_string());
            }
        }
        std::thread::sleep(pause);
    }
    seen
}

fn one(connection: &mut Option<Http>, socket: &Path, turn: usize) -> Result<(), Failure> {
    let http = match connection {
        Some(http) => http,
        None => connection.insert(Http::connect(socket)?),
    };
    let path = PATHS[turn % PATHS.len()];
    let body = format!(
        r#"{{"segments":{{"{SEGMENT}":{{"limits":{{"retained_frames":{}}}}}}}}}"#,
        2000 + turn % 99
    );
    let ask = if path.ends_with(":plan") {
        Ask {
            method: "POST",
            path,
            headers: &[("Content-Type", "application/merge-patch+json")],
            body: &body,
        }
    } else {
        Ask::get(path)
    };
    let answer = http.ask(ask)?;
    if answer.status != 200 || answer.body.len() < 10 {
        return Err(format!("{path}: {}", answer.words()).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_times_is_counted_from_the_shortest() {
        let times: Vec<u32> = (1..=200).map(|n| n * 1000).collect();
        assert_eq!(
            [0.5, 0.99, 1.0].map(|s| quantile(&times, s)),
            [100.0, 198.0, 200.0]
        );
        assert_eq!(quantile(&[], 0.99), 0.0);
    }
}
