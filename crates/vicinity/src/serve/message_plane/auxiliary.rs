//! An auxiliary process of the message plane: the gateway of this host's programs, or the uplink. The supervisor
//! checks its health as it does with a data plane, and starts it again when it ends or does not answer.

use std::io;

use tokio::time::Instant;

use crate::processes::message::protocol::{Event, Order};
use crate::serve::process::child_process::ChildProcess;
use crate::serve::process::deadline::ANSWER_TIMEOUT;
use crate::serve::process::launch::{Launch, ProcessKind};
use crate::serve::process::lifecycle::NextAction;
use crate::serve::process::pending_request::PendingRequest;

#[derive(Debug)]
pub(super) struct AuxiliaryProcess {
    process: ChildProcess<Order>,
    /// The outstanding health check. The answer carries no state, so no client waits for it.
    pending: PendingRequest<()>,
}

impl AuxiliaryProcess {
    /// Starts a process; `name` is its name in the log.
    pub(super) fn start(name: &str, kind: ProcessKind<'_>, launch: &Launch) -> io::Result<Self> {
        Ok(Self {
            process: ChildProcess::start(name, kind, launch)?,
            pending: PendingRequest::new(ANSWER_TIMEOUT),
        })
    }

    /// Queues an order.
    pub(super) fn push(&mut self, order: Order, fd: Option<std::os::fd::OwnedFd>) {
        self.process.plane.orders.push(order, fd);
    }

    /// Returns how often the process was started again.
    pub(super) fn restarts(&self) -> u64 {
        self.process.lifecycle.restarts()
    }

    /// Returns why the process does not run, why the last one ended, or that it has not answered yet.
    pub(super) fn failure_reason(&self) -> Option<String> {
        self.process
            .failure_reason
            .clone()
            .or_else(|| self.pending.stale_reason())
    }

    /// Returns when the owner has to call [`tick`](Self::tick).
    pub(super) fn deadline(&self) -> Option<Instant> {
        let life = self.process.lifecycle.deadline().into_iter();
        life.chain(self.pending.deadline()).min()
    }

    /// Does what is due at `now`. Returns whether the process was started again, so that the owner must send it what
    /// it serves.
    pub(super) fn tick(&mut self, now: Instant, kind: ProcessKind<'_>, launch: &Launch) -> bool {
        match self.process.due(&mut self.pending, now) {
            NextAction::Nothing => false,
            NextAction::HealthCheck => {
                if self.pending.begin(now) {
                    self.push(Order::Report, None);
                }
                false
            }
            NextAction::Start => self.process.restart(kind, launch),
        }
    }

    /// Handles the end of the process.
    pub(super) async fn ended(&mut self) {
        self.pending.finish();
        self.process.ended().await;
    }

    /// Ends the process in order.
    pub(super) async fn stop(&mut self) {
        self.process
            .stop::<Event>(Order::Stop, ANSWER_TIMEOUT)
            .await;
    }
}

/// Returns the next event of an auxiliary process that is not the answer to a health check, or `None` when the
/// process is gone. Never returns without a process. Cancel safe.
pub(super) async fn next_event(auxiliary: &mut Option<AuxiliaryProcess>) -> Option<Event> {
    let Some(auxiliary) = auxiliary else {
        return std::future::pending().await;
    };
    loop {
        match auxiliary.process.plane.next_event().await {
            Some(Event::End) => auxiliary.pending.finish(),
            other => return other,
        }
    }
}
