//! Which end of a port's socket listens.

use serde::{Deserialize, Serialize};

/// The side that listens on a port's socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// Vicinity listens, QEMU connects.
    #[default]
    Server,
    /// QEMU listens, Vicinity connects.
    Client,
}
