//! TLS of the API: which versions and certificates, and what becomes of a client's certificate.
//!
//! A certificate that is not accepted does not end the handshake: its owner gets to know by a problem document
//! what is wrong with it, and has no more rights than somebody without one.

use std::io;
use std::sync::Arc;

use crem_api::Management;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme,
};

/// The server's side.
#[derive(Clone, Debug)]
pub struct Tls {
    /// For connections.
    pub config: Arc<ServerConfig>,
    /// Judges certificates of clients; none where the document has no authorities.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
}

/// The certificate of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Shown {
    /// There is none.
    Nothing,
    /// One of our authorities issued it, for these DNS names.
    Accepted(Vec<String>),
    /// It proves nothing, for this reason.
    Refused(String),
}

/// The server's side as the document says: TLS 1.3 and 1.2, a certificate of the client if it has one.
///
/// # Errors
/// A file that cannot be read or used, with its name.
pub fn server(management: &Management) -> io::Result<Tls> {
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
    let verifier = match &tls.client_authorities {
        None => None,
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
            Some(verifier)
        }
    };
    let builder = match &verifier {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(Arc::new(Later(Arc::clone(verifier)))),
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|e| named(&tls.certificate, &e))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Tls {
        config: Arc::new(config),
        verifier,
    })
}

impl Tls {
    /// What the client of an established connection has shown.
    pub fn shown(&self, connection: &ServerConnection) -> Shown {
        let certificates = connection.peer_certificates().unwrap_or_default();
        let (Some(verifier), Some((first, others))) = (&self.verifier, certificates.split_first())
        else {
            return Shown::Nothing;
        };
        match verifier.verify_client_cert(first, others, UnixTime::now()) {
            Ok(_) => Shown::Accepted(names(first)),
            Err(error) => Shown::Refused(reason(&error)),
        }
    }
}

/// DNS names in a certificate.
fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let parsed = webpki::EndEntityCert::try_from(certificate).ok();
    parsed.map_or_else(Vec::new, |c| {
        c.valid_dns_names().map(str::to_owned).collect()
    })
}

fn reason(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "none of our authorities issued it".to_owned()
        }
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "it has expired".to_owned(),
        Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        ) => "it is not valid yet".to_owned(),
        other => other.to_string(),
    }
}

/// Has the client prove that it owns its certificate, and leaves the judgement of it to [`Tls::shown`].
#[derive(Debug)]
struct Later(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Later {
    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
