//! Interrupt moderation for streams with a low rate (compare `ethtool -c`, and DIM in Linux).
//!
//! A stream whose frames arrive some ten microseconds apart keeps a worker awake, because polling for the
//! next frame is cheaper than sleeping until it arrives. That uses a whole core for few frames. So when a
//! worker mostly polls, it tries to sleep for [`MODERATION_SLEEP`] at a time instead, and then forwards the
//! frames that have gathered, like a network card that moderates its interrupts. If the sender waits for an
//! answer to each frame before it sends the next one, the trial slows the sender down. Its rate shows this
//! within one window; the worker then polls again, and waits for a while before the next trial.

use std::time::{Duration, Instant};

use crate::limits::MODERATION_SLEEP;

/// The window over which frames are counted.
const WINDOW: Duration = Duration::from_millis(2);

/// Below this number of frames in a window, a sleep and a wake-up for each frame cost little.
const MIN_FRAMES: u64 = 2 * SLEEPS;

/// Above this number of frames in a window, frames gather without moderation: 64 a sleep, which is a burst.
const MAX_FRAMES: u64 = 64 * SLEEPS;

/// Sleeps in a window.
#[allow(clippy::cast_possible_truncation, reason = "a few dozen")]
const SLEEPS: u64 = (WINDOW.as_nanos() / MODERATION_SLEEP.as_nanos()) as u64;

/// Pause after a trial that reduced the rate: the first pause and, after doubling, the longest.
const TRIAL_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The decision, and the measurements that it is based on.
#[derive(Debug)]
pub(crate) struct Moderation {
    gathers: bool,
    began: Instant,
    /// Frames that had been forwarded by the beginning of the window.
    frames: u64,
    /// Number of sleeps in this window that ended with a wake-up.
    slept: u64,
    /// Frames in the window before.
    before: u64,
    pause: Duration,
    /// The next trial starts no earlier.
    not_before: Instant,
}

impl Moderation {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            gathers: false,
            began: now,
            frames: 0,
            slept: 0,
            before: 0,
            pause: TRIAL_PAUSE,
            not_before: now,
        }
    }

    /// Records that the worker slept until it was woken, so that moderation is less useful.
    #[inline]
    pub(crate) fn slept(&mut self) {
        self.slept += 1;
    }

    /// Returns whether an idle worker, which has forwarded `frames` frames so far, should sleep for
    /// [`MODERATION_SLEEP`].
    #[inline]
    pub(crate) fn gathers(&mut self, now: Instant, frames: u64) -> bool {
        let length = now.saturating_duration_since(self.began);
        if length >= WINDOW {
            self.decide(now, frames, length);
        }
        self.gathers
    }

    /// Decides at the end of a window.
    #[cold]
    fn decide(&mut self, now: Instant, frames: u64, length: Duration) {
        let moved = frames.saturating_sub(self.frames);
        let windows = length.as_secs_f64() / WINDOW.as_secs_f64();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "far below 2^52, and positive"
        )]
        let moved = (moved as f64 / windows) as u64;
        let in_range = (MIN_FRAMES..=MAX_FRAMES).contains(&moved);
        if !self.gathers {
            self.gathers = in_range && self.slept < moved / 2 && now >= self.not_before;
        } else if moved < self.before - self.before / 4 {
            self.gathers = false;
            self.not_before = now + self.pause;
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        } else {
            self.gathers = in_range;
            self.pause = TRIAL_PAUSE;
        }
        self.before = moved;
        self.began = now;
        self.frames = frames;
        self.slept = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A simulated clock, and the number of frames forwarded.
    struct Simulation {
        moderation: Moderation,
        now: Instant,
        frames: u64,
    }

    impl Simulation {
        fn new() -> Self {
            let now = Instant::now();
            Self {
                moderation: Moderation::new(now),
                now,
                frames: 0,
            }
        }

        /// Simulates a window with `frames` frames; returns whether frames gather from then on.
        fn window(&mut self, frames: u64) -> bool {
            self.now += WINDOW;
            self.frames += frames;
            self.moderation.gathers(self.now, self.frames)
        }
    }

    #[test]
    fn a_slow_stream_gathers_as_long_as_its_rate_does_not_drop() {
        let mut world = Simulation::new();
        assert!(world.window(10 * SLEEPS));
        assert!(world.window(10 * SLEEPS));
        assert!(world.window(8 * SLEEPS));
        assert!(!world.window(1), "over");
        world.now += TRIAL_PAUSE;
        assert!(!world.window(0));
        assert!(world.window(10 * SLEEPS));
    }

    #[test]
    fn trials_that_reduce_the_rate_become_rarer() {
        let mut world = Simulation::new();
        let mut gathered = 0;
        for window in 0..5_000 {
            // The rate is twice as high while the worker polls.
            let frames = if world.moderation.gathers { 2 } else { 4 };
            gathered += u32::from(world.window(frames * SLEEPS));
            assert!(window > 0 || world.moderation.gathers);
        }
        // 10 s: after 20 ms, 60 ms, 140 ms, ... 2.5 s, then every 2 s.
        assert!((8..=12).contains(&gathered), "{gathered}");
    }

    #[test]
    fn few_frames_many_frames_and_frequent_sleeps_do_not_gather() {
        let mut world = Simulation::new();
        assert!(!world.window(MIN_FRAMES - 1));
        assert!(!world.window(MAX_FRAMES + 1));
        (0..5 * SLEEPS).for_each(|_| world.moderation.slept());
        assert!(!world.window(10 * SLEEPS));
        assert!(world.window(10 * SLEEPS));
    }
}
