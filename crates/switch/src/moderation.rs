//! Whether the frames of a thin stream may gather.
//!
//! A stream whose frames come some ten microseconds apart keeps a worker awake: looking for the
//! next frame is cheaper than sleeping until it comes. That burns a core for next to nothing. So
//! where looking for frames is most of what it does, the worker tries to sleep for [`MODERATION_SLEEP`] at a
//! time instead, and takes what has gathered, as network cards do that moderate their interrupts.
//! Somebody may wait for each frame before sending the next: then the trial slows them down, which
//! their rate shows within one window, and the worker looks on, not to try again for a while.

use std::time::{Duration, Instant};

use crate::limits::MODERATION_SLEEP;

/// Time over which frames are counted.
const WINDOW: Duration = Duration::from_millis(2);

/// Frames of a window below which sleeping and being woken for each costs little.
const FEW: u64 = 2 * SLEEPS;

/// Frames of a window above which they gather by themselves: 64 a sleep, a burst.
const MANY: u64 = 64 * SLEEPS;

/// Sleeps in a window.
#[allow(clippy::cast_possible_truncation, reason = "a few dozen")]
const SLEEPS: u64 = (WINDOW.as_nanos() / MODERATION_SLEEP.as_nanos()) as u64;

/// Pause after a trial that slowed somebody down: at first, and at most.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The decision, and what it rests on.
#[derive(Debug)]
pub(crate) struct Moderation {
    gathers: bool,
    began: Instant,
    /// Frames that had moved by then.
    frames: u64,
    /// How often it slept until woken in this window.
    slept: u64,
    /// Frames of the window before.
    before: u64,
    pause: Duration,
    /// Not to be tried before.
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
            pause: PAUSE,
            not_before: now,
        }
    }

    /// It slept until it was woken: there is no need.
    #[inline]
    pub(crate) fn slept(&mut self) {
        self.slept += 1;
    }

    /// There is nothing to do now, and `frames` have moved so far: whether to sleep for [`MODERATION_SLEEP`].
    #[inline]
    pub(crate) fn gathers(&mut self, now: Instant, frames: u64) -> bool {
        let length = now.saturating_duration_since(self.began);
        if length >= WINDOW {
            self.decide(now, frames, length);
        }
        self.gathers
    }

    /// A window is over.
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
        let in_range = (FEW..=MANY).contains(&moved);
        if !self.gathers {
            self.gathers = in_range && self.slept < moved / 2 && now >= self.not_before;
        } else if moved < self.before - self.before / 4 {
            self.gathers = false;
            self.not_before = now + self.pause;
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        } else {
            self.gathers = in_range;
            self.pause = PAUSE;
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

    /// A worker's time, and the frames it has moved.
    struct World {
        moderation: Moderation,
        now: Instant,
        frames: u64,
    }

    impl World {
        fn new() -> Self {
            let now = Instant::now();
            Self {
                moderation: Moderation::new(now),
                now,
                frames: 0,
            }
        }

        /// One window with so many frames; whether it gathers from then on.
        fn window(&mut self, frames: u64) -> bool {
            self.now += WINDOW;
            self.frames += frames;
            self.moderation.gathers(self.now, self.frames)
        }
    }

    #[test]
    fn a_thin_stream_gathers_as_long_as_it_keeps_its_pace() {
        let mut world = World::new();
        assert!(world.window(10 * SLEEPS));
        assert!(world.window(10 * SLEEPS));
        assert!(world.window(8 * SLEEPS));
        assert!(!world.window(1), "over");
        world.now += PAUSE;
        assert!(!world.window(0));
        assert!(world.window(10 * SLEEPS));
    }

    #[test]
    fn who_waits_for_each_frame_is_left_alone_for_longer_each_time() {
        let mut world = World::new();
        let mut gathered = 0;
        for window in 0..5_000 {
            // Twice as many where it looks at once.
            let frames = if world.moderation.gathers { 2 } else { 4 };
            gathered += u32::from(world.window(frames * SLEEPS));
            assert!(window > 0 || world.moderation.gathers);
        }
        // 10 s: after 20 ms, 60 ms, 140 ms, ... 2.5 s, then every 2 s.
        assert!((8..=12).contains(&gathered), "{gathered}");
    }

    #[test]
    fn few_frames_many_frames_and_sleepers_do_not_gather() {
        let mut world = World::new();
        assert!(!world.window(FEW - 1));
        assert!(!world.window(MANY + 1));
        (0..5 * SLEEPS).for_each(|_| world.moderation.slept());
        assert!(!world.window(10 * SLEEPS));
        assert!(world.window(10 * SLEEPS));
    }
}
