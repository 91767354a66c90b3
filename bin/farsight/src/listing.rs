//! Tables for people.

use comfy_table::{LineStyle, Row, Table, presets};
use farsight::TableDefinition;

/// A table under `header`, with lines between rows left out.
pub(crate) fn listing(header: impl Into<Row>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::default()));
    table.set_header(header);
    table
}

/// Size and type of a table's values.
pub(crate) fn value_text(definition: &TableDefinition) -> String {
    match &definition.value_type[..] {
        "" => definition.values.to_string(),
        // Quoted: it is what a server says.
        name => format!("{} {name:?}", definition.values),
    }
}
