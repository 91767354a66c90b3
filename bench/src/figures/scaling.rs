//! Simulated throughput by the number of compute nodes, which doubles from tick to tick; a panel a workload,
//! a line an engine.

use super::FigureError;
use super::engines::{classes, distinct, simulated_setting, title_of};
use super::svg::{Anchor, Svg, plain, short, ticks};
use crate::report::SimulatedRecord;

const WIDTH: f64 = 800.0;
const LEFT: f64 = 56.0;
const TOP: f64 = 92.0;
const PANEL_WIDTH: f64 = 240.0;
const PANEL_STEP: f64 = 376.0;
const PANEL_HEIGHT: f64 = 190.0;
const PANEL_FOOT: f64 = 66.0;
const COLUMNS: usize = 2;
/// Names at the ends of lines stand at least so far apart.
const NAME_STEP: f64 = 15.0;

pub(super) fn draw(records: &[SimulatedRecord]) -> Result<String, FigureError> {
    let incomplete = |missing| FigureError::Incomplete { kind: "farsight bench ycsb --fabric sim", missing };
    let first = records.first().ok_or_else(|| incomplete("results"))?;
    if records.iter().any(|record| record.machines == 0 || !record.throughput_ops_per_s.is_finite()) {
        return Err(incomplete("compute nodes and rates"));
    }
    let workloads = distinct(records.iter().map(|record| record.workload.as_str()));
    let height = TOP + workloads.len().div_ceil(COLUMNS) as f64 * (PANEL_HEIGHT + PANEL_FOOT) - 14.0;
    let title = "Throughput by compute nodes, simulated, M operations/s";
    let setting = format!(
        "{} threads a compute node, {}",
        first.threads_per_machine,
        simulated_setting(records, first)
    );
    let mut svg = Svg::new(WIDTH, height, title, &format!("{title}: {setting}."));
    svg.text(14.0, 22.0, Anchor::Start, "head", title);
    svg.text(14.0, 40.0, Anchor::Start, "soft", &setting);
    for (index, workload) in workloads.iter().enumerate() {
        let own: Vec<&SimulatedRecord> =
            records.iter().filter(|record| record.workload == *workload).collect();
        let left = LEFT + (index % COLUMNS) as f64 * PANEL_STEP;
        let top = TOP + (index / COLUMNS) as f64 * (PANEL_HEIGHT + PANEL_FOOT);
        panel(&mut svg, (left, top), workload, &own);
    }
    Ok(svg.finish())
}

fn panel(svg: &mut Svg, (left, top): (f64, f64), workload: &str, records: &[&SimulatedRecord]) {
    let rate = |record: &SimulatedRecord| record.throughput_ops_per_s / 1e6;
    let (greatest, step) = ticks(records.iter().map(|record| rate(record)).fold(0.0, f64::max));
    let machines = distinct(records.iter().map(|record| record.machines));
    let octaves = |machines: usize| (machines as f64).log2();
    let least = machines.iter().copied().map(octaves).fold(f64::INFINITY, f64::min);
    let span = (machines.iter().copied().map(octaves).fold(0.0, f64::max) - least).max(1.0);
    let x = |machines: usize| left + (octaves(machines) - least) / span * PANEL_WIDTH;
    let y = |millions: f64| top + PANEL_HEIGHT * (1.0 - millions / greatest);
    svg.text(left, top - 18.0, Anchor::Start, "head", &workload.to_uppercase());
    for tick in 0..=(greatest / step).round() as u32 {
        let value = f64::from(tick) * step;
        let class = if tick == 0 { "axis" } else { "rule" };
        svg.line((left, y(value)), (left + PANEL_WIDTH, y(value)), class);
        svg.text(left - 8.0, y(value) + 4.0, Anchor::End, "soft", &plain(value));
    }
    for machines in machines {
        let text = machines.to_string();
        svg.text(x(machines), top + PANEL_HEIGHT + 16.0, Anchor::Middle, "soft", &text);
    }
    let middle = left + PANEL_WIDTH / 2.0;
    svg.text(middle, top + PANEL_HEIGHT + 32.0, Anchor::Middle, "soft", "compute nodes");
    let mut names = Vec::new();
    for engine in distinct(records.iter().map(|record| record.engine.as_str())) {
        let of_engine: Vec<&&SimulatedRecord> =
            records.iter().filter(|record| record.engine == engine).collect();
        let [mark, line, name] = classes(engine);
        let points: Vec<(f64, f64)> =
            of_engine.iter().map(|record| (x(record.machines), y(rate(record)))).collect();
        for point in &points {
            svg.dot(*point, 3.0, mark);
        }
        svg.path(points.iter().copied(), line);
        if let (Some(last), Some(point)) = (of_engine.last(), points.last()) {
            names.push((point.1, name, format!("{} {}", title_of(engine), short(rate(last)))));
        }
    }
    names.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut free = f64::NEG_INFINITY;
    for (at, class, text) in names {
        free = at.max(free);
        svg.text(left + PANEL_WIDTH + 8.0, free + 4.0, Anchor::Start, class, &text);
        free += NAME_STEP;
    }
}
