//! Who may do what: bearer tokens, kept as hashes, each with a role and an end; and how often somebody may
//! fail to show one. Certificates and Unix credentials are looked at where connections begin.

use std::collections::{BTreeMap, HashMap};
use std::fs::{OpenOptions, Permissions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crem_api::rest::Access;
use serde::{Deserialize, Serialize};

use crate::digest::{random_hex, sha256};

/// Tokens that may exist.
pub const MAX_TOKENS: usize = 256;
/// Longest life of a token, seconds: a year.
pub const MAX_LIFE_S: u64 = 366 * 86_400;
/// Failed attempts from one address before it has to wait.
const ATTEMPTS: u32 = 5;
/// How long it has to wait, and how long an attempt counts, milliseconds.
const FORGET_MS: u64 = 60_000;
/// Addresses remembered.
const MAX_ADDRESSES: usize = 4096;

/// What is known of a token; its text is not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Token {
    /// Whose it is.
    pub name: String,
    /// What it is good for.
    pub access: Access,
    /// When it was made, milliseconds since 1970.
    pub created_ms: u64,
    /// When it ends.
    pub expires_ms: u64,
    /// SHA-256 of its text. The text is 256 random bits, so that guessing is no way in.
    hash: String,
}

/// Why a token is not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejected {
    /// We never made it, or it was deleted.
    Unknown,
    /// It has ended.
    Expired,
}

/// The tokens.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    known: Mutex<BTreeMap<String, Token>>,
}

impl Tokens {
    /// Reads the tokens from a file; without one there are none.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        let known = match std::fs::read(path) {
            Ok(octets) => serde_json::from_slice(&octets)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(e) => return Err(e),
        };
        Ok(Self {
            path: path.to_path_buf(),
            known: Mutex::new(known),
        })
    }

    /// Makes a token: its id, and its text, which is known to nobody afterwards.
    ///
    /// # Errors
    /// Too many, or the file cannot be written.
    pub fn create(
        &self,
        name: &str,
        access: Access,
        now_ms: u64,
        life_s: u64,
    ) -> io::Result<(String, String, Token)> {
        let (id, secret) = (random_hex::<6>()?, random_hex::<32>()?);
        let text = format!("crem_{id}_{secret}");
        let token = Token {
            name: name.to_owned(),
            access,
            created_ms: now_ms,
            expires_ms: now_ms.saturating_add(life_s.min(MAX_LIFE_S) * 1000),
            hash: sha256(text.as_bytes()),
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, token| token.expires_ms > now_ms);
        if known.len() >= MAX_TOKENS {
            return Err(io::Error::new(
                io::ErrorKind::QuotaExceeded,
                format!("there are {MAX_TOKENS} tokens already"),
            ));
        }
        known.insert(id.clone(), token.clone());
        self.write(&known)?;
        Ok((id, text, token))
    }

    /// Deletes a token. Whether there was one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn delete(&self, id: &str) -> io::Result<bool> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let there = known.remove(id).is_some();
        if there {
            self.write(&known)?;
        }
        Ok(there)
    }

    /// All tokens by id.
    pub fn list(&self) -> BTreeMap<String, Token> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.clone()
    }

    /// Whose token this is.
    ///
    /// # Errors
    /// [`Rejected`].
    pub fn check(&self, text: &str, now_ms: u64) -> Result<(String, Token), Rejected> {
        let id = text
            .strip_prefix("crem_")
            .and_then(|rest| rest.split_once('_'))
            .map(|(id, _)| id)
            .ok_or(Rejected::Unknown)?;
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let token = known.get(id).ok_or(Rejected::Unknown)?;
        if !same(&token.hash, &sha256(text.as_bytes())) {
            return Err(Rejected::Unknown);
        }
        if token.expires_ms <= now_ms {
            return Err(Rejected::Expired);
        }
        Ok((id.to_owned(), token.clone()))
    }

    fn write(&self, known: &BTreeMap<String, Token>) -> io::Result<()> {
        write_private(&self.path, &serde_json::to_string_pretty(known)?)
    }
}

/// Writes a file that only its owner may read, so that it has its old content or all of the new one.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    write_whole(path, text, 0o600)
}

/// The same of a file with these permissions.
pub(crate) fn write_whole(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&beside)?;
    // Whatever the mask of this process takes away.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, path)
}

/// Whether two texts are the same, in a time that does not tell where they differ.
pub(crate) fn same(a: &str, b: &str) -> bool {
    let differences = a.bytes().zip(b.bytes()).fold(0, |d, (a, b)| d | (a ^ b));
    a.len() == b.len() && differences == 0
}

/// Failed attempts by address.
#[derive(Debug, Default)]
pub struct Attempts(Mutex<HashMap<IpAddr, (u32, u64)>>);

impl Attempts {
    /// Whether this address may try.
    pub fn may_try(&self, from: IpAddr, now_ms: u64) -> bool {
        let failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failed
            .get(&from)
            .is_none_or(|(count, last)| *count < ATTEMPTS || last + FORGET_MS <= now_ms)
    }

    /// It failed.
    pub fn failed(&self, from: IpAddr, now_ms: u64) {
        let mut failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failed.retain(|_, (_, last)| *last + FORGET_MS > now_ms);
        if failed.len() >= MAX_ADDRESSES && !failed.contains_key(&from) {
            // Whoever has so many addresses is not stopped by counting them; guessing is hopeless anyway.
            return;
        }
        let entry = failed.entry(from).or_insert((0, now_ms));
        *entry = (entry.0.saturating_add(1), now_ms);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn place(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("crem-tokens-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn a_token_opens_until_it_ends_and_is_nowhere_on_disk() {
        let path = place("life");
        let tokens = Tokens::open(&path).unwrap();
        let (id, text, _) = tokens.create("bot", Access::Operator, 1000, 60).unwrap();
        let stored = std::fs::read_to_string(&path).unwrap();
        assert!(!stored.contains(text.rsplit('_').next().unwrap()));
        let again = Tokens::open(&path).unwrap();
        let (found, token) = again.check(&text, 60_999).unwrap();
        assert_eq!((found, token.access), (id.clone(), Access::Operator));
        assert_eq!(again.check(&text, 61_000), Err(Rejected::Expired));
        let last = if text.ends_with('0') { '1' } else { '0' };
        let mut wrong = text.clone();
        wrong.pop();
        wrong.push(last);
        for text in [wrong.as_str(), "", "crem_", "crem_x_y", "Bearer"] {
            assert_eq!(again.check(text, 2000), Err(Rejected::Unknown), "{text}");
        }
        assert!(again.delete(&id).unwrap());
        assert_eq!(again.check(&text, 2000), Err(Rejected::Unknown));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn who_fails_too_often_waits() {
        let attempts = Attempts::default();
        let from = IpAddr::from([192, 0, 2, 1]);
        for n in 0..5 {
            assert!(attempts.may_try(from, n));
            attempts.failed(from, n);
        }
        assert!(!attempts.may_try(from, 5));
        assert!(attempts.may_try(IpAddr::from([192, 0, 2, 2]), 5));
        assert!(attempts.may_try(from, 4 + FORGET_MS));
    }
}
