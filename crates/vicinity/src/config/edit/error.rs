//! Why a change to a configuration cannot be made.

use toml_edit::TomlError;

/// Why a change cannot be made.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EditError {
    /// No network, port or space has that name.
    #[error("there is no {what} {name}{hint}")]
    Missing {
        /// The kind: a network, a port or a space.
        what: &'static str,
        /// The requested name.
        name: String,
        /// The end of the message: a similar name, if there is one.
        hint: String,
    },
    /// The name is already in use.
    #[error("a {what} {name} already exists; change it with `vicinity {what} set`")]
    Exists {
        /// The kind: a network, a port or a space.
        what: &'static str,
        /// The requested name.
        name: String,
    },
    /// The file has a form that this program cannot edit.
    #[error(
        "the configuration does not list its networks, ports and spaces as [[network]], [[network.port]] and \
            [[space]]; edit the file, then run `vicinity reload`"
    )]
    Form,
    /// A value that TOML cannot represent: null in a list.
    #[error("a list cannot contain null; remove the null")]
    Null,
    /// The text is not valid TOML.
    #[error("{0}")]
    Toml(#[from] TomlError),
}
