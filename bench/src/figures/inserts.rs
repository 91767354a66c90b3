//! Throughput over time while a table grows: rates, retraining, and how far it lags.

use super::FigureError;
use super::svg::{Anchor, Svg, plain, short, ticks};
use crate::report::{InsertRecord, InsertSample, thousands};

const WIDTH: f64 = 800.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 690.0;
const TOP: f64 = 98.0;
/// Heights of the panels: rates, retraining, lag.
const HEIGHTS: [f64; 3] = [190.0, 80.0, 80.0];
const GAP: f64 = 38.0;
const NS_PER_MS: f64 = 1e6;

/// A sample at its time from the first phase's beginning.
struct Timed<'a> {
    end_s: f64,
    interval_s: f64,
    sample: &'a InsertSample,
}

/// A panel's place and scale.
struct Strip {
    top: f64,
    height: f64,
    greatest: f64,
    end_s: f64,
}

/// Where a panel begins.
fn top_of(place: usize) -> f64 {
    TOP + HEIGHTS[..place].iter().sum::<f64>() + GAP * place as f64
}

impl Strip {
    fn point(&self, at_s: f64, value: f64) -> (f64, f64) {
        let x = LEFT + at_s / self.end_s * (RIGHT - LEFT);
        (x, self.top + self.height * (1.0 - (value / self.greatest).min(1.0)))
    }

    /// The panel's rules, numbers and title; `values` sets the scale.
    fn new(svg: &mut Svg, place: usize, title: &str, end_s: f64, values: impl Iterator<Item = f64>) -> Self {
        let top = top_of(place);
        let (greatest, step) = ticks(values.fold(0.0, f64::max));
        let panel = Self { top, height: HEIGHTS[place], greatest, end_s };
        // Above the first one stand the names of the phases.
        let title_y = if place == 0 { top - 28.0 } else { top - 10.0 };
        svg.text(14.0, title_y, Anchor::Start, "head", title);
        for tick in 0..=(greatest / step).round() as u32 {
            let value = f64::from(tick) * step;
            let (_, y) = panel.point(0.0, value);
            svg.line((LEFT, y), (RIGHT, y), if tick == 0 { "axis" } else { "rule" });
            svg.text(LEFT - 8.0, y + 4.0, Anchor::End, "soft", &plain(value));
        }
        panel
    }

    /// A line of `value`.
    fn series(&self, svg: &mut Svg, samples: &[Timed<'_>], value: impl Fn(&Timed<'_>) -> f64, class: &str) {
        svg.path(samples.iter().map(|timed| self.point(timed.end_s, value(timed))), class);
    }
}

