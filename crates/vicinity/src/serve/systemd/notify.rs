//! What a service manager is told. Without one, nothing of this does anything.
//!
//! Protocol: systemd's `sd_notify(3)`.

use sd_notify::NotifyState;

/// The daemon serves.
pub(in crate::serve) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// The daemon ends in order.
pub(in crate::serve) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// The configuration is loaded again, for as long as this lives.
#[derive(Debug)]
pub(in crate::serve) struct Reloading(());

impl Reloading {
    pub(in crate::serve) fn begin() -> Self {
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

pub(super) fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager cannot be told");
    }
}
