//! Bodies of requests: a limit, a media type, JSON.

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use crem_api::rest::{JSON_PATCH, MERGE_PATCH};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::pin::pin;
use std::task::Poll;

use crate::plan::Edit;
use crate::problem::Kind;

use super::MAX_BODY;
use super::failure::Failure;

/// What is read and thrown away of a body that is too long, so that its sender gets to hear of it.
const DRAIN: usize = 32 << 20;

/// The whole body.
pub(crate) async fn read(request: Request) -> Result<(HeaderMap, Bytes), Failure> {
    let (parts, body) = request.into_parts();
    let octets = collect(body).await?;
    Ok((parts.headers, octets))
}

async fn collect(body: Body) -> Result<Bytes, Failure> {
    let mut body = pin!(body);
    let (mut octets, mut length) = (Vec::new(), 0);
    loop {
        let frame = std::future::poll_fn(|context| match body.as_mut().poll_frame(context) {
            Poll::Ready(frame) => Poll::Ready(frame),
            Poll::Pending => Poll::Pending,
        });
        let Some(frame) = frame.await else { break };
        let frame = frame.map_err(|e| Failure::new(Kind::BadRequest, e.to_string()))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        length += data.len();
        if length > DRAIN {
            break;
        }
        if length <= MAX_BODY {
            octets.extend_from_slice(&data);
        }
    }
    if length > MAX_BODY {
        let detail = format!("A body has at most {MAX_BODY} octets.");
        return Err(Failure::new(Kind::TooLarge, detail));
    }
    Ok(octets.into())
}

/// A JSON document of a known shape.
pub(crate) async fn json<T: DeserializeOwned>(request: Request) -> Result<T, Failure> {
    let (headers, octets) = read(request).await?;
    match media_type(&headers).as_str() {
        "application/json" => serde_json::from_slice(&octets)
            .map_err(|e| Failure::new(Kind::BadRequest, format!("body: {e}"))),
        other => Err(unsupported(other, "application/json")),
    }
}

/// A change of the document; `whole` if `application/json` means a whole document and not a merge patch.
pub(crate) fn edit(headers: &HeaderMap, octets: &[u8], whole: bool) -> Result<Edit, Failure> {
    let media_type = media_type(headers);
    let make: fn(Value) -> Edit = match media_type.as_str() {
        "application/json" if whole => Edit::Replace,
        "application/json" | MERGE_PATCH => Edit::Merge,
        JSON_PATCH => Edit::Operations,
        other => {
            let known = format!("application/json, {MERGE_PATCH} or {JSON_PATCH}");
            return Err(unsupported(other, &known));
        }
    };
    serde_json::from_slice(octets)
        .map(make)
        .map_err(|e| Failure::new(Kind::BadRequest, format!("body: {e}")))
}

fn media_type(headers: &HeaderMap) -> String {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.split(';').next())
        .map(|text| text.trim().to_ascii_lowercase())
        .unwrap_or_default()
}

fn unsupported(found: &str, known: &str) -> Failure {
    let detail = format!("Found {found:?}, expected {known}.");
    Failure::new(Kind::UnsupportedMediaType, detail)
}
