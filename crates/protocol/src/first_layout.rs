//! The layout of a table as the first version of a directory of data keeps it: without deadlines and limits.

use serde::Deserialize;

use crate::{KeyKind, TableDefinition, TableEngine, TableLayout, ValueKind};

#[derive(Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
pub(crate) struct FirstLayout {
    definition: FirstDefinition,
    engine: TableEngine,
    block_lines: u16,
    format_version: u32,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
struct FirstDefinition {
    name: String,
    key_kind: KeyKind,
    values: FirstValues,
    value_type: String,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
enum FirstValues {
    Fixed(u16),
    Blocks { max_bytes: u32 },
}

impl From<FirstLayout> for TableLayout {
    fn from(first: FirstLayout) -> Self {
        let FirstLayout { definition, engine, block_lines, format_version } = first;
        let FirstDefinition { name, key_kind, values, value_type } = definition;
        let values = match values {
            FirstValues::Fixed(bytes) => ValueKind::Fixed(bytes),
            FirstValues::Blocks { max_bytes } => ValueKind::blocks(max_bytes),
        };
        let definition = TableDefinition { values, value_type, ..TableDefinition::new(name, key_kind, 0) };
        Self { definition, engine, block_lines, format_version }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(values: FirstValues) -> FirstLayout {
        let (name, value_type) = ("prices".to_owned(), "<f8".to_owned());
        let definition = FirstDefinition { name, key_kind: KeyKind::I64, values, value_type };
        let engine = TableEngine { name: "xstore".to_owned(), boundaries: Vec::new() };
        FirstLayout { definition, engine, block_lines: 7, format_version: 16 }
    }

    #[test]
    fn layouts_of_the_first_version_are_read() {
        let kept = |values| postcard::to_stdvec(&first(values)).expect("a layout serializes");
        for (bytes, values) in [
            (kept(FirstValues::Fixed(8)), ValueKind::Fixed(8)),
            (kept(FirstValues::Blocks { max_bytes: 300 }), ValueKind::blocks(300)),
        ] {
            let read = TableLayout::from_bytes(&bytes).expect("a layout");
            let expected = TableDefinition {
                values,
                value_type: "<f8".to_owned(),
                ..TableDefinition::new("prices", KeyKind::I64, 8)
            };
            assert_eq!((read.definition.clone(), read.block_lines, read.format_version), (expected, 7, 16));
            // It is kept as the newest version from now on.
            assert_eq!(TableLayout::from_bytes(&read.to_bytes()), Ok(read));
        }
    }

    #[test]
    fn other_layouts_are_refused() {
        let of = |bytes: &[u8]| TableLayout::from_bytes(bytes).expect_err("no layout").to_string();
        assert!(of(&[0, 9, 1]).contains("version 9, this program reads up to 2"));
        for bytes in [&[][..], &[0], &[0, 2, 5], &[3, b'a']] {
            assert!(of(bytes).contains("what is kept of its definition is none"), "{bytes:?}");
        }
    }
}
