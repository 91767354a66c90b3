//! A dataset's distribution with the model over it: the whole above left, a few sub-models above right, and
//! below both how far predictions are from the leaves.

use super::FigureError;
use super::svg::{Anchor, Svg, plain, ticks};
use crate::report::{CurvePoint, ModelRecord, Prediction, thousands};

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 506.0;
/// Left edges and widths of the columns.
const COLUMNS: [(f64, f64); 2] = [(58.0, 318.0), (464.0, 318.0)];
/// Tops and heights of the rows.
const ROWS: [(f64, f64); 2] = [(92.0, 222.0), (366.0, 96.0)];

/// A panel: a place and two scales.
struct ModelPanel {
    left: f64,
    width: f64,
    top: f64,
    height: f64,
    keys: (u64, u64),
    values: (f64, f64),
}

impl ModelPanel {
    fn new(column: usize, row: usize, keys: (u64, u64), values: (f64, f64)) -> Self {
        let ((left, width), (top, height)) = (COLUMNS[column], ROWS[row]);
        Self { left, width, top, height, keys, values }
    }

    fn x(&self, key: u64) -> f64 {
        let (from, to) = self.keys;
        // As integers first: differences of keys close together vanish in doubles.
        let part = key.saturating_sub(from) as f64 / (to - from).max(1) as f64;
        self.left + part.min(1.0) * self.width
    }

    fn y(&self, value: f64) -> f64 {
        let (from, to) = self.values;
        self.top + self.height * (1.0 - ((value - from) / (to - from)).clamp(0.0, 1.0))
    }

    /// Rules and numbers at multiples of `step` from the least value on.
    fn frame(&self, svg: &mut Svg, title: &str, step: f64) {
        svg.text(self.left - 44.0, self.top - 12.0, Anchor::Start, "head", title);
        let (from, to) = self.values;
        for tick in 0..=((to - from) / step).round() as u32 {
            let value = from + f64::from(tick) * step;
            let y = self.y(value);
            let class = if tick == 0 { "axis" } else { "rule" };
            svg.line((self.left, y), (self.left + self.width, y), class);
            svg.text(self.left - 8.0, y + 4.0, Anchor::End, "soft", &plain(value));
        }
    }

    fn key_axis(&self, svg: &mut Svg, middle: &str) {
        let y = self.top + self.height + 16.0;
        svg.text(self.left + self.width / 2.0, y, Anchor::Middle, "soft", middle);
    }
}

pub(super) fn draw(record: &ModelRecord) -> Result<String, FigureError> {
    let incomplete = |missing| FigureError::Incomplete { kind: "farsight bench model", missing };
    if record.curve.is_empty() || record.detail.sub_models.is_empty() || record.detail.fences.is_empty() {
        return Err(incomplete("a curve and sub-models"));
    }
    let title = format!("{}: {} keys and the model over them", record.dataset, thousands(record.keys));
    let description = "Left, the cumulative distribution of the keys and how many leaves a prediction leaves to \
                       choose from; right, neighbouring sub-models with the leaves that they predict.";
    let mut svg = Svg::new(WIDTH, HEIGHT, &title, description);
    svg.text(14.0, 22.0, Anchor::Start, "head", &title);
    let text = format!(
        "{} leaves, {} sub-models of {:.0} leaves, {:.3} B a key; windows of {:.2} leaves (at most {}), hints \
         leave {:.3}",
        thousands(record.leaves),
        thousands(record.sub_models),
        record.leaves as f64 / record.sub_models as f64,
        record.model_bytes_per_key,
        record.window_leaves_mean,
        record.window_leaves_max,
        record.candidates_mean
    );
    svg.text(14.0, 40.0, Anchor::Start, "soft", &text);
    whole(&mut svg, record);
    detail(&mut svg, record);
    Ok(svg.finish())
}

