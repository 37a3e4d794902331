//! Failures of commands: a message for people, and an exit code for scripts.

use std::process::ExitCode;

use super::capture::sink::CaptureError;
use crate::client::ClientError;
use crate::config::ConfigError;
use crate::name;
use crate::processes::start::ProcessError;
use crate::serve::ServeError;

/// The exit codes and their meanings.
pub(crate) const EXIT_CODES: [(u8, &str); 4] = [
    (0, "success"),
    (1, "failure"),
    (2, "wrong usage or configuration"),
    (130, "interrupted"),
];

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The configuration is invalid or cannot be read.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The daemon could not start.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A process that the supervisor starts has failed.
    #[error(transparent)]
    DataPlane(#[from] ProcessError),
    /// A recording cannot be replayed.
    #[error(transparent)]
    Recording(#[from] crate::live::RecordingError),
    /// A request to the daemon failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// No configuration was given, and no daemon runs that could return its configuration.
    #[error("{0}; or give a configuration file with --config")]
    NoConfiguration(ClientError),
    /// A VM, a benchmark or a study failed.
    #[error(transparent)]
    Harness(#[from] vm_harness::error::HarnessError),
    /// A message could not be sent or received.
    #[error(transparent)]
    Message(#[from] message::MessageError),
    /// An endpoint cannot be reached.
    #[error("cannot reach endpoint {to}: {error}{advice}")]
    Unreached {
        /// The endpoint.
        to: String,
        /// The error.
        error: message::MessageError,
        /// What to do, after a semicolon; or nothing.
        advice: &'static str,
    },
    /// VMs could not be joined directly.
    #[error(transparent)]
    Direct(#[from] direct::DirectError),
    /// The path of this program cannot be found.
    #[error("cannot find the path of this program: {0}; mount /proc")]
    Program(std::io::Error),
    /// Something is missing. The command has printed it already.
    #[error("this machine cannot serve VMs; install what is MISSING above")]
    Doctor,
    /// Checks of the self-test failed. The command has printed them already.
    #[error("{0} checks of the self-test failed: see FAIL above")]
    Selftest(usize),
    /// The capture failed, or ended early.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// Output could not be written.
    #[error("cannot write the output: {0}; check the disk and the reader of the pipe")]
    Output(#[from] std::io::Error),
    /// The command line names an object that does not exist; the text says what to do.
    #[error("{0}")]
    Usage(String),
}

impl Failure {
    /// Returns that no `what` is called `name`; if one of `names` is similar, asks whether that was meant.
    pub(crate) fn missing<'a>(
        what: &str,
        name: &str,
        names: impl Iterator<Item = &'a str>,
    ) -> Self {
        let hint = name::hint(name, names);
        Self::Usage(format!("there is no {what} called {name}{hint}"))
    }

    /// Returns the exit code: 2 if the request was wrong, 130 if Ctrl-C or SIGTERM ended the
    /// command (as in shells), 1 if the request could not be carried out.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Config(_)
            | Self::Usage(_)
            | Self::Client(ClientError::Refused { wrong: true, .. }) => ExitCode::from(2),
            Self::Harness(vm_harness::error::HarnessError::Interrupted) => ExitCode::from(130),
            _ => ExitCode::FAILURE,
        }
    }
}
