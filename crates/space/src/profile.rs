//! The profiler: what happens to a space's slots, as windows of time.
//!
//! A job is a slot. The first station is the guest: it works while it has a file open to write and no
//! write waits for slots. A job arrives when its slot is taken, for before that nobody but the guest
//! knows of it; the guest's work since the slot before is its service. The second station is all
//! that comes between a slot's being taken and its return: what is written, sent, kept, removed. It is
//! busy while more slots are in use than lie full anyway ([`Window::held`]).

use std::collections::VecDeque;
use std::time::Duration;

use crate::estimator::Window;

/// Windows in which a slot must have been in use to count as one that lies full.
const REMEMBERED: usize = 5;

/// The profile of one space.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Until when everything is in the window.
    at: Duration,
    began: Duration,
    used: u32,
    writing: bool,
    waiting: bool,
    /// Fewest slots in use in this window, and in those before.
    low: u32,
    lows: VecDeque<u32>,
    /// Seconds that the guest worked since a slot was taken, and that passed since then.
    work: f64,
    gap: f64,
    window: Window,
}

impl Profile {
    /// Of an empty space.
    #[must_use]
    pub fn new(now: Duration) -> Self {
        Self {
            at: now,
            began: now,
            used: 0,
            writing: false,
            waiting: false,
            low: 0,
            lows: VecDeque::new(),
            work: 0.0,
            gap: 0.0,
            window: Window::default(),
        }
    }

    /// So many slots were taken.
    pub fn took(&mut self, now: Duration, count: u32) {
        if count == 0 {
            return;
        }
        self.pass(now);
        self.used = self.used.saturating_add(count);
        let window = &mut self.window;
        window.high_water = window.high_water.max(self.used);
        window.arrived += u64::from(count);
        window.computed += u64::from(count);
        // As if each had taken the same time.
        let jobs = f64::from(count);
        window.gaps += self.gap;
        window.gaps_squared += self.gap * self.gap / jobs;
        window.computing_squared += self.work * self.work / jobs;
        (self.work, self.gap) = (0.0, 0.0);
    }

    /// A slot came back.
    pub fn returned(&mut self, now: Duration) {
        self.pass(now);
        self.used = self.used.saturating_sub(1);
        self.low = self.low.min(self.used);
        self.window.released += 1;
    }

    /// The guest has a file open to write, or none.
    pub fn writing(&mut self, now: Duration, writing: bool) {
        self.pass(now);
        self.writing = writing;
    }

    /// A write waits for slots, or none.
    pub fn waiting(&mut self, now: Duration, waiting: bool) {
        self.pass(now);
        self.waiting = waiting;
    }

    /// The window that ends now; another one begins.
    pub fn close(&mut self, now: Duration) -> Window {
        self.pass(now);
        let next = Window {
            high_water: self.used,
            held: self.held(),
            ..Window::default()
        };
        if self.lows.len() == REMEMBERED {
            self.lows.pop_front();
        }
        self.lows.push_back(self.low);
        self.low = self.used;
        let window = std::mem::replace(&mut self.window, next);
        #[allow(clippy::cast_precision_loss, reason = "slots of a window")]
        let completion = match window.computed {
            0 => 0.0,
            jobs => (window.computing + window.blocked) / jobs as f64,
        };
        let began = std::mem::replace(&mut self.began, now);
        Window {
            seconds: now.saturating_sub(began).as_secs_f64(),
            completion,
            in_use: self.used,
            ..window
        }
    }

    /// Slots that were in use all the time.
    fn held(&self) -> u32 {
        match self.lows.len() {
            REMEMBERED => self.lows.iter().copied().min().unwrap_or(0).min(self.low),
            _ => 0,
        }
    }

    /// Time has passed until now.
    fn pass(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.gap += passed;
        if self.waiting {
            self.window.blocked += passed;
        } else if self.writing {
            self.window.computing += passed;
            self.work += passed;
        }
        if self.used > self.window.held {
            self.window.transmitting += passed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(tenths: u64) -> Duration {
        Duration::from_millis(100 * tenths)
    }

    fn is(seen: f64, expected: f64) {
        assert!((seen - expected).abs() < 1e-9, "{seen} {expected}");
    }

    #[test]
    fn the_guest_works_while_it_writes_and_does_not_wait() {
        let mut profile = Profile::new(at(0));
        profile.writing(at(2), true);
        profile.took(at(4), 2);
        profile.waiting(at(5), true);
        profile.returned(at(7));
        profile.waiting(at(7), false);
        profile.took(at(7), 1);
        profile.writing(at(8), false);
        let window = profile.close(at(10));
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
        is(seconds, 1.0);
        is(computing, 0.4);
        is(blocked, 0.2);
        is(completion, 0.6 / 3.0);
        // Twice 0.1 s, once 0.1 s.
        is(computing_squared, 0.03);
        is(gaps, 0.7);
        is(transmitting, 0.6);
        let counts = (window.arrived, window.computed, window.released);
        assert_eq!(counts, (3, 3, 1));
        assert_eq!((window.in_use, window.high_water, window.held), (2, 2, 0));
        // A window of its own.
        let next = profile.close(at(15));
        is(next.seconds, 0.5);
        assert_eq!((next.arrived, next.high_water), (0, 2));
    }

    #[test]
    fn what_lies_full_is_not_what_keeps_the_second_station_busy() {
        let mut profile = Profile::new(at(0));
        profile.took(at(0), 10);
        let mut second = 0;
        let mut close = |profile: &mut Profile| {
            second += 1;
            profile.close(at(10 * second))
        };
        let early = close(&mut profile);
        assert_eq!((early.held, early.transmitting), (0, 1.0));
        for _ in 0..8 {
            close(&mut profile);
        }
        let later = close(&mut profile);
        assert_eq!(later.held, 10);
        is(later.transmitting, 0.0);
        profile.took(at(102), 3);
        for _ in 0..3 {
            profile.returned(at(107));
        }
        let busy = close(&mut profile);
        assert_eq!((busy.held, busy.high_water, busy.in_use), (10, 13, 10));
        is(busy.transmitting, 0.5);
        profile.returned(at(115));
        close(&mut profile);
        assert_eq!(close(&mut profile).held, 9);
    }
}
