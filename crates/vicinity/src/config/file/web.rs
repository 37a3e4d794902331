//! `[web]`, as it is written.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

/// The `[web]` page.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(in crate::config) struct Web {
    pub(in crate::config) group: Option<Spanned<String>>,
    pub(in crate::config) listen: Option<Spanned<SocketAddr>>,
    pub(in crate::config) host_name: Option<Spanned<String>>,
    pub(in crate::config) token_file: Option<Spanned<PathBuf>>,
    pub(in crate::config) certificate: Option<Spanned<PathBuf>>,
    pub(in crate::config) key: Option<Spanned<PathBuf>>,
}
