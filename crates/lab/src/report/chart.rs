//! Draws a plot as inline SVG: curves over named levels, with 95 % intervals.

use report::html::escape;

use super::axis::Axis;
use super::series::{Point, Series};

const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 40.0;

/// Largest number of levels whose points and names are distinguishable. With more levels the plot shows only a line.
const MARKED: usize = 24;

/// With more than [`MARKED`] levels, only every tenth has its name on the axis.
const TENTH: usize = 10;

/// Number of letters that fit below the axis. If the names are longer, they have a smaller font, and every second name
/// is in a lower row.
const LETTERS: usize = 48;

/// Number of colours in the style sheet.
pub(super) const COLOURS: usize = 8;

/// Draws curves over a factor's `levels`. A curve's colour follows from its number unless `colours` gives another one.
pub(super) fn draw(
    levels: &[String],
    series: &[Series],
    colours: &[usize],
    factor: &str,
    unit: &str,
) -> String {
    let sheet = PlotArea {
        levels: levels.len(),
        joined: have_order(factor, levels),
        axis: Axis::of(series),
    };
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">");
    for step in sheet.axis.ticks() {
        let y = sheet.y(step);
        svg += &format!(
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            number(step)
        );
    }
    let every = if levels.len() > MARKED { TENTH } else { 1 };
    let longest = levels.iter().map(|level| level.chars().count()).max();
    let crowded = every == 1 && longest.unwrap_or(0) * levels.len() > LETTERS;
    let (small, second) = match crowded {
        true => (" font-size=\"10\"", 11.0),
        false => ("", 0.0),
    };
    for (place, level) in levels.iter().enumerate().step_by(every) {
        let lower = if place % 2 == 1 { second } else { 0.0 };
        svg += &format!(
            "<text class=\"tick\"{small} x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            sheet.x(place),
            HEIGHT - BOTTOM + 15.0 + lower,
            escape(level)
        );
    }
    svg += &format!(
        "<text class=\"tick\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text><text class=\"tick\" x=\"4\" y=\"10\">{}</text>",
        LEFT + (WIDTH - LEFT - RIGHT) / 2.0,
        HEIGHT - 4.0,
        escape(title(factor, levels)),
        escape(unit)
    );
    let colour = |number: usize| colours.get(number).copied().unwrap_or(number);
    for (number, one) in series.iter().enumerate() {
        svg += &curve(&sheet, (number, colour(number)), series.len(), one);
    }
    svg + "</svg>" + &legend(series, colour)
}

/// Returns the title of a factor's levels, with their unit.
fn title<'f>(factor: &'f str, levels: &[String]) -> &'f str {
    let of_files = levels.iter().any(|level| level.contains('@'));
    match factor {
        "size" => "bytes of a message",
        "file" => "file, kB",
        "load" if of_files => "file in kB @ % of the server's most",
        "load" => "load, % of each server's most",
        "idle" => "idle VMs",
        "cap" => "cap, % of a CPU",
        "vms" => "VMs",
        "starts" => "VMs started",
        "mix" => "streams, remote:local",
        "weight" => "weights, backend:VM1:VM2",
        "disk" => "size of the disk",
        "switches_s" => "context switches, 1/s",
        other => other,
    }
}

/// Whether the levels have an order, so that their points are joined; levels such as channels have no order.
fn have_order(factor: &str, levels: &[String]) -> bool {
    let names = ["channel", "traffic", "job", "pair", "mode"];
    !names.contains(&factor) && !levels.iter().any(|level| level.contains(['@', '_']))
}

fn curve(
    sheet: &PlotArea,
    (number, colour): (usize, usize),
    count: usize,
    series: &Series,
) -> String {
    let dashes = colour >= COLOURS;
    let colour = colour % COLOURS;
    // The curves are shifted sideways a little, so that their intervals do not hide each other.
    #[expect(clippy::cast_precision_loss, reason = "a few curves")]
    let apart =
        (number as f64 - (count as f64 - 1.0) / 2.0) * (24.0 / count.max(1) as f64).min(6.0);
    let known: Vec<(f64, &Point)> = series
        .points
        .iter()
        .enumerate()
        .filter_map(|(place, point)| Some((sheet.x(place) + apart, point.as_ref()?)))
        .collect();
    let path: Vec<String> = known
        .iter()
        .map(|(x, point)| format!("{x:.1},{:.1}", sheet.y(point.mean)))
        .collect();
    let dashed = if dashes {
        " stroke-dasharray=\"5 4\""
    } else {
        ""
    };
    let mut svg = match sheet.joined {
        true => format!(
            "<polyline class=\"curve s{colour}\"{dashed} points=\"{}\"/>",
            path.join(" ")
        ),
        false => String::new(),
    };
    for (x, point) in known.into_iter().filter(|_| sheet.levels <= MARKED) {
        let title = format!(
            "{}: {} ({} to {})",
            escape(&series.name),
            exact(point.mean),
            exact(point.low),
            exact(point.high)
        );
        svg += &format!(
            "<line class=\"error s{colour}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/><circle class=\"mark s{colour}\" cx=\"{x:.1}\" cy=\"{:.1}\" r=\"3.5\"><title>{title}</title></circle>",
            sheet.y(point.low),
            sheet.y(point.high),
            sheet.y(point.mean)
        );
    }
    svg
}

