//! What is seen of a flow, and what policy would choose for it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use alloc::vec::Vec;
use core::net::IpAddr;

use crem_wire::{Psn, Qpn};

use super::*;
use crate::packet::{Namespace, PsnSpace};

const US: Duration = Duration::from_micros(1);
const MS: Duration = Duration::from_millis(1);

fn desc(psn: u32) -> Desc<()> {
    Desc {
        key: StreamKey {
            namespace: Namespace(0),
            source: IpAddr::from([10, 0, 1, 1]),
            destination: IpAddr::from([10, 0, 2, 1]),
            qp: Qpn::new(7),
            space: PsnSpace::Requests,
        },
        psn: Psn::new(psn),
        opcode: 7,
        payload_len: 1040,
        payload_off: 42,
        mtu_seen: Some(1024),
        read_length: None,
        ce: false,
        dscp: 26,
        buf: (),
    }
}

struct Rig {
    monitor: Monitor,
    now: Instant,
}

impl Rig {
    fn new() -> Self {
        let mut cfg = CoreConfig::new(50_000);
        cfg.domain_rtt = Some(20 * MS);
        Self {
            monitor: Monitor::new(cfg),
            now: Instant(1_000_000_000),
        }
    }

    /// These PSNs, ten microseconds apart.
    fn psns(&mut self, psns: impl IntoIterator<Item = u32>) {
        for psn in psns {
            self.now = self.now + 10 * US;
            self.monitor.on_burst(self.now, &[desc(psn)]);
        }
    }

    fn wait(&mut self, span: Duration) {
        let until = self.now + span;
        while let Some(at) = self.monitor.next_timeout().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.monitor.on_timeout(self.now);
        }
        self.now = until;
    }

    fn flow(&self) -> MonitoredFlow {
        let flows: Vec<_> = self.monitor.flows().collect();
        assert_eq!(flows.len(), 1);
        flows[0]
    }
}

#[test]
fn losses_are_counted_in_runs_once_nothing_can_fill_them() {
    let mut rig = Rig::new();
    rig.psns((0..10).chain(13..20).chain(21..30));
    assert_eq!(rig.flow().seen.lost, 0, "they may be late");
    rig.wait(MS);
    let seen = rig.flow().seen;
    assert_eq!(
        (seen.packets, seen.lost, seen.gaps, seen.longest),
        (26, 4, 2, 3)
    );
    assert_eq!(rig.flow().unprotected, Unprotected::Monitor);
}

#[test]
fn late_packets_duplicates_and_what_is_sent_again_are_told_apart() {
    let mut rig = Rig::new();
    // 12 and 14 come late, 13 is lost, 5 comes twice.
    rig.psns((0..12).chain([15, 14, 12, 5]).chain(16..40));
    rig.wait(MS);
    let seen = rig.flow().seen;
    assert_eq!((seen.reordered, seen.lost, seen.gaps), (2, 1, 1));
    assert_eq!((seen.duplicates, seen.resent), (1, 0));
    // The host goes back to the loss.
    rig.psns(13..40);
    let seen = rig.flow().seen;
    assert_eq!((seen.resent, seen.duplicates), (1, 27));
    assert_eq!(seen.lost, 1, "a loss stays one");
    // Of what is further behind than is remembered nothing is said.
    rig.psns((40..3_000).chain([100]));
    assert_eq!(rig.flow().seen.behind, 1);
}

#[test]
fn marks_are_counted_and_reads_leave_no_gaps() {
    let mut rig = Rig::new();
    let mut read = desc(10);
    (read.opcode, read.read_length, read.ce) = (0x0c, Some(8 * 1024), true);
    rig.psns(0..10);
    rig.monitor.on_burst(rig.now, &[read]);
    rig.psns(18..30);
    rig.wait(MS);
    let seen = rig.flow().seen;
    assert_eq!((seen.ce, seen.lost, seen.packets), (1, 0, 23));
    // Another use of the queue pair, and a jump within one, are no losses.
    rig.psns((6_000_000..6_000_010).chain(6_010_000..6_010_010));
    rig.wait(MS);
    let seen = rig.flow().seen;
    assert_eq!((seen.lost, seen.jumps), (0, 1));
}

// shows: AMB-POLICY
#[test]
fn what_policy_would_choose_follows_the_losses() {
    let mut rig = Rig::new();
    rig.psns(0..5_000);
    rig.wait(MS);
    let would = rig.flow().would;
    assert_eq!((would.choice.m, would.overhead), (0, 0.0), "a clean path");
    // One in a hundred.
    rig.psns((5_000..45_000).filter(|psn| psn % 100 != 0));
    rig.wait(MS);
    let flow = rig.flow();
    assert!((flow.loss - 0.01).abs() < 0.001, "{}", flow.loss);
    assert!((flow.burst - 1.0).abs() < 0.01, "{}", flow.burst);
    let Choice { k, m } = flow.would.choice;
    assert!(m > 0 && k >= 32);
    assert!((flow.would.overhead - f64::from(m) / f64::from(k)).abs() < 1e-9);
    assert!(flow.would.residual < 1e-3 && flow.would.residual > 0.0);
    // As often, but in runs of ten: more symbols.
    let mut runs = Rig::new();
    runs.psns((0..45_000).filter(|psn| psn % 1_000 >= 10));
    runs.wait(MS);
    let flow = runs.flow();
    assert!((flow.burst - 10.0).abs() < 2.0, "{}", flow.burst);
    assert!(flow.would.overhead > rig.flow().would.overhead);
}

#[test]
fn flows_at_rest_are_forgotten_and_the_table_is_bounded() {
    let mut rig = Rig::new();
    rig.psns(0..10);
    rig.psns(12..14);
    rig.wait(Duration::from_secs(61));
    assert_eq!(rig.monitor.flows().count(), 0);
    let total = rig.monitor.total();
    assert_eq!((total.packets, total.lost, total.longest), (12, 2, 2));
    assert_eq!(rig.monitor.next_timeout(), None);
    let mut cfg = CoreConfig::new(50_000);
    cfg.crf.max_flows = 10;
    let mut monitor = Monitor::new(cfg);
    for qp in 0..100 {
        let mut packet = desc(0);
        packet.key.qp = Qpn::new(qp);
        monitor.on_burst(Instant(u64::from(qp)), &[packet]);
    }
    assert_eq!((monitor.flows().count(), monitor.evicted()), (10, 90));
}

#[test]
fn many_gaps_at_once_stay_bounded() {
    let mut rig = Rig::new();
    // Every other packet is missing, faster than gaps are settled.
    for n in 0..2_000 {
        rig.monitor.on_burst(rig.now, &[desc(2 * n)]);
    }
    assert!(rig.monitor.memory().state_per_flow() < 4096);
    rig.wait(MS);
    assert_eq!(rig.flow().seen.lost, 1_999);
}
