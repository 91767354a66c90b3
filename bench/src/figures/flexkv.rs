//! A figure of FlexKV's evaluation: a panel a workload, a line a system. Lines of verb mixes are dashed. A
//! workload that changes is drawn over time.

use super::FigureError;
use super::engines::distinct;
use super::svg::{Anchor, Svg, plain, short, ticks};
use crate::report::{FlexPointRecord, flex_systems};

const WIDTH: f64 = 900.0;
const LEFT: f64 = 56.0;
const TOP: f64 = 92.0;
const PANEL_WIDTH: f64 = 230.0;
const PANEL_STEP: f64 = 440.0;
const PANEL_HEIGHT: f64 = 200.0;
const PANEL_FOOT: f64 = 66.0;
const COLUMNS: usize = 2;
/// Names at the ends of lines stand at least so far apart.
const NAME_STEP: f64 = 15.0;
/// The strip over time.
const COURSE_WIDTH: f64 = 780.0;
const COURSE_HEIGHT: f64 = 150.0;
const COURSE_GAP: f64 = 40.0;
/// Classes of marks, lines and names: of the first system, the second, and all others.
const CLASSES: [[&str; 3]; 3] =
    [["main", "mains", "maint"], ["limit", "limits", "limitt"], ["other", "others", "ink"]];

/// The place and scale of a panel.
struct Frame {
    left: f64,
    top: f64,
    size: (f64, f64),
    x_range: (f64, f64),
    greatest: f64,
}

impl Frame {
    fn point(&self, x: f64, y: f64) -> (f64, f64) {
        let (from, to) = self.x_range;
        let along = (x - from) / (to - from).max(f64::MIN_POSITIVE);
        (self.left + along * self.size.0, self.top + self.size.1 * (1.0 - y / self.greatest))
    }

    /// Rules across, with their values.
    fn rules(&self, svg: &mut Svg, step: f64) {
        for tick in 0..=(self.greatest / step).round() as u32 {
            let value = f64::from(tick) * step;
            let (_, y) = self.point(self.x_range.0, value);
            let class = if tick == 0 { "axis" } else { "rule" };
            svg.line((self.left, y), (self.left + self.size.0, y), class);
            svg.text(self.left - 8.0, y + 4.0, Anchor::End, "soft", &plain(value));
        }
    }
}

pub(super) fn draw(records: &[FlexPointRecord]) -> Result<String, FigureError> {
    let incomplete = |missing| FigureError::Incomplete { kind: "farsight bench flexkv", missing };
    let first = records.first().ok_or_else(|| incomplete("results"))?;
    if distinct(records.iter().map(|record| record.figure.as_str())).len() > 1 {
        return Err(incomplete("one figure alone: there are several"));
    }
    let rates = records.iter().map(|record| record.run.throughput_ops_per_s);
    if rates.chain(records.iter().map(|record| record.x)).any(|number| !number.is_finite() || number < 0.0) {
        return Err(incomplete("rates and places"));
    }
    if records.iter().any(|record| !record.run.samples.is_empty()) {
        return Ok(course(first));
    }
    let panels = distinct(records.iter().map(|record| record.panel.as_str()));
    let height = TOP + panels.len().div_ceil(COLUMNS) as f64 * (PANEL_HEIGHT + PANEL_FOOT) - 14.0;
    let mut svg = begin(first, height, "M operations/s, simulated");
    let systems = flex_systems(records);
    for (index, panel) in panels.into_iter().enumerate() {
        let own: Vec<&FlexPointRecord> = records.iter().filter(|record| record.panel == panel).collect();
        let left = LEFT + (index % COLUMNS) as f64 * PANEL_STEP;
        let top = TOP + (index / COLUMNS) as f64 * (PANEL_HEIGHT + PANEL_FOOT);
        lines(&mut svg, (left, top), &systems, &own);
    }
    Ok(svg.finish())
}

fn begin(first: &FlexPointRecord, height: f64, unit: &str) -> Svg {
    let title = format!("{}, {unit}", first.title);
    let mut svg = Svg::new(WIDTH, height, &title, &format!("{title}: {}.", first.setting));
    svg.text(14.0, 22.0, Anchor::Start, "head", &title);
    svg.text(14.0, 40.0, Anchor::Start, "soft", &first.setting);
    svg
}

