//! A process beside the networks' data planes that is kept running.

use std::io;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::launch::{Duty, Launch};
use super::lifecycle::{Due, Lifecycle};
use super::pending_request::PendingRequest;
use super::plane::Plane;

/// It takes orders `O`.
#[derive(Debug)]
pub(in crate::serve) struct ChildProcess<O> {
    name: String,
    pub(in crate::serve) plane: Plane<O>,
    pub(in crate::serve) life: Lifecycle,
    /// Why it does not run, or did not the last time.
    pub(in crate::serve) trouble: Option<String>,
}

impl<O: Serialize> ChildProcess<O> {
    /// Start one, which the log knows by this name.
    pub(in crate::serve) fn start(name: &str, duty: Duty<'_>, launch: &Launch) -> io::Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            plane: Plane::start(duty, launch)?,
            life: Lifecycle::new(Instant::now()),
            trouble: None,
        })
    }

    /// What is due now. One that does not answer what it was asked is ended, which will be noticed
    /// like any other end.
    pub(in crate::serve) fn due<A: Clone>(
        &mut self,
        asked: &mut PendingRequest<A>,
        now: Instant,
    ) -> Due {
        if asked.is_overdue(now) {
            self.silence();
        }
        self.life.due(now)
    }

    /// It does not answer.
    fn silence(&mut self) {
        self.life.silenced();
        self.plane.kill();
    }

    /// It has ended.
    pub(in crate::serve) async fn ended(&mut self) {
        let verdict = self.plane.verdict().await;
        self.down(&verdict);
    }

    fn down(&mut self, verdict: &str) {
        let trouble = self.life.ended(verdict, Instant::now());
        tracing::error!("{}: {trouble}", self.name);
        self.trouble = Some(trouble);
    }

    /// Whether it runs again.
    pub(in crate::serve) fn start_again(&mut self, duty: Duty<'_>, launch: &Launch) -> bool {
        match Plane::start(duty, launch) {
            Ok(plane) => self.plane = plane,
            Err(error) => {
                self.down(&format!("it cannot be started: {error}"));
                return false;
            }
        }
        self.life.started(Instant::now());
        self.trouble = None;
        tracing::info!("{}: started again", self.name);
        true
    }

    /// End it by this order, within this time.
    pub(in crate::serve) async fn stop<E: DeserializeOwned>(&mut self, order: O, limit: Duration) {
        if self.life.is_up() && !self.plane.stop::<E>(order, limit).await {
            tracing::error!("our bug: {} does not stop", self.name);
        }
    }
}
