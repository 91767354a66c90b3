//! All lines that pass within a bound of a growing run of points, kept by two convex hulls. This is
//! O'Rourke's on-line fit (1981), as the PGM-index uses it (Ferragina and Vinciguerra, VLDB 2020).
//!
//! Invariant: of all lines that keep within the bound of every point so far, `flattest` and `steepest` have
//! the least and the greatest slope. Either runs from an end of one point's interval to the opposite end of a
//! later one's. `upper` holds those upper ends, `lower` those lower ends, that a later extreme line may begin
//! at: the parts of the hulls that face each other. A point costs constant time on average, because each
//! enters and leaves a hull once. Everything is exact: integers of 128 bits, no division.

/// A corner of the hulls.
type Corner = (u64, i64);

/// A line from the first corner to the second, further right.
type Line = (Corner, Corner);

/// The lines within `reach` of every point accepted so far.
#[derive(Debug, Default)]
pub(crate) struct FeasibleLines {
    reach: i64,
    point_count: usize,
    flattest: Line,
    steepest: Line,
    upper: Vec<Corner>,
    lower: Vec<Corner>,
    /// The first corner of `upper` and of `lower` that is not passed yet.
    upper_start: usize,
    lower_start: usize,
}

impl FeasibleLines {
    /// No points yet; a line may miss a point by `reach` above or below.
    pub(crate) fn new(reach: i64) -> Self {
        Self { reach, ..Self::default() }
    }

    /// Forgets all points.
    pub(crate) fn clear(&mut self) {
        self.point_count = 0;
    }

    /// Accepts the point `(x, y)`, further right than all before, if some line is within reach of it as well.
    pub(crate) fn accepts(&mut self, x: u64, y: i64) -> bool {
        let (high, low) = ((x, y + self.reach), (x, y - self.reach));
        match self.point_count {
            0 => {
                self.begin(high, low);
                return true;
            }
            1 => {
                self.flattest.1 = low;
                self.steepest.1 = high;
                self.upper.push(high);
                self.lower.push(low);
                self.point_count = 2;
                return true;
            }
            _ => {}
        }
        if is_below(high, self.flattest) || is_above(low, self.steepest) {
            return false;
        }
        if is_below(high, self.steepest) {
            self.lower_start = tangent(&self.lower, self.lower_start, |from, to| turns(high, from, to) <= 0);
            self.steepest = (self.lower[self.lower_start], high);
            extend(&mut self.upper, self.upper_start, high, |turn| turn <= 0);
        }
        if is_above(low, self.flattest) {
            self.upper_start = tangent(&self.upper, self.upper_start, |from, to| turns(low, from, to) >= 0);
            self.flattest = (self.upper[self.upper_start], low);
            extend(&mut self.lower, self.lower_start, low, |turn| turn >= 0);
        }
        self.point_count += 1;
        true
    }

    /// A slope that some line within reach has, the middle one, and not below zero unless all are.
    pub(crate) fn slope(&self) -> f64 {
        if self.point_count < 2 {
            return 0.0;
        }
        let (least, greatest) = (slope(self.flattest), slope(self.steepest));
        f64::midpoint(least.max(0.0), greatest)
    }

    fn begin(&mut self, high: Corner, low: Corner) {
        self.flattest.0 = high;
        self.steepest.0 = low;
        self.upper.clear();
        self.upper.push(high);
        self.lower.clear();
        self.lower.push(low);
        (self.upper_start, self.lower_start) = (0, 0);
        self.point_count = 1;
    }
}

/// Twice the area of the triangle `a`, `b`, `c`: positive if the way from `a` by `b` to `c` turns left.
fn turns(a: Corner, b: Corner, c: Corner) -> i128 {
    let (to_b, to_c) = (difference(a, b), difference(a, c));
    to_b.0 * to_c.1 - to_b.1 * to_c.0
}

fn difference(from: Corner, to: Corner) -> (i128, i128) {
    (i128::from(to.0) - i128::from(from.0), i128::from(to.1) - i128::from(from.1))
}

fn is_below(corner: Corner, line: Line) -> bool {
    turns(line.0, line.1, corner) < 0
}

fn is_above(corner: Corner, line: Line) -> bool {
    turns(line.0, line.1, corner) > 0
}

fn slope((from, to): Line) -> f64 {
    let (run, rise) = difference(from, to);
    rise as f64 / run as f64
}

/// Walks along a hull from `start` for as long as the next corner `improves` on the one before.
fn tangent(hull: &[Corner], start: usize, improves: impl Fn(Corner, Corner) -> bool) -> usize {
    let mut at = start;
    while at + 1 < hull.len() && improves(hull[at], hull[at + 1]) {
        at += 1;
    }
    at
}

/// Puts a corner behind a hull and takes out those that are then inside of it.
fn extend(hull: &mut Vec<Corner>, start: usize, corner: Corner, is_inside: impl Fn(i128) -> bool) {
    while hull.len() >= start + 2 && is_inside(turns(hull[hull.len() - 2], hull[hull.len() - 1], corner)) {
        hull.pop();
    }
    hull.push(corner);
}
