//! How long a process may take, and waiting until then.

use std::time::Duration;

use tokio::time::Instant;

/// A data plane answers a question, and ends when told to, within so long.
pub(in crate::serve) const PATIENCE: Duration = Duration::from_secs(5);

/// Waits until `deadline`; forever without one.
pub(in crate::serve) async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
