//! Simulated throughput by what a client's cache may take, a row a budget and way, as Figures 15b and 15c of
//! XStore's paper.

use super::FigureError;
use super::engines::distinct;
use super::svg::{Anchor, Svg, plain, ticks};
use crate::report::{SimulatedRecord, budget_text, thousands, way};

const WIDTH: f64 = 800.0;
const LEFT: f64 = 200.0;
const RIGHT: f64 = 620.0;
const TOP: f64 = 86.0;
const ROW: f64 = 22.0;
const BAR: f64 = 14.0;
const HEAD: f64 = 24.0;
const GAP: f64 = 12.0;

pub(super) fn draw(records: &[SimulatedRecord]) -> Result<String, FigureError> {
    let incomplete = |missing| FigureError::Incomplete { kind: "farsight bench cache", missing };
    let first = records.first().ok_or_else(|| incomplete("results"))?;
    let rate = |record: &SimulatedRecord| record.throughput_ops_per_s / 1e6;
    if records.iter().any(|record| !rate(record).is_finite() || rate(record) <= 0.0) {
        return Err(incomplete("positive rates"));
    }
    let skews = distinct(records.iter().map(|record| record.distribution.as_str()));
    let height = TOP + records.len() as f64 * ROW + skews.len() as f64 * (HEAD + GAP) + 30.0;
    let title = "GETs by what a client's cache may take, simulated, M operations/s";
    let setting = format!(
        "{} machines of {} threads, {} keys, batches of {}; what the cache lacks comes by READs or by calls",
        first.machines,
        first.threads_per_machine,
        thousands(first.keys),
        first.batch
    );
    let mut svg = Svg::new(WIDTH, height, title, &format!("{title}: {setting}."));
    svg.text(14.0, 22.0, Anchor::Start, "head", title);
    svg.text(14.0, 40.0, Anchor::Start, "soft", &setting);
    let (greatest, step) = ticks(records.iter().map(rate).fold(0.0, f64::max));
    let x = |millions: f64| LEFT + millions / greatest * (RIGHT - LEFT);
    let bottom = height - 30.0;
    for tick in 0..=(greatest / step).round() as u32 {
        let value = f64::from(tick) * step;
        svg.line((x(value), TOP - 6.0), (x(value), bottom), if tick == 0 { "axis" } else { "rule" });
        svg.text(x(value), bottom + 16.0, Anchor::Middle, "soft", &plain(value));
    }
    let mut y = TOP;
    for skew in skews {
        svg.text(14.0, y + 11.0, Anchor::Start, "head", skew);
        y += HEAD;
        for record in records.iter().filter(|record| record.distribution == skew) {
            let name = match record.cache_budget_bytes {
                None => budget_text(record),
                Some(_) => format!("{}, {}", budget_text(record), way(record)),
            };
            let class = if record.publishes_models { "main" } else { "other" };
            svg.text(LEFT - 10.0, y + 11.0, Anchor::End, "ink", &name);
            svg.rectangle((x(0.0), y), (x(rate(record)) - x(0.0), BAR), class);
            let text = format!("{:.1}, {:.2} calls an operation", rate(record), record.calls_per_op);
            svg.text(x(rate(record)) + 8.0, y + 11.0, Anchor::Start, "ink", &text);
            y += ROW;
        }
        y += GAP;
    }
    Ok(svg.finish())
}
