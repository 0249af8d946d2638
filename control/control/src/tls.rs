//! TLS of the API: which versions and certificates, and the names in a client's certificate.

use std::io;
use std::sync::Arc;

use crem_api::Management;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

/// The server's side as the document says: TLS 1.3 and 1.2, a certificate of the client if it has one.
///
/// # Errors
/// A file that cannot be read or used, with its name.
pub fn server_config(management: &Management) -> io::Result<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let named = |path: &str, e: &dyn std::fmt::Display| io::Error::other(format!("{path}: {e}"));
    let tls = management
        .tls
        .as_ref()
        .ok_or_else(|| io::Error::other("no certificate is configured"))?;
    let chain = CertificateDer::pem_file_iter(&tls.certificate)
        .and_then(Iterator::collect)
        .map_err(|e| named(&tls.certificate, &e))?;
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|e| named(&tls.key, &e))?;
    let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)
        .map_err(io::Error::other)?;
    let builder = match &tls.client_authorities {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            let certificates = CertificateDer::pem_file_iter(path).map_err(|e| named(path, &e))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|e| named(path, &e))?;
                roots.add(certificate).map_err(|e| named(path, &e))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|e| named(path, &e))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|e| named(&tls.certificate, &e))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// DNS names in the verified certificate of a client.
pub fn peer_names(connection: &ServerConnection) -> Vec<String> {
    let certificate = connection.peer_certificates().and_then(<[_]>::first);
    let parsed = certificate.and_then(|c| webpki::EndEntityCert::try_from(c).ok());
    parsed.map_or_else(Vec::new, |c| {
        c.valid_dns_names().map(str::to_owned).collect()
    })
}
