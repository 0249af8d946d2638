//! Which document a data plane starts from: the first of the candidates that can be used, and that with protection off
//! where only protection does not work. A wrong document is no reason to be no wire.

use std::path::PathBuf;

use crem_api::{Document, Invalid, Mode};
use crem_dataplane::machine;

use crate::bootstrap::Bootstrap;

/// What was chosen.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) document: Document,
    pub(crate) path: PathBuf,
    /// What is otherwise than configured and why, in words; `None` where nothing is.
    pub(crate) instead: Option<String>,
}

/// A document that cannot be used.
pub(crate) type Refused = (PathBuf, Invalid);

/// Looks at the candidates in their order.
///
/// # Errors
/// Every candidate, with its problems.
pub(crate) fn choose(bootstrap: &Bootstrap) -> Result<Chosen, Vec<Refused>> {
    let mut refused: Vec<Refused> = Vec::new();
    for path in &bootstrap.documents {
        match usable(path.clone(), bootstrap) {
            Ok(chosen) => return Ok(told(chosen, &refused)),
            Err(invalid) => refused.push((path.clone(), invalid)),
        }
    }
    Err(refused)
}

fn usable(path: PathBuf, bootstrap: &Bootstrap) -> Result<Chosen, Invalid> {
    let document = crem_api::load(&path)?;
    let Err(invalid) = machine::check(&document, bootstrap.pool_frames) else {
        return Ok(Chosen {
            document,
            path,
            instead: None,
        });
    };
    // Whoever names a document for this start is there to hear what is wrong with it.
    if bootstrap.only_named {
        return Err(invalid);
    }
    let document = without_protection(document);
    if machine::check(&document, bootstrap.pool_frames).is_err() {
        return Err(invalid);
    }
    let instead = format!("protection is off: {}", brief(&invalid));
    Ok(Chosen {
        document,
        path,
        instead: Some(instead),
    })
}

/// Segments forward as they would with protection; those that do something else on purpose go on doing it.
fn without_protection(mut document: Document) -> Document {
    for segment in document.segments.values_mut() {
        if segment.mode == Mode::Active {
            segment.mode = Mode::Passthrough;
        }
    }
    document
}

/// Adds why it is not an earlier candidate, and logs it.
fn told(mut chosen: Chosen, refused: &[Refused]) -> Chosen {
    if !refused.is_empty() {
        let why = refused.iter();
        let why = why.map(|(path, invalid)| format!("{}: {}", path.display(), brief(invalid)));
        let why = why.collect::<Vec<_>>().join("; ");
        let protection = chosen.instead.map(|text| format!("; {text}"));
        chosen.instead = Some(format!(
            "started from {}, because of {why}{}",
            chosen.path.display(),
            protection.unwrap_or_default()
        ));
    }
    if let Some(instead) = &chosen.instead {
        tracing::warn!(document = %chosen.path.display(), "{instead}");
    }
    chosen
}

/// The first problem, and how many there are.
fn brief(invalid: &Invalid) -> String {
    match &invalid.issues[..] {
        [] => String::new(),
        [only] => only.to_string(),
        [first, more @ ..] => format!("{first} (and {} more)", more.len()),
    }
}
