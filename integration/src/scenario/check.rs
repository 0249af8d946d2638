//! Judging the runs of a scenario by its expectations.

use crem_wan::Fate;
use serde::{Deserialize, Serialize};

use super::api;
use super::bounds;
use super::control_dies;
use super::fleet;
use super::links;
use super::metering;
use super::monitored;
use super::report::{FlowReport, Outcome, RunReport, gateway_name};
use super::router;
use super::spec::{Flow, Gateways, Host, PathReports, Scenario};

/// One expectation and whether it was met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Met.
    pub ok: bool,
    /// What was expected and what was seen.
    pub what: String,
}

impl Finding {
    pub(crate) fn new(ok: bool, what: String) -> Self {
        Self { ok, what }
    }
}

/// All findings about the runs of a scenario.
pub fn check(scenario: &Scenario, outcome: &Outcome) -> Vec<Finding> {
    let mut found = Vec::new();
    for run in &outcome.runs {
        sound(scenario, run, &mut found);
        stuck(scenario, run, &mut found);
        metering::judge(scenario, run, &mut found);
        control_dies::judge(scenario, run, &mut found);
        api::judge(scenario, run, &mut found);
        fleet::judge(scenario, run, &mut found);
        if let Some(router) = scenario.router.as_ref().filter(|_| run.mode == "protected") {
            router::judge(router, run, &mut found);
        }
        match run.mode.as_str() {
            "monitor" => monitored::judge(run, &mut found),
            "protected" => bounds::judge(&scenario.expect.counters, run, &mut found),
            _ => {}
        }
    }
    if let (true, Some(run)) = (scenario.link_propagation, outcome.run("protected")) {
        links::judge(down_delay_ms(scenario), run, &mut found);
    }
    if let (Some(_), Some(run)) = (scenario.intruder, outcome.run("protected")) {
        let (sent, arrived) = (run.intruder, run.between_others_arrived);
        found.push(Finding::new(
            sent.frames > 100 && arrived == sent.between_others,
            format!(
                "a stranger sent {} CREM frames; {} between others, of which {arrived} passed",
                sent.frames, sent.between_others
            ),
        ));
        found.extend(spoken_for_the_peer(scenario, run));
    }
    if scenario.expect.marks_arrive {
        found.extend(outcome.runs.iter().map(marks));
    }
    if let Some(run) = outcome
        .run("protected")
        .filter(|_| scenario.expect.protection)
    {
        protection(scenario, run, &mut found);
        workers(scenario, run, &mut found);
        if !scenario.set.is_empty() {
            set(scenario, run, &mut found);
        }
        if scenario.changes > 0 {
            found.push(changes(scenario, run));
        }
        if let Some(expected) = &scenario.expect.path_reports {
            path_reports(expected, run, &mut found);
        }
        if let Some(passthrough) = outcome.run("passthrough") {
            found.push(resent(scenario, passthrough, run));
        }
        tcp(scenario, run, &mut found);
    }
    if scenario.expect.in_order {
        found.extend(outcome.runs.iter().flat_map(in_order));
    }
    if let (Some(within), Some(run)) = (scenario.expect.formula_within, outcome.run("bare")) {
        for (flow, report) in scenario.flow.iter().zip(&run.flows) {
            found.push(formula(scenario, flow, report, within));
        }
    }
    found
}

/// Of the links, as the scenario has it.
fn down_delay_ms(scenario: &Scenario) -> u64 {
    let links = scenario.segment.get("link_propagation");
    let delay = links.and_then(|links| links.get("down_delay_ms")?.as_integer());
    delay.and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0)
}

/// Values that were set came into force, protection was away for as long as bypass lasts, and the mode came back by
/// itself.
fn set(scenario: &Scenario, run: &RunReport, found: &mut Vec<Finding>) {
    let (wanted, seen) = (scenario.set.len() as u64, run.set);
    let bypass = scenario.segment.get("bypass");
    let seconds = bypass.and_then(|bypass| bypass.get("duration_s")?.as_integer());
    let least = seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(0) * 1_000;
    let again: Vec<_> = run.flows.iter().map(|f| f.protected_again_ms).collect();
    let away = again.iter().all(|ms| ms.is_some_and(|ms| ms >= least));
    found.push(Finding::new(
        seen == wanted && away,
        format!("of {wanted} values {seen} seen set; protected again after {again:?} ms, at least {least}"),
    ));
    for gateway in scenario.set.iter().map(|set| gateway_name(set.at)) {
        let mode = run.modes.get(gateway);
        let back = mode.is_some_and(|(mode, reason)| mode == "active" && reason.is_some());
        found.push(Finding::new(
            back,
            format!("{gateway} came back by itself: mode and reason {mode:?}"),
        ));
    }
}

