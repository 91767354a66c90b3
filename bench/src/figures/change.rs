//! Tables whose shape changes, over time: for each change the writer's rate, the reader's p99 and its READs.

use super::FigureError;
use super::svg::{Anchor, Svg, plain, ticks};
use crate::report::{ChangeRecord, ChangeSample, thousands};

const WIDTH: f64 = 800.0;
const TOP: f64 = 62.0;
/// A panel: its columns, the place and height of each of its three strips.
const COLUMNS: usize = 2;
const COLUMN_WIDTH: f64 = 390.0;
const LEFT: f64 = 62.0;
const STRIP_WIDTH: f64 = 304.0;
const STRIP_HEIGHT: f64 = 46.0;
const STRIP_GAP: f64 = 26.0;
const STRIPS: usize = 3;
const PANEL_HEIGHT: f64 = 40.0 + STRIPS as f64 * (STRIP_HEIGHT + STRIP_GAP) + 18.0;
/// Decades of the strip of latencies: from 1 µs to 100 ms.
const P99_DECADES: f64 = 5.0;
const P99_NS_MIN: f64 = 1e3;
const P99_TICKS: [(f64, &str); 3] = [(0.0, "1 µs"), (2.0, "100 µs"), (4.0, "10 ms")];
/// READs a GET at most, as the mark says.
const READS_MARK: f64 = 2.1;

/// A strip's place and scale.
struct CourseStrip {
    left: f64,
    top: f64,
    greatest: f64,
    end_s: f64,
}

impl CourseStrip {
    fn point(&self, at_s: f64, value: f64) -> (f64, f64) {
        let x = self.left + (at_s / self.end_s).min(1.0) * STRIP_WIDTH;
        (x, self.top + STRIP_HEIGHT * (1.0 - (value / self.greatest).clamp(0.0, 1.0)))
    }

    fn rule(&self, svg: &mut Svg, value: f64, label: &str) {
        let (_, y) = self.point(0.0, value);
        svg.line((self.left, y), (self.left + STRIP_WIDTH, y), if value > 0.0 { "rule" } else { "axis" });
        svg.text(self.left - 6.0, y + 4.0, Anchor::End, "soft", label);
    }

    /// The intervals' values, each a step.
    fn steps(
        &self,
        svg: &mut Svg,
        samples: &[ChangeSample],
        value: impl Fn(&ChangeSample) -> f64,
        class: &str,
    ) {
        let ends = samples.iter().flat_map(|sample| {
            let value = value(sample);
            [self.point(sample.at_s - sample.interval_s, value), self.point(sample.at_s, value)]
        });
        svg.path(ends, class);
    }
}

pub(super) fn draw(records: &[ChangeRecord]) -> Result<String, FigureError> {
    if records.iter().any(|record| record.samples.is_empty()) {
        return Err(FigureError::Incomplete { kind: "farsight bench change", missing: "samples" });
    }
    let rows = records.len().div_ceil(COLUMNS);
    let title = "Tables whose shape changes after the load";
    let description = "For each change, over time: the writer's rate, the 99th percentile of a reader's batches, \
                       and its READs a GET; before the change, beside the writer, and on the new keys after it.";
    let mut svg = Svg::new(WIDTH, TOP + rows as f64 * PANEL_HEIGHT, title, description);
    svg.text(14.0, 22.0, Anchor::Start, "head", title);
    let machine = &records[0].machine;
    let text = format!(
        "a reader of loaded keys, a writer beside it, then the reader on the new keys; {}, {} cores",
        machine.cpu, machine.cores
    );
    svg.text(14.0, 40.0, Anchor::Start, "soft", &text);
    for (place, record) in records.iter().enumerate() {
        let (column, row) = (place % COLUMNS, place / COLUMNS);
        panel(&mut svg, record, (column as f64 * COLUMN_WIDTH, TOP + row as f64 * PANEL_HEIGHT));
    }
    Ok(svg.finish())
}

/// One change, with its corner there.
fn panel(svg: &mut Svg, record: &ChangeRecord, (x, y): (f64, f64)) {
    let samples = &record.samples;
    let end_s = samples.last().map_or(1.0, |sample| sample.at_s);
    let text = format!(
        "{}: {} keys, {} writes",
        record.change,
        thousands(record.keys),
        thousands(record.operations)
    );
    svg.text(x + 14.0, y + 14.0, Anchor::Start, "head", &text);
    let strip = |place: usize, greatest: f64| {
        let top = y + 40.0 + place as f64 * (STRIP_HEIGHT + STRIP_GAP);
        CourseStrip { left: x + LEFT, top, greatest, end_s }
    };
    let writes = |sample: &ChangeSample| sample.writes_per_s / 1e6;
    let (greatest, _) = ticks(samples.iter().map(writes).fold(0.0, f64::max));
    let rates = strip(0, greatest);
    rates.rule(svg, 0.0, "0");
    rates.rule(svg, greatest, &plain(greatest));
    rates.steps(svg, samples, writes, "limits");
    let latencies = strip(1, P99_DECADES);
    for (decade, label) in P99_TICKS {
        latencies.rule(svg, decade, label);
    }
    latencies.steps(svg, samples, |sample| (sample.get_p99_ns as f64 / P99_NS_MIN).max(1.0).log10(), "mains");
    let (greatest, _) = ticks(samples.iter().map(|sample| sample.reads_per_get).fold(READS_MARK, f64::max));
    let reads = strip(2, greatest);
    reads.rule(svg, 0.0, "0");
    reads.rule(svg, greatest, &plain(greatest));
    let (left, mark_y) = reads.point(0.0, READS_MARK);
    svg.dashed((left, mark_y), (left + STRIP_WIDTH, mark_y), "axis");
    reads.steps(svg, samples, |sample| sample.reads_per_get, "mains");
    let names = [(&rates, "writes, M/s"), (&latencies, "reader's p99"), (&reads, "READs a GET")];
    for (strip, name) in names {
        svg.text(strip.left, strip.top - 6.0, Anchor::Start, "soft", name);
    }
    let begin_s = |phase: &str| {
        let first = samples.iter().find(|sample| sample.phase == phase);
        first.map(|sample| (sample.at_s - sample.interval_s).max(0.0))
    };
    let (top, floor) = (rates.top - 4.0, reads.top + STRIP_HEIGHT);
    for (phase, name) in [("during", "change"), ("settling", "new keys")] {
        let Some(at_s) = begin_s(phase) else { continue };
        let (x, _) = rates.point(at_s, 0.0);
        svg.dashed((x, top), (x, floor), "axis");
        if phase == "settling" {
            svg.text(x + 4.0, floor + 14.0, Anchor::Start, "soft", name);
        } else {
            svg.text(x - 4.0, floor + 14.0, Anchor::End, "soft", "before");
        }
    }
    svg.text(x + LEFT + STRIP_WIDTH, floor + 14.0, Anchor::End, "soft", &format!("{end_s:.1} s"));
}
