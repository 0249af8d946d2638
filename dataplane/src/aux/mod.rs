//! The auxiliary thread: everything that may block. It sets up and watches the in-band interfaces,
//! serves the status socket and takes signals. It meets the worker only through bounded channels, and
//! the worker never waits for it.

mod apply;
mod board;
mod boxes;
mod capture;
mod documents;
mod drivers;
mod keep;
mod kernel;
mod links;
mod ports;
mod socket;
mod wanted;
mod watchdog;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::Duration;

use crem_api::{Inband, MacAddr};
use crem_core::events::Event;
use crem_core::time::Instant;
use crem_dpdk::Clock;
use crem_dpdk::thread::Affinity;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::Receiver;
use tokio::sync::{Mutex, watch};

use crate::capture::NewProbe;
use crate::metering::relay::Relay;
use crate::metering::{Relaying, Shared, utc_offset};
use crate::snapshot::{NextHop, Snapshot, Wanted};
use crate::worker::Spent;

use board::Board;
use capture::Captures;
use drivers::Drivers;
use links::AllLinks;
use ports::KernelPorts;
use watchdog::Watchdog;

pub use apply::{Applier, OrderEnds, Started};
pub use boxes::Now;
pub use documents::{About, AboutSegment};
pub use drivers::LinkReader;
pub use kernel::interface_name;
pub use links::LinkSwitch;
pub use ports::PortInterface;
pub use socket::check as check_socket;

/// Between two looks at the rings of records: 32 batches of a worker hold what comes in far longer.
const BUSY_RELAY: Duration = Duration::from_millis(2);
/// The same while nothing comes.
const IDLE_RELAY: Duration = Duration::from_millis(10);
/// Between two beats of bypass relays.
const KEEP_TIME: Duration = Duration::from_millis(100);
/// Time for the last records at the end.
const LAST_RECORDS: Duration = Duration::from_secs(1);

/// An in-band interface to set up.
#[derive(Clone, Debug)]
pub struct KernelStation {
    /// Segment, in the order of the document.
    pub segment: usize,
    /// Interface, made by the tap driver.
    pub interface: String,
    /// Addresses.
    pub inband: Inband,
    /// MAC address of the interface.
    pub mac: MacAddr,
    /// MTU, octets.
    pub mtu: u32,
    /// Peers whose next hops are wanted from the start.
    pub peers: Vec<std::net::IpAddr>,
}

/// Both directions between the workers and this thread, this thread's ends.
#[derive(Debug)]
pub struct Ends {
    /// Snapshots of the workers.
    pub snapshots: Receiver<Box<Snapshot>>,
    /// Next hops that they lack.
    pub wanted: Receiver<Wanted>,
    /// What goes to each of them.
    pub workers: Vec<WorkerEnds>,
    /// What they want freed.
    pub attic: std::sync::mpsc::Receiver<Spent>,
    /// Set: the workers are to end.
    pub stop: Arc<AtomicBool>,
}

/// What goes to one worker.
#[derive(Clone, Debug)]
pub struct WorkerEnds {
    /// Memory of its snapshots, given back.
    pub spare: SyncSender<Box<Snapshot>>,
    /// Next hops found and lost.
    pub next_hops: SyncSender<NextHop>,
    /// Captures that begin.
    pub probes: SyncSender<NewProbe>,
    /// Set: the next snapshot is to list the flows.
    pub list_flows: Arc<AtomicBool>,
    /// Its turns so far.
    pub heartbeat: Arc<AtomicU64>,
}

/// What the thread works on.
pub struct Task {
    /// Where the status socket is.
    pub socket: PathBuf,
    /// The document in force, and what replaces it.
    pub applier: Applier,
    /// Kernel interfaces that are ports: the kernel itself is to stay silent on them.
    pub ports: Vec<PortInterface>,
    /// Switches the links of the LAN and WAN port of each segment.
    pub links: Vec<[LinkSwitch; 2]>,
    /// Ask the drivers of the same ports.
    pub drivers: Vec<[LinkReader; 2]>,
    /// In-band interfaces.
    pub stations: Vec<KernelStation>,
    /// CPUs to run on: not the worker's alone.
    pub affinity: Affinity,
    /// Called once, when the worker runs and the socket answers.
    pub on_ready: Box<dyn FnOnce() + Send>,
    /// Where records of metering go.
    pub relaying: Relaying,
    /// The workers' clock.
    pub clock: Clock,
    /// Time without a turn after which a worker is stuck and the process ends; zero: never.
    pub watchdog: Duration,
}

