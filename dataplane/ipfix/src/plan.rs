//! From the part of the config document on IPFIX to what meters and sessions are told. The data plane
//! and the exporting process make their parts of one plan here, so that they agree on every number.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crem_api::ipfix::{
    Collector, Connection, Ipfix, ObservationPlace, ObservationPoint, Select, Tags,
};
use crem_api::{Invalid, Issue, Prefix as ApiPrefix, SegmentId};
use crem_meter::flow::FlowConfig;
use crem_meter::point::Place;
use crem_meter::scope::{Scope, Scopes};
use crem_meter::select::Selection;
use crem_meter::seq::{ObserverConfig, Provision, Statement};
use crem_meter::{Encapsulation, Meter, PacketConfig, PointConfig, Prefix};
use crem_wire::Qpn;

use crate::element::{Mapping, MappingError};
use crate::profile::QpOctets;
use crate::session::{
    FlowProfile, PacketProfile, SelectionSequence, SequenceProfile, SessionConfig, Transport,
    datagram_size,
};

/// meteringProcessId and exportingProcessId: there is one of each in an Observation Domain.
const PROCESS: u32 = 1;

/// What is observed and exported.
#[derive(Clone, Debug)]
pub struct Plan {
    ipfix: Ipfix,
    workers: u16,
    scopes: Scopes,
    provisions: Vec<Provision>,
    mapping: Arc<Mapping>,
    memory: u64,
}

impl Plan {
    /// A plan for so many workers of the data plane.
    ///
    /// # Errors
    /// Every problem that the document alone does not show: names of elements, and memory.
    pub fn new(ipfix: &Ipfix, workers: u16) -> Result<Self, Invalid> {
        let mapping = mapping(ipfix).map_err(|error| refuse_mapping(&error))?;
        let problem = |pointer: &str, found: String, expected: String| Invalid {
            issues: vec![Issue::new(pointer, found, expected)],
        };
        let too_many = || {
            let expected = format!("at most {} scopes", Scopes::MAX);
            problem(
                "/ipfix/scopes",
                format!("{} scopes", ipfix.scopes.len()),
                expected,
            )
        };
        let scopes = ipfix.scopes.values().map(scope).collect();
        let mut plan = Self {
            scopes: Scopes::new(scopes).ok_or_else(too_many)?,
            provisions: ipfix.connections.values().map(provision).collect(),
            mapping: Arc::new(mapping),
            memory: 0,
            ipfix: ipfix.clone(),
            workers,
        };
        for (name, connection) in plan.ipfix.connections.keys().zip(&plan.provisions) {
            connection.check().map_err(|error| {
                let pointer = format!("/ipfix/connections/{name}");
                problem(
                    &pointer,
                    error.to_string(),
                    "what the profile demands".to_owned(),
                )
            })?;
        }
        plan.memory = plan.needed();
        let allowed = u64::from(ipfix.memory_mb) << 20;
        if plan.memory > allowed {
            let needed = plan.memory.div_ceil(1 << 20);
            return Err(problem(
                "/ipfix/memory_mb",
                format!("{}: metering needs {needed} MB", ipfix.memory_mb),
                format!("at least {needed} MB, or fewer flows, epochs or positions of a window"),
            ));
        }
        Ok(plan)
    }

    fn needed(&self) -> u64 {
        let segments: BTreeMap<&SegmentId, ()> = self
            .ipfix
            .points
            .values()
            .map(|p| (&p.segment, ()))
            .collect();
        segments
            .keys()
            .flat_map(|segment| (0..self.workers).map(move |worker| (*segment, worker)))
            .map(|(segment, worker)| Meter::memory(&self.points(segment, worker)))
            .fold(0, u64::saturating_add)
    }

    /// Octets of memory that the meters of all workers take.
    pub const fn memory(&self) -> u64 {
        self.memory
    }

    /// The scopes, the same for all meters.
    pub const fn scopes(&self) -> &Scopes {
        &self.scopes
    }

    /// UDP port of VXLAN, if packets inside it are to be looked at.
    pub fn vxlan_port(&self) -> Option<u16> {
        let inside = |scope: &crem_api::ipfix::Scope| scope.tags.vxlan.is_some();
        let any = self.ipfix.scopes.values().any(inside);
        any.then_some(self.ipfix.vxlan_port)
    }

    /// The numbers of the drafts' elements.
    pub const fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// What a worker observes in a segment; empty if nothing. For [`Meter::new`].
    pub fn points(&self, segment: &SegmentId, worker: u16) -> Vec<PointConfig> {
        self.ipfix
            .points
            .values()
            .filter(|point| point.segment == *segment)
            .map(|point| self.point(point, worker))
            .collect()
    }

