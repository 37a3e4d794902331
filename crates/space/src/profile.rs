//! The profiler: turns the events of a space's slots into [`Window`]s.
//!
//! The queueing model maps to a space as follows:
//!
//! - A job is the filling of one slot.
//! - The first station is the guest. It is busy while it has a file open for writing and no write waits for slots.
//! - A job arrives when its slot is allocated, because the host cannot observe it earlier. Its service time is the time
//!   that the guest was busy since the previous allocation.
//! - The second station is everything between the allocation of a slot and its return: writing, sending, keeping and
//!   removing the file. It is busy while more slots are in use than are retained anyway ([`Window::retained`]).

use std::collections::VecDeque;
use std::time::Duration;

use crate::estimator::Window;

/// Windows over which slots must stay in use to count as retained.
const RETAINED_WINDOWS: usize = 5;

/// The profile of one space.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The time up to which the window accounts for everything.
    updated: Duration,
    window_start: Duration,
    used: u32,
    writing: bool,
    waiting: bool,
    /// Fewest slots in use in this window, and in each of the last [`RETAINED_WINDOWS`] windows.
    low_water: u32,
    low_water_history: VecDeque<u32>,
    /// Seconds since the last allocation: those in which the guest was busy, and all.
    work_since_take: f64,
    time_since_take: f64,
    window: Window,
}

impl Profile {
    /// Creates the profile of an empty space.
    #[must_use]
    pub fn new(now: Duration) -> Self {
        Self {
            updated: now,
            window_start: now,
            used: 0,
            writing: false,
            waiting: false,
            low_water: 0,
            low_water_history: VecDeque::new(),
            work_since_take: 0.0,
            time_since_take: 0.0,
            window: Window::default(),
        }
    }

    /// Records that `count` slots were allocated.
    pub fn record_take(&mut self, now: Duration, count: u32) {
        if count == 0 {
            return;
        }
        self.advance(now);
        self.used = self.used.saturating_add(count);
        let window = &mut self.window;
        window.high_water = window.high_water.max(self.used);
        window.arrived += u64::from(count);
        window.computed += u64::from(count);
        // The time is divided equally among the slots of one allocation.
        let jobs = f64::from(count);
        window.gaps += self.time_since_take;
        window.gaps_squared += self.time_since_take * self.time_since_take / jobs;
        window.computing_squared += self.work_since_take * self.work_since_take / jobs;
        (self.work_since_take, self.time_since_take) = (0.0, 0.0);
    }

    /// Records that a slot became free.
    pub fn record_return(&mut self, now: Duration) {
        self.advance(now);
        self.used = self.used.saturating_sub(1);
        self.low_water = self.low_water.min(self.used);
        self.window.released += 1;
    }

    /// Records whether the guest has any file open for writing.
    pub fn set_writing(&mut self, now: Duration, writing: bool) {
        self.advance(now);
        self.writing = writing;
    }

    /// Records whether any write waits for slots.
    pub fn set_waiting(&mut self, now: Duration, waiting: bool) {
        self.advance(now);
        self.waiting = waiting;
    }

    /// Ends the current window at `now`, returns it and begins the next one.
    pub fn close_window(&mut self, now: Duration) -> Window {
        self.advance(now);
        let next = Window {
            high_water: self.used,
            retained: self.retained(),
            ..Window::default()
        };
        if self.low_water_history.len() == RETAINED_WINDOWS {
            self.low_water_history.pop_front();
        }
        self.low_water_history.push_back(self.low_water);
        self.low_water = self.used;
        let window = std::mem::replace(&mut self.window, next);
        #[allow(clippy::cast_precision_loss, reason = "slots of a window")]
        let completion = match window.computed {
            0 => 0.0,
            jobs => (window.computing + window.blocked) / jobs as f64,
        };
        let window_start = std::mem::replace(&mut self.window_start, now);
        Window {
            seconds: now.saturating_sub(window_start).as_secs_f64(),
            completion,
            in_use: self.used,
            ..window
        }
    }

    /// Returns the slots that stayed in use throughout this window and the last [`RETAINED_WINDOWS`].
    fn retained(&self) -> u32 {
        match self.low_water_history.len() {
            RETAINED_WINDOWS => self
                .low_water_history
                .iter()
                .copied()
                .min()
                .unwrap_or(0)
                .min(self.low_water),
            _ => 0,
        }
    }

    /// Accounts for the time since the last event.
    fn advance(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.updated).as_secs_f64();
        self.updated = self.updated.max(now);
        self.time_since_take += elapsed;
        if self.waiting {
            self.window.blocked += elapsed;
        } else if self.writing {
            self.window.computing += elapsed;
            self.work_since_take += elapsed;
        }
        if self.used > self.window.retained {
            self.window.transmitting += elapsed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(tenths: u64) -> Duration {
        Duration::from_millis(100 * tenths)
    }

    fn assert_close(seen: f64, expected: f64) {
        assert!((seen - expected).abs() < 1e-9, "{seen} {expected}");
    }

    #[test]
    fn the_guest_computes_while_a_file_is_open_for_writing_and_no_write_waits() {
        let mut profile = Profile::new(at(0));
        profile.set_writing(at(2), true);
        profile.record_take(at(4), 2);
        profile.set_waiting(at(5), true);
        profile.record_return(at(7));
        profile.set_waiting(at(7), false);
        profile.record_take(at(7), 1);
        profile.set_writing(at(8), false);
        let window = profile.close_window(at(10));
        let Window {
            seconds,
            computing,
            computing_squared,
            blocked,
            completion,
            transmitting,
            gaps,
            ..
        } = window;
        assert_close(seconds, 1.0);
        assert_close(computing, 0.4);
        assert_close(blocked, 0.2);
        assert_close(completion, 0.6 / 3.0);
        // Three service times of 0.1 s.
        assert_close(computing_squared, 0.03);
        assert_close(gaps, 0.7);
        assert_close(transmitting, 0.6);
        let counts = (window.arrived, window.computed, window.released);
        assert_eq!(counts, (3, 3, 1));
        assert_eq!(
            (window.in_use, window.high_water, window.retained),
            (2, 2, 0)
        );
        // The next window starts from zero.
        let next = profile.close_window(at(15));
        assert_close(next.seconds, 0.5);
        assert_eq!((next.arrived, next.high_water), (0, 2));
    }

    #[test]
    fn held_slots_do_not_keep_the_second_station_busy() {
        let mut profile = Profile::new(at(0));
        profile.record_take(at(0), 10);
        let mut second = 0;
        let mut close = |profile: &mut Profile| {
            second += 1;
            profile.close_window(at(10 * second))
        };
        let early = close(&mut profile);
        assert_eq!((early.retained, early.transmitting), (0, 1.0));
        for _ in 0..8 {
            close(&mut profile);
        }
        let later = close(&mut profile);
        assert_eq!(later.retained, 10);
        assert_close(later.transmitting, 0.0);
        profile.record_take(at(102), 3);
        for _ in 0..3 {
            profile.record_return(at(107));
        }
        let busy = close(&mut profile);
        assert_eq!((busy.retained, busy.high_water, busy.in_use), (10, 13, 10));
        assert_close(busy.transmitting, 0.5);
        profile.record_return(at(115));
        close(&mut profile);
        assert_eq!(close(&mut profile).retained, 9);
    }
}
