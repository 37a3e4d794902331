//! The life cycle of a process: the supervisor checks its health, and starts it again when it ends.
//!
//! A network loses nothing with its data plane. The rings are in the VMs' memory; sockets, taps and totals are the
//! supervisor's. The front-ends connect again by themselves, or the supervisor connects to them again, and their
//! rings continue where they were.

use std::time::Duration;

use tokio::time::Instant;

use super::backoff::Backoff;

/// Longest time between two health checks, in which the process reports its counters. It bounds what the totals
/// miss when a process dies, and how long one that hangs goes unnoticed.
const HEALTH_CHECK_PERIOD: Duration = Duration::from_secs(15);

/// The state of a process's life cycle.
#[derive(Debug)]
pub(in crate::serve) struct Lifecycle {
    backoff: Backoff,
    state: State,
    restarts: u64,
    /// The supervisor killed the process because it did not answer.
    unresponsive: bool,
    /// The supervisor told the process to end, so that another one takes over.
    pub(in crate::serve) restart_requested: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The process runs; the next health check is due at this time.
    Up { health_check: Instant },
    /// The process does not run; the next start is due at this time.
    Down { start: Instant },
}

/// What the owner of a process has to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) enum NextAction {
    /// Nothing.
    Nothing,
    /// Request the state of the process.
    HealthCheck,
    /// Start the process again.
    Start,
}

impl Lifecycle {
    /// Returns the life cycle of a process that was started now.
    pub(in crate::serve) fn new(now: Instant) -> Self {
        Self {
            backoff: Backoff::new(now),
            state: State::Up {
                health_check: now + HEALTH_CHECK_PERIOD,
            },
            restarts: 0,
            unresponsive: false,
            restart_requested: false,
        }
    }

    pub(in crate::serve) fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// Returns how often the process was started again.
    pub(in crate::serve) fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Returns when the owner has to call [`due`](Self::due).
    pub(in crate::serve) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Up { health_check: at } | State::Down { start: at } => Some(at),
        }
    }

    /// Returns what is due at `now`, and schedules the next health check.
    pub(in crate::serve) fn due(&mut self, now: Instant) -> NextAction {
        match self.state {
            State::Up { health_check } if health_check <= now => {
                self.state = State::Up {
                    health_check: now + HEALTH_CHECK_PERIOD,
                };
                NextAction::HealthCheck
            }
            State::Down { start } if start <= now => NextAction::Start,
            _ => NextAction::Nothing,
        }
    }

    /// Notes that the process is killed because it did not answer.
    pub(in crate::serve) fn killed_as_unresponsive(&mut self) {
        self.unresponsive = true;
    }

    /// Notes that the process ended, or could not be started, and schedules the next start. Returns the message
    /// for the log and the status.
    pub(in crate::serve) fn ended(&mut self, exit_reason: &str, now: Instant) -> String {
        let unresponsive = match std::mem::take(&mut self.unresponsive) {
            true => "it did not answer in time, so the supervisor killed it; ",
            false => "",
        };
        let pause = self.backoff.ended(now);
        self.state = State::Down { start: now + pause };
        let again = match self.backoff.has_failed() {
            true => format!(
                "it ends repeatedly, so the supervisor waits {:.1} s before it restarts it",
                pause.as_secs_f64()
            ),
            false => "the supervisor restarts it".to_owned(),
        };
        format!("the process ended: {unresponsive}{exit_reason}; {again}")
    }

    /// Notes that the process was started again.
    pub(in crate::serve) fn started(&mut self, now: Instant) {
        self.backoff.started(now);
        self.state = State::Up {
            health_check: now + HEALTH_CHECK_PERIOD,
        };
        self.restarts += 1;
    }
}
