//! The stall timeout of a connection, and the least progress that a client must make.

use std::time::Duration;

/// Period in which a connection must make progress.
pub(crate) const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes that a client must read or send within each [`STALL_TIMEOUT`], unless it sends a request.
pub(crate) const MIN_PROGRESS: u64 = 32 << 10;
