//! What the fuzz targets run: any octets become input of a parser or a sequence of calls of a protocol
//! function, and what must always hold is asserted. The targets themselves, for `make fuzz`, are in
//! `integration/fuzz`; here a test runs each on random octets for a while.

#![allow(
    clippy::panic,
    reason = "a rule that does not hold is what a fuzzer is looking for"
)]

pub mod collect;
pub mod document;
#[cfg(feature = "control")]
pub mod fleet;
pub mod ipfix;
#[cfg(feature = "control")]
pub mod lldp;
pub mod protocol;
mod reader;
pub mod receiver;
mod repairs;
#[cfg(feature = "control")]
pub mod rest;
mod said;
pub mod sender;
pub mod wire;
mod world;

use reader::Reader;

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    /// Octets from a seed (splitmix64).
    fn octets(seed: u64, longest: usize) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut next = move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        let length = next() as usize % longest;
        (0..length).map(|_| next() as u8).collect()
    }

    /// Tells which round failed.
    struct Round(u64);

    impl Drop for Round {
        fn drop(&mut self) {
            if std::thread::panicking() {
                println!(
                    "round {}: repeat it with CREM_FUZZ_ROUND={}",
                    self.0, self.0
                );
            }
        }
    }

    /// Runs `target` on random octets for `CREM_FUZZ_MS` milliseconds, 5,000 unless set, or on those of
    /// `CREM_FUZZ_ROUND` alone; adds up what it returns.
    fn run(longest: usize, target: impl Fn(&[u8]) -> u64) -> u64 {
        let number = |name| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
        if let Some(round) = number("CREM_FUZZ_ROUND") {
            let _round = Round(round);
            return target(&octets(round, longest));
        }
        let span = Duration::from_millis(number("CREM_FUZZ_MS").unwrap_or(5_000));
        let start = Instant::now();
        let (mut sum, mut rounds) = (0, 0);
        while start.elapsed() < span || rounds < 50 {
            let round = Round(rounds);
            sum += target(&octets(rounds, longest));
            rounds = round.0 + 1;
        }
        println!("{rounds} rounds, {sum} in all");
        sum
    }

    #[test]
    fn frames_and_packets_of_any_octets() {
        assert!(run(300, super::wire::frame) > 20);
    }

    #[test]
    fn crem_messages_of_any_octets() {
        assert!(run(300, super::wire::message) > 20);
    }

    #[test]
    fn messages_of_the_connection_manager_of_any_octets() {
        assert!(run(600, super::wire::management) > 20);
    }

    #[test]
    fn headers_rebuilt_from_any_octets() {
        assert!(run(400, super::wire::rebuild) > 0);
    }

    #[test]
    fn collector_sessions_of_damaged_messages() {
        assert!(run(400, super::collect::session) > 1000);
    }

    #[test]
    fn ipfix_of_any_octets() {
        assert!(run(600, super::ipfix::stream) > 20);
    }

    #[test]
    fn config_documents_of_any_octets() {
        assert!(run(60, super::document::text) > 20);
    }

    #[test]
    fn lines_of_the_local_protocol_of_any_octets() {
        assert!(run(60, super::protocol::line) > 20);
    }

    #[cfg(feature = "control")]
    #[test]
    fn bodies_of_requests_of_any_octets() {
        assert!(run(400, super::rest::body) > 20);
    }

    #[cfg(feature = "control")]
    #[test]
    fn lldp_frames_of_any_octets() {
        assert!(run(400, super::lldp::frame) > 20);
    }

    #[cfg(feature = "control")]
    #[test]
    fn answers_of_etcd_of_any_octets() {
        assert!(run(400, super::fleet::answers) > 20);
    }

    // shows: CREM-ARCH-01, CREM-CC-02, CREM-FEC-06, CREM-RSP-02, CREM-RSP-07, CREM-OPS-02
    // shows: AMB-RATECAP
    #[test]
    fn the_sender_function_with_any_calls() {
        assert!(run(3000, super::sender::calls) > 20, "hardly a symbol");
    }

    // shows: CREM-ARCH-02, CREM-REQ-04, CREM-FB-04, CREM-OPS-02
    #[test]
    fn the_receiver_function_with_any_calls() {
        assert!(
            run(3000, super::receiver::calls) > 20,
            "hardly a restored packet"
        );
    }
}
