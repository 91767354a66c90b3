//! Engines beside each other, a panel a workload, each with a scale of its own that begins at zero; measured,
//! or simulated.

use super::FigureError;
use super::svg::{Anchor, Svg, short};
use crate::report::{Record, SimulatedRecord, thousands};

const WIDTH: f64 = 800.0;
const LEFT: f64 = 88.0;
const TOP: f64 = 62.0;
const PANEL_WIDTH: f64 = 206.0;
const PANEL_STEP: f64 = 240.0;
/// The column of values, to the right of the longest bar.
const VALUE_WIDTH: f64 = 44.0;
const ROW: f64 = 22.0;
const BAR: f64 = 13.0;
const PANEL_HEAD: f64 = 22.0;
const PANEL_FOOT: f64 = 18.0;
const COLUMNS: usize = 3;

/// A rate of one engine in one workload.
struct Bar<'a> {
    workload: &'a str,
    engine: &'a str,
    ops_per_s: f64,
}

/// The classes of an engine's marks and of its name.
pub(super) fn classes(engine: &str) -> [&'static str; 3] {
    match engine {
        "rolex" => ["main", "mains", "maint"],
        "xstore-d" => ["limit", "limits", "limitt"],
        _ => ["other", "others", "ink"],
    }
}

/// The engine's name as people write it.
pub(super) fn title_of(engine: &str) -> &str {
    match engine {
        "rolex" => "ROLEX",
        "xstore-d" => "XStore-D",
        "xstore" => "XStore",
        other => other,
    }
}

/// Different values in the order of their first coming.
pub(super) fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.fold(Vec::new(), |mut all, value| {
        if !all.contains(&value) {
            all.push(value);
        }
        all
    })
}

pub(super) fn draw(records: &[Record]) -> Result<String, FigureError> {
    let [first, ..] = records else {
        return Err(FigureError::Incomplete { kind: "farsight bench ycsb", missing: "results" });
    };
    let setting = &first.setting;
    let text = format!(
        "{} {} keys, batches of {}, {} client {} over {}; {}, {} cores; medians of {} runs",
        thousands(setting.keys),
        setting.dataset,
        setting.batch,
        setting.threads,
        if setting.threads == 1 { "thread" } else { "threads" },
        setting.fabric,
        first.machine.cpu,
        first.machine.cores,
        first.runs.len()
    );
    let bars = records.iter().map(|record| Bar {
        workload: &record.setting.workload,
        engine: &record.setting.engine,
        ops_per_s: record.median.throughput_ops_per_s,
    });
    panels("Engines by workload, M operations/s", &text, &bars.collect::<Vec<_>>())
}

pub(super) fn draw_simulated(records: &[SimulatedRecord]) -> Result<String, FigureError> {
    let [first, ..] = records else {
        return Err(FigureError::Incomplete { kind: "farsight bench ycsb --fabric sim", missing: "results" });
    };
    let text = format!(
        "{} compute nodes of {} threads, {}",
        first.machines,
        first.threads_per_machine,
        simulated_setting(records, first)
    );
    let bars = records.iter().map(|record| Bar {
        workload: &record.workload,
        engine: &record.engine,
        ops_per_s: record.throughput_ops_per_s,
    });
    panels("Engines by workload, simulated, M operations/s", &text, &bars.collect::<Vec<_>>())
}

/// What results of one setting have in common besides compute nodes; `first` is one of them.
pub(super) fn simulated_setting(records: &[SimulatedRecord], first: &SimulatedRecord) -> String {
    format!(
        "{} memory nodes, profile {}; {} {} keys, batches of {}",
        records.iter().map(|record| record.memory_nodes).max().unwrap_or_default(),
        first.profile,
        thousands(first.keys),
        first.dataset,
        first.batch
    )
}

fn panels(title: &str, setting: &str, bars: &[Bar<'_>]) -> Result<String, FigureError> {
    if bars.iter().any(|bar| !bar.ops_per_s.is_finite() || bar.ops_per_s <= 0.0) {
        return Err(FigureError::Incomplete { kind: "farsight bench ycsb", missing: "positive rates" });
    }
    let workloads = distinct(bars.iter().map(|bar| bar.workload));
    let rows = workloads.iter().map(|name| bars.iter().filter(|bar| bar.workload == *name).count()).max();
    let panel_height = PANEL_HEAD + rows.unwrap_or_default() as f64 * ROW + PANEL_FOOT;
    let height = TOP + workloads.len().div_ceil(COLUMNS) as f64 * panel_height;
    let mut svg =
        Svg::new(WIDTH, height, title, &format!("{title}, for {}: {setting}.", workloads.join(", ")));
    svg.text(14.0, 22.0, Anchor::Start, "head", title);
    svg.text(14.0, 40.0, Anchor::Start, "soft", setting);
    for (index, workload) in workloads.iter().enumerate() {
        let left = LEFT + (index % COLUMNS) as f64 * PANEL_STEP;
        let top = TOP + (index / COLUMNS) as f64 * panel_height;
        let own: Vec<&Bar<'_>> = bars.iter().filter(|bar| bar.workload == *workload).collect();
        let greatest = own.iter().map(|bar| bar.ops_per_s).fold(0.0, f64::max);
        svg.text(left, top + 12.0, Anchor::Start, "head", &workload.to_uppercase());
        for (row, bar) in own.iter().enumerate() {
            let y = top + PANEL_HEAD + row as f64 * ROW;
            let [mark, _, name] = classes(bar.engine);
            let width = bar.ops_per_s / greatest * (PANEL_WIDTH - VALUE_WIDTH);
            svg.rectangle((left, y), (width, BAR), mark);
            svg.text(left + width + 6.0, y + 11.0, Anchor::Start, name, &short(bar.ops_per_s / 1e6));
            if index % COLUMNS == 0 {
                svg.text(left - 8.0, y + 11.0, Anchor::End, name, title_of(bar.engine));
            }
        }
        let bottom = top + PANEL_HEAD + own.len() as f64 * ROW;
        svg.line((left, top + PANEL_HEAD - 4.0), (left, bottom - 4.0), "axis");
    }
    Ok(svg.finish())
}
