//! The tables of the sockets plane.

use serde::Deserialize;
use toml::Spanned;

use super::user::User;

/// A `[[vsock]]`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(in crate::config) struct Vsock {
    pub(in crate::config) vm: Spanned<String>,
    pub(in crate::config) cid: Option<Spanned<i64>>,
    #[serde(default)]
    pub(in crate::config) groups: Vec<Spanned<String>>,
    pub(in crate::config) ports: Option<Vec<Spanned<Ports>>>,
    pub(in crate::config) owner: Option<Spanned<User>>,
    pub(in crate::config) owner_label: Option<Spanned<String>>,
    pub(in crate::config) owner_cgroup: Option<Spanned<String>>,
}

/// A port, or a range of them.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a port like 22, or a range of them like \"5000-5010\""
)]
pub(in crate::config) enum Ports {
    One(i64),
    Range(String),
}