    fn wanted(&self, wants: impl Fn(&Collector) -> bool) -> bool {
        self.ipfix.collectors.values().any(wants)
    }

    /// What no collector wants is not observed.
    fn point(&self, point: &ObservationPoint, worker: u16) -> PointConfig {
        let packets = point
            .packets
            .as_ref()
            .filter(|_| self.wanted(|c| c.packets));
        let flows = point.flows && self.wanted(|c| c.flows);
        PointConfig {
            place: place(point.place),
            base: point.base,
            packets: packets.map(|packets| PacketConfig {
                selection: selection(packets.select),
                selection_sequence: packets
                    .selection_sequence
                    .unwrap_or_default()
                    .saturating_add(u64::from(worker)),
                rate_limit: packets.max_per_s,
                // Workers draw independently of each other, and the same after a restart.
                seed: point.base.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(worker),
            }),
            flows: flows.then(|| self.flows()),
            sequences: if point.sequence {
                self.ipfix
                    .numbered()
                    .filter(|(_, _, collector)| collector.sequence)
                    .map(|(number, ..)| (self.observer(number), self.provisions.clone()))
                    .collect()
            } else {
                Vec::new()
            },
        }
    }

    fn flows(&self) -> FlowConfig {
        let flows = &self.ipfix.flows;
        FlowConfig {
            flows: flows.max_flows,
            active_timeout: Duration::from_secs(flows.active_timeout_s.into()),
            idle_timeout: Duration::from_secs(flows.idle_timeout_s.into()),
            opcode_key: flows.opcode_key,
        }
    }

    fn observer(&self, collector: u16) -> ObserverConfig {
        let bounds = &self.ipfix.sequence;
        let windows = self.provisions.iter().map(|provision| provision.window);
        ObserverConfig {
            collector,
            contexts: bounds.max_connections,
            epochs: bounds.max_epochs,
            window: windows.max().unwrap_or(1),
            report_interval: Duration::from_millis(bounds.report_interval_ms.into()),
            idle_timeout: Duration::from_millis(bounds.idle_timeout_ms.into()),
            counter_limit: u64::MAX,
        }
    }

    /// What the sessions with a collector are told.
    pub fn session(&self, collector: &Collector) -> SessionConfig {
        SessionConfig {
            domain: self.ipfix.domain,
            transport: transport(collector),
            mapping: Arc::clone(&self.mapping),
            qp: match self.ipfix.qp_octets {
                4 => QpOctets::Four,
                _ => QpOctets::Three,
            },
            packets: collector.packets.then(|| self.packet_profile()).flatten(),
            flows: collector.flows.then(|| self.flow_profile()).flatten(),
            sequence: collector.sequence.then(|| self.sequence_profile()),
            metering_process: PROCESS,
            exporting_process: PROCESS,
        }
    }

    fn packet_profile(&self) -> Option<PacketProfile> {
        let observed = || {
            let points = self.ipfix.points.values();
            points.filter_map(|point| Some((point, point.packets.as_ref()?)))
        };
        observed().next()?;
        let active = |select| selection(select).is_active();
        let selections = observed()
            .filter(|(_, packets)| active(packets.select))
            .flat_map(|(point, packets)| {
                let first = packets.selection_sequence.unwrap_or_default();
                (0..u64::from(self.workers)).map(move |worker| SelectionSequence {
                    id: first.saturating_add(worker),
                    point: point.base.saturating_add(worker),
                    selection: selection(packets.select),
                })
            });
        Some(PacketProfile {
            unselected: observed().any(|(_, packets)| !active(packets.select)),
            selections: selections.collect(),
            time_error: f64::from(self.ipfix.time_error_ns),
        })
    }

    fn flow_profile(&self) -> Option<FlowProfile> {
        let after = |point: &ObservationPoint| place(point.place).is_after_repair();
        let points = || self.ipfix.points.values().filter(|point| point.flows);
        points().next()?;
        Some(FlowProfile {
            opcode: self.ipfix.flows.opcode_key,
            before: points().any(|point| !after(point)),
            after: points().any(after),
            active_timeout: self.ipfix.flows.active_timeout_s,
            idle_timeout: self.ipfix.flows.idle_timeout_s,
        })
    }

    fn sequence_profile(&self) -> SequenceProfile {
        let points = self.ipfix.points.values().filter(|point| point.sequence);
        let observers = points.count().saturating_mul(self.workers.into());
        SequenceProfile {
            namespaces: self
                .ipfix
                .scopes
                .values()
                .any(|scope| scope.tags != Tags::default()),
            contexts: observers.saturating_mul(self.ipfix.sequence.max_connections as usize),
        }
    }
}

