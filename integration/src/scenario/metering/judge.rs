//! Holds what collectors got against the gateways' own counters, and against what hosts and WAN saw.

use crem_api::state::Named;
use crem_wan::{Class, DirectionReport, Fate};

use super::super::check::Finding;
use super::super::ledger::Ledger;
use super::super::report::{FlowReport, RunReport, gateway_name};
use super::super::spec::{Flow, Host, Scenario};
use super::document::POINTS;
use super::{Collected, Deed, Epochs, Metering, Packets, SiteReport};

/// Items that may have died with a process that was killed: its queues, and the socket before it.
const KILLED_ITEMS: u64 = 20_000;
/// Least share of lost source packets that the WAN ingress sees as positions passed over: those at the
/// end of what is under way are seen only when they are sent again.
const SKIPPED_SHARE: f64 = 0.9;

/// All findings about what was metered in a run.
pub(crate) fn judge(scenario: &Scenario, run: &RunReport, found: &mut Vec<Finding>) {
    let Some(metering) = &scenario.metering else {
        return;
    };
    for host in [Host::A, Host::B] {
        let name = gateway_name(host);
        let (Some(site), Some(gateway)) = (run.metering.get(name), run.gateways.get(name)) else {
            found.push(Finding::new(
                false,
                format!("{name}: no report on metering"),
            ));
            continue;
        };
        let mut judge = Judge {
            name,
            host,
            site,
            counters: &gateway.metering,
            found,
        };
        judge.collectors();
        judge.data_plane();
        if site.killed {
            judge.killed();
            continue;
        }
        for collector in ["tls", "tcp"] {
            judge.totals(collector, metering.packets);
            judge.sequences(collector, scenario, run);
        }
        judge.frames(run);
        judge.added(metering);
        if metering.slow_at == Some(host) {
            judge.slow();
        }
    }
}

struct Judge<'a> {
    name: &'static str,
    host: Host,
    site: &'a SiteReport,
    counters: &'a Named,
    found: &'a mut Vec<Finding>,
}

