//! TLS 1.3 with mutual authentication (section 10 of the sequence draft, RFC 7011 section 11): what a
//! process shows, whom it trusts, and which of those are authorised. Revocation lists are not read.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    ServerConfig, SignatureScheme,
};

/// Where certificates and keys are, all PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// Our certificate, followed by intermediate ones.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities that peers' certificates have to come from.
    pub authorities: PathBuf,
}

/// Peers that are explicitly authorised. A trusted certificate alone is not enough.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Authorised {
    /// DNS names of which the certificate has to have one (subject alternative name).
    pub names: Vec<String>,
    /// SHA-256 fingerprints of certificates, of which it has to be one; empty for any.
    pub fingerprints: Vec<[u8; 32]>,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is not PEM.
    #[error("{0}: {1}")]
    File(PathBuf, pem::Error),
    /// A file without what it is for.
    #[error("{0}: no certificate in it")]
    Empty(PathBuf),
    /// Certificate, key or authorities cannot be used.
    #[error("TLS: {0}")]
    Tls(#[from] Error),
    /// Authorities that cannot be used.
    #[error("TLS: {0}")]
    Authorities(#[from] rustls::server::VerifierBuilderError),
    /// A name that is no DNS name.
    #[error("{0:?}: not a DNS name")]
    Name(String),
    /// Nobody is authorised.
    #[error("no peer is authorised: a DNS name or a fingerprint is needed")]
    Nobody,
}

struct Loaded {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

/// When files were written, and how long they are; `None` for one that is not there.
pub(crate) type Stamp = [Option<(SystemTime, u64)>; 3];

impl TlsFiles {
    /// What changes when a file does.
    pub(crate) fn stamp(&self) -> Stamp {
        [&self.certificate, &self.key, &self.authorities].map(|path| {
            let data = std::fs::metadata(path).ok()?;
            Some((data.modified().ok()?, data.len()))
        })
    }

    fn load(&self) -> Result<Loaded, TlsError> {
        let mut roots = RootCertStore::empty();
        for authority in certificates(&self.authorities)? {
            roots.add(authority)?;
        }
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| TlsError::File(self.key.clone(), error))?;
        Ok(Loaded {
            chain: certificates(&self.certificate)?,
            key,
            roots: Arc::new(roots),
            provider: Arc::new(rustls::crypto::ring::default_provider()),
        })
    }

    /// For exporters: they are TLS clients. Read anew, it holds for the next connection.
    ///
    /// # Errors
    /// See [`TlsError`]; a collector has to be authorised by name.
    pub fn exporter(&self, collectors: &Authorised) -> Result<Arc<ClientConfig>, TlsError> {
        if collectors.names.is_empty() {
            return Err(TlsError::Nobody);
        }
        let loaded = self.load()?;
        let inner =
            WebPkiServerVerifier::builder_with_provider(loaded.roots, Arc::clone(&loaded.provider));
        let check = ServerCheck {
            inner: inner.build()?,
            names: names(&collectors.names)?,
            fingerprints: collectors.fingerprints.clone(),
        };
        let mut config = ClientConfig::builder_with_provider(loaded.provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(check))
            .with_client_auth_cert(loaded.chain, loaded.key)?;
        // Every session shows its certificate anew, and no data goes before it is accepted.
        config.resumption = rustls::client::Resumption::disabled();
        config.enable_early_data = false;
        Ok(Arc::new(config))
    }

    /// For collectors: they are TLS servers and demand a certificate.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub fn collector(&self, exporters: &Authorised) -> Result<Arc<ServerConfig>, TlsError> {
        if exporters.names.is_empty() && exporters.fingerprints.is_empty() {
            return Err(TlsError::Nobody);
        }
        let loaded = self.load()?;
        let inner =
            WebPkiClientVerifier::builder_with_provider(loaded.roots, Arc::clone(&loaded.provider));
        let check = ClientCheck {
            inner: inner.build()?,
            names: names(&exporters.names)?,
            fingerprints: exporters.fingerprints.clone(),
        };
        let config = ServerConfig::builder_with_provider(loaded.provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(Arc::new(check))
            .with_single_cert(loaded.chain, loaded.key)?;
        Ok(Arc::new(config))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |error| TlsError::File(path.to_path_buf(), error);
    let certificates = CertificateDer::pem_file_iter(path)
        .map_err(failed)?
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    if certificates.is_empty() {
        return Err(TlsError::Empty(path.to_path_buf()));
    }
    Ok(certificates)
}

/// DNS names as rustls has them.
///
/// # Errors
/// The first text that is none.
pub(crate) fn names(texts: &[String]) -> Result<Vec<ServerName<'static>>, TlsError> {
    texts
        .iter()
        .map(|text| ServerName::try_from(text.clone()).map_err(|_| TlsError::Name(text.clone())))
        .collect()
}

/// SHA-256 of a certificate in DER.
pub fn fingerprint(certificate: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    if let Some(suite) = TLS13_AES_128_GCM_SHA256.tls13() {
        let hash = suite.common.hash_provider.hash(certificate);
        out.copy_from_slice(hash.as_ref());
    }
    out
}

/// An authorised peer has one of the fingerprints, if there are any.
fn check_fingerprint(certificate: &CertificateDer<'_>, known: &[[u8; 32]]) -> Result<(), Error> {
    if known.is_empty() || known.contains(&fingerprint(certificate)) {
        return Ok(());
    }
    Err(not_authorised())
}

fn not_authorised() -> Error {
    Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)
}

/// A collector's certificate: trusted, of an authorised name, and of a fingerprint if any are given.
#[derive(Debug)]
struct ServerCheck {
    inner: Arc<WebPkiServerVerifier>,
    names: Vec<ServerName<'static>>,
    fingerprints: Vec<[u8; 32]>,
}

impl ServerCertVerifier for ServerCheck {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let mut result = Err(not_authorised());
        for name in &self.names {
            result = self
                .inner
                .verify_server_cert(end_entity, intermediates, name, ocsp, now);
            if result.is_ok() {
                break;
            }
        }
        let verified = result?;
        check_fingerprint(end_entity, &self.fingerprints)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// An exporter's certificate: trusted, of an authorised name if any are given, and of a fingerprint if
/// any are given.
#[derive(Debug)]
struct ClientCheck {
    inner: Arc<dyn ClientCertVerifier>,
    names: Vec<ServerName<'static>>,
    fingerprints: Vec<[u8; 32]>,
}

impl ClientCertVerifier for ClientCheck {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self
            .inner
            .verify_client_cert(end_entity, intermediates, now)?;
        if !self.names.is_empty() {
            let certificate = webpki::EndEntityCert::try_from(end_entity)
                .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
            let named = |name| certificate.verify_is_valid_for_subject_name(name).is_ok();
            if !self.names.iter().any(named) {
                return Err(not_authorised());
            }
        }
        check_fingerprint(end_entity, &self.fingerprints)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