fn mapping(ipfix: &Ipfix) -> Result<Mapping, MappingError> {
    match ipfix.first_element {
        Some(first) => Mapping::consecutive(ipfix.pen, first),
        None => {
            let entries = ipfix.elements.iter();
            Mapping::new(entries.map(|(name, number)| (name.as_str(), ipfix.pen, *number)))
        }
    }
}

fn refuse_mapping(error: &MappingError) -> Invalid {
    let pointer = match error {
        MappingError::Pen(_) => "/ipfix/pen".to_owned(),
        MappingError::Unknown(name) => format!("/ipfix/elements/{}", name.replace('/', "~1")),
        _ => "/ipfix/elements".to_owned(),
    };
    Invalid {
        issues: vec![Issue::new(
            pointer,
            error.to_string(),
            "each element of the drafts once, with a number of its own",
        )],
    }
}

const fn place(place: ObservationPlace) -> Place {
    match place {
        ObservationPlace::LanIngress => Place::LanIngress,
        ObservationPlace::WanEgress => Place::WanEgress,
        ObservationPlace::WanIngress => Place::WanIngress,
        ObservationPlace::LanEgressBeforeRepair => Place::LanEgressBeforeRepair,
        ObservationPlace::LanEgressAfterRepair => Place::LanEgressAfterRepair,
    }
}

const fn selection(select: Select) -> Selection {
    match select {
        Select::All => Selection::All,
        Select::Count { interval, space } => Selection::Count { interval, space },
        Select::Probability { probability } => Selection::Probability(probability),
        Select::Hash {
            offset,
            size,
            initial,
            from,
            to,
        } => Selection::Hash {
            offset,
            size,
            initial,
            from,
            to,
        },
    }
}

fn prefix(prefix: &ApiPrefix) -> Prefix {
    // The lengths of both are those of the family.
    Prefix::new(prefix.address(), prefix.length()).unwrap_or(Prefix::host(prefix.address()))
}

const fn encapsulation(tags: &Tags) -> Encapsulation {
    if let Some(vni) = tags.vxlan {
        return Encapsulation::Vxlan(vni);
    }
    match (tags.any_tags, tags.vlan, tags.inner_vlan) {
        (true, ..) => Encapsulation::AnyTags,
        (_, None, _) => Encapsulation::Untagged,
        (_, Some(vid), None) => Encapsulation::Vlan(vid),
        (_, Some(outer), Some(inner)) => Encapsulation::QinQ(outer, inner),
    }
}

fn scope(scope: &crem_api::ipfix::Scope) -> Scope {
    Scope {
        source: prefix(&scope.source),
        destination: prefix(&scope.destination),
        encapsulation: encapsulation(&scope.tags),
    }
}

/// The number that [`crem_wire::frame::Parsed::context`] gives packets with these tags; `None` for any.
fn context(tags: &Tags) -> Option<u64> {
    if tags.any_tags {
        return None;
    }
    if let Some(vni) = tags.vxlan {
        return Some(1 << 63 | u64::from(vni) << 26);
    }
    let vids = [tags.vlan, tags.inner_vlan].into_iter().flatten();
    Some(vids.fold(0, |all, vid| all << 13 | (u64::from(vid) + 1)))
}

fn provision(connection: &Connection) -> Provision {
    Provision {
        source: prefix(&connection.source),
        destination: prefix(&connection.destination),
        qp: connection.qp.map(Qpn::new),
        pkey: connection.pkey,
        context: context(&connection.tags),
        window: connection.window,
        generation: connection.generation,
        statement: Statement {
            only_send_and_write: connection.only_send_and_write,
            complete_and_unambiguous: connection.complete_and_unambiguous,
            packets_per_second: connection.packets_per_s,
            longest_retry: Duration::from_millis(connection.longest_retry_ms.into()),
        },
    }
}

fn transport(collector: &Collector) -> Transport {
    if !collector.transport.is_datagram() {
        return Transport::Stream {
            max_message: collector.max_message.into(),
        };
    }
    // A name may turn out to be an IPv6 address, whose header is the longer one.
    let v6 = collector.address().is_none_or(|address| address.is_ipv6());
    Transport::Datagram {
        max_message: datagram_size(collector.mtu, v6),
        refresh: Duration::from_millis(collector.refresh_ms.into()),
    }
}

#[cfg(test)]
mod tests;
