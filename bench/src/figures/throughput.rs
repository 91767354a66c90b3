//! Throughput by workload: YCSB A to F, Farsight beside other stores and the limit, on one logarithmic scale.

use super::FigureError;
use super::svg::{Anchor, Svg, short};
use crate::report::{ComparedStore, Comparison, Work, thousands};

const WIDTH: f64 = 800.0;
const LEFT: f64 = 104.0;
const TOP: f64 = 62.0;
const PANEL_WIDTH: f64 = 206.0;
const PANEL_STEP: f64 = 236.0;
/// The column of values, to the right of the greatest mark.
const VALUE_WIDTH: f64 = 38.0;
const ROW: f64 = 18.0;
const PANEL_HEAD: f64 = 24.0;
const PANEL_FOOT: f64 = 34.0;
const COLUMNS: usize = 3;

/// Panels in their order: workload, title.
const PANELS: [(Work, &str); 6] = [
    (Work::A, "A: 50 % update"),
    (Work::B, "B: 10 % update"),
    (Work::GetZipfian, "C: read only"),
    (Work::D, "D: latest, 5 % insert"),
    (Work::E, "E: scan, 5 % insert"),
    (Work::F, "F: read-modify-write"),
];

/// Powers of ten that the axis spans.
struct Axis {
    least: i32,
    greatest: i32,
}

impl Axis {
    /// Around these rates, in M/s.
    fn around(rates: &[f64]) -> Self {
        let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = rates.iter().copied().fold(0.0, f64::max);
        let (least, greatest) = (least.log10().floor() as i32, greatest.log10().ceil() as i32);
        Self { least, greatest: greatest.max(least + 1) }
    }

    /// Where a rate lies, from the panel's left edge.
    fn at(&self, millions: f64) -> f64 {
        let part = (millions.log10() - f64::from(self.least)) / f64::from(self.greatest - self.least);
        part * (PANEL_WIDTH - VALUE_WIDTH)
    }
}

pub(super) fn draw(comparison: &Comparison) -> Result<String, FigureError> {
    let incomplete = |missing| FigureError::Incomplete { kind: "bench-compare", missing };
    let takes_part =
        |store: &&ComparedStore| PANELS.iter().filter(|(work, _)| store.rate(*work).is_some()).count() > 1;
    let stores: Vec<&ComparedStore> = comparison.stores.iter().filter(takes_part).collect();
    if stores.is_empty() {
        return Err(incomplete("stores"));
    }
    let limit = comparison.shape_limit_per_s / 1e6;
    let rates: Vec<f64> = PANELS
        .iter()
        .flat_map(|(work, _)| stores.iter().filter_map(|store| store.rate(*work)))
        .map(|rate| rate.ops_per_s / 1e6)
        .chain([limit])
        .collect();
    if rates.iter().any(|rate| !rate.is_finite() || *rate <= 0.0) {
        return Err(incomplete("positive rates"));
    }
    let axis = Axis::around(&rates);
    let panel_height = PANEL_HEAD + stores.len() as f64 * ROW + PANEL_FOOT;
    let height = TOP + 2.0 * panel_height + 6.0;
    let title = "Throughput by workload";
    let description = format!(
        "M operations a second of {} stores in YCSB A to F on {} keys, on a logarithmic scale.",
        stores.len(),
        thousands(comparison.keys)
    );
    let mut svg = Svg::new(WIDTH, height, title, &description);
    svg.text(14.0, 22.0, Anchor::Start, "head", &format!("{title}, M operations/s, one client thread"));
    let setting = format!(
        "{} {} keys, Zipfian .99, batches of {}; {}, {} cores; medians of {} rounds, {}",
        thousands(comparison.keys),
        comparison.dataset,
        comparison.batch,
        comparison.machine.cpu,
        comparison.machine.cores,
        comparison.rounds,
        comparison.date
    );
    svg.text(14.0, 40.0, Anchor::Start, "soft", &setting);
    // What a GET without any check reaches bounds every workload that does at least a GET an operation.
    let text = format!("dashed: unchecked GETs, {}", short(limit));
    svg.text(WIDTH - 14.0, 22.0, Anchor::End, "limitt", &text);
    for (index, (work, name)) in PANELS.iter().enumerate() {
        let origin =
            (LEFT + (index % COLUMNS) as f64 * PANEL_STEP, TOP + (index / COLUMNS) as f64 * panel_height);
        let panel = Panel { axis: &axis, stores: &stores, limit, origin, has_names: index % COLUMNS == 0 };
        panel.draw(&mut svg, *work, name);
    }
    Ok(svg.finish())
}

/// One workload.
struct Panel<'a> {
    axis: &'a Axis,
    stores: &'a [&'a ComparedStore],
    limit: f64,
    origin: (f64, f64),
    has_names: bool,
}

impl Panel<'_> {
    fn draw(&self, svg: &mut Svg, work: Work, name: &str) {
        let (left, top) = self.origin;
        svg.text(left, top + 12.0, Anchor::Start, "head", name);
        let (begin, end) = (top + PANEL_HEAD - 4.0, top + PANEL_HEAD + self.stores.len() as f64 * ROW);
        for exponent in self.axis.least..=self.axis.greatest {
            let millions = 10_f64.powi(exponent);
            let x = left + self.axis.at(millions);
            svg.line((x, begin), (x, end), "rule");
            svg.text(x, end + 14.0, Anchor::Middle, "soft", &millions.to_string());
        }
        let x = left + self.axis.at(self.limit);
        svg.dashed((x, begin), (x, end), "limits");
        for (row, store) in self.stores.iter().enumerate() {
            let y = top + PANEL_HEAD + (row as f64 + 0.5) * ROW;
            let is_main = row == 0;
            if self.has_names {
                svg.text(
                    LEFT - 12.0,
                    y + 4.0,
                    Anchor::End,
                    if is_main { "maint" } else { "ink" },
                    &store.name,
                );
            }
            let Some(rate) = store.rate(work) else {
                svg.text(left + PANEL_WIDTH, y + 4.0, Anchor::End, "soft", "\u{2013}");
                continue;
            };
            let millions = rate.ops_per_s / 1e6;
            let x = left + self.axis.at(millions);
            svg.line((left, y), (x, y), if is_main { "mains" } else { "others" });
            svg.dot((x, y), if is_main { 5.0 } else { 4.0 }, if is_main { "main" } else { "other" });
            let class = if is_main { "maint" } else { "ink" };
            svg.text(left + PANEL_WIDTH, y + 4.0, Anchor::End, class, &short(millions));
        }
    }
}
