//! What the agent knows over a restart of its own: the document that it applied last, the one that it will not try
//! again, and the change that it may have begun. It is kept in a file of the gateway, since etcd may be away then.

use crem_api::rest::Problem;
use serde::{Deserialize, Serialize};

use crate::health::Health;
use crate::status::Phase;

/// What is kept. A file that is not there is an empty memory.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Memory {
    /// Version that was applied and confirmed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<String>,
    /// A version that is not tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up: Option<GivenUp>,
    /// A change that was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
    /// Tries of a version that ended without a verdict on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tried: Option<Tried>,
}

/// A version that is not tried again.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GivenUp {
    /// The version.
    pub version: String,
    /// [`Phase::Refused`] or [`Phase::Failed`].
    pub phase: Phase,
    /// Why.
    pub problem: Box<Problem>,
}

/// A change, kept before it is asked for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Attempt {
    /// The version.
    pub version: String,
    /// Idempotency key of the request; also the comment of its revision, by which it is known again.
    pub key: String,
    /// The box before the change, which the one after it is compared with.
    pub before: Health,
}

/// Tries of a version.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tried {
    /// The version.
    pub version: String,
    /// How many.
    pub times: u32,
}

impl Memory {
    /// Counts a try that ended without a verdict; tells how many there were.
    pub(crate) fn count_try(&mut self, version: &str) -> u32 {
        let before = self.tried.take().filter(|t| t.version == version);
        let times = before.map_or(0, |t| t.times).saturating_add(1);
        self.tried = Some(Tried {
            version: version.to_owned(),
            times,
        });
        times
    }

    /// Notes that a version is in force and confirmed.
    pub(crate) fn note_applied(&mut self, version: &str) {
        *self = Self {
            applied: Some(version.to_owned()),
            ..Self::default()
        };
    }

    /// Notes that a version is not tried again.
    pub(crate) fn give_up(&mut self, version: &str, phase: Phase, problem: Box<Problem>) {
        self.attempt = None;
        self.tried = None;
        self.given_up = Some(GivenUp {
            version: version.to_owned(),
            phase,
            problem,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_are_counted_for_one_version() {
        let mut memory = Memory::default();
        assert_eq!((memory.count_try("1-a"), memory.count_try("1-a")), (1, 2));
        assert_eq!(memory.count_try("2-b"), 1);
        memory.note_applied("2-b");
        assert_eq!(memory.tried, None);
    }
}
