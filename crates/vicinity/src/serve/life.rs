//! The life of a network's data plane: it is looked after, and when it ends, started again.
//!
//! Nothing of a network is lost with its data plane. What VMs keep is in their memory; sockets,
//! taps and totals are the supervisor's. The front-ends connect again by themselves or are dialed
//! again, and their rings go on where they were.

use std::time::Duration;

use tokio::time::Instant;

use super::backoff::Backoff;
use super::launch::Launch;
use super::network::{Network, PATIENCE};
use super::plane::Plane;

/// A data plane is asked how it is at least so often. It bounds what the totals miss when a data
/// plane dies, and how long one that hangs is left alone.
const LOOK: Duration = Duration::from_secs(15);

/// What a network knows of its data planes.
pub(super) struct Life {
    launch: Launch,
    backoff: Backoff,
    state: State,
    restarts: u64,
    /// The data plane did not answer and was killed for it.
    silent: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Runs; is to be asked at this time.
    Up { look: Instant },
    /// Is to be started at this time.
    Down { start: Instant },
}

impl Life {
    /// The first data plane was started with `launch` now.
    pub(super) fn new(launch: Launch, now: Instant) -> Self {
        Self {
            launch,
            backoff: Backoff::new(now),
            state: State::Up { look: now + LOOK },
            restarts: 0,
            silent: false,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// How often a data plane was started again.
    pub(super) fn restarts(&self) -> u64 {
        self.restarts
    }

    /// When [`Network::live`] is wanted.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Up { look: at } | State::Down { start: at } => Some(at),
        }
    }
}

impl std::fmt::Debug for Life {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Life")
            .field("state", &self.state)
            .field("restarts", &self.restarts)
            .finish_non_exhaustive()
    }
}

impl Network {
    /// Time has passed.
    pub(super) fn live(&mut self, now: Instant) {
        if self.answer_by.is_some_and(|by| by <= now) {
            self.silence();
        }
        match self.life.state {
            State::Up { look } if look <= now => {
                self.life.state = State::Up { look: now + LOOK };
                self.ask(now);
            }
            State::Down { start } if start <= now => self.start_again(now),
            _ => {}
        }
    }

    /// The data plane does not answer: end it, which will be noticed like any other end.
    fn silence(&mut self) {
        self.answer_by = None;
        self.life.silent = true;
        self.plane.kill();
    }

    /// The data plane ended, whyever.
    pub(super) async fn data_plane_ended(&mut self) {
        let mut verdict = self.plane.verdict().await;
        if std::mem::take(&mut self.life.silent) {
            verdict = format!("it did not answer for {} s; {verdict}", PATIENCE.as_secs());
        }
        for port in self.ports.values_mut() {
            port.lost();
        }
        self.down(&verdict, Instant::now());
        self.answer();
    }

    fn down(&mut self, verdict: &str, now: Instant) {
        let pause = self.life.backoff.ended(now);
        self.life.state = State::Down { start: now + pause };
        let again = match self.life.backoff.has_failed() {
            true => format!(
                "it ends again and again, next start in {:.1} s",
                pause.as_secs_f64()
            ),
            false => "it is started again".to_owned(),
        };
        tracing::error!(
            network = %self.config.name,
            "the data plane ended: {verdict}; {again}"
        );
        self.trouble = Some(format!("the data plane ended: {verdict}; {again}"));
    }

    fn start_again(&mut self, now: Instant) {
        match Plane::start(&self.config, &self.life.launch) {
            Ok(plane) => self.plane = plane,
            Err(error) => return self.down(&format!("it cannot be started: {error}"), now),
        }
        self.life.backoff.started(now);
        self.life.state = State::Up { look: now + LOOK };
        self.life.restarts += 1;
        self.trouble = None;
        tracing::info!(network = %self.config.name, "data plane started again");
        self.set_up();
        for port in self.ports.values_mut() {
            port.reopen(&mut self.plane.orders);
        }
        self.attach_uplink();
    }
}
