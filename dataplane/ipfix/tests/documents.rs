//! The documents for users name every element with its type, and the ready files for collectors have its
//! number.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;

use crem_ipfix::element::{Mapping, PRIVATE};

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_element_is_documented() {
    let text = document("ipfix.md");
    for (_, definition) in PRIVATE {
        let row = format!(
            "| `{}` | {} | {} | {} |",
            definition.name,
            definition.data_type.name(),
            definition.semantics.name(),
            definition.units.name(),
        );
        let line = text.lines().find(|line| line.contains(&row));
        let line = line.unwrap_or_else(|| panic!("no row {row}"));
        assert!(
            line.contains(definition.description),
            "{}: meaning",
            definition.name
        );
    }
}

#[test]
fn ready_files_have_every_element() {
    let mapping = Mapping::consecutive(32473, 1).unwrap();
    let primitives = document("ipfix/pmacct-primitives.lst");
    let libfixbuf = document("ipfix/libfixbuf-elements.xml");
    let ipfixcol2 = document("ipfix/ipfixcol2-elements.xml");
    for (element, definition) in PRIVATE {
        let (pen, number) = mapping.number(*element);
        let size = definition.data_type.size().unwrap();
        let primitive = format!("field_type={pen}:{number} len={size} ");
        assert!(primitives.contains(&primitive), "{primitive}");
        let name = format!("<name>{}</name>", definition.name);
        for (file, record, id) in [
            (
                &libfixbuf,
                "<record>",
                format!("<elementId>{number}</elementId>"),
            ),
            (&ipfixcol2, "<element>", format!("<id>{number}</id>")),
        ] {
            let block = file
                .split(record)
                .find(|block| block.contains(&name))
                .unwrap();
            assert!(block.contains(&id), "{}", definition.name);
            let data_type = format!("<dataType>{}</dataType>", definition.data_type.name());
            assert!(block.contains(&data_type), "{}", definition.name);
        }
    }
}

#[test]
fn registered_elements_are_documented_as_they_are_registered() {
    let mapping = Mapping::consecutive(32473, 1).unwrap();
    let text = document("ipfix.md");
    let mut rows = 0;
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, number, name, data_type, semantics, unit, meaning, _] = cells[..] else {
            continue;
        };
        let Ok(number) = number.parse() else { continue };
        let definition = mapping.definition(0, number).unwrap();
        let registered = (
            format!("`{}`", definition.name),
            definition.data_type.name(),
            definition.semantics.name(),
            definition.units.name(),
        );
        assert_eq!(registered, (name.to_owned(), data_type, semantics, unit));
        assert!(!meaning.is_empty(), "{name}");
        rows += 1;
    }
    assert!(rows > 50, "{rows}");
}