fn lines(svg: &mut Svg, (left, top): (f64, f64), systems: &[&str], records: &[&FlexPointRecord]) {
    let rate = |record: &FlexPointRecord| record.run.throughput_ops_per_s / 1e6;
    let (greatest, step) = ticks(records.iter().map(|record| rate(record)).fold(0.0, f64::max));
    let places = records.iter().map(|record| record.x);
    let x_range = places.clone().fold((f64::INFINITY, 0.0_f64), |(low, high), x| (low.min(x), high.max(x)));
    let frame = Frame { left, top, size: (PANEL_WIDTH, PANEL_HEIGHT), x_range, greatest };
    svg.text(left, top - 18.0, Anchor::Start, "head", &records[0].panel);
    frame.rules(svg, step);
    let bottom = top + PANEL_HEIGHT;
    for x in distinct(places.map(f64::to_bits)).into_iter().map(f64::from_bits) {
        svg.text(frame.point(x, 0.0).0, bottom + 16.0, Anchor::Middle, "soft", &plain(x));
    }
    svg.text(left + PANEL_WIDTH / 2.0, bottom + 32.0, Anchor::Middle, "soft", &records[0].axis);
    let mut names = Vec::new();
    for (number, system) in systems.iter().enumerate() {
        let own: Vec<&&FlexPointRecord> = records.iter().filter(|record| record.system == **system).collect();
        let Some(last) = own.last() else { continue };
        let [mark, line, name] = CLASSES[number.min(CLASSES.len() - 1)];
        let points = || own.iter().map(|record| frame.point(record.x, rate(record)));
        // Verb mixes are no store's results, and look so.
        if last.run.is_verb_mix {
            let mut ends = points();
            let mut from = ends.next();
            for to in ends {
                if let Some(from) = from.replace(to) {
                    svg.dashed(from, to, line);
                }
            }
        } else {
            points().for_each(|point| svg.dot(point, 3.0, mark));
            svg.path(points(), line);
        }
        names.push((frame.point(last.x, rate(last)).1, name, format!("{system} {}", short(rate(last)))));
    }
    names.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut free = f64::NEG_INFINITY;
    for (at, class, text) in names {
        free = at.max(free);
        svg.text(left + PANEL_WIDTH + 8.0, free + 4.0, Anchor::Start, class, &text);
        free += NAME_STEP;
    }
}

/// Rate and offloaded part over time.
fn course(record: &FlexPointRecord) -> String {
    let samples = &record.run.samples;
    let height = TOP + 2.0 * (COURSE_HEIGHT + COURSE_GAP) + 20.0;
    let mut svg = begin(record, height, "simulated");
    let end_ms = samples.last().map_or(0.0, |sample| sample.at_s * 1e3);
    let rate = samples.iter().map(|sample| sample.ops_per_s / 1e6);
    let part = samples.iter().map(|sample| sample.offloaded.unwrap_or(0.0) * 1e2);
    let ends = || samples.iter().map(|sample| sample.at_s * 1e3);
    let (greatest, step) = ticks(rate.clone().fold(0.0, f64::max));
    let strips: [(&str, f64, f64, Vec<f64>, &str); 2] = [
        ("M operations/s", greatest, step, rate.collect(), "mains"),
        ("% of the partitions offloaded", 100.0, 20.0, part.collect(), "limits"),
    ];
    for (number, (name, greatest, step, values, class)) in strips.into_iter().enumerate() {
        let top = TOP + number as f64 * (COURSE_HEIGHT + COURSE_GAP);
        let size = (COURSE_WIDTH, COURSE_HEIGHT);
        let frame = Frame { left: LEFT, top, size, x_range: (0.0, end_ms), greatest };
        svg.text(LEFT, top - 12.0, Anchor::Start, "head", name);
        frame.rules(&mut svg, step);
        // Where another workload begins.
        for pair in samples.windows(2).filter(|pair| pair[0].workload != pair[1].workload) {
            let x = frame.point(pair[0].at_s * 1e3, 0.0).0;
            svg.dashed((x, top), (x, top + COURSE_HEIGHT), "axis");
            svg.text(x + 6.0, top + 12.0, Anchor::Start, "ink", &pair[1].workload);
        }
        svg.path(ends().zip(values).map(|(at, value)| frame.point(at, value)), class);
    }
    let bottom = TOP + 2.0 * COURSE_HEIGHT + COURSE_GAP;
    let (_, step) = ticks(end_ms);
    for tick in 0..=(end_ms / step) as u32 {
        let at = f64::from(tick) * step;
        let x = LEFT + at / end_ms * COURSE_WIDTH;
        svg.text(x, bottom + 16.0, Anchor::Middle, "soft", &plain(at));
    }
    svg.text(LEFT + COURSE_WIDTH / 2.0, bottom + 32.0, Anchor::Middle, "soft", "ms of virtual time");
    svg.finish()
}
