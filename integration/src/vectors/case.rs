//! Counting cases, and the JSON shapes that several kinds share.

use crem_wire::Bitmap;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A case that did not come out as its file says.
#[derive(Debug)]
pub struct Failure {
    /// The case: list, index and identifier.
    pub case: String,
    /// Expected and found.
    pub what: String,
}

/// Cases of one file.
#[derive(Debug, Default)]
pub struct Tally {
    /// As expected.
    pub passed: u64,
    /// Not as expected.
    pub failures: Vec<Failure>,
    /// No product function is there to try.
    pub not_covered: u64,
}

impl Tally {
    /// Counts one case.
    pub(super) fn check(&mut self, case: impl FnOnce() -> String, result: Result<(), String>) {
        match result {
            Ok(()) => self.passed += 1,
            Err(what) => self.failures.push(Failure { case: case(), what }),
        }
    }

    /// Runs every element of the list `key`; one that has not the expected shape fails.
    pub(super) fn each<T: DeserializeOwned>(
        &mut self,
        document: &Value,
        key: &str,
        mut run: impl FnMut(T) -> Result<(), String>,
    ) {
        self.each_with(document, key, |tally, label, case| {
            let result = run(case);
            tally.check(|| label.to_owned(), result);
        });
    }

    /// As [`Tally::each`] for elements that hold several cases.
    pub(super) fn each_with<T: DeserializeOwned>(
        &mut self,
        document: &Value,
        key: &str,
        mut run: impl FnMut(&mut Self, &str, T),
    ) {
        let list = document
            .get(key)
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        for (n, element) in list.iter().enumerate() {
            let id = element
                .get("id")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let label = format!("{key}[{n}] {id}").trim_end().to_owned();
            match T::deserialize(element) {
                Ok(case) => run(self, &label, case),
                Err(error) => self.check(|| label, Err(format!("unexpected shape: {error}"))),
            }
        }
    }
}

/// `Ok` if both are equal.
pub(super) fn equal<T: PartialEq + std::fmt::Debug>(
    what: &str,
    expected: T,
    found: T,
) -> Result<(), String> {
    if expected == found {
        Ok(())
    } else {
        Err(format!("{what}: expected {expected:?}, found {found:?}"))
    }
}

/// Octets written in hexadecimal.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Hex(pub(super) Vec<u8>);

impl Hex {
    fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if !digits.len().is_multiple_of(2) || !text.is_ascii() {
            return None;
        }
        let octet = |at: usize| {
            text.get(at..at + 2)
                .and_then(|pair| u8::from_str_radix(pair, 16).ok())
        };
        (0..digits.len())
            .step_by(2)
            .map(octet)
            .collect::<Option<Vec<u8>>>()
            .map(Self)
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("not hexadecimal"))
    }
}

/// Hexadecimal as the files write it.
pub(super) fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// An address written as 4 or 16 octets in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Address(pub(super) std::net::IpAddr);

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Hex(octets) = Hex::deserialize(deserializer)?;
        if let Ok(v4) = <[u8; 4]>::try_from(&octets[..]) {
            Ok(Self(v4.into()))
        } else if let Ok(v6) = <[u8; 16]>::try_from(&octets[..]) {
            Ok(Self(v6.into()))
        } else {
            Err(D::Error::custom("not an address"))
        }
    }
}

/// A list of positions.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Positions(pub(super) Bitmap);

impl<'de> Deserialize<'de> for Positions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = Vec::<u8>::deserialize(deserializer)?;
        if list.contains(&255) {
            return Err(D::Error::custom("position 255"));
        }
        Ok(Self(list.into_iter().collect()))
    }
}
