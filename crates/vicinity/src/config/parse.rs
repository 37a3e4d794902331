//! Parsing of a configuration's text.

use std::path::Path;

use super::diagnostic::{self, ConfigError};
use super::model::Config;
use super::{check, file};

/// Parses and checks this text for a daemon that serves `runtime_dir`.
pub(crate) fn of_text(text: &str, runtime_dir: &Path) -> Result<Config, ConfigError> {
    parse("the daemon's configuration", text, Some(runtime_dir))
}

/// Returns all keys that a file can have, as paths of tables.
pub(crate) fn keys() -> Vec<String> {
    file::all()
}

/// Returns the keys and values of a configuration's text as JSON, without the comments.
pub(crate) fn as_json(text: &str) -> Result<serde_json::Value, ConfigError> {
    toml::from_str(text).map_err(|error| {
        let mistake = diagnostic::ValueError::from_toml(&error);
        ConfigError::Invalid(Box::new(diagnostic::explain(
            "the configuration",
            text,
            &mistake,
        )))
    })
}

/// Reads and checks a text from `origin`. `runtime_dir` takes precedence over the text.
pub(super) fn parse(
    origin: &str,
    text: &str,
    runtime_dir: Option<&Path>,
) -> Result<Config, ConfigError> {
    let invalid =
        |mistake| ConfigError::Invalid(Box::new(diagnostic::explain(origin, text, &mistake)));
    let (file, deprecated) = file::read(text).map_err(invalid)?;
    for key in deprecated {
        tracing::warn!("{}", key.warning(origin, text));
    }
    check::check(text, file, runtime_dir).map_err(invalid)
}
