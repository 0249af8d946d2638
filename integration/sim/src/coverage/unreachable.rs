//! What no world can bring about, each with the reason.

/// Inputs of the negotiation that meet only some states, and why.
const NEGOTIATION: &[(&[&str], &[&str], &str)] = &[
    (
        &["Threshold"],
        &["Observing"],
        "packets are counted toward the threshold only while a flow is observed",
    ),
    (
        &["Grant"],
        &["Queued", "SilentQueued"],
        "only a flow that waits for HELLO is granted one",
    ),
    (
        &["Ack", "AckUnusable", "NoAnswer", "Refused"],
        &["Hello", "SilentHello"],
        "an answer is found by the nonce of a HELLO that is out, and its timer ends with it",
    ),
    (
        &["NoParamAck"],
        &["Params", "Active"],
        "the timer of PARAM_UPDATE runs in these states only",
    ),
    (
        &["Accepted", "TooLarge", "Rejected"],
        &["Params", "Active", "SilentQueued", "SilentHello"],
        "a PARAM_ACK is matched by the Flow ID of a binding",
    ),
    (
        &["Silence"],
        &["Active"],
        "reports are watched only while a flow is active",
    ),
    (
        &["Report", "PeerClose"],
        &["Params", "Active", "SilentQueued", "SilentHello"],
        "the message is matched by the Flow ID of a binding",
    ),
    (
        &["SilenceOver"],
        &["SilentQueued", "SilentHello"],
        "only a silent binding is given up for silence",
    ),
];

/// Other names as the table has them, and why they cannot occur.
const LIST: &[(&str, &str)] = &[
    ("crf transmits_dropped", POLLED),
    ("csf transmit_dropped", POLLED),
    ("csf events_dropped", POLLED),
    (
        "crf no_buffer",
        "a restored packet is a value here, no buffer is needed for it",
    ),
    (
        "csf read_length_invalid",
        "requesters ask for what RDMA allows",
    ),
    ("Life Unknown HelloAgain", NOTHING),
    ("Life Unknown HelloStranger", NOTHING),
    ("Life Unknown UpdateBound", NOTHING),
    ("Life Unknown UpdateOffered", NOTHING),
    ("Life Unknown CloseBound", NOTHING),
    ("Life Unknown CloseOffered", NOTHING),
    ("Life Unknown Idle", NOTHING),
    ("Life Offered UpdateBound", "nothing is bound"),
    ("Life Offered CloseBound", "nothing is bound"),
    (
        "Life Offered HelloStranger",
        "nothing is bound, so nobody is a stranger",
    ),
    ("Life Bound UpdateOffered", "nothing is offered"),
    ("Life Bound CloseOffered", "nothing is offered"),
];

const POLLED: &str = "a data plane polls after each call";
const NOTHING: &str = "no Flow ID is assigned that a message could name";

/// Why this cannot occur, if it cannot.
pub(super) fn reason(name: &str) -> Option<&'static str> {
    if let Some(pair) = name.strip_prefix("Negotiation ") {
        let (state, input) = pair.split_once(' ')?;
        let rule = NEGOTIATION
            .iter()
            .find(|(inputs, ..)| inputs.contains(&input))?;
        return (!rule.1.contains(&state)).then_some(rule.2);
    }
    let entry = LIST.iter().find(|(listed, _)| *listed == name)?;
    Some(entry.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_pairs_are_excused() {
        assert!(reason("Negotiation Observing Grant").is_some());
        assert!(reason("Negotiation Queued Grant").is_none());
        assert!(reason("Negotiation Queued Idle").is_none());
        assert!(reason("csf events_dropped").is_some());
        assert!(reason("csf flows_idle").is_none());
    }
}
