//! A process beside the message plane's data plane: the gateway of this host's programs, or the uplink.
//! It is asked how it is, like a data plane, and started again when it ends or does not answer.

use std::io;

use tokio::time::Instant;

use crate::processes::message::protocol::{Event, Order};
use crate::serve::process::child_process::ChildProcess;
use crate::serve::process::deadline::PATIENCE;
use crate::serve::process::launch::{Duty, Launch};
use crate::serve::process::lifecycle::Due;
use crate::serve::process::pending_request::PendingRequest;

#[derive(Debug)]
pub(super) struct Auxiliary {
    process: ChildProcess<Order>,
    /// Nobody waits for the answer: that there is one is all that it says.
    pending: PendingRequest<()>,
}

impl Auxiliary {
    /// Start one, which the log knows by this name.
    pub(super) fn start(name: &str, duty: Duty<'_>, launch: &Launch) -> io::Result<Self> {
        Ok(Self {
            process: ChildProcess::start(name, duty, launch)?,
            pending: PendingRequest::new(PATIENCE),
        })
    }

    /// Have it do this.
    pub(super) fn push(&mut self, order: Order, fd: Option<std::os::fd::OwnedFd>) {
        self.process.plane.orders.push(order, fd);
    }

    /// How often it was started again.
    pub(super) fn restarts(&self) -> u64 {
        self.process.lifecycle.restarts()
    }

    /// Why it does not run, or did not the last time, or has not answered.
    pub(super) fn trouble(&self) -> Option<String> {
        self.process
            .trouble
            .clone()
            .or_else(|| self.pending.stale_reason())
    }

    /// When [`tick`](Self::tick) is wanted.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let life = self.process.lifecycle.deadline().into_iter();
        life.chain(self.pending.deadline()).min()
    }

    /// Time has passed. Whether it was started again, and has to be told what it serves.
    pub(super) fn tick(&mut self, now: Instant, duty: Duty<'_>, launch: &Launch) -> bool {
        match self.process.due(&mut self.pending, now) {
            Due::Nothing => false,
            Due::HealthCheck => {
                if self.pending.begin(now) {
                    self.push(Order::Report, None);
                }
                false
            }
            Due::Start => self.process.start_again(duty, launch),
        }
    }

    /// It has ended.
    pub(super) async fn ended(&mut self) {
        self.pending.finish();
        self.process.ended().await;
    }

    /// End it in order.
    pub(super) async fn stop(&mut self) {
        self.process.stop::<Event>(Order::Stop, PATIENCE).await;
    }
}

/// What such a process says but that it is well, `None` when it is gone; nothing, for ever, without one.
/// Cancel safe.
pub(super) async fn said(auxiliary: &mut Option<Auxiliary>) -> Option<Event> {
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