pub(super) fn draw(record: &InsertRecord) -> Result<String, FigureError> {
    let incomplete = |missing| FigureError::Incomplete { kind: "farsight bench inserts", missing };
    let mut phase_ends = Vec::new();
    let mut samples: Vec<Vec<Timed<'_>>> = Vec::new();
    let mut begin_s = 0.0;
    for phase in &record.phases {
        let mut previous_s = 0.0;
        let timed = phase.samples.iter().map(|sample| {
            let interval_s = sample.at_s - previous_s;
            previous_s = sample.at_s;
            Timed { end_s: begin_s + sample.at_s, interval_s, sample }
        });
        samples.push(timed.collect());
        begin_s += previous_s;
        phase_ends.push(begin_s);
    }
    if begin_s <= 0.0 {
        return Err(incomplete("samples"));
    }
    let height = TOP + HEIGHTS.iter().sum::<f64>() + GAP * 2.0 + 40.0;
    let title = "Throughput while the table grows";
    let description = "Rates of GETs and inserts: a writer alone; then, three times in turn, a reader alone, beside a \
                       writer on another table, and both on one; below, sub-models retrained, and the age of \
                       the oldest one that waits.";
    let mut svg = Svg::new(WIDTH, height, title, description);
    svg.text(14.0, 22.0, Anchor::Start, "head", title);
    let setting = &record.setting;
    let text = format!(
        "{} {} keys at the beginning, new ones in {} order, batches of {}; {}, {} cores",
        thousands(setting.keys),
        setting.dataset,
        setting.order,
        setting.batch,
        record.machine.cpu,
        record.machine.cores
    );
    svg.text(14.0, 40.0, Anchor::Start, "soft", &text);
    let all = || samples.iter().flatten();
    rates(&mut svg, record, &samples, begin_s);
    let retrained = |timed: &Timed<'_>| timed.sample.retrained as f64 / timed.interval_s.max(1e-3) / 1e3;
    let panel =
        Strip::new(&mut svg, 1, "training: sub-models retrained, thousands/s", begin_s, all().map(retrained));
    for timed in all() {
        let (x, y) = panel.point(timed.end_s - timed.interval_s, retrained(timed));
        let (end, floor) = panel.point(timed.end_s, 0.0);
        svg.rectangle((x, y), ((end - x - 0.5).max(0.5), floor - y), "other");
    }
    let lag_ms = |timed: &Timed<'_>| timed.sample.lag_ns as f64 / NS_PER_MS;
    let panel =
        Strip::new(&mut svg, 2, "training: age of the oldest that waits, ms", begin_s, all().map(lag_ms));
    for phase in &samples {
        panel.series(&mut svg, phase, lag_ms, "others");
    }
    let floor = TOP + HEIGHTS.iter().sum::<f64>() + GAP * 2.0;
    let (end, step) = ticks(begin_s);
    for tick in 0..=(end / step).round() as u32 {
        let at_s = f64::from(tick) * step;
        if at_s <= begin_s {
            svg.text(panel.point(at_s, 0.0).0, floor + 16.0, Anchor::Middle, "soft", &plain(at_s));
        }
    }
    svg.text(RIGHT + 12.0, floor + 16.0, Anchor::Start, "soft", "s");
    for end_s in &phase_ends[..phase_ends.len() - 1] {
        let (x, _) = panel.point(*end_s, 0.0);
        for (place, height) in HEIGHTS.iter().enumerate() {
            svg.dashed((x, top_of(place)), (x, top_of(place) + height), "axis");
        }
    }
    Ok(svg.finish())
}

/// The panel of rates, with each phase's name above it and its lines' names at the right.
fn rates(svg: &mut Svg, record: &InsertRecord, samples: &[Vec<Timed<'_>>], end_s: f64) {
    let all = samples.iter().flatten();
    let greatest = all.map(|timed| timed.sample.gets_per_s.max(timed.sample.inserts_per_s) / 1e6);
    let panel = Strip::new(svg, 0, "M operations/s", end_s, greatest);
    let gets = |timed: &Timed<'_>| timed.sample.gets_per_s / 1e6;
    let inserts = |timed: &Timed<'_>| timed.sample.inserts_per_s / 1e6;
    let mut begin_s = 0.0;
    for (phase, timed) in record.phases.iter().zip(samples) {
        let phase_end_s = timed.last().map_or(begin_s, |last| last.end_s);
        let name = match phase.phase.as_str() {
            "read" => "reader",
            "insert" => "a writer alone",
            other => other,
        };
        let (middle, _) = panel.point(f64::midpoint(begin_s, phase_end_s), 0.0);
        svg.text(middle, TOP - 10.0, Anchor::Middle, "soft", name);
        if phase.gets_per_s > 0.0 {
            panel.series(svg, timed, gets, "mains");
        }
        if phase.inserts_per_s > 0.0 {
            panel.series(svg, timed, inserts, "limits");
        }
        begin_s = phase_end_s;
    }
    // The lines' names, at their means in the last phase; names that would touch stand apart.
    let Some(last) = record.phases.last() else { return };
    let (gets, inserts) = (last.gets_per_s / 1e6, last.inserts_per_s / 1e6);
    let (mut get_y, mut insert_y) = (panel.point(0.0, gets).1, panel.point(0.0, inserts).1);
    if (get_y - insert_y).abs() < 16.0 {
        let middle = f64::midpoint(get_y, insert_y);
        (get_y, insert_y) =
            if gets >= inserts { (middle - 8.0, middle + 8.0) } else { (middle + 8.0, middle - 8.0) };
    }
    svg.text(RIGHT + 12.0, get_y + 4.0, Anchor::Start, "maint", &format!("GETs {}", short(gets)));
    svg.text(RIGHT + 12.0, insert_y + 4.0, Anchor::Start, "limitt", &format!("inserts {}", short(inserts)));
}
