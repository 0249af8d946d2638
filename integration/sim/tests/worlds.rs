//! Worlds repeat exactly, and with octets the same things happen as without.

use crem_sim::frame::Mode;
use crem_sim::runner::run_seed;

#[test]
fn a_seed_repeats_exactly_with_and_without_octets() {
    for seed in [3, 10, 33, 40] {
        let once = run_seed(seed, Mode::Rank, false);
        assert_eq!(once.violations, Vec::<String>::new(), "seed {seed}");
        assert!(once.packets > 1_000);
        assert_eq!(
            run_seed(seed, Mode::Rank, false).digest,
            once.digest,
            "seed {seed}"
        );
        let octets = run_seed(seed, Mode::Octets, false);
        assert_eq!(octets.digest, once.digest, "seed {seed}");
        assert_eq!(octets.violations, Vec::<String>::new(), "seed {seed}");
    }
}
