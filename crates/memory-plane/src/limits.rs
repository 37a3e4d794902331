//! The stall timeout of a connection, and the least progress it must make.

use std::time::Duration;

/// Who is being sent something takes some of it within so long.
pub(crate) const STALL: Duration = Duration::from_secs(30);

/// A client takes, or says, at least so many bytes within [`STALL`], or a request.
pub(crate) const LEAST: u64 = 32 << 10;
