//! The register file: sections of requirements, decisions, and the draw of those that are broken on
//! purpose.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;

use super::{LedgerError, read_text};

/// How strongly a document asks for something.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[allow(missing_docs, reason = "the words of BCP 14")]
pub enum Level {
    #[serde(rename = "MUST")]
    Must,
    #[serde(rename = "MUST NOT")]
    MustNot,
    #[serde(rename = "SHOULD")]
    Should,
    #[serde(rename = "SHOULD NOT")]
    ShouldNot,
    #[serde(rename = "RECOMMENDED")]
    Recommended,
    #[serde(rename = "MAY")]
    May,
    /// A plain statement that an implementer has to meet.
    #[serde(rename = "fact")]
    Fact,
}

impl Level {
    /// Whether no reason can stand in for a test.
    pub fn needs_test(self) -> bool {
        matches!(self, Self::Must | Self::MustNot)
    }

    /// As the register has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Must => "MUST",
            Self::MustNot => "MUST NOT",
            Self::Should => "SHOULD",
            Self::ShouldNot => "SHOULD NOT",
            Self::Recommended => "RECOMMENDED",
            Self::May => "MAY",
            Self::Fact => "fact",
        }
    }
}

/// One requirement.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// `CREM-RSP-07` and the like.
    pub id: String,
    /// How strongly.
    pub level: Level,
    /// What, in our words.
    pub text: String,
    /// Why there is no test.
    pub reason: Option<String>,
}

/// The requirements of one part of a document.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// Document and part.
    pub title: String,
    /// In the order of their ids.
    pub requirements: Vec<Requirement>,
}

/// Which requirements are broken on purpose.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draw {
    /// What the draw follows from.
    pub seed: u64,
    /// How many.
    pub count: usize,
    /// First parts of the ids that take part.
    pub families: Vec<String>,
}

/// The register.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Register {
    /// Ids of decisions, which tests may name too.
    pub decisions: BTreeSet<String>,
    /// What is broken on purpose.
    pub draw: Draw,
    #[serde(rename = "section")]
    /// The requirements.
    pub sections: Vec<Section>,
}

impl Register {
    /// Reads the register from a file.
    ///
    /// # Errors
    /// The file cannot be read, or it is not a register.
    pub fn read(path: &Path) -> Result<Self, LedgerError> {
        toml::from_str(&read_text(path)?)
            .map_err(|error| LedgerError::Toml(path.to_path_buf(), error))
    }

    /// All requirements, in the order of the file.
    pub fn requirements(&self) -> impl Iterator<Item = &Requirement> {
        self.sections
            .iter()
            .flat_map(|section| &section.requirements)
    }

    /// Ids of the requirements.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.requirements()
            .map(|requirement| requirement.id.as_str())
    }

    /// Ids of those that are broken on purpose: the lowest of a hash over seed and id, so that one more
    /// requirement changes the draw by one at most.
    pub fn drawn(&self) -> Vec<&str> {
        let mut ranked: Vec<(u64, &str)> = self
            .requirements()
            .filter(|requirement| requirement.reason.is_none())
            .map(|requirement| requirement.id.as_str())
            .filter(|id| {
                let family = id.split('-').next().unwrap_or_default();
                self.draw.families.iter().any(|name| name == family)
            })
            .map(|id| (rank(self.draw.seed, id), id))
            .collect();
        ranked.sort_unstable();
        ranked.truncate(self.draw.count);
        let mut drawn: Vec<&str> = ranked.into_iter().map(|(_, id)| id).collect();
        drawn.sort_unstable();
        drawn
    }

    /// What is wrong with the file by itself.
    pub(super) fn problems(&self, problems: &mut Vec<String>) {
        let mut seen = BTreeSet::new();
        for requirement in self.requirements() {
            let Requirement {
                id, text, reason, ..
            } = requirement;
            if !seen.insert(id) {
                problems.push(format!("{id} is in the register twice"));
            }
            if text.len() < 10 || reason.as_ref().is_some_and(|reason| reason.len() < 20) {
                problems.push(format!("{id}: text or reason says nothing"));
            }
        }
    }
}

/// FNV-1a over the id, stirred with the seed.
fn rank(seed: u64, id: &str) -> u64 {
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, octet| {
        (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut mixed = (hash ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 27)
}
