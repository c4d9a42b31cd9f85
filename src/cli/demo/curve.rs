//! A curve drawn with braille characters: two dots across and four down in each character cell.

/// Narrowest drawing: the labels and a few cells of curve.
pub(super) const MIN_WIDTH: usize = 24;
/// Lowest drawing: the two labels of the vertical axis apart from each other.
pub(super) const MIN_HEIGHT: usize = 3;
/// Characters of a label, the axis included.
const LABEL: usize = 9;

/// Dots of a braille cell by row and column, as bits above U+2800.
const DOTS: [[u32; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];

/// The curve through `points`, ascending in x, as lines of at most `width` characters: `height`
/// rows of curve, the axis and its labels. None if there is nothing to draw or no room for it.
pub(super) fn draw(
    points: &[(f64, f64)],
    width: usize,
    height: usize,
    unit: &str,
) -> Option<Vec<String>> {
    let finite = points.iter().all(|(x, y)| x.is_finite() && y.is_finite());
    if width < MIN_WIDTH || height < MIN_HEIGHT || points.len() < 2 || !finite {
        return None;
    }
    let canvas = Canvas::of(points, width - LABEL, height);
    let mut lines: Vec<String> = (0..height).map(|row| canvas.line(row)).collect();
    lines.push(format!("{:>1$}{2}", '└', LABEL, "─".repeat(width - LABEL)));
    let (first, last) = (format!("{}", points[0].0), format!("{}", points[points.len() - 1].0));
    let room = (width - LABEL).saturating_sub(first.len() + unit.len() + 1);
    lines.push(format!("{:LABEL$}{first}{last:>room$} {unit}", ""));
    Some(lines)
}

struct Canvas {
    cells: Vec<Vec<u32>>,
    low: f64,
    high: f64,
}

impl Canvas {
    fn of(points: &[(f64, f64)], width: usize, height: usize) -> Self {
        let low = points.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
        let high = points.iter().map(|point| point.1).fold(f64::NEG_INFINITY, f64::max);
        let mut canvas = Self { cells: vec![vec![0; width]; height], low, high };
        let (start, end) = (points[0].0, points[points.len() - 1].0);
        let columns = 2 * width;
        for column in 0..columns {
            let x = start + (end - start) * column as f64 / (columns - 1) as f64;
            canvas.dot(column, canvas.row_of(at(points, x)));
        }
        canvas.join_gaps(columns);
        canvas
    }

    /// The dot row of a value, 0 at the top.
    fn row_of(&self, value: f64) -> usize {
        let rows = 4 * self.cells.len() - 1;
        let span = if self.high > self.low { self.high - self.low } else { 1.0 };
        let share = ((self.high - value) / span).clamp(0.0, 1.0);
        (share * rows as f64).round() as usize
    }

    fn dot(&mut self, column: usize, row: usize) {
        self.cells[row / 4][column / 2] |= DOTS[row % 4][column % 2];
    }

    fn is_set(&self, column: usize, row: usize) -> bool {
        self.cells[row / 4][column / 2] & DOTS[row % 4][column % 2] != 0
    }

    /// Fills steep parts, so that the curve is one line.
    fn join_gaps(&mut self, columns: usize) {
        let rows = 4 * self.cells.len();
        let tops: Vec<Option<usize>> =
            (0..columns).map(|c| (0..rows).find(|&row| self.is_set(c, row))).collect();
        for column in 1..columns {
            if let (Some(before), Some(now)) = (tops[column - 1], tops[column]) {
                let (from, to) = (before.min(now), before.max(now));
                (from + 1..to).for_each(|row| self.dot(column, row));
            }
        }
    }

    fn line(&self, row: usize) -> String {
        let last = self.cells.len() - 1;
        let label = match row {
            0 => format!("{:>7.3} ┤", self.high),
            _ if row == last => format!("{:>7.3} ┤", self.low),
            _ => format!("{:>LABEL$}", '│'),
        };
        let label: String = label.chars().take(LABEL).collect();
        let curve = self.cells[row].iter().map(|bits| char::from_u32(0x2800 + bits));
        label + &curve.map(|cell| cell.unwrap_or(' ')).collect::<String>()
    }
}

/// The value at `x` on the straight lines between the points.
fn at(points: &[(f64, f64)], x: f64) -> f64 {
    let after = points.iter().position(|point| point.0 >= x).unwrap_or(points.len() - 1);
    let (right, left) = (points[after], points[after.saturating_sub(1)]);
    if right.0 <= left.0 {
        return right.1;
    }
    left.1 + (right.1 - left.1) * (x - left.0) / (right.0 - left.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn falling() -> Vec<(f64, f64)> {
        (0..=30).map(|i| (f64::from(i), 5.6 / f64::from(i + 1))).collect()
    }

    #[test]
    fn every_line_keeps_to_the_width() {
        for width in [MIN_WIDTH, 40, 72, 200] {
            let lines = draw(&falling(), width, 8, "rounds").unwrap();
            assert_eq!(lines.len(), 10);
            for line in &lines {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
            assert_eq!(lines[0].chars().count(), width);
        }
    }

    #[test]
    fn a_falling_curve_starts_at_the_top_and_ends_at_the_bottom() {
        let lines = draw(&falling(), 40, 6, "rounds").unwrap();
        assert!(lines[0].starts_with("  5.600 ┤") && lines[5].starts_with("  0.181 ┤"));
        let cell = |row: usize, column: usize| lines[row].chars().nth(column).unwrap();
        assert_ne!(cell(0, LABEL), '\u{2800}');
        assert_ne!(cell(5, 39), '\u{2800}');
        assert_eq!(cell(0, 39), '\u{2800}');
        assert!(lines[7].contains('0') && lines[7].ends_with("30 rounds"), "{}", lines[7]);
    }

    #[test]
    fn the_curve_has_no_hole() {
        let steep = [(0.0, 0.0), (1.0, 100.0), (2.0, 0.0)];
        let canvas = Canvas::of(&steep, 20, 10);
        // The samples just miss the peak itself.
        for row in 4..40 {
            assert!((0..40).any(|column| canvas.is_set(column, row)), "row {row}");
        }
    }

    #[test]
    fn what_cannot_be_drawn_is_not() {
        assert!(draw(&falling(), MIN_WIDTH - 1, 8, "").is_none());
        assert!(draw(&falling()[..1], 72, 8, "").is_none());
        assert!(draw(&[(0.0, 1.0), (1.0, f64::NAN)], 72, 8, "").is_none());
        assert!(draw(&[(0.0, 1.0), (1.0, 1.0)], 72, 8, "").is_some());
        assert!(draw(&[(3.0, 1.0), (3.0, 2.0)], 72, 8, "").is_some());
    }
}
