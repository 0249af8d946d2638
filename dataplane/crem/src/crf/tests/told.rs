//! Acknowledgments among responses that are held, and what is not restored any more because the requester
//! knows that it is missing (AMB-READRESP).

use super::responses::{QP, bound_with, on, reading};
use super::*;
use crate::config::Hold;
use proptest::prelude::*;

/// H of the rig: max(8 x 10 µs, 200 µs burst timeout) + A.
const H: Duration = Duration::from_micros(300);

impl Rig {
    fn ack_desc(&mut self, psn: u32) -> Desc<Buf> {
        Desc {
            opcode: 0x11,
            payload_len: 20,
            mtu_seen: None,
            ..self.desc(psn)
        }
    }

    fn ack(&mut self, psn: u32) {
        let ack = self.ack_desc(psn);
        self.descs(&[ack]);
    }
}

// shows: AMB-READRESP, AMB-HOLD
#[test]
fn an_acknowledgment_does_not_pass_responses_that_are_held() {
    let mut rig = reading(1);
    let sources = rig.count("sources");
    rig.burst(&[1000, 1001, 1002, 1004, 1005, 1006, 1007]);
    rig.ack(1040);
    rig.burst(&[1008]);
    assert_eq!(rig.taken(), [1000, 1001, 1002]);
    rig.ordinary(1000, 0);
    rig.wait(A);
    let expected = [1003, 1004, 1005, 1006, 1007, 1008, 1040];
    assert_eq!(
        rig.delivered.last(),
        Some(&(Delivery::Acknowledgment, 1040))
    );
    assert_eq!(rig.taken(), expected);
    let held = (rig.count("held"), rig.count("acknowledgments_held"));
    assert_eq!(held, (5, 1));
    assert_eq!(rig.count("sources"), sources + 8, "it is no source");
    rig.ack(1041);
    assert_eq!(rig.taken(), [1041]);
    assert_eq!(rig.crf.references().held, 0);
}

// shows: AMB-READRESP, AMB-HOLD
#[test]
fn an_acknowledgment_waits_no_longer_than_a_response() {
    let mut rig = reading(1);
    rig.burst(&[1000, 1001, 1002]);
    rig.ack(1002);
    rig.burst(&[1004]);
    rig.ack(1003);
    rig.now = rig.now + 50 * US;
    rig.ack(1040);
    assert_eq!(
        rig.taken(),
        [1000, 1001, 1002, 1002, 1003],
        "one that is not beyond what is missing passes"
    );
    rig.wait(H - 51 * US);
    assert!(rig.taken().is_empty());
    rig.wait(US);
    assert_eq!(rig.taken(), [1004, 1040]);
    // A bound on what is held ends the hold.
    let mut cfg = on();
    cfg.crf.hold_packets = 2;
    let mut rig = bound_with(cfg, 1, 1000);
    rig.read(1000, 32);
    rig.burst(&[1000, 1002]);
    rig.ack(1040);
    rig.ack(1041);
    assert_eq!(rig.taken(), [1000, 1002, 1040, 1041]);
    assert_eq!(rig.count("holds_cut"), 1);
}

// shows: AMB-READRESP
#[test]
fn what_an_acknowledgment_beyond_it_has_given_away_is_not_restored() {
    for (hold, restored) in [(Hold::Auto, 0), (Hold::Off, 1)] {
        let mut cfg = on();
        cfg.crf.hold = hold;
        let mut rig = bound_with(cfg, 1, 1000);
        rig.read(1000, 8);
        rig.asked(QP, 0x0a, 1008, None);
        rig.read(1009, 8);
        // The last response of the first READ is lost, which nobody sees before the requester does.
        rig.burst(&[1000, 1001, 1002, 1003, 1004, 1005, 1006]);
        rig.ack(1008);
        rig.burst(&[1009, 1010]);
        assert_eq!(rig.taken().len(), 10, "and so nothing waits for it");
        rig.ordinary(1000, 0);
        rig.wait(2 * A);
        let counts = (rig.count("restored"), rig.count("responses_late"));
        assert_eq!(counts, (restored, 1 - restored), "{hold:?}");
    }
}

// shows: AMB-READRESP
#[test]
fn what_came_too_late_for_the_hold_is_not_restored() {
    let mut rig = reading(1);
    rig.burst(&[1000, 1001, 1002, 1004, 1005, 1006, 1007, 1008]);
    rig.wait(H);
    assert_eq!(
        rig.taken(),
        [1000, 1001, 1002, 1004, 1005, 1006, 1007, 1008]
    );
    rig.ordinary(1000, 0);
    rig.wait(A);
    assert!(rig.taken().is_empty());
    let counts = (rig.count("restored"), rig.count("responses_late"));
    assert_eq!(counts, (0, 1));
    // The loss counts all the same.
    rig.wait(100 * MS);
    let report = rig.reports();
    assert_eq!(report.expected - report.received, 1);
}

// shows: AMB-READRESP, AMB-TENANT
#[test]
fn acknowledgments_of_others_just_pass() {
    let mut rig = reading(1);
    rig.burst(&[1000, 1002, 1003]);
    rig.taken();
    let far = rig.ack_desc(1000 + (1 << 22) + 5000);
    let mut other = rig.ack_desc(1040);
    other.key.namespace = Namespace(9);
    let mut unknown = rig.ack_desc(1041);
    unknown.key.qp = Qpn::new(0x999);
    rig.descs(&[far, other, unknown]);
    assert_eq!(rig.taken(), [1000 + (1 << 22) + 5000, 1040, 1041]);
    let counts = ["acknowledgments_held", "namespace_conflicts", "passed"];
    assert_eq!(counts.map(|name| rig.count(name)), [0; 3]);
    // Nor have they told anything.
    rig.burst(&[1004, 1005, 1006, 1007, 1008]);
    rig.ordinary(1000, 0);
    rig.wait(A);
    assert_eq!(rig.count("restored"), 1);
}

proptest! {
    // shows: AMB-READRESP
    /// Whatever is lost, restored, or never comes: nothing leaves behind what was sent after it but a
    /// packet that came late, and everything that came leaves once.
    #[test]
    fn responses_and_acknowledgments_leave_in_order(
        steps in proptest::collection::vec((0..5u8, 0..256u32), 1..60),
    ) {
        let mut rig = reading(2);
        let (mut at, mut came, mut left) = (1000u32, 0, 0);
        let mut block = 1000;
        let mut furthest = 0;
        for (step, n) in steps {
            match step {
                0..=2 => {
                    rig.read(at + 32, 8);
                    let psns: Vec<u32> = (0..8).filter(|i| n >> i & 3 != 1).map(|i| at + i).collect();
                    came += psns.len();
                    rig.burst(&psns);
                    block = at;
                    at += 8;
                }
                3 => {
                    // A WRITE, and what acknowledges it.
                    at += 8;
                    rig.ack(at - 1);
                    came += 1;
                }
                _ => rig.wait(n * 2 * US),
            }
            if n & 1 == 1 {
                rig.ordinary(block, 0);
                rig.ordinary(block, 1);
            }
            for (kind, psn) in rig.delivered.drain(..) {
                prop_assert!(psn > furthest, "{psn} {kind:?} after {furthest}");
                furthest = psn;
                left += usize::from(kind != Delivery::Restored);
            }
        }
        rig.wait(500 * MS);
        left += rig.delivered.iter().filter(|d| d.0 != Delivery::Restored).count();
        prop_assert_eq!(left, came);
    }
}