impl Judge<'_> {
    fn say(&mut self, ok: bool, what: &str) {
        let what = format!("{}: {what}", self.name);
        self.found.push(Finding::new(ok, what));
    }

    fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or_default()
    }

    fn collected(&self, name: &str) -> Collected {
        self.site.collected.get(name).cloned().unwrap_or_default()
    }

    fn exported(&self, collector: &str, name: &str) -> u64 {
        let collector = self.site.export.collectors.get(collector);
        let value = collector.and_then(|c| c.counters.get(name));
        value.copied().unwrap_or_default()
    }

    /// Records that were taken for a collector and did not leave.
    fn dropped(&self, collector: &str) -> u64 {
        [
            "dropped_disconnected",
            "dropped_full",
            "refused",
            "stale",
            "lost",
        ]
        .iter()
        .map(|name| self.exported(collector, name))
        .sum()
    }

    fn collectors(&mut self) {
        for (name, got) in self.site.collected.clone() {
            self.say(
                got.status == Some(0) && got.clean && got.records > 0,
                &format!(
                    "collector {name} ends with {:?} after {} records in {} sessions; issues {:?}",
                    got.status, got.records, got.sessions, got.issues
                ),
            );
        }
    }

    /// Metering itself lost nothing that passed.
    fn data_plane(&mut self) {
        let (missed, panics, full) = (
            self.counter("missed_frames"),
            self.counter("panics"),
            self.counter("ring_full"),
        );
        self.say(
            missed + panics + full == 0,
            &format!(
                "metering: {missed} frames missed, {panics} panics, {full} records without room"
            ),
        );
    }

    /// A killed exporting process costs records, all of which are counted but those that it had.
    fn killed(&mut self) {
        let (lost, items, again) = (
            self.site
                .relay
                .get("lost_items")
                .copied()
                .unwrap_or_default(),
            self.counter("items"),
            self.site
                .relay
                .get("connections")
                .copied()
                .unwrap_or_default(),
        );
        let got = self.collected("tls");
        let gone = items.saturating_sub(lost + got.records);
        self.say(
            lost > 0 && again == 2 && got.sessions == 2 && gone < KILLED_ITEMS,
            &format!(
                "export killed: of {items} records and accounts {lost} were lost while it was away and {} \
                 collected, {gone} are accounts or died with it; connections {again}, sessions {}",
                got.records, got.sessions
            ),
        );
    }

    /// What a collector got is what the gateway counted.
    fn totals(&mut self, collector: &str, packets: Packets) {
        let got = self.collected(collector);
        for (place, point) in POINTS {
            let point = point as u64;
            let packets = got.packets.get(&point).copied().unwrap_or_default();
            let (flow_packets, _) = got.flows.get(&point).copied().unwrap_or_default();
            let made = self.counter(&format!("{place}_packet_records"));
            let counted = self.counter(&format!("{place}_flow_packets"));
            self.say(
                packets == made && flow_packets == counted && made > 0 && counted > 0,
                &format!(
                    "{collector}, {place}: {packets} packet records of {made} made, \
                     {flow_packets} packets in flows of {counted} counted"
                ),
            );
        }
        let (sent, dropped) = (self.exported(collector, "records"), self.dropped(collector));
        self.say(
            sent == got.records && dropped == 0 && got.not_sent == 0 && got.ignored == 0,
            &format!(
                "{collector}: {} records of {sent} sent, {dropped} dropped, reported as ignored {} and not \
                 sent {}",
                got.records, got.ignored, got.not_sent
            ),
        );
        let reports = got.selection_reports;
        self.say(
            (reports >= 5) == (packets == Packets::Selected),
            &format!("{collector}: {reports} reports on selection"),
        );
    }

    /// Packets at the points are those that hosts and WAN saw.
    fn frames(&mut self, run: &RunReport) {
        let seen = |place: &str| self.counter(&format!("{place}_flow_packets"));
        let (out, back) = ways(self.host, run);
        let lan = (seen("lan_ingress"), out.0.sent);
        let wan = (seen("wan_egress"), out.0.sent);
        let after = (seen("lan_egress_after_repair"), back.0.received);
        let lost = lost(back.1);
        let arrived = (seen("wan_ingress"), back.0.sent - lost);
        let before = seen("lan_egress_before_repair");
        for (what, (seen, there)) in [
            ("sent by the host, seen at LAN ingress", lan),
            ("sent by the host, seen at WAN egress", wan),
            ("that the WAN did not lose, seen at WAN ingress", arrived),
            ("received by the host, seen after repair", after),
        ] {
            self.say(seen == there, &format!("{there} packets {what}: {seen}"));
        }
        self.say(
            before < after.0 && before <= arrived.0,
            &format!("{before} packets before repair, {} after", after.0),
        );
    }

    fn sequences(&mut self, collector: &str, scenario: &Scenario, run: &RunReport) {
        let got = self.collected(collector);
        let at = |point: u64| got.epochs.get(&point).copied().unwrap_or_default();
        let flows = || scenario.flow.iter().zip(&run.flows);
        let ours = sum(flows(), self.host);
        for (place, point) in [("LAN ingress", 100), ("WAN egress", 200)] {
            let epochs = at(point);
            let good = epochs.requests == ours.sent
                && epochs.repeated == ours.resent
                && epochs.skipped == 0;
            self.sequence(collector, place, good, &epochs, ours.flows);
        }
        let theirs = sum(flows(), self.host.other());
        let (_, (ledger, _)) = ways(self.host, run);
        let lost = ledger.new_sources_lost + ledger.old_sources_lost;
        let arrived = at(300);
        let least = (ledger.new_sources_lost as f64 * SKIPPED_SHARE) as u64;
        let good = arrived.requests == theirs.sent - lost
            && (least..=ledger.new_sources_lost).contains(&arrived.skipped)
            && arrived.unfilled() <= ledger.restored_exactly
            && (lost == 0 || arrived.unfilled() > 0);
        self.sequence(collector, "WAN ingress", good, &arrived, theirs.flows);
        let before = at(400);
        let good = before.requests <= arrived.requests;
        self.sequence(collector, "before repair", good, &before, theirs.flows);
        let after = at(500);
        // Whatever was passed over came in the end: the transfer is complete.
        let good = after.requests == theirs.received && after.unfilled() == 0;
        self.sequence(collector, "after repair", good, &after, theirs.flows);
    }

    fn sequence(
        &mut self,
        collector: &str,
        place: &str,
        good: bool,
        epochs: &Epochs,
        connections: u64,
    ) {
        let whole = epochs.skipped == epochs.filled + epochs.unfilled();
        let complete = epochs.complete == connections && epochs.incomplete + epochs.invalid == 0;
        self.say(
            good && whole && complete,
            &format!(
                "{collector}, {place}: {} requests, positions passed over {}, seen later {}, not seen {}, \
                 packets repeated {} and late {}; epochs complete {}, incomplete {}, invalid {}",
                epochs.requests,
                epochs.skipped,
                epochs.filled,
                epochs.unfilled(),
                epochs.repeated,
                epochs.late,
                epochs.complete,
                epochs.incomplete,
                epochs.invalid
            ),
        );
    }

    /// A collector that the document got while everything ran.
    fn added(&mut self, metering: &Metering) {
        let mut events = metering.event.iter();
        if !events.any(|e| e.does == Deed::AddCollector && e.at == self.host) {
            return;
        }
        let (got, others) = (self.collected("late"), self.collected("tcp"));
        let sent = self.exported("late", "records");
        self.say(
            got.records == sent && sent > 0 && got.sessions == 1 && others.sessions == 1,
            &format!(
                "collector added while running: {} records of {sent}; sessions {}, of another {}",
                got.records, got.sessions, others.sessions
            ),
        );
    }

    /// What a slow collector did not get is counted, and told to it.
    fn slow(&mut self) {
        let got = self.collected("slow");
        let full = self.exported("slow", "dropped_full");
        let handed = self.exported("slow", "records") + self.dropped("slow");
        let all = self.collected("tcp");
        let reports = all.records - packets_and_flows(&all, self.counters);
        self.say(
            full > 0 && handed <= all.records && handed >= all.records - reports,
            &format!(
                "slow collector: {handed} records for it of {}, {full} found its queue full",
                all.records
            ),
        );
        self.say(
            got.not_sent > 0 && got.not_sent <= self.exported("slow", "not_sent_records"),
            &format!("slow collector: told of {} records not sent", got.not_sent),
        );
    }
}