/// Order of the packets of each queue pair.
fn in_order(run: &RunReport) -> [Finding; 2] {
    let mode = &run.mode;
    let behind = run.sum(|ledger| ledger.restored_behind);
    let counted: u64 = run
        .gateways
        .values()
        .filter_map(|gateway| gateway.crf.get("restored_late"))
        .sum();
    let out_of_order = run.sum(|ledger| ledger.out_of_order);
    [
        Finding::new(
            out_of_order == 0,
            format!("{mode}: packets that were not restored out of order {out_of_order}"),
        ),
        Finding::new(
            behind <= counted,
            format!("{mode}: restored packets out of order {behind}, counted as late {counted}"),
        ),
    ]
}

/// Workers of each gateway that restored, or coded.
fn workers(scenario: &Scenario, run: &RunReport, found: &mut Vec<Finding>) {
    let least = scenario.expect.workers_used;
    for (name, gateway) in run.gateways.iter().filter(|_| least > 0) {
        let value =
            |named: &crem_api::state::Named, key: &str| named.get(key).copied().unwrap_or(0);
        let works = |w: &&crem_api::state::WorkerCounters| {
            value(&w.coding, "restored") + value(&w.coding, "code_jobs") > 0
        };
        let used = gateway.workers.iter().filter(works).count() as u64;
        let lost = ["unseen", "mail_lost", "facts_lost"].map(|key| value(&gateway.team, key));
        found.push(Finding::new(
            used >= least,
            format!("{name}: {used} workers code or restore, at least {least}"),
        ));
        found.push(Finding::new(
            lost == [0; 3],
            format!("{name}: references, messages and facts lost between workers {lost:?}"),
        ));
    }
}

/// What a host said in the name of its gateway's peer was refused, all of it, where anything was said.
fn spoken_for_the_peer(scenario: &Scenario, run: &RunReport) -> Option<Finding> {
    let said = run.intruder.as_peer;
    let host = scenario.intruder?.at;
    let counters = run.gateways.get(gateway_name(host));
    let refused = counters.and_then(|c| c.messages.get("wrong_port_lan").copied());
    (said > 0 || refused != Some(0)).then(|| {
        Finding::new(
            said > 100 && refused == Some(said),
            format!("a host said {said} times to be the peer, which was refused {refused:?} times"),
        )
    })
}

/// A gateway with a stuck worker has ended by itself, and how long nothing was forwarded.
fn stuck(scenario: &Scenario, run: &RunReport, found: &mut Vec<Finding>) {
    if scenario.event.iter().any(|e| e.stuck_worker.is_some()) {
        let (ended, gap) = (run.stuck_ended_ms, run.stuck_gap_ms);
        let limit = scenario.expect.stuck_ends_ms;
        found.push(Finding::new(
            ended.is_some_and(|ms| ms <= limit) && gap.is_some(),
            format!(
                "{}: with a stuck worker the gateway ended after {ended:?} ms, at most {limit}; \
                 nothing was forwarded for {gap:?} ms",
                run.mode
            ),
        ));
    }
}

/// What holds in every run, protected or not.
fn sound(scenario: &Scenario, run: &RunReport, found: &mut Vec<Finding>) {
    let mode = &run.mode;
    let done = !run.given_up && run.flows.iter().all(|flow| flow.requester.completed);
    found.push(Finding::new(done, format!("{mode}: every flow completed")));
    let odd = |flow: &FlowReport| flow.requester.protocol_errors + flow.responder.protocol_errors;
    let mut none = |count: u64, what: &str| {
        found.push(Finding::new(count == 0, format!("{mode}: {what} {count}")));
    };
    none(run.bytes_wrong(), "bytes wrong");
    none(
        run.flows.iter().map(odd).sum(),
        "packets out of place in a flow",
    );
    none(own_losses(run), "frames the test programs lost");
    none(
        run.capture_drops + run.wan.log_left_out,
        "frames the captures or the WAN's log missed",
    );
    none(
        run.sum(|ledger| ledger.foreign),
        "frames delivered that equal none that was sent",
    );
    none(run.crem_at_hosts, "CREM messages at a host");
    for frame in run
        .a_to_b
        .foreign_frames
        .iter()
        .chain(&run.b_to_a.foreign_frames)
    {
        none(1, &format!("frame that nobody sent: {frame};"));
    }
    // A gateway that is down takes frames with it.
    if !scenario.breaks_the_wire() {
        none(
            run.sum(|l| l.vanished),
            "source packets gone that the WAN did not lose",
        );
    }
}

