//! What a service manager is told: readiness, reloads and the watchdog. Without one, nothing of this does
//! anything. What it gives is in [`super::handed`], what it keeps in [`super::fd_store`].
//!
//! Protocol: systemd's `sd_notify(3)`.

pub(super) mod fd_store;
pub(super) mod handed;

use sd_notify::NotifyState;
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;

use super::api::Daemon;
use super::supervisor::Wish;

/// The daemon serves.
pub(super) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// The daemon ends in order.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// The configuration is loaded again, for as long as this lives.
#[derive(Debug)]
pub(super) struct Reloading(());

impl Reloading {
    pub(super) fn begin() -> Self {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => tell(&[NotifyState::Reloading, now]),
            Err(error) => tracing::warn!(%error, "there is no clock"),
        }
        Self(())
    }
}

impl Drop for Reloading {
    fn drop(&mut self) {
        ready();
    }
}

/// Tell the watchdog, for ever, that the supervisor answers. It judges nothing else: what hangs of a
/// network, the message plane or a space is the supervisor's to end, and to end the supervisor for it would
/// stop everybody.
pub(super) async fn watch(daemon: Daemon) {
    let Some(limit) = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()) else {
        return std::future::pending().await;
    };
    let mut pulse = tokio::time::interval(limit / 2);
    pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        pulse.tick().await;
        let (question, answer) = oneshot::channel();
        if daemon.wishes.send((Wish::Tell, question)).await.is_err() || answer.await.is_err() {
            // The daemon ends.
            return std::future::pending().await;
        }
        tell(&[NotifyState::Watchdog]);
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager cannot be told");
    }
}
