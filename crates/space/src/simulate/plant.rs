//! A VM's jobs and its space, event by event: what the controller is tried on.

use std::collections::VecDeque;

use crate::estimator::Window;

use super::trace::Jobs;

/// What the first station does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Compute {
    Idle,
    /// On the job that arrived then, until then.
    Busy {
        arrived: f64,
        until: f64,
    },
    /// The job that arrived then has no slot, since then.
    Blocked {
        arrived: f64,
        since: f64,
    },
}

/// One VM.
#[derive(Debug)]
pub(super) struct Plant {
    jobs: Jobs,
    pub(super) slots: u32,
    waiting: VecDeque<f64>,
    compute: Compute,
    in_use: u32,
    /// When the job in transmission is done with.
    sending: Option<f64>,
    next: f64,
    window: Window,
    /// When the window began.
    began: f64,
    completions: f64,
    last_arrival: f64,
    /// When the second station began to be busy, as far as it is not in the window yet.
    busy_since: f64,
    /// Times from arrival to slot, of all jobs.
    pub(super) times: Vec<f64>,
    pub(super) blocked: f64,
}

impl Plant {
    /// A VM that starts now.
    pub(super) fn starting(mut jobs: Jobs, slots: u32, now: f64) -> Self {
        let next = jobs.next_arrival(now);
        Self {
            jobs,
            slots,
            waiting: VecDeque::new(),
            compute: Compute::Idle,
            in_use: 0,
            sending: None,
            next,
            window: Window::default(),
            began: now,
            completions: 0.0,
            last_arrival: now,
            busy_since: now,
            times: Vec::new(),
            blocked: 0.0,
        }
    }

    /// Let time pass until `end`.
    pub(super) fn run(&mut self, end: f64) {
        loop {
            let computed = match self.compute {
                Compute::Busy { until, .. } => until,
                _ => f64::INFINITY,
            };
            let sent = self.sending.unwrap_or(f64::INFINITY);
            let now = self.next.min(computed).min(sent);
            if now > end {
                return;
            }
            if now == sent {
                self.sent(now);
            } else if now == computed {
                self.computed(now);
            } else {
                self.arrive(now);
            }
        }
    }

    /// More or fewer slots. Those in use stay.
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
        self.next = self.jobs.next_arrival(now);
        self.start(now);
    }

    /// Compute the next job, if the station has nothing to do.
    fn start(&mut self, now: f64) {
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

    fn computed(&mut self, now: f64) {
        if let Compute::Busy { arrived, .. } = self.compute {
            let since = now;
            self.compute = Compute::Blocked { arrived, since };
            self.window.computed += 1;
        }
        self.admit(now);
    }

    /// Give the job that waits for a slot one, if there is one.
    fn admit(&mut self, now: f64) {
        let Compute::Blocked { arrived, since } = self.compute else {
            return;
        };
        if self.in_use >= self.slots {
            return;
        }
        self.in_use += 1;
        self.window.high_water = self.window.high_water.max(self.in_use);
        self.window.blocked += now - since.max(self.began);
        self.blocked += now - since;
        self.times.push(now - arrived);
        self.completions += now - arrived;
        self.compute = Compute::Idle;
        if self.sending.is_none() {
            self.busy_since = now;
            self.sending = Some(now + self.jobs.transmit_time(now));
        }
        self.start(now);
    }

    fn sent(&mut self, now: f64) {
        self.in_use -= 1;
        self.window.released += 1;
        self.sending = (self.in_use > 0).then(|| now + self.jobs.transmit_time(now));
        if self.sending.is_none() {
            self.window.transmitting += now - self.busy_since.max(self.began);
        }
        self.admit(now);
    }

    /// Jobs that got no slot.
    pub(super) fn unserved(&self) -> usize {
        self.waiting.len() + usize::from(self.compute != Compute::Idle)
    }

    /// The window that ends now.
    pub(super) fn close(&mut self, now: f64) -> Window {
        let began = std::mem::replace(&mut self.began, now);
        if self.sending.is_some() {
            self.window.transmitting += now - self.busy_since.max(began);
            self.busy_since = now;
        }
        if let Compute::Blocked { since, .. } = self.compute {
            self.window.blocked += now - since.max(began);
        }
        #[allow(clippy::cast_precision_loss, reason = "jobs of a window")]
        let mean = match self.window.computed {
            0 => 0.0,
            jobs => self.completions / jobs as f64,
        };
        self.completions = 0.0;
        let next = Window {
            high_water: self.in_use,
            ..Window::default()
        };
        Window {
            seconds: now - began,
            completion: mean,
            in_use: self.in_use,
            ..std::mem::replace(&mut self.window, next)
        }
    }
}
