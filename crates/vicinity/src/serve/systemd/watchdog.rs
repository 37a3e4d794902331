//! The watchdog of the service manager.
//!
//! Protocol: systemd's `sd_notify(3)`.

use sd_notify::NotifyState;
use tokio::time::MissedTickBehavior;

use super::notify::tell;

/// Tells the watchdog, for ever, that the supervisor answers, for as long as `answers` returns that it does. It judges nothing else: what hangs of a
/// network, the message plane or a space is the supervisor's to end, and to end the supervisor for it would
/// stop everybody.
pub(in crate::serve) async fn watch(answers: impl AsyncFn() -> bool) {
    let Some(limit) = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()) else {
        return std::future::pending().await;
    };
    let mut pulse = tokio::time::interval(limit / 2);
    pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        pulse.tick().await;
        if !answers().await {
            // The daemon ends.
            return std::future::pending().await;
        }
        tell(&[NotifyState::Watchdog]);
    }
}
