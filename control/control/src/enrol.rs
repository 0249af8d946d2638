//! The first way in over the network: while nobody else has one, a code that is told on the console, good for
//! one admin token and for half an hour. There is no password that a box would come with.
//!
//! [`Enrolment`] decides and has no clock; telling the code and the certificate's fingerprint is done by whoever
//! opens listeners.

use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crem_api::ManagementTls;

use crate::access::write_private;
use crate::digest::sha256;

/// How long a code is good, milliseconds.
pub const LIFE_MS: u64 = 30 * 60_000;
/// Wrong codes, from anywhere, after which it is good for nothing.
pub const MAX_WRONG: u32 = 5;
/// Digits of a code: 80 bits, which nobody guesses in five attempts.
const DIGITS: usize = 16;
/// Without digits that look like others.
const ALPHABET: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";

/// Why a code opens nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// There is no code: it was used, or never made.
    None,
    /// Its time is over.
    Expired,
    /// It is another one.
    Wrong,
    /// Too many were wrong.
    Spent,
}

impl Refused {
    /// The reason in a sentence.
    pub fn told(self) -> &'static str {
        match self {
            Self::None => "There is no enrolment code here.",
            Self::Expired => {
                "The enrolment code has expired; a new start of the control process makes another."
            }
            Self::Wrong => "This is not the enrolment code.",
            Self::Spent => {
                "Too many wrong enrolment codes came; a new start of the control process makes another."
            }
        }
    }
}

#[derive(Debug)]
struct Armed {
    hash: String,
    expires_ms: u64,
    wrong: u32,
}

/// The code, if there is one.
#[derive(Debug, Default)]
pub struct Enrolment(Mutex<Option<Armed>>);

impl Enrolment {
    /// Makes a code, in the place of the one before, and tells it.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn arm(&self, now_ms: u64) -> io::Result<String> {
        let mut octets = [0; DIGITS];
        SystemRandom::new()
            .fill(&mut octets)
            .map_err(|_| io::Error::other("no random numbers"))?;
        let digit = |octet: &u8| {
            let digit = ALPHABET.get(usize::from(octet % 32));
            digit.map_or('A', |d| char::from(*d))
        };
        let digits: Vec<char> = octets.iter().map(digit).collect();
        let code = digits.chunks(4).map(|part| part.iter().collect::<String>());
        let code = code.collect::<Vec<_>>().join("-");
        *self.lock() = Some(Armed {
            hash: hash(&code),
            expires_ms: now_ms.saturating_add(LIFE_MS),
            wrong: 0,
        });
        Ok(code)
    }

    /// Whether a code would still open something.
    pub fn is_armed(&self, now_ms: u64) -> bool {
        let armed = self.lock();
        armed
            .as_ref()
            .is_some_and(|a| a.expires_ms > now_ms && a.wrong < MAX_WRONG)
    }

    /// Uses the code up.
    ///
    /// # Errors
    /// [`Refused`]; a wrong one counts.
    pub fn redeem(&self, code: &str, now_ms: u64) -> Result<(), Refused> {
        let mut state = self.lock();
        let armed = state.as_mut().ok_or(Refused::None)?;
        if armed.wrong >= MAX_WRONG {
            return Err(Refused::Spent);
        }
        if armed.expires_ms <= now_ms {
            return Err(Refused::Expired);
        }
        if !crate::access::same(&armed.hash, &hash(code)) {
            armed.wrong += 1;
            return Err(Refused::Wrong);
        }
        *state = None;
        Ok(())
    }

    /// Somebody has access by another way: the code is good for nothing any more.
    pub fn disarm(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Armed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of a code however it was typed.
fn hash(code: &str) -> String {
    let digits = code.chars().filter(char::is_ascii_alphanumeric);
    let digits: String = digits.map(|c| c.to_ascii_uppercase()).collect();
    sha256(digits.as_bytes())
}

/// SHA-256 of a certificate, as `cremctl --fingerprint` and other tools take it.
///
/// # Errors
/// A file that cannot be read.
pub fn fingerprint(certificate: &str) -> io::Result<String> {
    let der = CertificateDer::from_pem_file(certificate)
        .map_err(|e| io::Error::other(format!("{certificate}: {e}")))?;
    Ok(sha256(&der))
}

/// A certificate that this box makes for itself, for as long as the document has none. It proves nothing but by
/// its fingerprint.
///
/// # Errors
/// It cannot be made or written.
pub fn own_certificate(state: &Path) -> io::Result<ManagementTls> {
    let (certificate, key) = (state.join("first.pem"), state.join("first.key"));
    if !(certificate.exists() && key.exists()) {
        let made = rcgen::generate_simple_self_signed(vec!["crem-gateway".to_owned()]);
        let made = made.map_err(io::Error::other)?;
        write_private(&key, &made.signing_key.serialize_pem())?;
        write_private(&certificate, &made.cert.pem())?;
    }
    Ok(ManagementTls {
        certificate: certificate.display().to_string(),
        key: key.display().to_string(),
        client_authorities: None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_code_opens_once_however_it_is_typed() {
        let enrolment = Enrolment::default();
        assert_eq!(enrolment.redeem("", 0), Err(Refused::None));
        let code = enrolment.arm(1000).unwrap();
        assert_eq!((code.len(), code.matches('-').count()), (19, 3));
        assert_ne!(code, enrolment.arm(1000).unwrap(), "another one each time");
        let code = enrolment.arm(1000).unwrap();
        let typed = code.to_lowercase().replace('-', " ");
        assert!(enrolment.is_armed(1000));
        assert_eq!(enrolment.redeem(&typed, 1000), Ok(()));
        assert_eq!(enrolment.redeem(&code, 1000), Err(Refused::None));
        assert!(!enrolment.is_armed(1000));
    }

    #[test]
    fn a_code_ends_with_its_time() {
        let enrolment = Enrolment::default();
        let code = enrolment.arm(1000).unwrap();
        assert!(enrolment.is_armed(1000 + LIFE_MS - 1));
        assert!(!enrolment.is_armed(1000 + LIFE_MS));
        assert_eq!(
            enrolment.redeem(&code, 1000 + LIFE_MS),
            Err(Refused::Expired)
        );
    }

    #[test]
    fn wrong_codes_use_it_up() {
        let enrolment = Enrolment::default();
        let code = enrolment.arm(0).unwrap();
        for _ in 0..MAX_WRONG {
            assert_eq!(enrolment.redeem("AAAA-AAAA", 1), Err(Refused::Wrong));
        }
        assert_eq!(enrolment.redeem(&code, 1), Err(Refused::Spent));
        assert!(!enrolment.is_armed(1));
        let code = enrolment.arm(2).unwrap();
        enrolment.disarm();
        assert_eq!(enrolment.redeem(&code, 3), Err(Refused::None));
    }
}
