//! The watchdog of the service manager.
//!
//! Protocol: systemd's `sd_notify(3)`.

use sd_notify::NotifyState;
use tokio::time::MissedTickBehavior;

use super::notify::notify;

/// Notifies the watchdog permanently, as long as `answers` returns that the supervisor answers. The watchdog checks
/// nothing else: the supervisor itself ends a process that hangs, and ending the supervisor for it would stop all
/// networks.
pub(in crate::serve) async fn watch(answers: impl AsyncFn() -> bool) {
    let Some(limit) = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()) else {
        return std::future::pending().await;
    };
    let mut pulse = tokio::time::interval(limit / 2);
    pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        pulse.tick().await;
        if !answers().await {
            // The supervisor no longer answers, because the daemon ends.
            return std::future::pending().await;
        }
        notify(&[NotifyState::Watchdog]);
    }
}
