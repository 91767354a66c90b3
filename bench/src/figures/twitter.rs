//! What systems reach on workloads as Twitter's caches have them: a row a cluster, by the rate of the last
//! system, as Figure 15 of FlexKV's paper. The scale is logarithmic, for rates differ by a hundred times.

use super::FigureError;
use super::svg::{Anchor, Svg, plain, short};
use crate::report::{ClusterRecord, ClusterRun, systems_of};

const WIDTH: f64 = 800.0;
const LEFT: f64 = 330.0;
const RIGHT: f64 = 700.0;
const TOP: f64 = 96.0;
const ROW: f64 = 15.0;
const FOOT: f64 = 34.0;
/// Classes of the systems' marks and names; those behind these have the last.
const CLASSES: [[&str; 2]; 3] = [["other", "ink"], ["main", "maint"], ["limit", "limitt"]];

pub(super) fn draw(records: &[ClusterRecord]) -> Result<String, FigureError> {
    let incomplete = |missing| FigureError::Incomplete { kind: "farsight bench twitter", missing };
    let first = records.first().ok_or_else(|| incomplete("results"))?;
    let systems = systems_of(records);
    let last = *systems.last().ok_or_else(|| incomplete("runs"))?;
    let rates = || records.iter().flat_map(|record| &record.runs).map(rate);
    if rates().any(|rate| !rate.is_finite() || rate <= 0.0) {
        return Err(incomplete("positive rates"));
    }
    let floor = rates().fold(f64::INFINITY, f64::min).log10().floor();
    let ceiling = rates().fold(0.0, f64::max).log10().ceil().max(floor + 1.0);
    let x = |millions: f64| LEFT + (millions.log10() - floor) / (ceiling - floor) * (RIGHT - LEFT);
    let bottom = TOP + records.len() as f64 * ROW;
    let title = "Workloads as Twitter's caches have them, M operations/s";
    let mut svg = Svg::new(WIDTH, bottom + FOOT, title, &format!("{title}: {}.", first.setting));
    svg.text(14.0, 22.0, Anchor::Start, "head", title);
    svg.text(14.0, 40.0, Anchor::Start, "soft", &first.setting);
    let mut name_x = LEFT;
    for (system, [mark, name]) in systems.iter().zip(classes()) {
        svg.dot((name_x, 62.0), 4.0, mark);
        svg.text(name_x + 8.0, 66.0, Anchor::Start, name, system);
        name_x += 130.0;
    }
    svg.text(14.0, TOP - 12.0, Anchor::Start, "soft", "cluster: writes, skew, bytes of a value");
    for power in floor as i32..=ceiling as i32 {
        let at = x(10f64.powi(power));
        svg.line((at, TOP - 6.0), (at, bottom), "rule");
        svg.text(at, bottom + 16.0, Anchor::Middle, "soft", &plain(10f64.powi(power)));
    }
    let of_last = |record: &ClusterRecord| record.runs.iter().find(|run| run.system == last).map(rate);
    let mut sorted: Vec<&ClusterRecord> = records.iter().collect();
    sorted.sort_by(|one, other| of_last(other).unwrap_or(0.0).total_cmp(&of_last(one).unwrap_or(0.0)));
    for (row, record) in sorted.into_iter().enumerate() {
        let y = TOP + row as f64 * ROW + 8.0;
        let name = format!(
            "{}: {} %, {}, {} B",
            record.cluster,
            record.updates_percent + record.inserts_percent,
            short(record.zipf_alpha),
            record.value_bytes_published
        );
        svg.text(LEFT - 12.0, y + 4.0, Anchor::End, "ink", &name);
        let of_row = record.runs.iter().map(rate);
        let (low, high) = of_row.fold((f64::INFINITY, 0.0f64), |(low, high), it| (low.min(it), high.max(it)));
        svg.line((x(low), y), (x(high), y), "axis");
        for run in &record.runs {
            let place = systems.iter().position(|system| *system == run.system).unwrap_or_default();
            let [mark, _] = classes().nth(place).unwrap_or(CLASSES[0]);
            svg.dot((x(rate(run)), y), 4.0, mark);
        }
        if let Some(rate) = of_last(record) {
            svg.text(RIGHT + 12.0, y + 4.0, Anchor::Start, "maint", &short(rate));
        }
    }
    Ok(svg.finish())
}

fn rate(run: &ClusterRun) -> f64 {
    run.throughput_ops_per_s / 1e6
}

fn classes() -> impl Iterator<Item = [&'static str; 2]> {
    CLASSES.into_iter().chain(std::iter::repeat(CLASSES[2]))
}
