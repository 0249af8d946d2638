//! The agent at work: what happens is brought to the machine, and what it asks for is done. Nothing is decided here
//! but when to look, and when to try etcd again.

use std::time::{Duration, Instant};

use crem_fleet::keys::Keys;
use crem_fleet::machine::BoxState;
use crem_fleet::status::{self, Local, Phase, Status};
use crem_fleet::store::{Store, Turn};
use crem_fleet::wire::{self, Event, path};
use crem_fleet::{Action, Input, Machine, Settings};
use serde_json::Value;
use tokio::sync::oneshot;

use super::control::Control;
use super::etcd::{Etcd, Watch};
use super::files;
use crate::notify;

/// How often the gateway is looked at: while it changes, and else.
const LOOK: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];
/// How often leases are kept while a change is under way: it shows that etcd is still reached.
const KEEP_CHANGING: Duration = Duration::from_secs(1);
/// Before etcd is tried again: doubles up to the second one.
const AGAIN: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(8)];
/// Everything is read anew now and then, should a watch have stopped without a word.
const REREAD: Duration = Duration::from_secs(300);
/// The lock outlives the way back of a change: nobody else of the pair begins before that is over.
const LOCK_MARGIN_S: u64 = 30;
/// The file with the status is written at least so often: whoever reads it sees by its age whether we are here.
const BEAT: Duration = Duration::from_secs(10);
/// Most of what follows from one thing that happened: enough for a whole change, and a bound.
const MAX_STEPS: usize = 64;

/// What is known of etcd while it answers.
#[derive(Debug)]
struct Link {
    store: Store,
    watch: Watch,
    since: Instant,
}

/// The agent.
#[derive(Debug)]
pub(super) struct Agent {
    settings: Settings,
    keys: Keys,
    began: Instant,
    machine: Machine,
    control: Control,
    etcd: Etcd,
    link: Option<Link>,
    /// Why there is none.
    away: Option<String>,
    status_lease: Option<u64>,
    lock_lease: Option<u64>,
    looked: Option<Instant>,
    kept: Option<Instant>,
    try_at: Instant,
    pause: Duration,
    told: Option<Phase>,
    /// What is to be in the file with the status, and what is and since when.
    local: Local,
    written: Option<(Local, Instant)>,
}

impl Agent {
    pub(super) fn new(settings: Settings) -> Self {
        let memory = files::remember(&settings.memory);
        let now = Instant::now();
        Self {
            keys: Keys::new(&settings.etcd.prefix, &settings.identity),
            began: now,
            machine: Machine::new(&settings, env!("CARGO_PKG_VERSION"), memory),
            control: Control::new(settings.control.clone()),
            etcd: Etcd::new(settings.etcd.clone()),
            link: None,
            away: None,
            status_lease: None,
            lock_lease: None,
            looked: None,
            kept: None,
            try_at: now,
            pause: AGAIN[0],
            told: None,
            local: Local::default(),
            written: None,
            settings,
        }
    }

    /// Runs until it is told to stop. A change that is under way then is left as it is: who starts next goes on
    /// with it, and without one it ends by itself.
    pub(super) async fn run(mut self, mut stop: oneshot::Receiver<()>) {
        let alive = notify::watchdog().is_some();
        loop {
            if alive {
                notify::tell("WATCHDOG=1");
            }
            self.reach_etcd().await;
            self.look().await;
            self.write_status();
            let wake = tokio::time::sleep(self.rest());
            let event = tokio::select! {
                _ = &mut stop => break,
                event = next(&mut self.link) => Some(event),
                () = wake => None,
            };
            if let Some(event) = event {
                self.news(event).await;
            }
        }
        if let (Some(lease), true) = (self.status_lease, self.link.is_some()) {
            // Who looks sees at once that nobody is here; else the lease ends by itself.
            let _ = self.etcd.ask(path::REVOKE, &wire::lease(lease)).await;
        }
    }

    fn look_every(&self) -> Duration {
        LOOK[usize::from(!self.machine.is_changing())]
    }

    fn keep_every(&self) -> Duration {
        if self.machine.is_changing() {
            KEEP_CHANGING
        } else {
            Duration::from_secs(self.settings.etcd.lease_s) / 3
        }
    }

