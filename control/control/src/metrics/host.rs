//! Metrics of the machine and of what goes to other machines: drift, clock, links, syslog.

use std::collections::BTreeMap;

use crem_api::rest::SyslogState;
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

use crate::host::Machine;

pub(super) fn describe() {
    describe_gauge!(
        "crem_host_drift",
        "Differences between the machine and the config document."
    );
    describe_gauge!(
        "crem_host_link_settings_not_applied",
        "Settings of links that kernel drivers did not take."
    );
    describe_gauge!(
        "crem_host_clock_synchronised_timestamp_seconds",
        Unit::Seconds,
        "When the clock was last set by a time server; 0 if never since the machine started."
    );
    describe_gauge!(
        "crem_syslog_up",
        "1 if there is a way to the syslog server."
    );
    describe_counter!(
        "crem_syslog_messages_total",
        "Messages given to the way to the server."
    );
    describe_counter!(
        "crem_syslog_messages_dropped_total",
        "Messages that the server did not take in time."
    );
    describe_counter!(
        "crem_syslog_connections_total",
        "Ways to the server that were opened."
    );
}

/// Servers are as many as the document names.
pub(super) fn set(machine: &Machine, syslog: &BTreeMap<String, SyslogState>) {
    gauge!("crem_host_drift").set(machine.drift.len() as f64);
    let links: usize = machine.links.values().map(Vec::len).sum();
    gauge!("crem_host_link_settings_not_applied").set(links as f64);
    let synchronised = machine.time.synchronised_at_ms.unwrap_or(0);
    gauge!("crem_host_clock_synchronised_timestamp_seconds").set(synchronised as f64 / 1000.0);
    for (name, state) in syslog {
        let server = || [("server", name.clone())];
        gauge!("crem_syslog_up", &server()).set(f64::from(u8::from(state.connected)));
        counter!("crem_syslog_messages_total", &server()).absolute(state.sent);
        counter!("crem_syslog_messages_dropped_total", &server()).absolute(state.dropped);
        counter!("crem_syslog_connections_total", &server()).absolute(state.connections);
    }
}
