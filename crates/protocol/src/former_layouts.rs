//! Layouts of tables as former versions of a directory of data keep them: the first without deadlines and
//! limits, the second without replicas.

use serde::Deserialize;

use crate::{Ack, KeyKind, TableDefinition, TableEngine, TableLayout, ValueKind};

/// A layout whose definition was another.
#[derive(Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
pub(crate) struct FormerLayout<D> {
    definition: D,
    engine: TableEngine,
    block_lines: u16,
    format_version: u32,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
pub(crate) struct FirstDefinition {
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

#[derive(Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
pub(crate) struct SecondDefinition {
    name: String,
    key_kind: KeyKind,
    values: ValueKind,
    value_type: String,
    memory_bytes: Option<u64>,
    ack: Option<Ack>,
}

impl<D: Into<TableDefinition>> From<FormerLayout<D>> for TableLayout {
    fn from(former: FormerLayout<D>) -> Self {
        let FormerLayout { definition, engine, block_lines, format_version } = former;
        Self { definition: definition.into(), engine, block_lines, format_version }
    }
}

impl From<FirstDefinition> for TableDefinition {
    fn from(first: FirstDefinition) -> Self {
        let FirstDefinition { name, key_kind, values, value_type } = first;
        let values = match values {
            FirstValues::Fixed(bytes) => ValueKind::Fixed(bytes),
            FirstValues::Blocks { max_bytes } => ValueKind::blocks(max_bytes),
        };
        Self { values, value_type, ..Self::new(name, key_kind, 0) }
    }
}

impl From<SecondDefinition> for TableDefinition {
    fn from(second: SecondDefinition) -> Self {
        let SecondDefinition { name, key_kind, values, value_type, memory_bytes, ack } = second;
        Self { name, key_kind, values, value_type, memory_bytes, ack, replicas: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout<D>(definition: D) -> FormerLayout<D> {
        let engine = TableEngine { name: "xstore".to_owned(), boundaries: Vec::new() };
        FormerLayout { definition, engine, block_lines: 7, format_version: 16 }
    }

    fn first(values: FirstValues) -> FormerLayout<FirstDefinition> {
        let (name, value_type) = ("prices".to_owned(), "<f8".to_owned());
        layout(FirstDefinition { name, key_kind: KeyKind::I64, values, value_type })
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
    fn layouts_of_the_second_version_are_read() {
        let definition = TableDefinition {
            values: ValueKind::blocks(300).expiring(1_000),
            memory_bytes: Some(1 << 20),
            ack: Some(Ack::Memory),
            ..TableDefinition::new("prices", KeyKind::I64, 8)
        };
        let TableDefinition { name, key_kind, values, value_type, memory_bytes, ack, .. } =
            definition.clone();
        let second = SecondDefinition { name, key_kind, values, value_type, memory_bytes, ack };
        let bytes = postcard::to_extend(&layout(second), vec![0, 2]).expect("a layout serializes");
        let read = TableLayout::from_bytes(&bytes).expect("a layout");
        assert_eq!((read.definition.clone(), read.block_lines, read.format_version), (definition, 7, 16));
        assert_eq!(TableLayout::from_bytes(&read.to_bytes()), Ok(read));
    }

    #[test]
    fn other_layouts_are_refused() {
        let of = |bytes: &[u8]| TableLayout::from_bytes(bytes).expect_err("no layout").to_string();
        assert!(of(&[0, 9, 1]).contains("version 9, this program reads up to 3"));
        for bytes in [&[][..], &[0], &[0, 2, 5], &[0, 3, 5], &[3, b'a']] {
            assert!(of(bytes).contains("what is kept of its definition is none"), "{bytes:?}");
        }
    }
}
