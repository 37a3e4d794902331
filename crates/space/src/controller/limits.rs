//! The period of the slow loop, and the thresholds of both loops.

/// Period of the slow loop, in seconds.
pub const SLOW_PERIOD: f64 = 5.0;

/// Fraction of its slots in use from which a space counts as nearly full.
pub(super) const NEARLY_FULL: f64 = 0.9;

/// Fraction by which more slots must shorten the predicted time for a space to grow.
pub(super) const MIN_IMPROVEMENT: f64 = 0.02;

/// A space needs slots before the next round of the slow loop if its writes waited for more than this fraction of a
/// window, or if its jobs took more than this fraction of the objective's time.
pub(super) const AT_RISK_FRACTION: f64 = 0.25;

/// A round is bad if the innovation of the logarithmic error exceeds [`BAD_ERROR`]. [`BAD_ROUNDS`] bad rounds in a row
/// switch a space to degraded mode, and [`GOOD_ROUNDS`] good rounds in a row switch it back.
pub(super) const BAD_ERROR: f64 = 0.5;
pub(super) const BAD_ROUNDS: u32 = 6;
pub(super) const GOOD_ROUNDS: u32 = 12;