/// Starts the thread; it ends when the worker drops its end of the snapshots.
///
/// Returns when the socket listens and the in-band interfaces are set up.
///
/// # Errors
/// The first thing that could not be done.
pub fn start(task: Task, ends: Ends) -> io::Result<JoinHandle<()>> {
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    let thread = std::thread::Builder::new()
        .name("crem-aux".to_owned())
        .spawn(move || {
            let begun = prepare(&task.affinity);
            let runtime = begun.and_then(|()| {
                tokio::runtime::Builder::new_current_thread()
                    .enable_io()
                    .enable_time()
                    .build()
            });
            match runtime {
                Ok(runtime) => runtime.block_on(run(task, ends, &tell)),
                Err(e) => {
                    let _ = tell.send(Err(e));
                }
            }
        })?;
    match told.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(e)) => {
            let _ = thread.join();
            Err(e)
        }
        Err(_) => Err(io::Error::other("the auxiliary thread ended at its start")),
    }
}

fn prepare(affinity: &Affinity) -> io::Result<()> {
    affinity.apply().map_err(io::Error::other)?;
    // The tap driver's signal per frame is the worker's business.
    crem_dpdk::thread::block_realtime_signals().map_err(io::Error::other)
}

async fn run(task: Task, ends: Ends, tell: &SyncSender<io::Result<()>>) {
    let Ends {
        mut snapshots,
        wanted,
        workers,
        attic,
        stop,
    } = ends;
    let begun = async {
        let listener = socket::bind(&task.socket)?;
        let kernel = kernel::Kernel::set_up(&task.ports, task.stations).await?;
        watch_signals(&stop)?;
        Ok((listener, kernel))
    };
    let (listener, kernel) = match begun.await {
        Ok(begun) => begun,
        Err(e) => {
            let _ = tell.send(Err(e));
            return;
        }
    };
    let _ = tell.send(Ok(()));
    let (publish, latest) = watch::channel(None::<Arc<Snapshot>>);
    let (publish_list, listing) = watch::channel(None::<Arc<Snapshot>>);
    let about = task.applier.about();
    let names: Vec<String> = about
        .borrow()
        .segments
        .iter()
        .map(|s| s.id.clone())
        .collect();
    let Relaying {
        relay,
        state: export,
        shared: metered,
    } = task.relaying;
    let relaying = tokio::spawn(pass_records(relay, task.clock));
    let captures = Captures::new(
        workers.iter().map(|w| w.probes.clone()).collect(),
        task.clock,
    );
    let captures = Arc::new(Mutex::new(captures));
    let mut links = AllLinks::new(task.links, &about.borrow());
    let applier = Arc::new(Mutex::new(task.applier));
    let server = socket::Server {
        about: about.clone(),
        applier: Arc::clone(&applier),
        captures: Arc::clone(&captures),
        clock: task.clock,
        drivers: Arc::new(std::sync::Mutex::new(Drivers::new(task.drivers))),
        export: Arc::clone(&export),
        latest,
        listing,
        list_flows: workers.iter().map(|w| Arc::clone(&w.list_flows)).collect(),
    };
    let serving = tokio::spawn(server.serve(listener));
    let next_hops = workers.iter().map(|w| w.next_hops.clone()).collect();
    let put_back = kernel.counts();
    let resolving = tokio::spawn(kernel.run(wanted, next_hops));
    let beats = workers.iter().map(|w| Arc::clone(&w.heartbeat)).collect();
    let watching = tokio::spawn(Watchdog::new(beats, task.watchdog).watch(Arc::clone(&stop)));
    let mut board = Board::new(workers.len());
    let mut ports = KernelPorts::new(&task.ports);
    ports.find_blind(&metered);
    let mut on_ready = Some(task.on_ready);
    let mut keeping = tokio::task::JoinSet::new();
    while let Some(mut snapshot) = snapshots.recv().await {
        log_events(&names, &mut snapshot);
        attic.try_iter().for_each(drop);
        if snapshot.worker == 0 {
            ports.complete(&mut snapshot);
            put_back.complete(&mut snapshot);
            links.look(&about.borrow().clone(), &mut snapshot);
            tell_ring_drops(&snapshot, &metered);
        }
        let all = board.take(&snapshot);
        if let Some(list) = board.list() {
            publish_list.send_replace(Some(list));
        }
        // The worker fills the same memory again.
        if let Some(ends) = workers.get(usize::from(snapshot.worker)) {
            // The worker must not have to free a long list.
            snapshot.flows = None;
            let _ = ends.spare.try_send(snapshot);
        }
        let Some(all) = all else { continue };
        publish.send_replace(Some(all));
        if let Some(on_ready) = on_ready.take() {
            applier.lock().await.begin();
            keeping.spawn(keep_time(Arc::clone(&applier)));
            on_ready();
        }
    }
    watching.abort();
    keeping.shutdown().await;
    links.let_go();
    applier.lock().await.end();
    export.ending.store(true, Ordering::Relaxed);
    // The last records; a process that takes none is not waited for.
    let _ = tokio::time::timeout(LAST_RECORDS, relaying).await;
    serving.abort();
    resolving.abort();
    captures.lock().await.finish();
    let _ = std::fs::remove_file(&task.socket);
}

