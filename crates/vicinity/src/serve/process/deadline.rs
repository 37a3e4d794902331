//! How long a process may take to answer, and waiting for a deadline.

use std::time::Duration;

use tokio::time::Instant;

/// Time in which a data plane answers a request for its state, and in which it ends after the order to stop.
pub(in crate::serve) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Waits until `deadline`; forever without one.
pub(in crate::serve) async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
