//! What a compute node or client keeps of a learned index, a key: models, and the tables of leaves that they
//! point into.

use super::FigureError;
use super::engines::{distinct, title_of};
use super::svg::{Anchor, Svg, plain, ticks};
use crate::report::{Record, thousands};

const WIDTH: f64 = 800.0;
const LEFT: f64 = 180.0;
const RIGHT: f64 = 560.0;
const TOP: f64 = 86.0;
const ROW: f64 = 24.0;
const BAR: f64 = 14.0;
const GAP: f64 = 12.0;

pub(super) fn draw(records: &[Record]) -> Result<String, FigureError> {
    let incomplete = |missing| FigureError::Incomplete { kind: "farsight bench ycsb", missing };
    let first = records.first().ok_or_else(|| incomplete("results"))?;
    let bytes = |record: &Record| record.median.cache_bytes_per_key;
    if records.iter().any(|record| bytes(record) <= 0.0 || record.median.model_bytes_per_key > bytes(record))
    {
        return Err(incomplete("the memory of its cache"));
    }
    let datasets = distinct(records.iter().map(|record| record.setting.dataset.as_str()));
    let height = TOP + records.len() as f64 * ROW + datasets.len() as f64 * GAP + 30.0;
    let title = "Memory of a learned index at its readers, B a key";
    let setting = format!(
        "{} keys, {} B values; models and, behind them, tables of leaves",
        thousands(first.setting.keys),
        first.setting.value_size
    );
    let mut svg = Svg::new(WIDTH, height, title, &format!("{title}: {setting}."));
    svg.text(14.0, 22.0, Anchor::Start, "head", title);
    svg.text(14.0, 40.0, Anchor::Start, "soft", &setting);
    svg.rectangle((LEFT, 54.0), (10.0, 10.0), "main");
    svg.text(LEFT + 16.0, 63.0, Anchor::Start, "maint", "models");
    svg.rectangle((LEFT + 90.0, 54.0), (10.0, 10.0), "other");
    svg.text(LEFT + 106.0, 63.0, Anchor::Start, "ink", "tables of leaves");
    let (greatest, step) = ticks(records.iter().map(bytes).fold(0.0, f64::max));
    let x = |bytes: f64| LEFT + bytes / greatest * (RIGHT - LEFT);
    let bottom = height - 30.0;
    for tick in 0..=(greatest / step).round() as u32 {
        let value = f64::from(tick) * step;
        svg.line((x(value), TOP - 6.0), (x(value), bottom), if tick == 0 { "axis" } else { "rule" });
        svg.text(x(value), bottom + 16.0, Anchor::Middle, "soft", &plain(value));
    }
    let mut y = TOP;
    for dataset in datasets {
        svg.text(14.0, y + 11.0, Anchor::Start, "head", dataset);
        for record in records.iter().filter(|record| record.setting.dataset == dataset) {
            let (models, all) = (record.median.model_bytes_per_key, bytes(record));
            svg.rectangle((x(0.0), y), (x(models) - x(0.0), BAR), "main");
            svg.rectangle((x(models), y), (x(all) - x(models), BAR), "other");
            svg.text(LEFT - 10.0, y + 11.0, Anchor::End, "ink", title_of(&record.setting.engine));
            let text = format!("{all:.3}, of it tables {:.1} %", (1.0 - models / all) * 1e2);
            svg.text(x(all) + 8.0, y + 11.0, Anchor::Start, "ink", &text);
            y += ROW;
        }
        y += GAP;
    }
    Ok(svg.finish())
}
