//! The conformance ledger: the register of requirements, the tests that show them, and what is wrong
//! with the two together. Neither the requirements themselves (`integration/conformance`) nor tests of
//! them live here.

mod breaks;
mod document;
mod register;
mod scan;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

pub use breaks::{Break, Breaks, Failed, run as run_breaks};
pub use document::write as document;
pub use register::{Level, Register, Requirement, Section};
pub use scan::{Form, Shown, scan};

/// Reasons instead of tests, at most.
pub const MAX_REASONS: usize = 40;

/// Why a ledger cannot be read at all.
#[derive(Debug)]
pub enum LedgerError {
    /// A file cannot be read or written.
    Io(PathBuf, io::Error),
    /// A file of the register does not say what it should.
    Toml(PathBuf, toml::de::Error),
    /// A program that was run did not end well.
    Program(String),
}

impl fmt::Display for LedgerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Toml(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Program(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for LedgerError {}

/// The register and everything that the tree says about it.
#[derive(Debug)]
pub struct Ledger {
    /// The requirements.
    pub register: Register,
    /// Tests that name ids, in the order of their files.
    pub shown: Vec<Shown>,
    /// Lines that name ids and belong to no test: `file:line: what`.
    pub stray: Vec<String>,
    /// What is broken on purpose, and what failed then.
    pub breaks: Breaks,
}

impl Ledger {
    /// Reads the ledger of the tree at `root`.
    ///
    /// # Errors
    /// A file cannot be read, or one of the register's is not as it should be.
    pub fn read(root: &Path) -> Result<Self, LedgerError> {
        let register = Register::read(&root.join("integration/conformance/requirements.toml"))?;
        let (shown, stray) = scan(root)?;
        let breaks = Breaks::read(&root.join("integration/conformance"))?;
        Ok(Self {
            register,
            shown,
            stray,
            breaks,
        })
    }

    /// The tests by the id that they show.
    pub fn tests(&self) -> BTreeMap<&str, Vec<&Shown>> {
        let mut tests: BTreeMap<&str, Vec<&Shown>> = BTreeMap::new();
        for shown in &self.shown {
            for id in &shown.ids {
                tests.entry(id).or_default().push(shown);
            }
        }
        tests
    }

    /// Everything that is wrong, one line each; none is how it should be.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = self.stray.clone();
        self.register.problems(&mut problems);
        self.unknown(&mut problems);
        self.uncovered(&mut problems);
        self.breaks
            .problems(&self.register, &self.tests(), &mut problems);
        problems
    }

    fn unknown(&self, problems: &mut Vec<String>) {
        let known: BTreeSet<&str> = self.register.ids().collect();
        for shown in &self.shown {
            for id in &shown.ids {
                if !known.contains(id.as_str()) && !self.register.decisions.contains(id) {
                    problems.push(format!("{shown}: {id} is not in the register"));
                }
            }
        }
    }

    fn uncovered(&self, problems: &mut Vec<String>) {
        let tests = self.tests();
        let mut reasons = 0;
        for requirement in self.register.requirements() {
            let id = requirement.id.as_str();
            match (&requirement.reason, tests.contains_key(id)) {
                (None, true) => {}
                (None, false) => problems.push(format!("{id} has neither a test nor a reason")),
                (Some(_), true) => {
                    problems.push(format!("{id} has a test, its reason is out of date"));
                }
                (Some(_), false) if requirement.level.needs_test() => {
                    problems.push(format!("{id} must have a test, not a reason"));
                }
                (Some(_), false) => reasons += 1,
            }
        }
        if reasons > MAX_REASONS {
            problems.push(format!("{reasons} reasons, {MAX_REASONS} at most"));
        }
    }
}

fn read_text(path: &Path) -> Result<String, LedgerError> {
    fs::read_to_string(path).map_err(|error| LedgerError::Io(path.to_path_buf(), error))
}
