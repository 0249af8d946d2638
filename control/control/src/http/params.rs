//! Parameters of paths and queries, with problems instead of the framework's own refusals.

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use utoipa::IntoParams;

use crate::problem::Kind;

use super::failure::Failure;

/// The query.
pub(crate) struct Params<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let found = Query::<T>::from_request_parts(parts, state).await;
        let found = found.map_err(|e| Failure::new(Kind::BadRequest, e.body_text()))?;
        Ok(Self(found.0))
    }
}

/// What is in the path.
pub(crate) struct Named<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Named<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let found = Path::<T>::from_request_parts(parts, state).await;
        let found = found.map_err(|e| Failure::new(Kind::NotFound, e.body_text()))?;
        Ok(Self(found.0))
    }
}

/// Longest wait for an end, milliseconds.
const MAX_WAIT_MS: u64 = 25_000;

/// How long to wait for the end of what is asked about.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wait {
    /// Time to wait for the end, such as `20s`; 25s at most are waited.
    #[param(pattern = "^[0-9]{1,6}(ms|s|m|h)$")]
    wait: Option<String>,
}

impl Wait {
    /// The time, none if left out.
    pub(crate) fn time(&self) -> Result<Duration, Failure> {
        let wait = self.wait.as_deref().map(|w| milliseconds("wait", w));
        let ms = wait.transpose()?.unwrap_or(0).min(MAX_WAIT_MS);
        Ok(Duration::from_millis(ms))
    }
}

/// Largest number that every client of JSON can tell from its neighbours: 2^53 - 1.
pub(crate) const MAX_NUMBER: u64 = (1 << 53) - 1;

/// A number in the query that is at most [`MAX_NUMBER`].
pub(crate) fn number(name: &str, value: Option<u64>) -> Result<Option<u64>, Failure> {
    match value {
        Some(n) if n > MAX_NUMBER => {
            let detail = format!("{name}: found {n}, expected a number up to {MAX_NUMBER}.");
            Err(Failure::new(Kind::BadRequest, detail))
        }
        value => Ok(value),
    }
}

/// Milliseconds of a text such as `120s`, `500ms`, `2m` or `1h`.
pub(crate) fn milliseconds(name: &str, text: &str) -> Result<u64, Failure> {
    let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];
    units
        .iter()
        .find_map(|(unit, factor)| {
            let digits = text.strip_suffix(unit)?;
            let digits = Some(digits).filter(|d| d.bytes().all(|b| b.is_ascii_digit()))?;
            digits.parse::<u64>().ok()?.checked_mul(*factor)
        })
        .ok_or_else(|| {
            let detail =
                format!("{name}: found {text:?}, expected a time such as 120s, 500ms or 2m.");
            Failure::new(Kind::BadRequest, detail)
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, ms) in [
            ("120s", 120_000),
            ("500ms", 500),
            ("2m", 120_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(milliseconds("wait", text).unwrap(), ms, "{text}");
        }
        for text in [
            "",
            "s",
            "12",
            "+1s",
            "-1s",
            "1.5s",
            "99999999999999999999s",
            "1 s",
        ] {
            assert!(milliseconds("wait", text).is_err(), "{text}");
        }
    }
}
