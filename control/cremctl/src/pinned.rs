//! A certificate known by its fingerprint, as a box shows it on its console before it has one of an authority.

use std::sync::Arc;

use ring::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

/// Accepts the one certificate with this SHA-256, whatever its names and dates.
#[derive(Debug)]
pub(crate) struct Pinned {
    fingerprint: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    /// From 64 hexadecimal digits, with or without colons.
    pub(crate) fn new(text: &str, provider: Arc<CryptoProvider>) -> Option<Self> {
        let digits: Vec<u32> = text
            .chars()
            .filter(|c| *c != ':')
            .map(|c| c.to_digit(16))
            .collect::<Option<_>>()?;
        let octets = digits.chunks(2).map(|pair| match pair {
            [high, low] => u8::try_from(high << 4 | low).ok(),
            _ => None,
        });
        let octets: Vec<u8> = octets.collect::<Option<_>>()?;
        Some(Self {
            fingerprint: octets.try_into().ok()?,
            provider,
        })
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if digest(&SHA256, certificate).as_ref() == self.fingerprint {
            Ok(ServerCertVerified::assertion())
        } else {
            let other = CertificateError::ApplicationVerificationFailure;
            Err(Error::InvalidCertificate(other))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_read_as_tools_write_them() {
        let provider = || Arc::new(rustls::crypto::ring::default_provider());
        let plain = "00ff".repeat(16);
        let colons = vec!["00:FF"; 16].join(":");
        for text in [plain.as_str(), colons.as_str()] {
            let read = Pinned::new(text, provider()).map(|p| p.fingerprint);
            let expected: Vec<u8> = [0, 255].repeat(16);
            assert_eq!(
                read.as_ref().map(<[u8; 32]>::as_slice),
                Some(expected.as_slice())
            );
        }
        for text in ["", "00", &"0".repeat(63), &"g".repeat(64), &"0".repeat(66)] {
            assert!(Pinned::new(text, provider()).is_none(), "{text}");
        }
    }
}