/// Frames that the test programs' own sockets lost.
fn own_losses(run: &RunReport) -> u64 {
    let ends = run
        .flows
        .iter()
        .flat_map(|flow| [&flow.requester, &flow.responder]);
    let peers: u64 = ends.map(|end| end.kernel_drops + end.send_refused).sum();
    let ways = [&run.wan.a_to_b, &run.wan.b_to_a];
    peers
        + ways
            .iter()
            .map(|way| way.kernel_drops + way.send_refused)
            .sum::<u64>()
}

fn protection(scenario: &Scenario, run: &RunReport, found: &mut Vec<Finding>) {
    let expect = &scenario.expect;
    for (index, (flow, report)) in scenario.flow.iter().zip(&run.flows).enumerate() {
        found.push(state(index, flow, report));
        if scenario.breaks_the_wire() || !scenario.set.is_empty() {
            let limit = expect.protected_again_ms;
            let again = report.protected_again_ms;
            found.push(Finding::new(
                again.is_some_and(|ms| ms <= limit),
                format!(
                    "flow {index} protected again {again:?} ms after the first frame that the gateway \
                     forwarded, at most {limit} ({:?} ms after it was ready)",
                    report.protected_after_ready_ms
                ),
            ));
        }
    }
    let lost = run.sum(|ledger| ledger.new_sources_lost);
    let restored = run.sum(|ledger| ledger.restored_exactly);
    let share = if lost == 0 {
        0.0
    } else {
        restored as f64 / lost as f64
    };
    found.push(Finding::new(
        share >= expect.restored_share,
        format!(
            "restored exactly {restored} of {lost} lost source packets, {:.1} %, at least {:.0} %",
            100.0 * share,
            100.0 * expect.restored_share
        ),
    ));
}

fn changes(scenario: &Scenario, run: &RunReport) -> Finding {
    let changes = &run.changes;
    Finding::new(
        changes.made >= scenario.changes && changes.seen == changes.made,
        format!(
            "of {} documents {} in force and {} seen so, by kind {:?}, the slowest after {:.1} ms",
            scenario.changes, changes.made, changes.seen, changes.kinds, changes.slowest_ms
        ),
    )
}

fn state(index: usize, flow: &Flow, report: &FlowReport) -> Finding {
    match &flow.unprotected {
        None => Finding::new(
            report.protected,
            format!(
                "flow {index} protected after {:?} ms (states {:?}, reasons {:?})",
                report.protected_after_ms, report.states, report.reasons
            ),
        ),
        Some(reason) => Finding::new(
            !report.protected && report.reasons.contains(reason),
            format!(
                "flow {index} not protected, {reason}: reasons {:?}",
                report.reasons
            ),
        ),
    }
}

fn resent(scenario: &Scenario, passthrough: &RunReport, run: &RunReport) -> Finding {
    let (without, with) = (passthrough.resent(), run.resent());
    let limit = scenario.expect.resent_share;
    // Runs with a duration move different amounts: compare by what arrived.
    let moved = |run: &RunReport| {
        run.flows
            .iter()
            .map(|flow| flow.requester.octets)
            .sum::<u64>()
            .max(1) as f64
    };
    let share = (with as f64 / moved(run)) / (without.max(1) as f64 / moved(passthrough));
    Finding::new(
        without > 0 && share <= limit,
        format!(
            "transport retransmissions {with} against {without} in passthrough, {:.1} % for the same octets, at most {:.0} %",
            100.0 * share,
            100.0 * limit
        ),
    )
}

