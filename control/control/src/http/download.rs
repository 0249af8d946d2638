//! A file as the body of an answer: read piece by piece as the client takes it, never as a whole.

use std::fs::File;
use std::io::{self, Read};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;

/// Octets of a piece.
const PIECE: usize = 128 << 10;

/// The octets of a file, for the description of the API.
#[derive(utoipa::ToSchema)]
#[schema(value_type = String, format = Binary)]
#[allow(dead_code, reason = "only described")]
pub(crate) struct Octets(Vec<u8>);

/// An answer with a file that is offered under a name.
pub(crate) fn file(
    (file, length): (File, u64),
    media_type: &'static str,
    name: &str,
    permit: OwnedSemaphorePermit,
) -> Response {
    let body = Download {
        left: length,
        at: At::Rest(file),
        _permit: permit,
    };
    let headers = [
        ("content-type", media_type.to_owned()),
        (
            "content-disposition",
            format!("attachment; filename=\"{name}\""),
        ),
    ];
    (headers, Body::new(body)).into_response()
}

/// What is under way.
enum At {
    Rest(File),
    Reading(JoinHandle<io::Result<(File, Vec<u8>)>>),
    End,
}

struct Download {
    left: u64,
    at: At,
    _permit: OwnedSemaphorePermit,
}

impl HttpBody for Download {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        if let At::Rest(_) = self.at
            && let At::Rest(file) = std::mem::replace(&mut self.at, At::End)
        {
            let most = self.left.min(PIECE as u64);
            let read = tokio::task::spawn_blocking(move || piece(file, most));
            self.at = At::Reading(read);
        }
        let At::Reading(reading) = &mut self.at else {
            return Poll::Ready(None);
        };
        let Poll::Ready(read) = Pin::new(reading).poll(context) else {
            return Poll::Pending;
        };
        self.at = At::End;
        let read = read.map_err(io::Error::other).flatten();
        Poll::Ready(Some(read.map(|(file, octets)| {
            self.left -= octets.len() as u64;
            self.at = At::Rest(file);
            Frame::data(octets.into())
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// The next piece; a file that ends before its time is an error.
fn piece(mut file: File, most: u64) -> io::Result<(File, Vec<u8>)> {
    let mut octets = vec![0; usize::try_from(most).unwrap_or(PIECE)];
    file.read_exact(&mut octets)?;
    Ok((file, octets))
}
