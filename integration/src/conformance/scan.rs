//! Finds the lines `shows:` of the tree and the test that each belongs to.
//!
//! Three forms: above `#[test]` or first in the body of a Rust test; above the list of a kind of test
//! vectors (`tally.each(document, "list", …)`); at the top of a scenario file.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::{LedgerError, read_text};

/// What kind of test shows something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Form {
    /// A Rust test.
    Test,
    /// A list of test vectors.
    Vectors,
    /// A scenario with both gateways in network namespaces.
    Scenario,
}

/// A test that shows requirements.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Shown {
    /// Its file, relative to the root of the tree.
    pub file: String,
    /// Name of the function, the list or the scenario.
    pub name: String,
    /// What it is.
    pub form: Form,
    /// What it shows.
    pub ids: Vec<String>,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.name)
    }
}

/// Scenarios that `scenario all` leaves out, so that they show nothing.
const NOT_RUN: &[&str] = &["demo.toml"];

/// Finds all tests that show something below `root`, and the lines that belong to no test.
///
/// # Errors
/// A file or a directory cannot be read.
pub fn scan(root: &Path) -> Result<(Vec<Shown>, Vec<String>), LedgerError> {
    let mut files = Vec::new();
    collect(root, &mut files)?;
    files.sort();
    let (mut shown, mut stray) = (Vec::new(), Vec::new());
    for path in files {
        let file = path
            .strip_prefix(root)
            .unwrap_or(&path)
            .to_string_lossy()
            .into_owned();
        let text = read_text(&path)?;
        let mut found = Found {
            file: &file,
            shown: &mut shown,
            stray: &mut stray,
        };
        if file.ends_with(".rs") {
            found.rust(&text);
        } else if file.starts_with("integration/scenarios/") {
            found.scenario(&text);
        }
    }
    shown.sort();
    Ok((shown, stray))
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), LedgerError> {
    let failed = |error| LedgerError::Io(directory.to_path_buf(), error);
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                collect(&path, files)?;
            }
        } else if name.ends_with(".rs") || name.ends_with(".toml") {
            files.push(path);
        }
    }
    Ok(())
}

struct Found<'a> {
    file: &'a str,
    shown: &'a mut Vec<Shown>,
    stray: &'a mut Vec<String>,
}

impl Found<'_> {
    fn add(&mut self, name: &str, form: Form, ids: Vec<String>) {
        let known = self
            .shown
            .iter_mut()
            .find(|shown| shown.file == self.file && shown.name == name);
        match known {
            Some(shown) => shown.ids.extend(ids),
            None => self.shown.push(Shown {
                file: self.file.to_owned(),
                name: name.to_owned(),
                form,
                ids,
            }),
        }
    }

    fn lost(&mut self, line: usize, what: &str) {
        self.stray
            .push(format!("{}:{}: {what}", self.file, line + 1));
    }

    fn rust(&mut self, text: &str) {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for at in 0..lines.len() {
            let Some(ids) = ids(lines[at], "// shows: ") else {
                continue;
            };
            if let Some(list) = self.vector_list(&lines[at..]) {
                self.add(&list, Form::Vectors, ids);
                continue;
            }
            match test_below(&lines[at..]).or_else(|| test_around(&lines[..at])) {
                Some(Test { ignored: true, .. }) => self.lost(at, "an ignored test shows nothing"),
                Some(test) => self.add(test.name, Form::Test, ids),
                None => self.lost(at, "`shows:` belongs to no test"),
            }
        }
    }

    /// The list of a vector file right below, if this is the module of a kind.
    fn vector_list(&self, lines: &[&str]) -> Option<String> {
        let kind = self
            .file
            .strip_prefix("integration/src/vectors/")?
            .strip_suffix(".rs")?;
        // The call may be over several lines.
        let call: String = lines
            .iter()
            .skip_while(|line| line.starts_with("//"))
            .take(3)
            .flat_map(|line| line.split_whitespace())
            .collect();
        let arguments = call
            .strip_prefix("tally.each_with(")
            .or_else(|| call.strip_prefix("tally.each("))?;
        let list = arguments.strip_prefix("document,\"")?.split('"').next()?;
        Some(format!("{kind}.{list}"))
    }

    fn scenario(&mut self, text: &str) {
        let name = self.file.rsplit('/').next().unwrap_or_default();
        for (at, line) in text.lines().enumerate() {
            let Some(ids) = ids(line.trim(), "# shows: ") else {
                continue;
            };
            if NOT_RUN.contains(&name) {
                self.lost(at, "`make test` does not run this scenario");
            } else {
                self.add(name.trim_end_matches(".toml"), Form::Scenario, ids);
            }
        }
    }
}

fn ids(line: &str, mark: &str) -> Option<Vec<String>> {
    let list = line.strip_prefix(mark)?;
    Some(list.split(',').map(|id| id.trim().to_owned()).collect())
}

