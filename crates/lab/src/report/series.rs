//! What a plot shows.

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
