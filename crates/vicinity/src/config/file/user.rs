//! Users in the configuration.

use serde::Deserialize;

/// A user of this host.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a user like \"libvirt-qemu\", or its number")]
pub(in crate::config) enum User {
    Number(i64),
    Name(String),
}
