//! From snapshots of numbers to state documents.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use crem_api::protocol::{Body, ErrorCode, ErrorReply, Get, Reply};
use crem_api::state::{
    BypassStatus, Counters, Distribution, FailureStatus, Flows, InbandStatus, Named, NumaWarning,
    PeerStatus, PortStatus, SegmentCounters, SegmentStatus, Status, WorkerCounters, WorkerStatus,
};
use crem_api::{Confinement, LinkPropagation, Mode};
use crem_core::time::Instant;
use crem_wire::frame::Mac;

use crate::classify::Side;
use crate::counters::SegmentCounters as WorkerPart;
use crate::flows::{flow, path};
use crate::metering::each_name;
use crate::metering::relay::RelayState;
use crate::snapshot::{SegmentSnapshot, Snapshot, WorkerSnapshot};
use crate::times::{SegmentTimes, distribution};

/// What stays the same while the process runs.
#[derive(Clone, Debug)]
pub struct About {
    /// Version of the program.
    pub version: String,
    /// Drawn at the start, in hexadecimal digits.
    pub instance: String,
    /// What was given with the document in force.
    pub revision: Option<u64>,
    /// Why the document in force is not the one configured, or not wholly.
    pub instead: Option<String>,
    /// Segments in the order of the document.
    pub segments: Vec<AboutSegment>,
    /// Workers and ports that are on different NUMA nodes.
    pub numa: Vec<NumaWarning>,
    /// What the process gave up.
    pub confinement: Confinement,
}

/// The same of one segment.
#[derive(Clone, Debug, Default)]
pub struct AboutSegment {
    /// Id.
    pub id: String,
    /// LAN device and MTU.
    pub lan: (String, u32),
    /// WAN device and MTU.
    pub wan: (String, u32),
    /// What the drivers of both said when they were opened, LAN first; the rest of the status is filled in when it is
    /// asked for.
    pub ports: [PortStatus; 2],
    /// In-band station.
    pub inband: Option<InbandStatus>,
    /// Configured peers.
    pub peers: Vec<IpAddr>,
    /// What the link of one port does to the other.
    pub link_propagation: LinkPropagation,
    /// Mode `bypass`, and when it ends.
    pub bypass: Option<(BypassStatus, Instant)>,
    /// What becomes of the wire without this process.
    pub on_failure: FailureStatus,
    /// Why the mode in force is not the document's.
    pub off_reason: Option<&'static str>,
}

/// The answer to a request. `utc` is UTC less the workers' clock, nanoseconds.
pub(super) fn reply(
    about: &About,
    export: Option<&RelayState>,
    (snapshot, utc): (&Snapshot, u64),
    get: Get,
) -> Reply {
    let body = match get {
        Get::Status => Body::Status(status(about, export, (snapshot, utc))),
        Get::Counters => Body::Counters(counters(about, export, snapshot)),
        Get::Flows => Body::Flows(flows(about, snapshot)),
        // The document is no part of a snapshot and is asked for elsewhere.
        Get::Export | Get::Document | Get::Capture => Body::Error(ErrorReply::new(
            ErrorCode::Unknown,
            "the exporting process has this, on its own socket",
        )),
    };
    Reply::new(snapshot.at_ns / 1_000_000, body)
}

fn each<'a>(
    about: &'a About,
    snapshot: &'a Snapshot,
) -> impl Iterator<Item = (&'a AboutSegment, &'a SegmentSnapshot)> {
    about.segments.iter().zip(&snapshot.segments)
}

fn status(about: &About, export: Option<&RelayState>, (snapshot, utc): (&Snapshot, u64)) -> Status {
    let segments = each(about, snapshot).map(|(a, s)| {
        let mut segment = segment(about, a, s, snapshot);
        let first = s.times.first_forwarded;
        segment.first_forwarded_at_ms = first.map(|at| (at.0 + utc) / 1_000_000);
        (a.id.clone(), segment)
    });
    Status {
        version: about.version.clone(),
        pid: std::process::id(),
        uptime_ms: snapshot.at_ns / 1_000_000,
        instance: about.instance.clone(),
        generation: snapshot.generation,
        revision: about.revision,
        segments: segments.collect(),
        workers: snapshot.workers.iter().map(worker).collect(),
        numa_warnings: about.numa.clone(),
        export_connected: export.map(|state| state.connected.load(Ordering::Relaxed)),
        confinement: Some(about.confinement.clone()),
    }
}