fn marks(run: &RunReport) -> Finding {
    let sum = |count: fn(&FlowReport) -> u64| run.flows.iter().map(count).sum::<u64>();
    let seen = sum(|flow| flow.requester.ce_marked + flow.responder.ce_marked);
    let heard = sum(|flow| flow.requester.cnps_received + flow.responder.cnps_received);
    let made = run.wan.a_to_b.total(Fate::Marked) + run.wan.b_to_a.total(Fate::Marked);
    Finding::new(
        seen > 0 && heard > 0,
        format!(
            "{}: of {made} marks {seen} seen on data at a host, {heard} CNPs heard",
            run.mode
        ),
    )
}

fn tcp(scenario: &Scenario, run: &RunReport, found: &mut Vec<Finding>) {
    if !scenario.expect.inband_tcp_closed {
        return;
    }
    let answers = run.inband_ping == Some(true);
    found.push(Finding::new(
        answers,
        format!("in-band address answers ping: {answers}"),
    ));
    let (open, tried) = (&run.inband_open_ports, run.inband_tried_ports);
    found.push(Finding::new(
        open.as_ref().is_some_and(Vec::is_empty),
        format!("in-band address: TCP ports that answer, of {tried} tried: {open:?}"),
    ));
}

/// Reports of nodes on the WAN: believed and answered at one gateway, refused at the other.
fn path_reports(expected: &PathReports, run: &RunReport, found: &mut Vec<Finding>) {
    let sent = |host| match host {
        Host::A => run.wan.a_to_b.path_reports,
        Host::B | Host::C => run.wan.b_to_a.path_reports,
    };
    let count = |host, name| run.csf_at(host, name);
    let at = expected.answered_at;
    let (taken, named, symbols) = (
        count(at, "path_reports"),
        count(at, "path_psns"),
        count(at, "path_symbols"),
    );
    let refused = count(at, "path_reports_forbidden");
    found.push(Finding::new(
        taken > 0 && named > 0 && symbols > 0 && refused == 0,
        format!(
            "{at:?}: of {} path reports {taken} taken, {refused} refused; {named} PSNs named, \
             {symbols} symbols more",
            sent(at)
        ),
    ));
    let at = expected.refused_at;
    let (taken, symbols) = (count(at, "path_reports"), count(at, "path_symbols"));
    let refused = count(at, "path_reports_forbidden");
    found.push(Finding::new(
        refused > 0 && taken == 0 && symbols == 0,
        format!(
            "{at:?}: of {} path reports of a stranger {taken} taken, {refused} refused",
            sent(at)
        ),
    ));
}

/// Packets a second at the flow's rate.
pub(crate) fn packet_rate(scenario: &Scenario, flow: &Flow) -> f64 {
    // Ethernet 14, UDP 8, BTH 12, ICRC 4, and preamble, FCS and gap 24.
    let octets = u64::from(flow.rdma_mtu) + scenario.family.header() + 14 + 8 + 12 + 4 + 24;
    flow.rate_mbit as f64 * 1e6 / (8.0 * octets as f64)
}

/// Share of the rate that go-back-N gets: each loss costs a round-trip time of packets.
pub(crate) fn go_back_n_share(loss: f64, packets_in_rtt: f64) -> f64 {
    (1.0 - loss) / (1.0 - loss + loss * packets_in_rtt)
}

/// What go-back-N should give a WRITE or SEND flow, in Mbit/s.
pub(crate) fn formula_mbit(scenario: &Scenario, flow: &Flow) -> f64 {
    let rate = packet_rate(scenario, flow);
    let in_rtt = rate * scenario.rtt_us() as f64 / 1e6;
    let share = go_back_n_share(scenario.wan.a_to_b.loss.mean(), in_rtt);
    share * rate * f64::from(flow.rdma_mtu) * 8.0 / 1e6
}

fn formula(scenario: &Scenario, flow: &Flow, report: &FlowReport, within: f64) -> Finding {
    let (expected, seen) = (formula_mbit(scenario, flow), report.requester.goodput_mbit);
    Finding::new(
        (seen / expected - 1.0).abs() <= within,
        format!(
            "bare goodput {seen:.1} Mbit/s, go-back-N formula {expected:.1}, within {:.0} %",
            100.0 * within
        ),
    )
}

