//! A process beside the networks' data planes that is kept running.

use std::io;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::handle::Process;
use super::launch::{Duty, Launch};
use super::lifecycle::{Due, Lifecycle};
use super::pending_request::PendingRequest;

/// It takes orders `O`.
#[derive(Debug)]
pub(in crate::serve) struct ChildProcess<O> {
    name: String,
    pub(in crate::serve) plane: Process<O>,
    pub(in crate::serve) lifecycle: Lifecycle,
    /// Why it does not run, or did not the last time.
    pub(in crate::serve) trouble: Option<String>,
}

impl<O: Serialize> ChildProcess<O> {
    /// Start one, which the log knows by this name.
    pub(in crate::serve) fn start(name: &str, duty: Duty<'_>, launch: &Launch) -> io::Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            plane: Process::start(duty, launch)?,
            lifecycle: Lifecycle::new(Instant::now()),
            trouble: None,
        })
    }

    /// What is due now. One that does not answer what it was asked is ended, which will be noticed
    /// like any other end.
    pub(in crate::serve) fn due<A: Clone>(
        &mut self,
        pending: &mut PendingRequest<A>,
        now: Instant,
    ) -> Due {
        if pending.is_overdue(now) {
            self.kill_unresponsive();
        }
        self.lifecycle.due(now)
    }

    /// It does not answer.
    fn kill_unresponsive(&mut self) {
        self.lifecycle.killed_as_unresponsive();
        self.plane.kill();
    }

    /// It has ended.
    pub(in crate::serve) async fn ended(&mut self) {
        let exit_reason = self.plane.exit_reason().await;
        self.down(&exit_reason);
    }

    fn down(&mut self, exit_reason: &str) {
        let trouble = self.lifecycle.ended(exit_reason, Instant::now());
        tracing::error!("{}: {trouble}", self.name);
        self.trouble = Some(trouble);
    }

    /// Whether it runs again.
    pub(in crate::serve) fn start_again(&mut self, duty: Duty<'_>, launch: &Launch) -> bool {
        match Process::start(duty, launch) {
            Ok(plane) => self.plane = plane,
            Err(error) => {
                self.down(&format!("it cannot be started: {error}"));
                return false;
            }
        }
        self.lifecycle.started(Instant::now());
        self.trouble = None;
        tracing::info!("{}: started again", self.name);
        true
    }

    /// End it by this order, within this time.
    pub(in crate::serve) async fn stop<E: DeserializeOwned>(&mut self, order: O, limit: Duration) {
        if self.lifecycle.is_up() && !self.plane.stop::<E>(order, limit).await {
            tracing::error!("our bug: {} does not stop", self.name);
        }
    }
}
