//! The data of a plot.

/// A curve: for each level with a figure, its mean and its interval.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<Option<Point>>,
}

/// The mean and interval of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) mean: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}
