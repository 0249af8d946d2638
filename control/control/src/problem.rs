//! Every kind of problem that the API answers with, in one table, and constructors for them.

use crem_api::rest::{Cause, FieldError, Problem};
use crem_api::{Change, Invalid};

/// Prefix of the types of problems.
pub const PREFIX: &str = "urn:crem:problem:";

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $status:literal, $name:literal, $title:literal;)*) => {
        /// A kind of problem.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Kind] = &[$(Kind::$kind,)*];

            /// HTTP status, name and title.
            pub fn parts(self) -> (u16, &'static str, &'static str) {
                match self {
                    $(Kind::$kind => ($status, $name, $title),)*
                }
            }
        }
    };
}

kinds! {
    /// The request cannot be read: a parameter, a header, or a body that is no JSON.
    BadRequest = 400, "bad-request", "The request cannot be read";
    /// Nobody that we know asks.
    Unauthenticated = 401, "unauthenticated", "Who are you?";
    /// The role does not suffice.
    Forbidden = 403, "forbidden", "Not allowed";
    /// There is no such thing.
    NotFound = 404, "not-found", "There is no such thing";
    /// Not with this method.
    MethodNotAllowed = 405, "method-not-allowed", "Not with this method";
    /// Another commit waits.
    CommitPending = 409, "commit-pending", "A commit waits to be confirmed";
    /// The named commit is not the one that waits.
    NoSuchCommit = 409, "no-such-commit", "This commit does not wait to be confirmed";
    /// The connection is older than the change.
    OldConnection = 409, "old-connection", "Confirm over a new connection";
    /// The change disturbs more than was allowed.
    ImpactNotAllowed = 409, "impact-not-allowed", "The change disturbs more than was allowed";
    /// The change could lock its maker out.
    ConfirmRequired = 409, "confirm-required", "The change needs a time for confirming";
    /// The change takes a new start of the data plane, which would roll it back.
    RestartNotConfirmable = 409, "restart-not-confirmable", "A new start of the data plane cannot be tried";
    /// A capture runs, or this one still does.
    CaptureRunning = 409, "capture-running", "A capture runs";
    /// There is no room for another file.
    NoRoom = 409, "no-room", "There is no room for it";
    /// It is not made yet, or could not be made.
    NotReady = 409, "not-ready", "It is not there yet";
    /// The document that runs is another one than was expected.
    RevisionConflict = 412, "revision-conflict", "Another document runs";
    /// Too much body.
    TooLarge = 413, "too-large", "The body is too large";
    /// Not a media type that is read here.
    UnsupportedMediaType = 415, "unsupported-media-type", "This media type is not read here";
    /// The document has problems.
    Validation = 422, "validation", "The document has problems";
    /// The same key came with another request.
    IdempotencyKeyReused = 422, "idempotency-key-reused", "The key belongs to another request";
    /// If-Match is needed.
    PreconditionRequired = 428, "precondition-required", "If-Match is needed";
    /// Too many failed attempts.
    TooManyAttempts = 429, "too-many-attempts", "Too many failed attempts";
    /// The header fields are too long.
    HeadersTooLarge = 431, "headers-too-large", "The header is too long";
    /// Our fault.
    Internal = 500, "internal", "Something here failed";
    /// The data plane did not do it.
    ApplyFailed = 502, "apply-failed", "The data plane did not take the document";
    /// The data plane does not answer.
    DataplaneAbsent = 503, "dataplane-absent", "The data plane does not answer";
    /// The request took too long.
    Timeout = 504, "timeout", "It took too long";
    /// What was in force is no more. The status is that of the operation's own answer.
    RolledBack = 200, "rolled-back", "The change was rolled back";
}

/// A problem of a kind.
pub fn problem(kind: Kind, detail: impl Into<String>) -> Box<Problem> {
    let (status, name, title) = kind.parts();
    Box::new(Problem {
        kind: format!("{PREFIX}{name}"),
        title: title.to_owned(),
        status,
        detail: detail.into(),
        ..Problem::default()
    })
}

/// A document with problems; nothing was changed.
pub fn invalid(invalid: Invalid) -> Box<Problem> {
    let count = match invalid.issues.len() {
        1 => "1 problem".to_owned(),
        n => format!("{n} problems"),
    };
    Box::new(Problem {
        errors: invalid.issues.into_iter().map(FieldError::from).collect(),
        ..*problem(Kind::Validation, format!("{count}; nothing was changed."))
    })
}

/// Places that disturb too much.
pub fn impact(fields: Vec<Change>, detail: impl Into<String>) -> Box<Problem> {
    Box::new(Problem {
        fields,
        ..*problem(Kind::ImpactNotAllowed, detail)
    })
}

/// A commit that was rolled back.
pub fn rolled_back(cause: Cause, operation: &str) -> Box<Problem> {
    let detail = match cause {
        Cause::Timeout => "Nobody confirmed in time.",
        Cause::Cancelled => "It was cancelled.",
        Cause::ApplyFailed => "It could not be brought into force.",
        Cause::Restart => {
            "The control process or the machine started anew before it was confirmed."
        }
        Cause::DataplaneRestart => "The data plane started anew before it was confirmed.",
    };
    Box::new(Problem {
        operation: Some(operation.to_owned()),
        cause: Some(cause),
        ..*problem(Kind::RolledBack, detail)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn kinds_have_distinct_names() {
        let mut names: Vec<_> = Kind::ALL.iter().map(|k| k.parts().1).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Kind::ALL.len());
    }
}
