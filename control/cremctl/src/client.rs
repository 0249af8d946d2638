//! Requests to the gateway over its local socket or TLS. Each has a connection of its own: what confirms
//! a change has to come over a new one.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crem_api::rest::Problem;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::Failure;
use crate::args::Reach;
use crate::pinned::Pinned;

/// Longest wait for an answer, or for a connection.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request.
#[derive(Debug, Default)]
pub(crate) struct Ask<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Option<(&'static str, String)>,
}

impl Ask<'_> {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self {
            method: "GET",
            path: path.into(),
            ..Self::default()
        }
    }
}

/// An answer that is no problem.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) etag: Option<String>,
    pub(crate) value: Value,
}

/// Asks.
///
/// # Errors
/// A problem document of the gateway, or why it could not be asked.
pub(crate) async fn ask(reach: &Reach, ask: Ask<'_>) -> Result<Answer, Failure> {
    let asked = async {
        let response = open(reach, ask).await?;
        let etag = response.headers().get("etag");
        let etag = etag.and_then(|v| v.to_str().ok()).map(str::to_owned);
        let status = response.status();
        let octets = response
            .into_body()
            .collect()
            .await
            .map_err(local)?
            .to_bytes();
        if !status.is_success() {
            return Err(problem(status, &octets));
        }
        let value = if octets.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&octets).map_err(local)?
        };
        Ok(Answer { etag, value })
    };
    let late = || Failure::Local("the gateway did not answer in time".to_owned());
    tokio::time::timeout(PATIENCE, asked)
        .await
        .unwrap_or_else(|_| Err(late()))
}

/// Copies what is at a path into a file that must not exist, or to the standard output; gives its length.
///
/// # Errors
/// A problem document of the gateway, or why it could not be asked or the file not be written.
pub(crate) async fn fetch(reach: &Reach, path: String, file: &Path) -> Result<u64, Failure> {
    let response = open(reach, Ask::get(path)).await?;
    let status = response.status();
    let mut body = response.into_body();
    if !status.is_success() {
        let octets = body.collect().await.map_err(local)?.to_bytes();
        return Err(problem(status, &octets));
    }
    let named = |e: io::Error| local(format!("{}: {e}", file.display()));
    let mut to: Box<dyn io::Write> = if file == Path::new("-") {
        Box::new(io::stdout())
    } else {
        Box::new(std::fs::File::create_new(file).map_err(named)?)
    };
    let mut length = 0;
    loop {
        let frame = tokio::time::timeout(PATIENCE, body.frame());
        let Some(frame) = frame.await.map_err(local)? else {
            break;
        };
        if let Ok(data) = frame.map_err(local)?.into_data() {
            to.write_all(&data).map_err(named)?;
            length += data.len() as u64;
        }
    }
    to.flush().map_err(named)?;
    Ok(length)
}

fn local(error: impl std::fmt::Display) -> Failure {
    Failure::Local(error.to_string())
}

fn problem(status: StatusCode, octets: &[u8]) -> Failure {
    match serde_json::from_slice::<Problem>(octets) {
        Ok(problem) => Failure::Problem(Box::new(problem)),
        Err(_) => Failure::Local(format!("the gateway answered {status}")),
    }
}

/// Sends a request and gives the answer as soon as its header is there.
///
/// # Errors
/// Why the gateway could not be asked.
pub(crate) async fn open(reach: &Reach, ask: Ask<'_>) -> Result<Response<Incoming>, Failure> {
    let mut request = Request::builder().method(ask.method).uri(&ask.path);
    request = request.header("host", reach.host.as_deref().unwrap_or("localhost"));
    for (name, value) in &ask.headers {
        request = request.header(*name, value);
    }
    if let Some(path) = &reach.token_file {
        let token = read_file(path)?;
        request = request.header("authorization", format!("Bearer {}", token.trim()));
    }
    let body = ask.body.map(|(media_type, text)| {
        request = std::mem::take(&mut request).header("content-type", media_type);
        text
    });
    let request = request
        .body(Full::new(Bytes::from(body.unwrap_or_default())))
        .map_err(local)?;
    let mut sender = connect(reach).await?;
    sender.send_request(request).await.map_err(local)
}

fn read_file(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|e| local(format!("{}: {e}", path.display())))
}

async fn connect(reach: &Reach) -> Result<SendRequest<Full<Bytes>>, Failure> {
    let Some(host) = &reach.host else {
        let stream = UnixStream::connect(&reach.socket).await;
        let named = |e: io::Error| local(format!("{}: {e}", reach.socket.display()));
        return converse(stream.map_err(named)?).await;
    };
    let named = |e: io::Error| local(format!("{host}: {e}"));
    let connecting = tokio::time::timeout(PATIENCE, TcpStream::connect(host));
    let stream = connecting.await.map_err(local)?.map_err(named)?;
    let name = host
        .rsplit_once(':')
        .map_or(host.as_str(), |(name, _)| name);
    let name = name
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();
    let name = ServerName::try_from(name).map_err(local)?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(tls(reach)?));
    converse(connector.connect(name, stream).await.map_err(named)?).await
}

async fn converse<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(local)?;
    tokio::spawn(connection);
    Ok(sender)
}

fn tls(reach: &Reach) -> Result<ClientConfig, Failure> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(local)?;
    let builder = if let Some(text) = &reach.fingerprint {
        let pinned = Pinned::new(text, provider);
        let pinned =
            pinned.ok_or_else(|| local("--fingerprint: expected 64 hexadecimal digits"))?;
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(pinned))
    } else {
        let missing =
            || local("--host needs --ca, the authorities of its certificate, or --fingerprint");
        let ca = reach.ca.as_ref().ok_or_else(missing)?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(ca).map_err(local)? {
            roots.add(certificate.map_err(local)?).map_err(local)?;
        }
        builder.with_root_certificates(roots)
    };
    match (&reach.certificate, &reach.key) {
        (Some(certificate), Some(key)) => {
            let chain = CertificateDer::pem_file_iter(certificate)
                .and_then(Iterator::collect)
                .map_err(local)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(local)?;
            builder.with_client_auth_cert(chain, key).map_err(local)
        }
        _ => Ok(builder.with_no_client_auth()),
    }
}
