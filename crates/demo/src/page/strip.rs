//! Draws a plot of one metric, which has a row for each channel, a dot for each round and a bar at the median. A thin
//! line joins the two dots of a round and shows the difference within the round.

use std::fmt::Write;

use report::stats;

const WIDTH: f64 = 440.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 70.0;
const ROWS: [f64; 2] = [26.0, 66.0];
const AXIS: f64 = 92.0;

/// A row of the plot.
pub(super) struct Row<'a> {
    pub(super) name: &'a str,
    pub(super) values: &'a [f64],
}

/// Draws the plot as an SVG element. Colours come from the page's style.
pub(super) fn plot(rows: &[Row<'_>; 2], unit: &str, digits: usize) -> String {
    let all = rows.iter().flat_map(|row| row.values.iter().copied());
    let (step, end) = scale(all.fold(0.0, f64::max));
    let x = |value: f64| LEFT + value / end * (WIDTH - LEFT - RIGHT);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} 114\" role=\"img\" aria-label=\"{} and {}, {unit}\">",
        rows[0].name, rows[1].name
    );
    ticks(&mut svg, step, end, &x);
    for (a, b) in rows[0].values.iter().zip(rows[1].values) {
        let (x1, x2) = (x(*a), x(*b));
        let [y1, y2] = ROWS;
        push(
            &mut svg,
            format_args!(
                "<line class=\"pair\" x1=\"{x1:.1}\" y1=\"{y1}\" x2=\"{x2:.1}\" y2=\"{y2}\"/>"
            ),
        );
    }
    for ((class, row), y) in rows.iter().enumerate().zip(ROWS) {
        let median = stats::median(row.values);
        let (at, top, bottom, text) = (x(median), y - 12.0, y + 12.0, y + 4.0);
        push(
            &mut svg,
            format_args!("<text x=\"0\" y=\"{text}\">{}</text>", row.name),
        );
        push(
            &mut svg,
            format_args!(
                "<line class=\"m{class}\" x1=\"{at:.1}\" y1=\"{top}\" x2=\"{at:.1}\" y2=\"{bottom}\"/>"
            ),
        );
        for (round, value) in (1..).zip(row.values) {
            let cx = x(*value);
            push(
                &mut svg,
                format_args!(
                    "<circle class=\"dot c{class}\" cx=\"{cx:.1}\" cy=\"{y}\" r=\"5\"><title>round {round}: {value:.digits$} {unit}</title></circle>"
                ),
            );
        }
        push(
            &mut svg,
            format_args!(
                "<text class=\"value\" x=\"{WIDTH}\" y=\"{text}\" text-anchor=\"end\">{median:.digits$}</text>"
            ),
        );
    }
    svg.push_str("</svg>");
    svg
}

fn ticks(svg: &mut String, step: f64, end: f64, x: &impl Fn(f64) -> f64) {
    let (from, to) = (x(0.0), x(end));
    push(
        svg,
        format_args!(
            "<line class=\"axis\" x1=\"{from}\" y1=\"{AXIS}\" x2=\"{to}\" y2=\"{AXIS}\"/>"
        ),
    );
    let mut value = 0.0;
    while value <= end + step / 2.0 {
        let (at, low) = (x(value), AXIS + 16.0);
        let digits = if step < 1.0 { 1 } else { 0 };
        push(
            svg,
            format_args!(
                "<line class=\"axis\" x1=\"{at:.1}\" y1=\"8\" x2=\"{at:.1}\" y2=\"{AXIS}\"/>"
            ),
        );
        push(
            svg,
            format_args!(
                "<text class=\"tick\" x=\"{at:.1}\" y=\"{low}\" text-anchor=\"middle\">{value:.digits$}</text>"
            ),
        );
        value += step;
    }
}

/// Appends to the plot. Writing into a string cannot fail.
fn push(svg: &mut String, text: std::fmt::Arguments<'_>) {
    let _always_ok = svg.write_fmt(text);
}

/// Returns the step and the end of an axis from zero to at least `max`. Both are round numbers, and the axis has 3 to
/// 6 steps.
fn scale(max: f64) -> (f64, f64) {
    if max <= 0.0 || !max.is_finite() {
        return (1.0, 1.0);
    }
    let power = 10f64.powf((max / 4.0).log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power);
    let step = steps
        .into_iter()
        .find(|step| max / step <= 5.0)
        .unwrap_or(power * 10.0);
    (step, step * (max / step).ceil())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        for (max, step, end) in [
            (1234.0, 250.0, 1250.0),
            (1000.0, 200.0, 1000.0),
            (0.7, 0.2, 0.8),
            (0.0, 1.0, 1.0),
        ] {
            let got = scale(max);
            assert!(
                (got.0 - step).abs() < 1e-9 && (got.1 - end).abs() < 1e-9,
                "{max}: {got:?}"
            );
        }
    }

    #[test]
    fn every_sample_is_a_dot_within_the_plot() {
        let rows = [
            Row {
                name: "a",
                values: &[1.0, 2.0, 9.0],
            },
            Row {
                name: "b",
                values: &[0.0, 4.0, 5.0],
            },
        ];
        let svg = plot(&rows, "s", 1);
        let places: Vec<f64> = svg
            .split("cx=\"")
            .skip(1)
            .map(|s| s.split('"').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(places.len(), 6);
        assert!(
            places.iter().all(|x| (LEFT..=WIDTH - RIGHT).contains(x)),
            "{places:?}"
        );
    }
}
