//! Failures of commands: a message for people, and an exit code for scripts.

use std::process::ExitCode;

use super::capture::sink::CaptureError;
use crate::client::ClientError;
use crate::config::ConfigError;
use crate::name;
use crate::processes::start::ProcessError;
use crate::serve::ServeError;

/// The exit codes, and what each means.
pub(crate) const EXIT_CODES: [(u8, &str); 4] = [
    (0, "success"),
    (1, "failure"),
    (2, "wrong usage or configuration"),
    (130, "interrupted"),
];

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The daemon could not start.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A process of the supervisor.
    #[error(transparent)]
    DataPlane(#[from] ProcessError),
    /// A request to the daemon failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// No configuration was given, and there is no daemon to ask for its own.
    #[error("{0}; or give a configuration by --config")]
    NoConfiguration(ClientError),
    /// A VM, a benchmark or a study failed.
    #[error(transparent)]
    Lab(#[from] vm_harness::error::HarnessError),
    /// A message could not be sent or received.
    #[error(transparent)]
    Message(#[from] message::MessageError),
    /// An endpoint does not answer.
    #[error("endpoint {to} is not reached: {error}{advice}")]
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
    /// The path of this program is not known.
    #[error("cannot tell which file this program is: {0}")]
    Program(std::io::Error),
    /// What is missing has been printed already.
    #[error("VMs cannot be served here: see what is MISSING above")]
    Doctor,
    /// Frames could not be captured, or only some.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// Output could not be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] std::io::Error),
    /// The command line asks for something that is not there; the text says what to do.
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

    /// 2 when the request was wrong, 130 when Ctrl-C or SIGTERM ended it (as shells have it),
    /// 1 when it could not be carried out.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Config(_)
            | Self::Usage(_)
            | Self::Client(ClientError::Refused { wrong: true, .. }) => ExitCode::from(2),
            Self::Lab(vm_harness::error::HarnessError::Interrupted) => ExitCode::from(130),
            _ => ExitCode::FAILURE,
        }
    }
}
