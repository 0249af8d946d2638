//! The live table: sessions, and the epochs that a collector keeps of them.

use std::io::{self, Write};

use crate::collector::Collector;

/// Epochs that are shown.
const ROWS: usize = 40;
/// Cursor home, and what is below it cleared.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Writes the table over the one before.
pub(super) fn write(out: &mut dyn Write, collector: &Collector) -> io::Result<()> {
    write!(out, "{CLEAR}")?;
    writeln!(
        out,
        "{:>7} {:<24} {:>9} {:>10} {:>10} {:>9} {:>9} {:>9} {:>7}",
        "session",
        "peer",
        "messages",
        "records",
        "packets",
        "flows",
        "reports",
        "missing",
        "issues"
    )?;
    let mut rows = Vec::new();
    for (peer, session) in collector.iter() {
        let c = session.counters();
        let address = peer.address.map(|a| a.to_string()).unwrap_or_default();
        writeln!(
            out,
            "{:>7} {address:<24} {:>9} {:>10} {:>10} {:>9} {:>9} {:>9} {:>7}",
            peer.session,
            c.messages,
            c.records,
            c.packets,
            c.flows,
            c.reports,
            c.missing_records,
            c.issues
        )?;
        rows.extend(session.epochs().map(|(_, epoch)| (peer.session, epoch)));
    }
    rows.sort_by_key(|(session, epoch)| (*session, epoch.epoch));
    writeln!(
        out,
        "\n{:>7} {:>6} {:>7} {:<40} {:>8} {:>10} {:>8} {:>8} {:>8} {:>9} {:>7} {:>8} {:>6} flags",
        "session",
        "epoch",
        "report",
        "connection",
        "QP",
        "requests",
        "skipped",
        "filled",
        "expired",
        "abandoned",
        "pending",
        "repeated",
        "late"
    )?;
    for (session, epoch) in rows.iter().take(ROWS) {
        let key = &epoch.key;
        let c = epoch.measurements.unwrap_or_default();
        let flags: Vec<&str> = epoch.flags.names().collect();
        writeln!(
            out,
            "{session:>7} {:>6} {:>7} {:<40} {:>8} {:>10} {:>8} {:>8} {:>8} {:>9} {:>7} {:>8} {:>6} {}{}",
            epoch.epoch,
            epoch.last_report,
            format!("{} > {}", key.source, key.destination),
            key.qp,
            c.requests,
            c.skipped,
            c.filled,
            c.expired,
            c.abandoned,
            c.pending,
            c.repeated,
            c.unclassified_late,
            flags.join(","),
            if epoch.gap { " (reports missing)" } else { "" }
        )?;
    }
    if rows.len() > ROWS {
        writeln!(out, "and {} epochs more", rows.len() - ROWS)?;
    }
    out.flush()
}