/// Ends what ends by itself, and tells relays that the process lives.
async fn keep_time(applier: Arc<Mutex<Applier>>) {
    loop {
        applier.lock().await.keep_time().await;
        tokio::time::sleep(KEEP_TIME).await;
    }
}

/// Passes records on until the workers are gone.
async fn pass_records(mut relay: Relay, clock: Clock) {
    loop {
        let offset = utc_offset(Instant(clock.now_ns()));
        match relay.drive(std::time::Instant::now(), offset) {
            Some(true) => tokio::time::sleep(BUSY_RELAY).await,
            Some(false) => tokio::time::sleep(IDLE_RELAY).await,
            None => return,
        }
    }
}

/// What the kernel dropped ends epochs of sequence observation.
fn tell_ring_drops(snapshot: &Snapshot, metered: &[(usize, Arc<Shared>)]) {
    for (number, shared) in metered {
        if let Some(segment) = snapshot.segments.get(*number) {
            let counters = &segment.counters;
            let drops = [counters.lan.ring_drops, counters.wan.ring_drops];
            for (told, count) in shared.ring_drops.iter().zip(drops) {
                told.store(count, Ordering::Relaxed);
            }
        }
    }
}

/// What happened to flows and peers; the worker itself logs nothing.
fn log_events(names: &[String], snapshot: &mut Snapshot) {
    for (name, segment) in names.iter().zip(&mut snapshot.segments) {
        for event in segment.events.drain(..) {
            match event {
                // Several a second while the path changes.
                Event::ConfigChanged { .. } => tracing::debug!(segment = %name, "{event:?}"),
                // Somebody has to look at the path or the peer.
                Event::PeerDead(_) | Event::BreakerOpened(_) | Event::PathBreakerOpened(_) => {
                    tracing::warn!(segment = %name, "{event:?}");
                }
                _ => tracing::info!(segment = %name, "{event:?}"),
            }
        }
    }
}

/// Termination ends the worker in order. What is often sent to other daemons, for a reload or a dump, by
/// default ends a process at once: a gateway goes on forwarding and says that nothing happened.
fn watch_signals(stop: &Arc<AtomicBool>) -> io::Result<()> {
    for (kind, name) in [
        (SignalKind::hangup(), "SIGHUP"),
        (SignalKind::user_defined1(), "SIGUSR1"),
        (SignalKind::user_defined2(), "SIGUSR2"),
    ] {
        let mut signals = signal(kind)?;
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                tracing::warn!(
                    "{name} does nothing here: control brings a changed document into force"
                );
            }
        });
    }
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signals = signal(kind)?;
        let stop = Arc::clone(stop);
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                tracing::info!("asked to stop");
                stop.store(true, Ordering::Relaxed);
            }
        });
    }
    Ok(())
}
