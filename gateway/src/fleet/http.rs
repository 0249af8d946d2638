//! Connections on which something is asked by HTTP: to a local socket, or to a port, with TLS or without. What is
//! asked is in `control` and `etcd`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crem_fleet::settings::{Endpoint, Etcd};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

/// Longest time for a connection, TLS included.
const CONNECT: Duration = Duration::from_secs(3);
/// Longest answer, octets.
const MAX_ANSWER: usize = 64 << 20;

/// Where requests go.
pub(super) type Sender = SendRequest<Full<Bytes>>;

pub(super) fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// To a local socket.
pub(super) async fn local(path: &Path) -> Result<Sender, String> {
    let connected = UnixStream::connect(path).await;
    converse(connected.map_err(|e| format!("{}: {e}", path.display()))?).await
}

/// To etcd. Certificates are read anew each time: they are renewed without us being told.
pub(super) async fn remote(endpoint: &Endpoint, settings: &Etcd) -> Result<Sender, String> {
    let named = |e: &dyn std::fmt::Display| format!("{}:{}: {e}", endpoint.host, endpoint.port);
    let connecting = async {
        let address = (endpoint.host.as_str(), endpoint.port);
        let stream = TcpStream::connect(address).await.map_err(|e| named(&e))?;
        stream.set_nodelay(true).map_err(|e| named(&e))?;
        if !endpoint.tls {
            return converse(stream).await;
        }
        let name = ServerName::try_from(endpoint.host.clone()).map_err(|e| named(&e))?;
        let connector = TlsConnector::from(Arc::new(tls(settings)?));
        let stream = connector.connect(name, stream).await;
        converse(stream.map_err(|e| named(&e))?).await
    };
    let connected = tokio::time::timeout(CONNECT, connecting).await;
    connected.unwrap_or_else(|_| Err(named(&"no connection in time")))
}

async fn converse<S>(stream: S) -> Result<Sender, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(words)?;
    tokio::spawn(connection);
    Ok(sender)
}

fn tls(settings: &Etcd) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = &settings.authorities {
        let named = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        for certificate in CertificateDer::pem_file_iter(path).map_err(|e| named(&e))? {
            let certificate = certificate.map_err(|e| named(&e))?;
            roots.add(certificate).map_err(|e| named(&e))?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(words)?
        .with_root_certificates(roots);
    let Some((certificate, key)) = &settings.certificate else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|e| format!("{}: {e}", certificate.display()))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|e| format!("{}: {e}", key.display()))?;
    builder.with_client_auth_cert(chain, key).map_err(words)
}

/// Sends a request.
pub(super) async fn send(
    sender: &mut Sender,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: String,
) -> Result<Response<Incoming>, String> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in [("host", "localhost")].iter().chain(headers) {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from(body))).map_err(words)?;
    sender.ready().await.map_err(words)?;
    sender.send_request(request).await.map_err(words)
}

/// The whole body of an answer.
pub(super) async fn whole(response: Response<Incoming>) -> Result<Bytes, String> {
    let body = Limited::new(response.into_body(), MAX_ANSWER);
    Ok(body.collect().await.map_err(words)?.to_bytes())
}
