//! The status of a gateway, which is a document of [`crem_api::fleet`]: what counts when.

use crem_api::rest::Problem;

pub use crem_api::fleet::{Agent, Counts, Local, OTHER, Phase, REASONS, Status};

/// Counts a document that is not tried again.
pub(crate) fn count_given_up(counts: &mut Counts, phase: Phase, problem: &Problem) {
    if phase == Phase::Refused {
        counts.refused += 1;
    } else {
        counts.failed += 1;
    }
    let name = problem.kind.rsplit(':').next().unwrap_or_default();
    let known = REASONS.into_iter().find(|reason| *reason == name);
    let reason = known.unwrap_or(OTHER);
    *counts.reasons.entry(reason.to_owned()).or_default() += 1;
}
