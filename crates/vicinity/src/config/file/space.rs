//! A `[[space]]`, as it is written.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

/// A `[[space]]`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(in crate::config) struct Space {
    pub(in crate::config) vm: Spanned<String>,
    pub(in crate::config) slots: Option<Spanned<i64>>,
    pub(in crate::config) objective: Option<Objective>,
    pub(in crate::config) rate: Option<Spanned<String>>,
    pub(in crate::config) listen: Option<Spanned<SocketAddr>>,
    pub(in crate::config) allow: Option<Vec<Spanned<String>>>,
    pub(in crate::config) token_file: Option<Spanned<PathBuf>>,
    pub(in crate::config) certificate: Option<Spanned<PathBuf>>,
    pub(in crate::config) key: Option<Spanned<PathBuf>>,
    pub(in crate::config) push: Option<Spanned<String>>,
    pub(in crate::config) push_token_file: Option<Spanned<PathBuf>>,
    pub(in crate::config) push_keys_file: Option<Spanned<PathBuf>>,
    pub(in crate::config) push_region: Option<Spanned<String>>,
    #[serde(rename = "push-ca-file", alias = "push-trust")]
    pub(in crate::config) push_trust: Option<Spanned<PathBuf>>,
    pub(in crate::config) cgroup: Option<Spanned<PathBuf>>,
}

/// A space's `objective = { … }`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(in crate::config) struct Objective {
    pub(in crate::config) within_ms: Option<Spanned<i64>>,
    pub(in crate::config) percent: Option<Spanned<i64>>,
    pub(in crate::config) weight: Option<Spanned<i64>>,
    pub(in crate::config) class: Option<Spanned<i64>>,
}
