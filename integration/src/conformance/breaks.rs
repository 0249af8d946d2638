//! What is broken on purpose: one change to the product for each requirement that was drawn, applied to
//! a copy of the tree, after which the test of that requirement has to fail.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::register::Register;
use super::{LedgerError, Shown, read_text};

/// One break.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Break {
    /// The requirement.
    pub id: String,
    /// What does not work afterwards.
    pub what: String,
    /// File of the product that is changed, relative to the root of the tree.
    pub file: String,
    /// Text that is in the file exactly once.
    pub find: String,
    /// What it is replaced by.
    pub replace: String,
    /// Package whose tests run.
    pub package: String,
    /// Arguments that choose the test program, `--lib` or `--test NAME`, and features.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Full name of the test that must fail.
    pub test: String,
}

/// What a run found: by requirement.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Failed {
    /// The test that passed before and failed after.
    pub test: String,
    /// Fingerprint of the break as it was run.
    pub of: String,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct BreaksFile {
    #[serde(default, rename = "break")]
    breaks: Vec<Break>,
}

/// All breaks, and what the last run found.
#[derive(Clone, Debug)]
pub struct Breaks {
    /// In the order of the file.
    pub list: Vec<Break>,
    /// By id.
    pub failed: BTreeMap<String, Failed>,
}

impl Break {
    /// Changes whenever the break does.
    fn fingerprint(&self) -> String {
        let parts = [&self.file, &self.find, &self.replace, &self.test];
        let hash = parts
            .iter()
            .flat_map(|part| part.bytes().chain([0]))
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, octet| {
                (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3)
            });
        format!("{hash:016x}")
    }

    /// The name of the test's function.
    pub fn function(&self) -> &str {
        self.test.rsplit("::").next().unwrap_or_default()
    }
}

impl Breaks {
    /// Reads `breaks.toml` and `failed.toml` of a directory.
    ///
    /// # Errors
    /// A file cannot be read, or is not as it should be.
    pub fn read(directory: &Path) -> Result<Self, LedgerError> {
        let list = directory.join("breaks.toml");
        let file: BreaksFile = toml::from_str(&read_text(&list)?)
            .map_err(|error| LedgerError::Toml(list.clone(), error))?;
        let results = directory.join("failed.toml");
        let failed = toml::from_str(&read_text(&results)?)
            .map_err(|error| LedgerError::Toml(results.clone(), error))?;
        Ok(Self {
            list: file.breaks,
            failed,
        })
    }

    /// Every requirement drawn has a break, whose test shows it and failed in the last run.
    pub(super) fn problems(
        &self,
        register: &Register,
        tests: &BTreeMap<&str, Vec<&Shown>>,
        problems: &mut Vec<String>,
    ) {
        let drawn = register.drawn();
        for id in &drawn {
            let Some(of) = self.list.iter().find(|of| of.id == *id) else {
                problems.push(format!("{id} was drawn and nothing breaks it on purpose"));
                continue;
            };
            let shows = |shown: &&Shown| shown.name == of.function();
            if !tests.get(id).is_some_and(|tests| tests.iter().any(shows)) {
                problems.push(format!("{id}: {} does not show it", of.test));
            }
            let run = self.failed.get(*id);
            if run.is_none_or(|run| run.of != of.fingerprint() || run.test != of.test) {
                problems.push(format!(
                    "{id}: not run as it stands: conformance break {id}"
                ));
            }
        }
        for of in &self.list {
            if !drawn.contains(&of.id.as_str()) {
                problems.push(format!("{}: broken on purpose but not drawn", of.id));
            }
        }
    }
}

/// Runs the breaks of these ids (all if none is named) in a copy of the tree and writes `failed.toml`.
/// `say` gets a line for each; says whether every test failed that had to.
///
/// # Errors
/// The tree cannot be copied, a file cannot be written, or a break does not fit its file.
pub fn run(root: &Path, ids: &[String], say: &mut dyn FnMut(&str)) -> Result<bool, LedgerError> {
    let directory = root.join("integration/conformance");
    let mut breaks = Breaks::read(&directory)?;
    let copy = Copy::of(root)?;
    let mut good = true;
    let Breaks { list, failed } = &mut breaks;
    failed.retain(|id, _| list.iter().any(|of| &of.id == id));
    let chosen: Vec<&Break> = list
        .iter()
        .filter(|of| ids.is_empty() || ids.contains(&of.id))
        .collect();
    // All unbroken first: their programs are built once.
    let mut passes = Vec::new();
    for of in &chosen {
        copy.fits(of)?;
        passes.push(copy.test(of)? == Some(true));
    }
    for (of, passes) in chosen.into_iter().zip(passes) {
        let outcome = if passes {
            copy.run(of)?
        } else {
            Outcome::FailedBefore
        };
        say(&format!("{}: {}", of.id, outcome.text()));
        if outcome == Outcome::Failed {
            let run = Failed {
                test: of.test.clone(),
                of: of.fingerprint(),
            };
            failed.insert(of.id.clone(), run);
        } else {
            failed.remove(&of.id);
            good = false;
        }
    }
    let text =
        toml::to_string(&breaks.failed).map_err(|error| LedgerError::Program(error.to_string()))?;
    let head = "# Written by `conformance break`: the test that failed for each break, and a fingerprint of \
                the break.\n";
    let path = directory.join("failed.toml");
    fs::write(&path, format!("{head}{text}")).map_err(|error| LedgerError::Io(path, error))?;
    Ok(good)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Failed,
    Passed,
    FailedBefore,
    NotBuilt,
}

