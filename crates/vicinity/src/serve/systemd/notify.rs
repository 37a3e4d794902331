//! Notifications to the service manager. Without a service manager, these functions do nothing.
//!
//! Protocol: systemd's `sd_notify(3)`.

use sd_notify::NotifyState;

/// Notifies the service manager that the daemon is ready.
pub(in crate::serve) fn ready() {
    notify(&[NotifyState::Ready]);
}

/// Notifies the service manager that the daemon stops in order.
pub(in crate::serve) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// While this value exists, the service manager shows that the daemon reloads its configuration.
#[derive(Debug)]
pub(in crate::serve) struct Reloading(());

impl Reloading {
    pub(in crate::serve) fn begin() -> Self {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => notify(&[NotifyState::Reloading, now]),
            Err(error) => tracing::warn!(%error, "cannot read the clock for the service manager"),
        }
        Self(())
    }
}

impl Drop for Reloading {
    fn drop(&mut self) {
        ready();
    }
}

pub(super) fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot notify the service manager");
    }
}