/// Records of packets and of flows that a gateway made.
fn packets_and_flows(got: &Collected, counters: &Named) -> u64 {
    let packets: u64 = got.packets.values().sum();
    let flows = counters.iter().filter(|(name, _)| {
        ["idle", "active", "evicted"]
            .iter()
            .any(|end| name.ends_with(&format!("flow_records_{end}")))
    });
    packets + flows.map(|(_, count)| count).sum::<u64>()
}

/// One direction: what hosts saw of it, and what the WAN did.
type Way<'a> = (&'a Ledger, &'a DirectionReport);

/// The directions from the host of a gateway, and to it.
fn ways(host: Host, run: &RunReport) -> (Way<'_>, Way<'_>) {
    let a = (&run.a_to_b, &run.wan.a_to_b);
    let b = (&run.b_to_a, &run.wan.b_to_a);
    if host == Host::A { (a, b) } else { (b, a) }
}

/// RoCEv2 frames that the WAN took.
fn lost(way: &DirectionReport) -> u64 {
    let classes = [Class::RoceSource, Class::RoceResponse, Class::RoceOther];
    let fates = [Fate::Lost, Fate::QueueDropped];
    let each = classes
        .into_iter()
        .flat_map(|class| fates.map(|fate| way.count(class, fate)));
    each.sum()
}

/// Request packets of the flows that begin at a host.
#[derive(Default)]
struct Requests {
    flows: u64,
    sent: u64,
    resent: u64,
    received: u64,
}

fn sum<'a>(flows: impl Iterator<Item = (&'a Flow, &'a FlowReport)>, host: Host) -> Requests {
    let ours = flows.filter(|(flow, _)| flow.requester == host);
    ours.fold(Requests::default(), |all, (_, report)| Requests {
        flows: all.flows + 1,
        sent: all.sent + report.requester.packets_sent,
        resent: all.resent + report.requester.packets_resent,
        received: all.received + report.responder.packets_received,
    })
}
