//! `vicinity capture`: writes the frames of ports to a pcapng file while the switch forwards them.
//!
//! The daemon sends the blocks of the file, and this command writes whole blocks only. So the file
//! is readable whenever and however the capture ends.

pub(super) mod sink;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::sink::Sink;
use super::failure::Failure;
use crate::{client, priority};

/// What is captured, and where to.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Ports, as VM or NETWORK/VM; an uplink has the name of its tap or interface
    #[arg(required = true, value_name = "PORT")]
    ports: Vec<String>,
    /// File to write; without it, or with `-`, standard output, as in `vicinity capture web | tshark -r -`
    #[arg(short, long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Bytes to capture of each frame [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(14..))]
    bytes: Option<u32>,
    /// Number of frames after which the capture ends
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Seconds after which the capture ends
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,
}

/// Captures until the user, or the limit of an option, ends the capture.
pub(crate) fn run(runtime_dir: &Path, options: &Options) -> Result<(), Failure> {
    let output = options.write.clone().filter(|path| path.as_os_str() != "-");
    if output.is_none() && io::stdout().is_terminal() {
        let help = "standard output is a terminal, and a capture is binary; name a file with `-w FILE`, or use a \
            pipe, as in `vicinity capture web | tshark -r -`";
        return Err(Failure::Usage(help.to_owned()));
    }
    let mut sink = Sink::new(output, options.count.unwrap_or(u64::MAX));
    let path = path(options);
    let time = options.seconds.map(u64::from).map(Duration::from_secs);
    priority::lower();
    let end = client::stream(runtime_dir, &path, time, |bytes| sink.take(bytes))?;
    sink.end(end)?;
    Ok(())
}

/// Returns the path of the request.
fn path(options: &Options) -> String {
    let escaped = |port: &String| {
        let parts = port.split('/').map(client::segment);
        parts.collect::<Vec<_>>().join("/")
    };
    let ports: Vec<String> = options.ports.iter().map(escaped).collect();
    let bytes = options.bytes.map(|bytes| format!("&bytes={bytes}"));
    format!(
        "/v1/capture?ports={}{}",
        ports.join(","),
        bytes.unwrap_or_default()
    )
}