impl Scenario {
    /// Whether gateways take part.
    pub fn has_gateways(&self) -> bool {
        self.gateways != Gateways::None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn formula_matches_hand_arithmetic() {
        assert!((go_back_n_share(0.01, 459.0) - 0.99 / 5.58).abs() < 1e-9);
        assert!((go_back_n_share(0.0, 459.0) - 1.0).abs() < 1e-9);
    }

    fn protected(lost: u64, restored: u64) -> RunReport {
        let mut run = RunReport {
            mode: "protected".into(),
            ..RunReport::default()
        };
        run.a_to_b.new_sources_lost = lost;
        run.a_to_b.restored_exactly = restored;
        let mut flow = FlowReport {
            protected: true,
            ..FlowReport::default()
        };
        flow.requester.completed = true;
        flow.requester.octets = 1_000;
        flow.requester.packets_resent = 5;
        run.flows.push(flow);
        run
    }

    fn judge(protected: RunReport) -> Vec<String> {
        let scenario = Scenario::parse(
            "name = \"x\"\nabout = \"y\"\n[wan.a_to_b.loss]\nuniform = 0.01\n[[flow]]\nrate_mbit = 9\n[expect]\nprotection = true",
        );
        let mut passthrough = RunReport {
            mode: "passthrough".into(),
            ..RunReport::default()
        };
        let mut flow = FlowReport::default();
        flow.requester.completed = true;
        flow.requester.octets = 1_000;
        flow.requester.packets_resent = 100;
        passthrough.flows.push(flow);
        let runs = vec![passthrough, protected];
        let outcome = Outcome {
            name: "x".into(),
            runs,
            findings: Vec::new(),
        };
        check(&scenario.unwrap(), &outcome)
            .into_iter()
            .filter(|f| !f.ok)
            .map(|f| f.what)
            .collect()
    }

    #[test]
    fn a_good_run_passes_and_each_fault_is_found() {
        assert_eq!(judge(protected(100, 95)), Vec::<String>::new());
        assert_eq!(judge(protected(100, 89)).len(), 1);
        assert_eq!(
            judge(protected(0, 0)).len(),
            1,
            "nothing lost shows nothing"
        );
        let with = |change: fn(&mut RunReport)| {
            let mut run = protected(100, 95);
            change(&mut run);
            judge(run).len()
        };
        assert_eq!(with(|r| r.flows[0].protected = false), 1);
        assert_eq!(with(|r| r.flows[0].requester.packets_resent = 21), 1);
        assert_eq!(with(|r| r.flows[0].responder.bytes_wrong = 1), 1);
        assert_eq!(with(|r| r.flows[0].requester.completed = false), 1);
        assert_eq!(with(|r| r.a_to_b.foreign = 1), 1);
        assert_eq!(with(|r| r.a_to_b.vanished = 1), 1);
        assert_eq!(with(|r| r.capture_drops = 1), 1);
        assert_eq!(with(|r| r.crem_at_hosts = 1), 1);
        assert_eq!(with(|r| r.wan.b_to_a.kernel_drops = 1), 1);
    }

    // shows: CREM-PR-05, CREM-PR-07, CREM-PR-14
    #[test]
    fn path_reports_are_to_be_answered_here_and_refused_there() {
        let expected = PathReports {
            answered_at: Host::A,
            refused_at: Host::B,
        };
        let judge = |counts: [(&str, &str, u64); 6]| -> Vec<bool> {
            let mut run = RunReport::default();
            for (gateway, name, count) in counts {
                let gateway = run.gateways.entry(gateway.to_owned()).or_default();
                gateway.csf.insert(name.to_owned(), count);
            }
            let mut found = Vec::new();
            path_reports(&expected, &run, &mut found);
            found.iter().map(|f| f.ok).collect()
        };
        let good = [
            ("gwA", "path_reports", 9),
            ("gwA", "path_psns", 20),
            ("gwA", "path_symbols", 3),
            ("gwA", "path_reports_forbidden", 0),
            ("gwB", "path_reports_forbidden", 5),
            ("gwB", "path_symbols", 0),
        ];
        assert_eq!(judge(good), [true, true]);
        let with = |index: usize, count| {
            let mut counts = good;
            counts[index].2 = count;
            judge(counts)
        };
        for index in 0..3 {
            assert_eq!(with(index, 0), [false, true]);
        }
        assert_eq!(with(3, 1), [false, true]);
        assert_eq!(with(4, 0), [true, false]);
        assert_eq!(with(5, 1), [true, false]);
    }
}
