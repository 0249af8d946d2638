//! `conformance`: writes `docs/conformance.md`, tells what is wrong with the ledger, and with
//! `conformance break [ID…]` breaks the product on purpose in a copy of the tree. Exit status: 0 all is
//! as it should be, 1 it is not, 2 it cannot be found out.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

use crem_integration::conformance::{Ledger, LedgerError, document, run_breaks};

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let done = match words.split_first() {
        None => write(&root),
        Some((word, ids)) if word == "break" => {
            run_breaks(&root, ids, &mut |line| println!("{line}"))
        }
        Some(_) => {
            eprintln!("usage: conformance [break [ID]...]");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance: {error}");
            ExitCode::from(2)
        }
    }
}

fn write(root: &Path) -> Result<bool, LedgerError> {
    let ledger = Ledger::read(root)?;
    let path = root.join("docs/conformance.md");
    fs::write(&path, document(&ledger)).map_err(|error| LedgerError::Io(path, error))?;
    let problems = ledger.problems();
    for problem in &problems {
        println!("{problem}");
    }
    println!("conformance: {} problems", problems.len());
    Ok(problems.is_empty())
}
