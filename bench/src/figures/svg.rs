//! Writing SVG: elements one after the other, in user units of one CSS pixel.

use std::fmt::Write as _;

/// Where a text stands at its point.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture being written.
pub(super) struct Svg {
    body: String,
    width: f64,
    height: f64,
}

/// Colours of the light scheme, then of the dark one: blue and orange are told apart with any colour vision.
const STYLE: &str = "\
.ink{fill:#1d2733}.soft{fill:#5b6b7c}.rule{stroke:#d5dde5;stroke-width:1}.axis{stroke:#8a99a8;stroke-width:1}
.main{fill:#2a6fb0}.mains{stroke:#2a6fb0;fill:none;stroke-width:1.75}.band{fill:#2a6fb0;fill-opacity:.16}
.other{fill:#8a99a8}.others{stroke:#8a99a8;fill:none;stroke-width:1.5}.maint{fill:#2a5f94;font-weight:600}
.limit{fill:#b9791b}.limits{stroke:#b9791b;fill:none;stroke-width:1.75}.limitt{fill:#8a5a10;font-weight:600}
.head{fill:#1d2733;font-weight:600}
@media (prefers-color-scheme: dark){
.ink,.head{fill:#e7edf3}.soft{fill:#9fb0c0}.rule{stroke:#303b46}.axis{stroke:#5e6d7b}
.main{fill:#6aa8e0}.mains{stroke:#6aa8e0}.band{fill:#6aa8e0;fill-opacity:.2}
.other{fill:#7c8b9a}.others{stroke:#7c8b9a}.maint{fill:#8fc1ee}
.limit{fill:#e0a84c}.limits{stroke:#e0a84c}.limitt{fill:#f0c47e}}";

impl Svg {
    /// An empty picture with a title and a description for who cannot see it.
    pub(super) fn new(width: f64, height: f64, title: &str, description: &str) -> Self {
        let mut body = String::new();
        let _ = write!(
            body,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-labelledby=\"t d\" font-family=\"ui-sans-serif, system-ui, sans-serif\" font-size=\"12\">\n\
             <title id=\"t\">{}</title>\n<desc id=\"d\">{}</desc>\n<style>\n{STYLE}\n</style>\n",
            escaped(title),
            escaped(description)
        );
        Self { body, width, height }
    }

    /// The whole picture.
    pub(super) fn finish(mut self) -> String {
        self.body.push_str("</svg>\n");
        self.body
    }

    pub(super) fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, text: &str) {
        debug_assert!(
            (0.0..=self.width).contains(&x) && (0.0..=self.height).contains(&y),
            "{text} at {x}, {y}"
        );
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let text = escaped(text);
        let _ =
            writeln!(self.body, "<text x=\"{x:.1}\" y=\"{y:.1}\"{anchor} class=\"{class}\">{text}</text>");
    }

    pub(super) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        let _ = writeln!(
            self.body,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
        );
    }

    pub(super) fn dashed(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        let _ = writeln!(
            self.body,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\" \
             stroke-dasharray=\"4 3\"/>"
        );
    }

    pub(super) fn rectangle(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), class: &str) {
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{class}\"/>"
        );
    }

    pub(super) fn dot(&mut self, (x, y): (f64, f64), radius: f64, class: &str) {
        let _ = writeln!(self.body, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" class=\"{class}\"/>");
    }

    /// A line through the points.
    pub(super) fn path(&mut self, points: impl IntoIterator<Item = (f64, f64)>, class: &str) {
        let path = points.into_iter().enumerate().fold(String::new(), |mut path, (index, (x, y))| {
            let _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { "M" } else { "L" });
            path
        });
        let _ = writeln!(self.body, "<path d=\"{path}\" class=\"{class}\"/>");
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A round number at or above `greatest`, and the step of two to five ticks below it.
pub(super) fn ticks(greatest: f64) -> (f64, f64) {
    let greatest = if greatest > 0.0 { greatest } else { 1.0 };
    let power = 10_f64.powf(greatest.log10().floor());
    let step = [0.5, 1.0, 2.0, 5.0].map(|part| part * power).into_iter().find(|step| greatest / step <= 5.0);
    let step = step.unwrap_or(power * 5.0);
    ((greatest / step).ceil() * step, step)
}

/// A number with as many digits as tell: two decimals below one, one below a hundred.
pub(super) fn short(number: f64) -> String {
    match number {
        0.0 => "0".to_owned(),
        number if number < 1.0 => format!("{number:.2}"),
        number if number < 100.0 => format!("{number:.1}"),
        number => format!("{number:.0}"),
    }
}

/// The same for numbers of an axis: whole ones stay whole.
pub(super) fn plain(number: f64) -> String {
    if number.fract() == 0.0 { format!("{number:.0}") } else { short(number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        for greatest in [0.003, 0.9, 1.0, 3.3, 7.2, 12.0, 999.0, 1e7] {
            let (top, step) = ticks(greatest);
            assert!(top >= greatest && top < greatest + step, "{greatest}: {top} by {step}");
            assert!((2.0..=5.0).contains(&(top / step).round()), "{greatest}: {top} by {step}");
        }
        assert_eq!(ticks(0.0), (1.0, 0.5));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.0, 0.123, 4.56, 78.9, 1234.5].map(short), ["0", "0.12", "4.6", "78.9", "1234"]);
        assert_eq!([0.0, 0.25, 8.0, 2.5, 100.0].map(plain), ["0", "0.25", "8", "2.5", "100"]);
    }
}
