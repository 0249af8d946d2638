//! Counters that no world can move, each with the reason. Pairs of the state tables that cannot occur are
//! marked in the tables themselves.

/// Names as the coverage table has them, and why they cannot occur.
const LIST: &[(&str, &str)] = &[
    ("crf transmits_dropped", POLLED),
    ("csf transmit_dropped", POLLED),
    ("csf events_dropped", POLLED),
    (
        "crf no_buffer",
        "a restored packet is a value here, no buffer is needed for it",
    ),
    ("crf unexpected_messages", SORTED),
    (
        "crf repairs_invalid",
        "the codec refuses what contradicts itself before the function sees it: a test of the function \
         tries anything that the codec lets through",
    ),
    (
        "unprotected monitor",
        "a gateway that only watches has neither protocol function, and nothing to judge",
    ),
    ("csf mtu_probes", UNPROBED),
    ("csf mtu_refuted", UNPROBED),
    ("unprotected path_mtu", UNPROBED),
    (
        "csf read_length_invalid",
        "requesters ask for what RDMA allows",
    ),
];

const SORTED: &str = "a data plane hands each message to the function that it is for; a test of the gateway tries all";
const UNPROBED: &str = "worlds have no path that carries less than it is configured for, and their gateways do not look for it";
const POLLED: &str = "a data plane polls after each call";

/// Why this cannot occur, if it cannot.
pub(super) fn reason(name: &str) -> Option<&'static str> {
    let entry = LIST.iter().find(|(listed, _)| *listed == name)?;
    Some(entry.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_counters_are_excused() {
        assert!(reason("csf events_dropped").is_some());
        assert!(reason("csf flows_idle").is_none());
    }
}
