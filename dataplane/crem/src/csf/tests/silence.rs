//! Flows that fall silent before their first configuration is in force must not stay bare afterwards.

use crem_wire::crem::{Message, ParamAck};

use super::rig::*;
use crate::csf::State;
use crate::csf::testing::key;
use crate::events::Unprotected;
use crate::time::Duration;

/// A flow whose first configuration is acknowledged with an Effective PSN that the flow, much slower
/// since, has not reached; nothing is answered any more. The next PSN comes back as well.
fn bare() -> (Rig, u32) {
    let mut rig = Rig::new(config());
    let mut psn = 0;
    rig.psns(key(1), [psn]);
    while rig.status(key(1)).state != State::Params {
        psn += 1;
        rig.psns(key(1), [psn]);
        rig.wait(MS / 100);
        assert!(psn < 10_000, "never bound");
    }
    rig.wait(2 * RTT);
    assert_eq!(rig.status(key(1)).state, State::Active);
    assert_eq!(
        rig.status(key(1)).unprotected,
        Some(Unprotected::AwaitingParameters)
    );
    rig.answer = false;
    (rig, psn + 1)
}

/// Packets 10 ms apart, in an idle pace that a report follows each time, until the flow is protected.
fn until_protected(rig: &mut Rig, mut psn: u32) {
    let start = rig.now;
    while rig.status(key(1)).unprotected.is_some() {
        rig.psns(key(1), [psn]);
        psn += 1;
        rig.wait(10 * MS);
        if rig.status(key(1)).bound.is_some() {
            rig.report(key(1), 1, 1);
        }
        let status = rig.status(key(1));
        assert!(
            rig.now.since(start) < Duration::from_secs(5),
            "stays bare: {:?} {:?}",
            status.state,
            status.unprotected
        );
    }
}

#[test]
fn a_report_after_silence_brings_the_first_configuration_back() {
    let (mut rig, mut psn) = bare();
    while !matches!(
        rig.status(key(1)).state,
        State::SilentQueued | State::SilentHello
    ) {
        rig.psns(key(1), [psn]);
        psn += 1;
        rig.wait(10 * MS);
        assert!(psn < 10_000, "never silent");
    }
    rig.answer = true;
    rig.report(key(1), 1, 1);
    assert_eq!(rig.status(key(1)).state, State::Active);
    until_protected(&mut rig, psn);
}

#[test]
fn refusing_what_replaces_the_first_configuration_ends_the_binding() {
    let (mut rig, mut psn) = bare();
    let first = rig.updates().len();
    while rig.updates().len() == first {
        rig.psns(key(1), [psn]);
        psn += 1;
        rig.wait(10 * MS);
        assert!(psn < 10_000, "never replaced");
    }
    let update = rig.updates().last().unwrap().1;
    rig.deliver(&Message::ParamAck(ParamAck {
        flow: update.flow,
        config: update.config,
        status: 3,
    }));
    assert_eq!(rig.closes().last().map(|close| close.reason), Some(3));
    assert_eq!(rig.status(key(1)).state, State::HeldOff);
    rig.answer = true;
    until_protected(&mut rig, psn);
}
