//! Tables for people.

use std::time::Duration;

use comfy_table::{LineStyle, Row, Table, presets};
use farsight::{Expiry, TableDefinition, ValueKind};

use crate::duration;

/// A table under `header`, with lines between rows left out.
pub(crate) fn listing(header: impl Into<Row>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::default()));
    table.set_header(header);
    table
}

/// Size and type of a table's values.
pub(crate) fn value_text(definition: &TableDefinition) -> String {
    let (values, until) = (definition.values, expiry_text(definition.values));
    match &definition.value_type[..] {
        "" => format!("{values}{until}"),
        // Quoted: it is what a server says.
        name => format!("{values}{until} {name:?}"),
    }
}

/// How long pairs stay, if they have deadlines.
pub(crate) fn expiry_text(values: ValueKind) -> String {
    match values.expiry() {
        None => String::new(),
        Some(Expiry { default_ms: 0 }) => ", with deadlines".to_owned(),
        Some(Expiry { default_ms }) => {
            format!(", staying {}", duration::text(Duration::from_millis(default_ms)))
        }
    }
}
