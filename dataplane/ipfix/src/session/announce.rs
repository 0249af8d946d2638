//! What a session tells a collector before any record: types, templates, options.

use std::sync::Arc;

use crem_meter::Utc;

use super::options::{self, Options};
use super::{SelectionSequence, Session};
use crate::element::{PRIVATE, id};
use crate::profile::{Kind, Profile};

impl Session {
    /// Writes all that a collector needs to understand records: the types of our elements, templates,
    /// and options. Over UDP it is written again from [`Session::poll`].
    pub fn announce(&mut self, now: Utc, out: &mut Vec<u8>) {
        self.announced = now;
        self.flush(now, out);
        self.types(now, out);
        for place in 0..self.templates.len() {
            let template = self.templates[place].1.clone();
            self.template(now, &template, out);
        }
        self.flow_keys(now, out);
        self.timeouts(now, out);
        self.selections(now, out);
        for options in [
            Options::MeteringStatistics,
            Options::MeteringReliability,
            Options::ExportingReliability,
        ] {
            self.template(now, &options.template(), out);
        }
        self.flush(now, out);
    }

    /// The types of our elements, before the templates that use them (RFC 5610).
    fn types(&mut self, now: Utc, out: &mut Vec<u8>) {
        let sequence = self.config.sequence.is_some();
        let bth = self.config.packets.is_some() || self.config.flows.is_some();
        self.template(now, &Options::TypeInformation.template(), out);
        for (element, definition) in PRIVATE {
            let shared = ["rocev2BthPartitionKey", "rocev2BthDestinationQp"];
            let used = if element.is_sequence() {
                sequence
            } else {
                bth || (sequence && shared.contains(&definition.name))
            };
            if !used {
                continue;
            }
            let (pen, number) = self.config.mapping.number(*element);
            let octets = options::type_information_len(definition);
            self.option(now, Options::TypeInformation, octets, out, |octets| {
                options::type_information(pen, number, definition, octets);
            });
        }
    }

    fn flow_keys(&mut self, now: Utc, out: &mut Vec<u8>) {
        let keys: Vec<(u16, u64)> = self
            .templates
            .iter()
            .filter(|(kind, _)| kind.profile() != Profile::Packet)
            .map(|(kind, template)| (template.id, kind.flow_keys()))
            .collect();
        if keys.is_empty() {
            return;
        }
        self.template(now, &Options::FlowKeys.template(), out);
        for (template, keys) in keys {
            self.option(now, Options::FlowKeys, 10, out, |octets| {
                octets.extend_from_slice(&template.to_be_bytes());
                octets.extend_from_slice(&keys.to_be_bytes());
            });
        }
    }

    fn timeouts(&mut self, now: Utc, out: &mut Vec<u8>) {
        let Some(flows) = self.config.flows else {
            return;
        };
        let domain = self.config.domain;
        self.template(now, &Options::Timeouts.template(), out);
        self.option(now, Options::Timeouts, 8, out, |octets| {
            octets.extend_from_slice(&domain.to_be_bytes());
            octets.extend_from_slice(&flows.active_timeout.to_be_bytes());
            octets.extend_from_slice(&flows.idle_timeout.to_be_bytes());
        });
    }

    /// The four reports on Selection Sequences (RFC 5476 section 6.5). The statistics come from
    /// [`Session::selection_stats`]: call it next.
    fn selections(&mut self, now: Utc, out: &mut Vec<u8>) {
        let config = Arc::clone(&self.config);
        let selections = config.selections();
        if selections.is_empty() {
            return;
        }
        self.template(now, &Options::SelectionSequence.template(), out);
        for sequence in selections {
            self.option(now, Options::SelectionSequence, 24, out, |octets| {
                options::numbers(&[sequence.id, sequence.point, sequence.id], octets);
            });
        }
        for kind in [
            Options::SelectorCount,
            Options::SelectorProbability,
            Options::SelectorHash,
        ] {
            let of_kind = |sequence: &&SelectionSequence| {
                Options::of_selector(&sequence.selection) == Some(kind)
            };
            if !selections.iter().any(|sequence| of_kind(&sequence)) {
                continue;
            }
            let template = kind.template();
            self.template(now, &template, out);
            for sequence in selections.iter().filter(of_kind) {
                self.option(now, kind, template.min_record(), out, |octets| {
                    options::selector(sequence, octets);
                });
            }
        }
        self.template(now, &Options::SelectionStatistics.template(), out);
        self.accuracy(now, out);
    }

    fn accuracy(&mut self, now: Utc, out: &mut Vec<u8>) {
        let error = self
            .config
            .packets
            .as_ref()
            .map_or(0.0, |packets| packets.time_error);
        let with_selection = |kind: &Kind| {
            matches!(
                kind,
                Kind::Packet {
                    selection: true,
                    ..
                }
            )
        };
        let templates: Vec<u16> = self
            .templates
            .iter()
            .filter(|(kind, _)| with_selection(kind))
            .map(|(_, template)| template.id)
            .collect();
        self.template(now, &Options::Accuracy.template(), out);
        for template in templates {
            self.option(now, Options::Accuracy, 12, out, |octets| {
                octets.extend_from_slice(&template.to_be_bytes());
                octets.extend_from_slice(&id::OBSERVATION_TIME_NANOSECONDS.to_be_bytes());
                octets.extend_from_slice(&error.to_be_bytes());
            });
        }
    }
}