    /// Until something is due.
    fn rest(&self) -> Duration {
        let due = |last: Option<Instant>, every: Duration| {
            last.map_or(Duration::ZERO, |at| every.saturating_sub(at.elapsed()))
        };
        let etcd = if self.link.is_some() {
            due(self.kept, self.keep_every())
        } else {
            self.try_at.saturating_duration_since(Instant::now())
        };
        etcd.min(due(self.looked, self.look_every()))
    }

    /// Connects, or shows that the connection still works.
    async fn reach_etcd(&mut self) {
        let Some(link) = &self.link else {
            if Instant::now() >= self.try_at {
                self.connect().await;
            }
            return;
        };
        if link.since.elapsed() > REREAD {
            return self.connect().await;
        }
        if self.kept.is_none_or(|at| at.elapsed() >= self.keep_every()) {
            match self.keep().await {
                Ok(()) => self.kept = Some(Instant::now()),
                Err(why) => self.lost(&why).await,
            }
        }
    }

    async fn connect(&mut self) {
        match self.try_connect().await {
            Ok(link) => {
                if self.away.take().is_some() {
                    tracing::info!("etcd answers");
                }
                self.link = Some(link);
                self.kept = Some(Instant::now());
                self.pause = AGAIN[0];
                self.machine.forget_told();
                self.happened(Input::News).await;
            }
            Err(why) => self.lost(&why).await,
        }
    }

    async fn try_connect(&mut self) -> Result<Link, String> {
        let ranges = self.keys.ranges();
        let answer = self.etcd.ask(path::TXN, &wire::read(&ranges)).await?;
        let (revision, entries) = wire::entries(&answer).ok_or("etcd: no answer to a read")?;
        let store = Store::new(self.keys.clone(), revision, entries);
        let watch = self.etcd.watch(&ranges, revision + 1).await?;
        self.keep().await?;
        Ok(Link {
            store,
            watch,
            since: Instant::now(),
        })
    }

    /// Keeps the leases; one that is gone is made anew, or forgotten.
    async fn keep(&mut self) -> Result<(), String> {
        if let Some(lease) = self.lock_lease {
            let answer = self.etcd.ask(path::KEEP_ALIVE, &wire::lease(lease)).await?;
            if !wire::is_kept(&answer) {
                self.lock_lease = None;
            }
        }
        if let Some(lease) = self.status_lease {
            let answer = self.etcd.ask(path::KEEP_ALIVE, &wire::lease(lease)).await?;
            if wire::is_kept(&answer) {
                return Ok(());
            }
        }
        self.status_lease = Some(self.lease(self.settings.etcd.lease_s).await?);
        self.machine.forget_told();
        Ok(())
    }

    async fn lease(&mut self, seconds: u64) -> Result<u64, String> {
        let answer = self.etcd.ask(path::GRANT, &wire::grant(seconds)).await?;
        wire::granted(&answer).ok_or_else(|| "etcd: no lease".to_owned())
    }

    /// etcd is away: that changes nothing for the gateway.
    async fn lost(&mut self, why: &str) {
        if self.away.is_none() {
            tracing::warn!("{why}; the gateway goes on with what it has");
        }
        self.away = Some(why.to_owned());
        self.link = None;
        self.try_at = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(AGAIN[1]);
        self.happened(Input::News).await;
    }

    async fn news(&mut self, event: Event) {
        let Some(link) = &mut self.link else { return };
        match event.note_in(&mut link.store) {
            Ok(()) => self.happened(Input::News).await,
            // The keys are read anew, and followed from there.
            Err(why) => self.lost(&format!("etcd: {why}")).await,
        }
    }

    async fn look(&mut self) {
        if self
            .looked
            .is_some_and(|at| at.elapsed() < self.look_every())
        {
            return;
        }
        let told: Result<Box<BoxState>, String> =
            self.control.look(self.machine.is_changing()).await;
        self.looked = Some(Instant::now());
        self.happened(Input::Box(told)).await;
    }

    /// Brings something to the machine and does what follows.
    async fn happened(&mut self, input: Input) {
        let mut next = Some(input);
        for _ in 0..MAX_STEPS {
            let Some(input) = next.take() else { return };
            let now_ms = self.began.elapsed().as_millis() as u64;
            let store = self.link.as_ref().map(|link| &link.store);
            for action in self.machine.take(now_ms, store, input) {
                if let Some(answer) = self.perform(action).await {
                    next = Some(answer);
                }
            }
        }
        tracing::error!("{MAX_STEPS} steps without a pause");
    }

