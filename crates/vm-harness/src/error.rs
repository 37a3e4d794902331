//! Errors of the harness, worded for its user.

use std::io;
use std::time::Duration;

/// The short name inside this workspace.
pub use HarnessError as Error;

/// A failure of the harness, or of a program that it measures. The message says what happened, whose fault it is and
/// what to do.
#[derive(Debug, thiserror::Error)]
pub enum HarnessError {
    /// Ctrl-C or SIGTERM arrived; everything that was started is being removed.
    #[error("interrupted")]
    Interrupted,
    /// The operating system refused something.
    #[error("{what}: {source}")]
    Io {
        /// The action that failed.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// The accelerator that was chosen does not work.
    #[error("cannot use the chosen accelerator: {0}")]
    Accel(String),
    /// A tool is not installed on this host.
    #[error("`{0}` is not installed on this host; run `scripts/setup demo` as root")]
    MissingTool(String),
    /// A tool of the host failed.
    #[error("`{command}` failed ({status}): {stderr}")]
    Command {
        /// The command line.
        command: String,
        /// Its exit status.
        status: String,
        /// The end of its standard error.
        stderr: String,
    },
    /// A step exceeded its time limit.
    #[error("{what} did not finish within {} s", limit.as_secs())]
    Timeout {
        /// What the harness waited for.
        what: String,
        /// How long.
        limit: Duration,
    },
    /// A VM did not boot, or ended.
    #[error(
        "VM {vm}: {why}\nlast lines of its console:\n{console}\nQEMU was started as:\n{command}"
    )]
    Vm {
        /// The VM's name.
        vm: String,
        /// The observation.
        why: String,
        /// The end of its serial console and of QEMU's own messages.
        console: String,
        /// QEMU's command line.
        command: String,
    },
    /// A command inside a guest failed.
    #[error("in VM {vm}, `{command}` ended with {status}: {output}")]
    Guest {
        /// The VM's name.
        vm: String,
        /// The command.
        command: String,
        /// Its exit status.
        status: i32,
        /// What it printed.
        output: String,
    },
    /// A program printed something that the harness cannot read.
    #[error("cannot read {what}: {text}")]
    Unreadable {
        /// What was expected.
        what: String,
        /// The beginning of the text.
        text: String,
    },
    /// This host cannot do what the caller requested; the text gives the reason and says what to do.
    #[error("{0}")]
    Host(String),
}

/// The harness's result type.
pub type Result<T> = std::result::Result<T, HarnessError>;

/// Adds the action that failed to an error of the system.
pub trait Context<T> {
    /// Names the action that failed.
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| HarnessError::Io {
            what: what(),
            source: e.into(),
        })
    }
}

impl HarnessError {
    /// Returns an [`Error::Unreadable`] that shows only the beginning of a long text.
    pub fn unreadable(what: &str, text: &str) -> Self {
        Self::Unreadable {
            what: what.to_owned(),
            text: text.chars().take(300).collect(),
        }
    }
}
