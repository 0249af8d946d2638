//! What an exporter session is told.

use std::sync::Arc;
use std::time::Duration;

use crem_meter::select::Selection;

use crate::element::Mapping;
use crate::profile::{Kind, Namespace, QpOctets};

/// How messages are carried, as far as their contents depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// TCP, TLS or a file: in order, templates once.
    Stream {
        /// Most octets of a message, at most 65535. Smaller messages leave sooner.
        max_message: usize,
    },
    /// UDP: messages within a datagram, templates again and again.
    Datagram {
        /// Most octets of a message, see [`datagram_size`].
        max_message: usize,
        /// Templates and options are sent again so often (RFC 7011 section 8.4); 600 s is customary.
        refresh: Duration,
    },
}

impl Transport {
    /// Most octets of a message.
    pub const fn max_message(&self) -> usize {
        match *self {
            Self::Stream { max_message } | Self::Datagram { max_message, .. } => max_message,
        }
    }
}

/// Octets that a message in a UDP datagram may have, so that the packet does not exceed the path MTU; 512
/// octets if that is not known (RFC 7011 section 10.3.3).
pub const fn datagram_size(path_mtu: Option<u16>, v6: bool) -> usize {
    let mtu = match path_mtu {
        Some(mtu) => mtu as usize,
        None => 512,
    };
    mtu.saturating_sub(if v6 { 48 } else { 28 })
}

/// A Selection Sequence: one Selector at one Observation Point.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SelectionSequence {
    /// selectionSequenceId, also used as selectorId; unique in the Observation Domain.
    pub id: u64,
    /// observationPointId.
    pub point: u64,
    /// The Selector.
    pub selection: Selection,
}

/// Observation of single packets.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PacketProfile {
    /// There are points where every packet is observed.
    pub unselected: bool,
    /// The points where packets are selected.
    pub selections: Vec<SelectionSequence>,
    /// How far an observation time may be off, nanoseconds.
    pub time_error: f64,
}

/// Aggregate flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowProfile {
    /// The opcode is a Flow Key.
    pub opcode: bool,
    /// There are points before repair.
    pub before: bool,
    /// There are points behind repair.
    pub after: bool,
    /// flowActiveTimeout, seconds.
    pub active_timeout: u16,
    /// flowIdleTimeout, seconds.
    pub idle_timeout: u16,
}

/// Sequence observation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SequenceProfile {
    /// Whether connections of different VLANs or VXLANs may have equal addresses: then reports say
    /// which one they are of.
    pub namespaces: bool,
    /// Most contexts of all observers together.
    pub contexts: usize,
}

/// An exporter session.
#[derive(Clone, PartialEq, Debug)]
pub struct SessionConfig {
    /// Observation Domain ID, not 0.
    pub domain: u32,
    /// How messages are carried.
    pub transport: Transport,
    /// The numbers of the drafts' elements.
    pub mapping: Arc<Mapping>,
    /// Octets of destination QP and PSN in the BTH profiles.
    pub qp: QpOctets,
    /// Observation of single packets.
    pub packets: Option<PacketProfile>,
    /// Aggregate flows.
    pub flows: Option<FlowProfile>,
    /// Sequence observation; only over a transport that keeps order.
    pub sequence: Option<SequenceProfile>,
    /// meteringProcessId.
    pub metering_process: u32,
    /// exportingProcessId.
    pub exporting_process: u32,
}

/// A configuration that cannot be meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SessionError {
    /// Domain 0 stands for "no domain".
    #[error("observation domain 0: a number from 1 on is needed")]
    Domain,
    /// Not even a template would fit.
    #[error("messages of at most {0} octets: at least 320 are needed")]
    Message(usize),
    /// 0 would read as "without timeout", which is not what it means.
    #[error("a timeout of 0 seconds cannot be told to a collector")]
    Timeout,
    /// Two Selection Sequences with one identifier.
    #[error("selection sequence {0} is configured twice")]
    Selection(u64),
    /// UDP does not keep the order of reports.
    #[error("the sequence profile needs TCP or TLS")]
    SequenceTransport,
}

/// Fewest octets of a message: the largest record that is not split.
const MIN_MESSAGE: usize = 320;

impl SessionConfig {
    /// Whether a session of one goes on as one of the other: all that differs is how many contexts there may
    /// be.
    pub fn goes_on_as(&self, other: &Self) -> bool {
        let contexts = other.sequence.map_or(0, |sequence| sequence.contexts);
        let sequence = self.sequence.map(|sequence| SequenceProfile {
            contexts,
            ..sequence
        });
        Self {
            sequence,
            ..self.clone()
        } == *other
    }

    /// Whether it can be meant.
    ///
    /// # Errors
    /// The first thing that cannot.
    pub fn check(&self) -> Result<(), SessionError> {
        if self.domain == 0 {
            return Err(SessionError::Domain);
        }
        if self.transport.max_message() < MIN_MESSAGE {
            return Err(SessionError::Message(self.transport.max_message()));
        }
        if self
            .flows
            .is_some_and(|flows| flows.active_timeout == 0 || flows.idle_timeout == 0)
        {
            return Err(SessionError::Timeout);
        }
        if self.sequence.is_some() && matches!(self.transport, Transport::Datagram { .. }) {
            return Err(SessionError::SequenceTransport);
        }
        let selections = self.selections();
        for (place, selection) in selections.iter().enumerate() {
            if selections[..place]
                .iter()
                .any(|other| other.id == selection.id)
            {
                return Err(SessionError::Selection(selection.id));
            }
        }
        Ok(())
    }

    /// The Selection Sequences.
    pub fn selections(&self) -> &[SelectionSequence] {
        self.packets
            .as_ref()
            .map_or(&[], |packets| &packets.selections)
    }

    /// The templates that the session uses, in the order of their identifiers.
    pub(super) fn kinds(&self) -> Vec<Kind> {
        let mut kinds = Vec::new();
        for v6 in [false, true] {
            if let Some(packets) = &self.packets {
                if packets.unselected {
                    kinds.push(Kind::Packet {
                        v6,
                        selection: false,
                    });
                }
                if !packets.selections.is_empty() {
                    kinds.push(Kind::Packet {
                        v6,
                        selection: true,
                    });
                }
            }
            if let Some(flows) = &self.flows {
                let kind = |post| Kind::Aggregate {
                    v6,
                    opcode: flows.opcode,
                    post,
                };
                kinds.extend(flows.before.then(|| kind(false)));
                kinds.extend(flows.after.then(|| kind(true)));
            }
            if let Some(sequence) = &self.sequence {
                let kind = |namespace| Kind::Sequence { v6, namespace };
                kinds.push(kind(Namespace::None));
                if sequence.namespaces {
                    kinds.push(kind(Namespace::Vlan));
                    kinds.push(kind(Namespace::Segment));
                }
            }
        }
        kinds
    }
}