    async fn perform(&mut self, action: Action) -> Option<Input> {
        let rollout = &self.settings.rollout;
        Some(match action {
            Action::Plan(document) => Input::Planned(self.control.plan(&document).await),
            Action::Take(turn) => Input::Taken(self.take(&turn).await),
            Action::Write(write) => {
                let (confirm_s, impact) = (rollout.confirm_s, rollout.max_impact);
                Input::Written(self.control.write(&write, confirm_s, impact).await)
            }
            Action::Confirm(revision) => {
                Input::Confirmed(self.control.commit("confirm", revision).await)
            }
            Action::Cancel(revision) => {
                Input::Cancelled(self.control.commit("cancel", revision).await)
            }
            Action::Ask(id) => Input::Operation(self.control.operation(&id).await),
            Action::GiveBack(keys) => {
                self.try_ask(path::TXN, &wire::give_back(&keys)).await;
                if let Some(lease) = self.lock_lease.take() {
                    self.try_ask(path::REVOKE, &wire::lease(lease)).await;
                }
                Input::GivenBack
            }
            Action::Halt(halt) => {
                let value = serde_json::to_string(&halt).unwrap_or_default();
                let put = wire::put(&self.keys.halted(), &value, 0);
                self.try_ask(path::PUT, &put).await;
                return None;
            }
            Action::Save(memory) => {
                files::replace(&self.settings.memory, &memory, true);
                return None;
            }
            Action::Report(status) => {
                self.report(&status).await;
                return None;
            }
        })
    }

    /// Asks etcd where the answer changes nothing here; a failure shows again when the leases are kept.
    async fn try_ask(&mut self, path: &str, body: &Value) -> Option<Value> {
        self.link.as_ref()?;
        match self.etcd.ask(path, body).await {
            Ok(answer) => Some(answer),
            Err(why) => {
                tracing::warn!("{why}");
                self.kept = None;
                None
            }
        }
    }

    async fn take(&mut self, turn: &Turn) -> bool {
        let seconds = self.settings.rollout.confirm_s + LOCK_MARGIN_S;
        let lease = match self.lock_lease {
            Some(lease) => lease,
            None => match self.lease(seconds).await {
                Ok(lease) => lease,
                Err(why) => {
                    tracing::warn!("{why}");
                    self.kept = None;
                    return false;
                }
            },
        };
        self.lock_lease = Some(lease);
        let answer = self.try_ask(path::TXN, &wire::take(turn, lease)).await;
        let ours = answer.as_ref().is_some_and(wire::succeeded);
        if let (true, Some(link)) = (ours, &mut self.link) {
            // The watch tells it too, but later.
            wire::note_taken(&mut link.store, turn, lease, &answer.unwrap_or_default());
        }
        ours
    }

    /// Writes the file with the status, if something is otherwise or it becomes old.
    fn write_status(&mut self) {
        self.local.agent = status::Agent {
            etcd: self.link.is_some(),
            counts: self.machine.counts().clone(),
        };
        let fresh = self.written.as_ref().filter(|(_, at)| at.elapsed() < BEAT);
        if fresh.is_none_or(|(written, _)| *written != self.local) {
            files::replace(&self.settings.status, &self.local, false);
            self.written = Some((self.local.clone(), Instant::now()));
        }
    }

    async fn report(&mut self, status: &Status) {
        if self.told != Some(status.state) {
            self.told = Some(status.state);
            let problem = status.problem.as_ref().map(|p| p.detail.as_str());
            let desired = status.desired.as_deref().unwrap_or("nothing");
            let words = problem.or(status.waiting_for.as_deref()).unwrap_or("");
            tracing::info!("{:?}: {desired} {words}", status.state);
        }
        self.local.status = status.clone();
        self.write_status();
        let value = serde_json::to_string(status).unwrap_or_default();
        if let Some(lease) = self.status_lease {
            let put = wire::put(&self.keys.status(), &value, lease);
            if self.link.is_some() && self.try_ask(path::PUT, &put).await.is_none() {
                self.machine.forget_told();
            }
        }
    }
}

/// The next event; never while there is no connection.
async fn next(link: &mut Option<Link>) -> Event {
    match link {
        Some(link) => link.watch.next().await,
        None => std::future::pending().await,
    }
}
