//! Problems as answers.

use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use crem_api::rest::{PROBLEM_JSON, Problem};

use crate::problem::{Kind, problem};

/// An answer that is a problem document.
#[derive(Clone, Debug)]
pub(crate) struct Failure(pub(crate) Box<Problem>);

impl Failure {
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self(problem(kind, detail))
    }
}

impl From<Box<Problem>> for Failure {
    fn from(problem: Box<Problem>) -> Self {
        Self(problem)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let text = serde_json::to_string(&self.0).unwrap_or_default();
        let mut response = (status, [("content-type", PROBLEM_JSON)], text).into_response();
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert("www-authenticate", scheme);
        }
        if status == StatusCode::TOO_MANY_REQUESTS {
            let seconds = HeaderValue::from_static("60");
            response.headers_mut().insert("retry-after", seconds);
        }
        response
    }
}

/// What any path may answer besides what it says itself.
#[derive(utoipa::IntoResponses)]
#[allow(dead_code, reason = "only described")]
pub(crate) enum Failures {
    /// The request is at fault.
    #[response(status = "4XX", content_type = "application/problem+json")]
    Client(Problem),
    /// The gateway is at fault.
    #[response(status = "5XX", content_type = "application/problem+json")]
    Server(Problem),
}