fn legend(series: &[Series], colour: impl Fn(usize) -> usize) -> String {
    let names = series.iter().enumerate().map(|(number, one)| {
        format!(
            "<span><i class=\"s{}\"></i>{}</span>",
            colour(number) % COLOURS,
            escape(&one.name)
        )
    });
    format!("<p class=\"legend\">{}</p>", names.collect::<String>())
}

/// The places of levels and values in the plot.
struct PlotArea {
    levels: usize,
    /// Whether the levels have an order, so that a line joins their points.
    joined: bool,
    axis: Axis,
}

impl PlotArea {
    #[expect(clippy::cast_precision_loss, reason = "a few levels")]
    fn x(&self, place: usize) -> f64 {
        let width = (WIDTH - LEFT - RIGHT) / self.levels.max(1) as f64;
        LEFT + width * (place as f64 + 0.5)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.axis.place(value) * (HEIGHT - TOP - BOTTOM)
    }
}

/// Formats a number for an axis.
fn number(value: f64) -> String {
    let (digits, unit) = match value.abs() {
        x if x >= 1e6 => (format!("{:.1}", value / 1e6), "M"),
        x if x >= 1e4 => (format!("{:.1}", value / 1e3), "k"),
        _ => (format!("{value:.3}"), ""),
    };
    digits
        .trim_end_matches('0')
        .trim_end_matches('.')
        .to_owned()
        + unit
}

/// Formats a number with about three significant digits.
pub(super) fn exact(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => if value.is_nan() { "-" } else { "∞" }.to_owned(),
        0.0 => "0".to_owned(),
        x if x >= 100.0 => format!("{value:.0}"),
        x if x >= 10.0 => format!("{value:.1}"),
        x if x >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(mean: f64) -> Option<Point> {
        Some(Point {
            mean,
            low: mean * 0.9,
            high: mean * 1.1,
        })
    }

    #[test]
    fn a_plot_has_every_figure_and_stays_in_its_frame() {
        let series = [
            Series {
                name: "a<b".into(),
                points: vec![point(1.0), None, point(950.0)],
            },
            Series {
                name: "b".into(),
                points: vec![point(-3.0), point(2.0), point(4.0)],
            },
        ];
        let svg = draw(
            &["64".into(), "1K".into(), "32K".into()],
            &series,
            &[],
            "size",
            "Mbit/s",
        );
        assert_eq!(svg.matches("<circle").count(), 5);
        assert!(svg.contains("a&lt;b") && !svg.contains("a<b"));
        let ys = svg
            .split("cy=\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next()?.parse::<f64>().ok());
        assert!(ys.into_iter().all(|y| (TOP..=HEIGHT - BOTTOM).contains(&y)));
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn many_long_names_are_on_two_lines() {
        let names = |text: &str| {
            let levels = [text, text, text, text].map(str::to_owned);
            let series = [Series {
                name: String::new(),
                points: vec![point(1.0); 4],
            }];
            let svg = draw(&levels, &series, &[], "", "");
            let heights = svg.split("</text>").filter(|one| one.ends_with(text));
            let heights: std::collections::BTreeSet<String> = heights
                .filter_map(|one| Some(one.rsplit_once(" y=\"")?.1.split_once('"')?.0.to_owned()))
                .collect();
            heights.len()
        };
        assert_eq!(names("100@200"), 1);
        assert_eq!(names("100@200/s and more"), 2);
    }

    #[test]
    fn nothing_to_draw_is_an_empty_frame() {
        assert!(!draw(&[], &[], &[], "", "").contains("NaN"));
    }

    #[test]
    fn only_levels_with_an_order_are_joined() {
        let series = [Series {
            name: String::new(),
            points: vec![point(1.0), point(2.0)],
        }];
        let lines = |factor: &str, levels: [&str; 2]| {
            let svg = draw(&levels.map(str::to_owned), &series, &[], factor, "");
            svg.matches("<polyline").count()
        };
        assert_eq!(lines("size", ["64", "1K"]), 1);
        assert_eq!(lines("channel", ["bridge", "switch"]), 0);
        assert_eq!(lines("mode", ["both", "space"]), 0);
        assert_eq!(lines("load", ["1@90", "200@90"]), 0);
    }

    #[test]
    fn a_course_over_time_is_a_line_with_some_names() {
        let levels: Vec<String> = (0..70).map(|n| (n * 100).to_string()).collect();
        let series = [Series {
            name: String::new(),
            points: vec![point(1.0); 70],
        }];
        let svg = draw(&levels, &series, &[], "ms", "");
        let drawn = |what: &str| svg.matches(what).count();
        assert_eq!((drawn("<polyline"), drawn("<circle")), (1, 0));
        assert!(svg.contains(">1000<") && !svg.contains(">500<"));
    }

    #[test]
    fn numbers_on_an_axis_are_short() {
        for (value, text) in [
            (25_000.0, "25k"),
            (2_000_000.0, "2M"),
            (1_500_000.0, "1.5M"),
            (80.0, "80"),
            (0.4, "0.4"),
            (0.0, "0"),
            (0.001, "0.001"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(exact(0.1234), "0.123");
    }
}
