//! Log lines on standard error.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;

/// The format of log lines.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Format {
    /// Text; coloured on a terminal.
    Text,
    /// One JSON object a line.
    Json,
}

/// The least severe messages that the log has.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Level {
    /// No messages.
    Off,
    /// Failures that need an administrator.
    Error,
    /// Also unusual events.
    Warn,
    /// Also ordinary events.
    Info,
    /// Also the reasons of events.
    Debug,
    /// Also every step.
    Trace,
}

impl From<Level> for LevelFilter {
    fn from(level: Level) -> Self {
        match level {
            Level::Off => Self::OFF,
            Level::Error => Self::ERROR,
            Level::Warn => Self::WARN,
            Level::Info => Self::INFO,
            Level::Debug => Self::DEBUG,
            Level::Trace => Self::TRACE,
        }
    }
}

/// Starts logging.
pub(crate) fn start(level: Level, format: Format) {
    let builder = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::from(level))
        .with_writer(std::io::stderr)
        .with_target(false);
    match format {
        Format::Text => builder.with_ansi(std::io::stderr().is_terminal()).init(),
        Format::Json => builder.json().flatten_event(true).init(),
    }
}

/// Returns the same level and format as options of the command line.
pub(crate) fn options(level: Level, format: Format) -> Vec<String> {
    let word = |value: &dyn Fn() -> Option<clap::builder::PossibleValue>| {
        value().map_or_else(String::new, |value| value.get_name().to_owned())
    };
    vec![
        format!("--log={}", word(&|| level.to_possible_value())),
        format!("--log-format={}", word(&|| format.to_possible_value())),
    ]
}
