//! The life of a data plane: it is looked after, and when it ends, started again.
//!
//! Nothing of a network is lost with its data plane. What VMs keep is in their memory; sockets,
//! taps and totals are the supervisor's. The front-ends connect again by themselves or are dialed
//! again, and their rings go on where they were.

use std::time::Duration;

use tokio::time::Instant;

use super::backoff::Backoff;

/// A data plane is asked how it is at least so often. It bounds what the totals miss when a data
/// plane dies, and how long one that hangs is left alone.
const HEALTH_CHECK_PERIOD: Duration = Duration::from_secs(15);

/// What is known of a data plane's lives.
#[derive(Debug)]
pub(in crate::serve) struct Lifecycle {
    backoff: Backoff,
    state: State,
    restarts: u64,
    /// The data plane did not answer and was killed for it.
    unresponsive: bool,
    /// The data plane was told to end, so that another one takes over.
    pub(in crate::serve) restart_requested: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Runs; is to be asked at this time.
    Up { health_check: Instant },
    /// Is to be started at this time.
    Down { start: Instant },
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) enum Due {
    /// Nothing.
    Nothing,
    /// Ask it how it is.
    HealthCheck,
    /// Start it again.
    Start,
}

impl Lifecycle {
    /// The first data plane was started now.
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

    /// How often a data plane was started again.
    pub(in crate::serve) fn restarts(&self) -> u64 {
        self.restarts
    }

    /// When [`due`](Self::due) is wanted.
    pub(in crate::serve) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Up { health_check: at } | State::Down { start: at } => Some(at),
        }
    }

    /// Time has passed.
    pub(in crate::serve) fn due(&mut self, now: Instant) -> Due {
        match self.state {
            State::Up { health_check } if health_check <= now => {
                self.state = State::Up {
                    health_check: now + HEALTH_CHECK_PERIOD,
                };
                Due::HealthCheck
            }
            State::Down { start } if start <= now => Due::Start,
            _ => Due::Nothing,
        }
    }

    /// The data plane did not answer and is killed for it.
    pub(in crate::serve) fn killed_as_unresponsive(&mut self) {
        self.unresponsive = true;
    }

    /// The data plane ended, or could not be started, so; returns what to tell of it.
    pub(in crate::serve) fn ended(&mut self, exit_reason: &str, now: Instant) -> String {
        let unresponsive = match std::mem::take(&mut self.unresponsive) {
            true => "it did not answer in time; ",
            false => "",
        };
        let pause = self.backoff.ended(now);
        self.state = State::Down { start: now + pause };
        let again = match self.backoff.has_failed() {
            true => format!(
                "it ends again and again, next start in {:.1} s",
                pause.as_secs_f64()
            ),
            false => "it is started again".to_owned(),
        };
        format!("the data plane ended: {unresponsive}{exit_reason}; {again}")
    }

    /// It was started again.
    pub(in crate::serve) fn started(&mut self, now: Instant) {
        self.backoff.started(now);
        self.state = State::Up {
            health_check: now + HEALTH_CHECK_PERIOD,
        };
        self.restarts += 1;
    }
}
