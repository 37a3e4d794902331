//! A process other than a network's data plane, which the supervisor keeps running.

use std::io;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::handle::Process;
use super::launch::{Launch, ProcessKind};
use super::lifecycle::{Lifecycle, NextAction};
use super::pending_request::PendingRequest;

/// A supervised process that takes orders `O`.
#[derive(Debug)]
pub(in crate::serve) struct ChildProcess<O> {
    name: String,
    pub(in crate::serve) plane: Process<O>,
    pub(in crate::serve) lifecycle: Lifecycle,
    /// Why the process does not run, or why the last one ended.
    pub(in crate::serve) failure_reason: Option<String>,
}

impl<O: Serialize> ChildProcess<O> {
    /// Starts a process; `name` is its name in the log.
    pub(in crate::serve) fn start(
        name: &str,
        kind: ProcessKind<'_>,
        launch: &Launch,
    ) -> io::Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            plane: Process::start(kind, launch)?,
            lifecycle: Lifecycle::new(Instant::now()),
            failure_reason: None,
        })
    }

    /// Returns what is due now. Kills a process that is overdue with its answer; its end is then handled like any
    /// other end.
    pub(in crate::serve) fn due<A: Clone>(
        &mut self,
        pending: &mut PendingRequest<A>,
        now: Instant,
    ) -> NextAction {
        if pending.is_overdue(now) {
            self.kill_unresponsive();
        }
        self.lifecycle.due(now)
    }

    /// Kills the process because it does not answer.
    fn kill_unresponsive(&mut self) {
        self.lifecycle.killed_as_unresponsive();
        self.plane.kill();
    }

    /// Handles the end of the process: logs the reason and schedules the next start.
    pub(in crate::serve) async fn ended(&mut self) {
        let exit_reason = self.plane.exit_reason().await;
        self.down(&exit_reason);
    }

    fn down(&mut self, exit_reason: &str) {
        let failure_reason = self.lifecycle.ended(exit_reason, Instant::now());
        tracing::error!("{}: {failure_reason}", self.name);
        self.failure_reason = Some(failure_reason);
    }

    /// Starts the process again; returns whether it runs.
    pub(in crate::serve) fn restart(&mut self, kind: ProcessKind<'_>, launch: &Launch) -> bool {
        match Process::start(kind, launch) {
            Ok(plane) => self.plane = plane,
            Err(error) => {
                self.down(&format!("the supervisor cannot start it: {error}"));
                return false;
            }
        }
        self.lifecycle.started(Instant::now());
        self.failure_reason = None;
        tracing::info!("{}: restarted", self.name);
        true
    }

    /// Ends the process by this order, and logs an error if it does not end within `limit`.
    pub(in crate::serve) async fn stop<E: DeserializeOwned>(&mut self, order: O, limit: Duration) {
        if self.lifecycle.is_up() && !self.plane.stop::<E>(order, limit).await {
            tracing::error!(
                "internal error, report it as a bug: the process does not stop: {}",
                self.name
            );
        }
    }
}