/// The left column: all keys.
fn whole(svg: &mut Svg, record: &ModelRecord) {
    let curve = &record.curve;
    let keys = (curve[0].key, curve[curve.len() - 1].key.max(curve[0].key + 1));
    let panel = ModelPanel::new(0, 0, keys, (0.0, 1.0));
    panel.frame(svg, "part of the keys below", 0.25);
    let points = curve.iter().map(|point| (panel.x(point.key), panel.y(point.rank)));
    svg.path(points, "mains");
    let at = record.detail.fences[record.detail.fences.len() / 2];
    let rank = curve.partition_point(|point| point.key <= at) as f64 / curve.len() as f64;
    svg.dot((panel.x(at), panel.y(rank)), 4.0, "limit");
    let is_right = panel.x(at) > panel.left + panel.width * 0.7;
    let (offset, anchor) = if is_right { (-10.0, Anchor::End) } else { (10.0, Anchor::Start) };
    svg.text(panel.x(at) + offset, panel.y(rank) + 14.0, anchor, "limitt", "shown at the right");
    panel.key_axis(svg, "key");

    let greatest = curve.iter().map(|point| point.window_leaves_max as f64).fold(1.0, f64::max);
    let (top, step) = ticks(greatest);
    let step = step.max(1.0);
    let panel = ModelPanel::new(0, 1, (0, 1 << 20), (0.0, top.max(step)));
    panel.frame(svg, "leaves in a window: mean (blue), widest (grey)", step);
    let at = |point: &CurvePoint| panel.left + point.rank * panel.width;
    svg.path(curve.iter().map(|point| (at(point), panel.y(point.window_leaves_max as f64))), "others");
    svg.path(curve.iter().map(|point| (at(point), panel.y(point.window_leaves_mean))), "mains");
    panel.key_axis(svg, "keys in order, equal steps of rank");
}

/// The right column: a few sub-models.
fn detail(svg: &mut Svg, record: &ModelRecord) {
    let detail = &record.detail;
    let (first, last) = (&detail.sub_models[0], &detail.sub_models[detail.sub_models.len() - 1]);
    let keys = (first.from_key, last.to_key.max(first.from_key + 1));
    let count = detail.fences.len() as f64;
    let (top, step) = ticks(count);
    let step = step.max(1.0);
    let panel = ModelPanel::new(1, 0, keys, (0.0, top.max(step)));
    panel.frame(svg, "positions: leaves (steps), promised windows (shade)", step);
    let position = |position: u64| position.saturating_sub(detail.first_position) as f64;
    for sub_model in &detail.sub_models {
        let predictions = &sub_model.predictions;
        let x = |prediction: &Prediction| panel.x(prediction.key);
        let upper = predictions.iter().map(|at| (x(at), panel.y(position(at.window_end))));
        let lower = predictions.iter().rev().map(|at| (x(at), panel.y(position(at.window_begin))));
        svg.path(upper.chain(lower), "band");
    }
    let steps = detail.fences.iter().enumerate().flat_map(|(index, fence)| {
        let next = detail.fences.get(index + 1).copied().unwrap_or(keys.1);
        let y = panel.y(index as f64 + 0.5);
        [(panel.x(*fence), y), (panel.x(next), y)]
    });
    svg.path(steps, "mains");
    for sub_model in &detail.sub_models[1..] {
        let x = panel.x(sub_model.from_key);
        for (top, height) in ROWS {
            svg.dashed((x, top), (x, top + height), "axis");
        }
    }
    let middle = format!("key; {} sub-models, {} leaves", detail.sub_models.len(), detail.fences.len());
    panel.key_axis(svg, &middle);

    let all = || detail.sub_models.iter().flat_map(|sub_model| &sub_model.predictions);
    let widest = all().map(|at| (at.window_end - at.window_begin) as f64).fold(1.0, f64::max);
    let (top, step) = ticks(widest);
    let step = step.max(1.0);
    let panel = ModelPanel::new(1, 1, keys, (0.0, top.max(step)));
    panel.frame(svg, "window, and the leaf's place in it", step);
    for sub_model in &detail.sub_models {
        let predictions = &sub_model.predictions;
        let upper =
            predictions.iter().map(|at| (panel.x(at.key), panel.y((at.window_end - at.window_begin) as f64)));
        let lower = predictions.iter().rev().map(|at| (panel.x(at.key), panel.y(0.0)));
        svg.path(upper.chain(lower), "band");
        let places = predictions
            .iter()
            .map(|at| (panel.x(at.key), panel.y(at.position.saturating_sub(at.window_begin) as f64 + 0.5)));
        svg.path(places, "mains");
    }
    panel.key_axis(svg, "key");
}