impl Outcome {
    fn text(self) -> &'static str {
        match self {
            Self::Failed => "the test fails, as it has to",
            Self::Passed => "THE TEST STILL PASSES",
            Self::FailedBefore => "THE TEST DOES NOT PASS UNBROKEN",
            Self::NotBuilt => "THE BROKEN PRODUCT DOES NOT BUILD",
        }
    }
}

/// A copy of the tree below `target`, with a build directory of its own that stays for the next run.
struct Copy {
    tree: PathBuf,
    target: PathBuf,
}

impl Copy {
    fn of(root: &Path) -> Result<Self, LedgerError> {
        let base = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| root.join("target"), PathBuf::from)
            .join("break-on-purpose");
        let copy = Self {
            tree: base.join("tree"),
            target: base.join("build"),
        };
        let listed = output(
            Command::new("git")
                .arg("ls-files")
                .arg("-z")
                .current_dir(root),
        )?;
        for name in listed.split('\0').filter(|name| !name.is_empty()) {
            copy_file(&root.join(name), &copy.tree.join(name))?;
        }
        Ok(copy)
    }

    /// The text of the break's file, in which what is replaced is exactly once.
    fn fits(&self, of: &Break) -> Result<String, LedgerError> {
        let text = read_text(&self.tree.join(&of.file))?;
        if text.matches(&of.find).count() == 1 {
            return Ok(text);
        }
        Err(LedgerError::Program(format!(
            "{}: `find` must be in {} exactly once",
            of.id, of.file
        )))
    }

    fn run(&self, of: &Break) -> Result<Outcome, LedgerError> {
        let path = self.tree.join(&of.file);
        let text = self.fits(of)?;
        let broken = text.replace(&of.find, &of.replace);
        let failed = |error| LedgerError::Io(path.clone(), error);
        fs::write(&path, broken).map_err(failed)?;
        let passed = self.test(of);
        fs::write(&path, text).map_err(failed)?;
        Ok(match passed? {
            Some(false) => Outcome::Failed,
            Some(true) => Outcome::Passed,
            None => Outcome::NotBuilt,
        })
    }

    /// Whether the test passes; `None` if there is no result of it.
    fn test(&self, of: &Break) -> Result<Option<bool>, LedgerError> {
        let mut command = Command::new("cargo");
        command
            .args(["test", "--locked", "--offline", "-p", &of.package])
            .args(&of.arguments)
            .args(["--", "--exact", &of.test])
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            // Each program runs one test: what counts is how fast it is built.
            .envs([
                ("CARGO_PROFILE_DEV_OPT_LEVEL", "0"),
                ("CARGO_PROFILE_TEST_OPT_LEVEL", "0"),
                ("CARGO_PROFILE_DEV_DEBUG", "0"),
                ("CARGO_PROFILE_TEST_DEBUG", "0"),
            ]);
        let text = command
            .output()
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            .map_err(|error| LedgerError::Program(format!("cargo: {error}")))?;
        let result = |word: &str| text.contains(&format!("test {} ... {word}", of.test));
        Ok(match (result("ok"), result("FAILED")) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        })
    }
}

/// Copies a file if it differs, so that only what changed is built again.
fn copy_file(from: &Path, to: &Path) -> Result<(), LedgerError> {
    let failed = |error: io::Error| LedgerError::Io(from.to_path_buf(), error);
    if !from.is_file() {
        return Ok(());
    }
    let octets = fs::read(from).map_err(failed)?;
    if fs::read(to).is_ok_and(|old| old == octets) {
        return Ok(());
    }
    if let Some(directory) = to.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    fs::write(to, octets).map_err(failed)
}

fn output(command: &mut Command) -> Result<String, LedgerError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| LedgerError::Program(format!("{name}: {error}")))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(LedgerError::Program(format!("{name}: {text}")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
