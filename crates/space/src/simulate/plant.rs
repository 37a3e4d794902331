//! The plant under control: a discrete-event simulation of one VM's jobs and its space.

use std::collections::VecDeque;

use crate::estimator::Window;

use super::trace::Jobs;

/// State of the first station.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Compute {
    Idle,
    /// It serves the job that arrived at `arrived` until `until`.
    Busy {
        arrived: f64,
        until: f64,
    },
    /// The job that arrived at `arrived` waits for a slot since `since`.
    Blocked {
        arrived: f64,
        since: f64,
    },
}

/// One simulated VM with its space.
#[derive(Debug)]
pub(super) struct Plant {
    jobs: Jobs,
    pub(super) slots: u32,
    waiting: VecDeque<f64>,
    compute: Compute,
    in_use: u32,
    /// When the current transmission ends, if there is one.
    transmission_end: Option<f64>,
    next_arrival: f64,
    window: Window,
    /// When the current window began.
    window_start: f64,
    completion_sum: f64,
    last_arrival: f64,
    /// Start of the second station's busy time that the window does not include yet.
    busy_since: f64,
    /// Time from arrival to slot of each job, in seconds.
    pub(super) times_to_slot: Vec<f64>,
    pub(super) blocked_seconds: f64,
}

impl Plant {
    /// Creates a VM that starts at `now`.
    pub(super) fn new(mut jobs: Jobs, slots: u32, now: f64) -> Self {
        let next_arrival = jobs.next_arrival(now);
        Self {
            jobs,
            slots,
            waiting: VecDeque::new(),
            compute: Compute::Idle,
            in_use: 0,
            transmission_end: None,
            next_arrival,
            window: Window::default(),
            window_start: now,
            completion_sum: 0.0,
            last_arrival: now,
            busy_since: now,
            times_to_slot: Vec::new(),
            blocked_seconds: 0.0,
        }
    }

    /// Simulates all events until `end`.
    pub(super) fn run(&mut self, end: f64) {
        loop {
            let computed = match self.compute {
                Compute::Busy { until, .. } => until,
                _ => f64::INFINITY,
            };
            let transmitted = self.transmission_end.unwrap_or(f64::INFINITY);
            let now = self.next_arrival.min(computed).min(transmitted);
            if now > end {
                return;
            }
            if now == transmitted {
                self.finish_transmission(now);
            } else if now == computed {
                self.finish_computation(now);
            } else {
                self.arrive(now);
            }
        }
    }

    /// Changes the number of slots. Slots in use stay in use.
    pub(super) fn resize(&mut self, now: f64, slots: u32) {
        self.slots = slots;
        self.admit(now);
    }

    fn arrive(&mut self, now: f64) {
        let gap = now - self.last_arrival;
        self.last_arrival = now;
        self.window.arrived += 1;
        self.window.gaps += gap;
        self.window.gaps_squared += gap * gap;
        self.waiting.push_back(now);
        self.next_arrival = self.jobs.next_arrival(now);
        self.start_computation(now);
    }

    /// Starts the first station on the next job, if it is idle.
    fn start_computation(&mut self, now: f64) {
        if self.compute != Compute::Idle {
            return;
        }
        if let Some(arrived) = self.waiting.pop_front() {
            let time = self.jobs.compute_time(now);
            self.window.computing += time;
            self.window.computing_squared += time * time;
            let until = now + time;
            self.compute = Compute::Busy { arrived, until };
        }
    }

    fn finish_computation(&mut self, now: f64) {
        if let Compute::Busy { arrived, .. } = self.compute {
            let since = now;
            self.compute = Compute::Blocked { arrived, since };
            self.window.computed += 1;
        }
        self.admit(now);
    }

    /// Gives the blocked job a slot, if one is free.
    fn admit(&mut self, now: f64) {
        let Compute::Blocked { arrived, since } = self.compute else {
            return;
        };
        if self.in_use >= self.slots {
            return;
        }
        self.in_use += 1;
        self.window.high_water = self.window.high_water.max(self.in_use);
        self.window.blocked += now - since.max(self.window_start);
        self.blocked_seconds += now - since;
        self.times_to_slot.push(now - arrived);
        self.completion_sum += now - arrived;
        self.compute = Compute::Idle;
        if self.transmission_end.is_none() {
            self.busy_since = now;
            self.transmission_end = Some(now + self.jobs.transmit_time(now));
        }
        self.start_computation(now);
    }

    fn finish_transmission(&mut self, now: f64) {
        self.in_use -= 1;
        self.window.released += 1;
        self.transmission_end = (self.in_use > 0).then(|| now + self.jobs.transmit_time(now));
        if self.transmission_end.is_none() {
            self.window.transmitting += now - self.busy_since.max(self.window_start);
        }
        self.admit(now);
    }

    /// Returns the number of jobs that did not get a slot yet.
    pub(super) fn unserved(&self) -> usize {
        self.waiting.len() + usize::from(self.compute != Compute::Idle)
    }

    /// Ends the current window at `now` and returns it.
    pub(super) fn close_window(&mut self, now: f64) -> Window {
        let window_start = std::mem::replace(&mut self.window_start, now);
        if self.transmission_end.is_some() {
            self.window.transmitting += now - self.busy_since.max(window_start);
            self.busy_since = now;
        }
        if let Compute::Blocked { since, .. } = self.compute {
            self.window.blocked += now - since.max(window_start);
        }
        #[allow(clippy::cast_precision_loss, reason = "jobs of a window")]
        let mean = match self.window.computed {
            0 => 0.0,
            jobs => self.completion_sum / jobs as f64,
        };
        self.completion_sum = 0.0;
        let next = Window {
            high_water: self.in_use,
            ..Window::default()
        };
        Window {
            seconds: now - window_start,
            completion: mean,
            in_use: self.in_use,
            ..std::mem::replace(&mut self.window, next)
        }
    }
}