struct Test<'a> {
    name: &'a str,
    ignored: bool,
}

/// The test whose attributes and comments these lines begin with.
fn test_below<'a>(lines: &[&'a str]) -> Option<Test<'a>> {
    let (mut is_test, mut ignored) = (false, false);
    for line in lines {
        if line.starts_with("//") {
            continue;
        }
        if line.starts_with("#[") {
            is_test |= *line == "#[test]";
            ignored |= line.starts_with("#[ignore");
            continue;
        }
        return function(line)
            .filter(|_| is_test)
            .map(|name| Test { name, ignored });
    }
    None
}

/// The test whose body begins right behind these lines.
fn test_around<'a>(lines: &[&'a str]) -> Option<Test<'a>> {
    let mut above = lines
        .iter()
        .rposition(|line| !line.starts_with("//"))
        .filter(|at| lines[*at].ends_with('{'))
        .filter(|at| lines[*at].starts_with(')') || function(lines[*at]).is_some())?;
    // A signature over several lines.
    while function(lines[above]).is_none() {
        above = above.checked_sub(1)?;
        if lines[above].ends_with([';', '}', '{']) && function(lines[above]).is_none() {
            return None;
        }
    }
    let name = function(lines[above])?;
    let attributes = lines[..above]
        .iter()
        .rev()
        .take_while(|line| line.starts_with("#[") || line.starts_with("//"));
    let (mut is_test, mut ignored) = (false, false);
    for line in attributes {
        is_test |= *line == "#[test]";
        ignored |= line.starts_with("#[ignore");
    }
    is_test.then_some(Test { name, ignored })
}

/// The name of the function that a line begins.
fn function(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("fn ")?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    Some(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(file: &str, text: &str) -> (Vec<Shown>, Vec<String>) {
        // Written with @, so that these lines are none of the tree's own.
        let text = &text.replace("#@", "# shows:").replace('@', "// shows:");
        let (mut shown, mut stray) = (Vec::new(), Vec::new());
        let mut found = Found {
            file,
            shown: &mut shown,
            stray: &mut stray,
        };
        if file.ends_with(".rs") {
            found.rust(text);
        } else {
            found.scenario(text);
        }
        (shown, stray)
    }

    fn names(file: &str, text: &str) -> Vec<(String, Vec<String>)> {
        let (shown, stray) = run(file, text);
        assert_eq!(stray, Vec::<String>::new());
        shown.into_iter().map(|s| (s.name, s.ids)).collect()
    }

    #[test]
    fn lines_above_and_inside_belong_to_their_test() {
        let text = "
            @ CREM-A-01, AMB-B
            /// What it is about.
            #[test]
            fn above() {
            }
            proptest! {
                #[test]
                fn inside(
                    x in 0..3,
                ) {
                    // A word before.
                    @ QOS-C-02
                    @ QOS-C-03
                    let y = x;
                }
            }";
        let (above, inside) = (["CREM-A-01", "AMB-B"], ["QOS-C-02", "QOS-C-03"]);
        assert_eq!(
            names("a.rs", text),
            [
                ("above".to_owned(), above.map(str::to_owned).to_vec()),
                ("inside".to_owned(), inside.map(str::to_owned).to_vec()),
            ]
        );
    }

    #[test]
    fn lines_without_a_test_are_told() {
        for text in [
            "@ CREM-A-01\nfn helper() {}",
            "@ CREM-A-01",
            "@ CREM-A-01\n#[test]\n#[ignore = \"slow\"]\nfn ignored() {}",
            "fn helper() {\n@ CREM-A-01\n}",
            "#[test]\nfn late() {\nlet x = 1;\n@ CREM-A-01\n}",
            "#[test]\nfn nested() {\nif x {\n@ CREM-A-01\n}\n}",
        ] {
            let (shown, stray) = run("a.rs", text);
            assert_eq!((shown.len(), stray.len()), (0, 1), "{text}");
        }
        let (shown, stray) = run("integration/scenarios/demo.toml", "#@ CREM-A-01");
        assert_eq!((shown.len(), stray.len()), (0, 1));
    }

    #[test]
    fn vectors_and_scenarios_have_names() {
        let text = "@ CREM-A-01\n    tally.each(document, \"reads\", read);";
        let file = "integration/src/vectors/plan.rs";
        assert_eq!(names(file, text)[0].0, "plan.reads");
        let long = "@ CREM-A-01\n tally.each(\n document,\n \"reads\",\n read,\n );";
        assert_eq!(names(file, long)[0].0, "plan.reads");
        assert_eq!(run("integration/src/other.rs", text).1.len(), 1);
        let scenario = "name = \"x\"\n#@ CREM-A-01";
        assert_eq!(
            names("integration/scenarios/ipv6.toml", scenario)[0].0,
            "ipv6"
        );
    }
}
