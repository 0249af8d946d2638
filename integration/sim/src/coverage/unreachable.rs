//! What no world can bring about, each with the reason.

/// Names as the table has them, and why they cannot occur.
const LIST: &[(&str, &str)] = &[];

/// Why this cannot occur, if it cannot.
pub(super) fn reason(name: &str) -> Option<&'static str> {
    let entry = LIST.iter().find(|(listed, _)| *listed == name)?;
    Some(entry.1)
}
