//! A plot as inline SVG: curves over named levels, with 95 % intervals.

/// A curve: for each level, if there is a figure, its mean and its interval.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<Option<Point>>,
}

/// A figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) mean: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 40.0;

/// Colours that the style sheet has.
pub(super) const COLOURS: usize = 8;

/// Draw curves over `levels`.
pub(super) fn draw(levels: &[String], series: &[Series], x_title: &str, unit: &str) -> String {
    let scale = Scale::of(levels.len(), series);
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">");
    for step in scale.ticks() {
        let y = scale.y(step);
        svg += &format!(
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            number(step)
        );
    }
    for (place, level) in levels.iter().enumerate() {
        svg += &format!(
            "<text class=\"tick\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            scale.x(place),
            HEIGHT - BOTTOM + 17.0,
            escape(level)
        );
    }
    svg += &format!(
        "<text class=\"tick\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text><text class=\"tick\" x=\"4\" y=\"10\">{}</text>",
        LEFT + (WIDTH - LEFT - RIGHT) / 2.0,
        HEIGHT - 6.0,
        escape(x_title),
        escape(unit)
    );
    for (number, one) in series.iter().enumerate() {
        svg += &curve(&scale, number, series.len(), one);
    }
    svg + "</svg>" + &legend(series)
}

fn curve(scale: &Scale, number: usize, count: usize, series: &Series) -> String {
    let colour = number % COLOURS;
    // Curves are set apart a little, so that intervals do not hide each other.
    #[expect(clippy::cast_precision_loss, reason = "a few curves")]
    let apart =
        (number as f64 - (count as f64 - 1.0) / 2.0) * (24.0 / count.max(1) as f64).min(6.0);
    let known: Vec<(f64, &Point)> = series
        .points
        .iter()
        .enumerate()
        .filter_map(|(place, point)| Some((scale.x(place) + apart, point.as_ref()?)))
        .collect();
    let path: Vec<String> = known
        .iter()
        .map(|(x, point)| format!("{x:.1},{:.1}", scale.y(point.mean)))
        .collect();
    let dashed = if number >= COLOURS {
        " stroke-dasharray=\"5 4\""
    } else {
        ""
    };
    let mut svg = format!(
        "<polyline class=\"curve s{colour}\"{dashed} points=\"{}\"/>",
        path.join(" ")
    );
    for (x, point) in known {
        let title = format!(
            "{}: {} ({} to {})",
            escape(&series.name),
            exact(point.mean),
            exact(point.low),
            exact(point.high)
        );
        svg += &format!(
            "<line class=\"error s{colour}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/><circle class=\"mark s{colour}\" cx=\"{x:.1}\" cy=\"{:.1}\" r=\"3.5\"><title>{title}</title></circle>",
            scale.y(point.low),
            scale.y(point.high),
            scale.y(point.mean)
        );
    }
    svg
}

fn legend(series: &[Series]) -> String {
    let names = series.iter().enumerate().map(|(number, one)| {
        format!(
            "<span><i class=\"s{}\"></i>{}</span>",
            number % COLOURS,
            escape(&one.name)
        )
    });
    format!("<p class=\"legend\">{}</p>", names.collect::<String>())
}

struct Scale {
    levels: usize,
    low: f64,
    high: f64,
    step: f64,
}

impl Scale {
    fn of(levels: usize, series: &[Series]) -> Self {
        let values = series
            .iter()
            .flat_map(|one| one.points.iter().flatten())
            .flat_map(|point| [point.low, point.high, point.mean]);
        let (low, high) = values
            .filter(|value| value.is_finite())
            .fold((0.0_f64, 0.0_f64), |(a, b), value| {
                (a.min(value), b.max(value))
            });
        let span = if high > low { high - low } else { 1.0 };
        let step = nice(span / 4.0);
        Self {
            levels,
            low: (low / step).floor() * step,
            high: ((low + span) / step).ceil() * step,
            step,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a few levels")]
    fn x(&self, place: usize) -> f64 {
        let width = (WIDTH - LEFT - RIGHT) / self.levels.max(1) as f64;
        LEFT + width * (place as f64 + 0.5)
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value - self.low) / (self.high - self.low);
        HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn ticks(&self) -> Vec<f64> {
        (0..=12)
            .map(|n| self.low + f64::from(n) * self.step)
            .take_while(|tick| *tick <= self.high + self.step / 2.0)
            .collect()
    }
}

/// The next of 1, 2, 5 times a power of ten.
fn nice(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    let times = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|times| step <= times * power);
    times.unwrap_or(10.0) * power
}

/// A number on an axis.
fn number(value: f64) -> String {
    match value.abs() {
        x if x >= 1e6 => format!("{:.1}M", value / 1e6),
        x if x >= 1e4 => format!("{:.0}k", value / 1e3),
        _ => exact(value),
    }
}

/// A number with three significant digits or so.
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

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
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
    fn nothing_to_draw_is_an_empty_frame() {
        assert!(!draw(&[], &[], "", "").contains("NaN"));
    }

    #[test]
    fn steps_are_round() {
        assert!((nice(0.23) - 0.5).abs() < 1e-12 && (nice(130.0) - 200.0).abs() < 1e-12);
        assert_eq!(
            (number(25_000.0), exact(0.1234)),
            ("25k".into(), "0.123".into())
        );
    }
}
