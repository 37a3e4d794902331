//! The period of the slow loop, and the thresholds at which both loops act.

/// Seconds between two rounds of the slow loop.
pub const SLOW: f64 = 5.0;

/// In-use share of a space from which it counts as about to be full.
pub(super) const FILLING: f64 = 0.9;

/// Share of its time that a job must gain for more slots to be worth having.
pub(super) const LEVERAGE: f64 = 0.02;

/// Share of a window spent without a slot, and of the objective's time, from which a space needs
/// help before the slow loop's next round.
pub(super) const AT_RISK: f64 = 0.25;

/// Prediction error (of the logarithm) above which a round was a bad one; rounds of the kind that
/// change the state.
pub(super) const WRONG: f64 = 0.5;
pub(super) const BAD_ROUNDS: u32 = 6;
pub(super) const GOOD_ROUNDS: u32 = 12;
