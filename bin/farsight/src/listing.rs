//! Tables for people.

use comfy_table::{LineStyle, Row, Table, presets};

/// A table under `header`, with lines between rows left out.
pub(crate) fn listing(header: impl Into<Row>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::default()));
    table.set_header(header);
    table
}