fn segment(
    process: &About,
    about: &AboutSegment,
    s: &SegmentSnapshot,
    snapshot: &Snapshot,
) -> SegmentStatus {
    let [lan, wan] = &about.ports;
    let port = |(device, mtu): &(String, u32), opened: &PortStatus, link_up, side| PortStatus {
        device: device.clone(),
        link_up,
        induced_down: s.held_down == Some(side),
        mtu: *mtu,
        ..opened.clone()
    };
    let mut peers: BTreeMap<IpAddr, PeerStatus> = about
        .peers
        .iter()
        .map(|peer| (*peer, PeerStatus::default()))
        .collect();
    for (peer, mac) in &s.next_hops {
        peers.entry(*peer).or_default().next_hop_mac = Some(Mac(*mac).to_string());
    }
    for status in &s.paths {
        peers.entry(status.peer.ip()).or_default().path = Some(path(status));
    }
    SegmentStatus {
        mode: s.mode.to_owned(),
        mode_reason: s
            .off_reason
            .or(about.off_reason)
            .map(str::to_owned)
            .or_else(|| process.instead.clone()),
        bypass: about.bypass.as_ref().map(|(status, until)| {
            let left = until.since(Instant(snapshot.at_ns));
            BypassStatus {
                ends_in_s: left.as_secs() + u64::from(left.subsec_nanos() > 0),
                ..status.clone()
            }
        }),
        on_failure: about.on_failure.clone(),
        lan: port(&about.lan, lan, s.lan_up, Side::Lan),
        wan: port(&about.wan, wan, s.wan_up, Side::Wan),
        first_forwarded_at_ms: None,
        inband: about.inband.clone(),
        peers,
        loops: snapshot.loops,
        busy_loops: snapshot.busy_loops,
        buffers_used: u64::from(snapshot.buffers.0),
        buffers_total: u64::from(snapshot.buffers.1),
        points: s
            .points
            .iter()
            .map(|p| (p.point.place.name().to_owned(), p.point.id))
            .collect(),
        metering_off: s.metering.and_then(|(_, reason)| reason.map(str::to_owned)),
    }
}

fn worker(worker: &WorkerSnapshot) -> WorkerStatus {
    WorkerStatus {
        loops: worker.loops,
        busy_loops: worker.busy_loops,
    }
}

fn counters(about: &About, export: Option<&RelayState>, snapshot: &Snapshot) -> Counters {
    let segments = each(about, snapshot).enumerate().map(|(number, (a, s))| {
        let workers = snapshot
            .workers
            .iter()
            .filter_map(|w| w.segments.get(number));
        let mut counters = segment_counters(s);
        counters.workers = workers.map(worker_counters).collect();
        (a.id.clone(), counters)
    });
    Counters {
        segments: segments.collect(),
        export: export.map_or_else(Named::new, |state| named(|f| state.for_each(f))),
    }
}

fn segment_counters(s: &SegmentSnapshot) -> SegmentCounters {
    let c = &s.counters;
    let mut messages = Named::new();
    c.messages.for_each(|name, value| {
        messages.insert(name.to_owned(), value);
    });
    SegmentCounters {
        lan: named(|f| c.lan.for_each(f)),
        wan: named(|f| c.wan.for_each(f)),
        drops: named(|f| c.drops.for_each(f)),
        passed: named(|f| c.passed.for_each(f)),
        messages,
        csf: named(|f| s.csf.iter().for_each(|(name, value)| f(name, *value))),
        crf: named(|f| s.crf.iter().for_each(|(name, value)| f(name, *value))),
        coding: named(|f| c.coding.for_each(f)),
        inband: named(|f| c.inband.for_each(f)),
        links: named(|f| s.links.for_each(f)),
        monitor: monitor(s),
        metering: metering(s),
        team: named(|f| c.team.for_each(f)),
        distributions: distributions(&s.times),
        workers: Vec::new(),
    }
}

fn worker_counters((c, times): &(WorkerPart, SegmentTimes)) -> WorkerCounters {
    WorkerCounters {
        lan: named(|f| c.lan.for_each(f)),
        wan: named(|f| c.wan.for_each(f)),
        drops: named(|f| c.drops.for_each(f)),
        coding: named(|f| c.coding.for_each(f)),
        team: named(|f| c.team.for_each(f)),
        distributions: distributions(times),
    }
}

/// Those that have values.
fn distributions(times: &SegmentTimes) -> BTreeMap<String, Distribution> {
    let mut all = BTreeMap::new();
    times.for_each(|name, histogram| {
        if histogram.count() > 0 {
            all.insert(name.to_owned(), distribution(histogram));
        }
    });
    all
}

/// Nothing where nobody watches or watched.
fn monitor(s: &SegmentSnapshot) -> Named {
    let monitor = &s.counters.monitor;
    if s.mode == Mode::Monitor.name() || monitor.packets > 0 {
        named(|f| monitor.for_each(f))
    } else {
        Named::new()
    }
}

fn metering(s: &SegmentSnapshot) -> Named {
    let Some((counters, _)) = &s.metering else {
        return Named::new();
    };
    let mut all = named(|f| counters.for_each(f));
    for point in &s.points {
        each_name(point, |name, value| {
            all.insert(name, value);
        });
    }
    all
}

fn named(walk: impl FnOnce(&mut dyn FnMut(&'static str, u64))) -> Named {
    let mut all = Named::new();
    walk(&mut |name, value| {
        all.insert(name.to_owned(), value);
    });
    all
}

fn flows(about: &About, snapshot: &Snapshot) -> Flows {
    let Some((all, left_out)) = &snapshot.flows else {
        return Flows::default();
    };
    let name = |number: usize| about.segments.get(number).map_or("", |s| s.id.as_str());
    let flows = all
        .iter()
        .map(|(segment, f)| flow(name(*segment), f))
        .collect();
    Flows {
        flows,
        left_out: *left_out,
    }
}
