//! `vicinity capture`: the frames of ports, as they pass, in a pcapng file.
//!
//! The daemon sends the file's blocks. They are written whole, so the file can be read whenever
//! and however the capture ends.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::setpriority_process;

use super::failure::Failure;
use crate::client::{self, StreamEnd};

/// Type of a block that is a frame (pcapng, 4.3).
const ENHANCED_PACKET: u32 = 6;

/// No block is longer: a frame of the greatest length and its description.
const LONGEST: usize = 1 << 20;

/// The lowest priority there is (nice(2)).
const LAST: i32 = 19;

/// What is captured, and where to.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Ports, as VM or NETWORK/VM; an uplink by the name of its tap
    #[arg(required = true, value_name = "PORT")]
    ports: Vec<String>,
    /// The file; `-`, or nothing, for standard output, as in `vicinity capture web | tshark -r -`
    #[arg(short, long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Bytes of each frame that are kept [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(14..))]
    bytes: Option<u32>,
    /// End after so many frames
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after so many seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,
}

/// Why a capture failed, or ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CaptureError {
    /// The file.
    #[error("cannot write {}: {source}; it holds {frames} frames", path.display())]
    Write {
        path: PathBuf,
        source: io::Error,
        frames: u64,
    },
    /// What the daemon sends is no file.
    #[error("vicinity sends what is no pcapng; is it of another version?")]
    Format,
    /// The daemon ended it.
    #[error("the capture ended after {frames} frames: its ports, or the daemon, are gone")]
    Ended { frames: u64 },
}

/// Capture until the person, or an option, ends it.
pub(crate) fn run(runtime_dir: &Path, options: &Options) -> Result<(), Failure> {
    let mut sink = Sink::new(options)?;
    let path = path(options);
    let time = options.seconds.map(u64::from).map(Duration::from_secs);
    come_last();
    let end = client::stream(runtime_dir, &path, time, |bytes| sink.take(bytes))?;
    sink.end(end)?;
    Ok(())
}

/// Have this thread come after all others where CPUs are short: what it does not get round to is missing in
/// the file, and nobody is slower for it.
pub(crate) fn come_last() {
    if let Err(error) = setpriority_process(None, LAST) {
        tracing::debug!(%error, "a capture keeps its priority");
    }
}

/// The question.
fn path(options: &Options) -> String {
    let escaped = |port: &String| {
        let parts = port.split('/').map(crate::commands::configuration::segment);
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

/// Where blocks go.
struct Sink {
    /// None for standard output.
    path: Option<PathBuf>,
    /// Opened when there is something to write: a refused capture leaves the file as it was.
    file: Option<File>,
    written: u64,
    /// The beginning of a block.
    pending: Vec<u8>,
    frames: u64,
    most: u64,
    trouble: Option<CaptureError>,
}

impl Sink {
    fn new(options: &Options) -> Result<Self, Failure> {
        let path = options.write.clone().filter(|path| path.as_os_str() != "-");
        if path.is_none() && io::stdout().is_terminal() {
            let help = "a capture is nothing for a terminal: name a file with `-w FILE`, or pipe \
                        it on, as in `vicinity capture web | tshark -r -`";
            return Err(Failure::Usage(help.to_owned()));
        }
        Ok(Self {
            path,
            file: None,
            written: 0,
            pending: Vec::new(),
            frames: 0,
            most: options.count.unwrap_or(u64::MAX),
            trouble: None,
        })
    }

    fn take(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        self.pending.extend(bytes);
        let (whole, frames) = match blocks(&self.pending, self.most - self.frames) {
            Some(found) => found,
            None => return self.fail(CaptureError::Format),
        };
        let rest = self.pending.split_off(whole);
        let blocks = std::mem::replace(&mut self.pending, rest);
        if let Err(source) = self.write(&blocks) {
            if self.path.is_none() && source.kind() == ErrorKind::BrokenPipe {
                // Who reads has seen enough.
                return ControlFlow::Break(());
            }
            let path = self.path.clone().unwrap_or_else(|| "the output".into());
            return self.fail(CaptureError::Write {
                path,
                source,
                frames: self.frames,
            });
        }
        self.frames += frames;
        match self.frames < self.most {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    }

    fn fail(&mut self, error: CaptureError) -> ControlFlow<()> {
        self.trouble = Some(error);
        ControlFlow::Break(())
    }

    fn write(&mut self, blocks: &[u8]) -> io::Result<()> {
        let Some(path) = &self.path else {
            let mut output = io::stdout().lock();
            return output.write_all(blocks).and_then(|()| output.flush());
        };
        let file = match &mut self.file {
            Some(file) => file,
            empty => empty.insert(File::create(path)?),
        };
        if let Err(error) = file.write_all(blocks) {
            // Half a block would make the rest unreadable for some.
            drop(file.set_len(self.written));
            return Err(error);
        }
        self.written += blocks.len() as u64;
        Ok(())
    }

    fn end(self, end: StreamEnd) -> Result<(), CaptureError> {
        let frames = self.frames;
        match (self.trouble, end) {
            (Some(trouble), _) => Err(trouble),
            (None, StreamEnd::Daemon) => Err(CaptureError::Ended { frames }),
            (None, StreamEnd::Person | StreamEnd::Taker) => {
                tracing::info!("{frames} frames captured");
                Ok(())
            }
        }
    }
}

/// The bytes of the whole blocks at the beginning, up to `most` frames, and how many frames they are; `None`
/// where they are no blocks.
fn blocks(bytes: &[u8], most: u64) -> Option<(usize, u64)> {
    let (mut whole, mut frames) = (0, 0);
    while frames < most {
        let rest = bytes.get(whole..)?;
        let Some((kind, tail)) = rest.split_first_chunk() else {
            break;
        };
        let Some(length) = tail.first_chunk() else {
            break;
        };
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        if !(12..=LONGEST).contains(&length) {
            return None;
        }
        if rest.len() < length {
            break;
        }
        whole += length;
        frames += u64::from(u32::from_le_bytes(*kind) == ENHANCED_PACKET);
    }
    Some((whole, frames))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(kind: u32, length: u32) -> Vec<u8> {
        let mut bytes = [kind.to_le_bytes(), length.to_le_bytes()].concat();
        bytes.resize(length as usize, 0);
        bytes
    }

    #[test]
    fn only_whole_blocks_are_written() {
        let all = [
            block(0x0a0d_0d0a, 28),
            block(1, 20),
            block(6, 60),
            block(6, 40),
        ]
        .concat();
        for cut in 0..=all.len() {
            let expected = match cut {
                0..28 => (0, 0),
                28..48 => (28, 0),
                48..108 => (48, 0),
                108..148 => (108, 1),
                _ => (148, 2),
            };
            assert_eq!(blocks(&all[..cut], u64::MAX), Some(expected), "{cut}");
        }
        assert_eq!(blocks(&all, 1), Some((108, 1)));
        assert_eq!(blocks(&block(6, 8)[..8], 1), None);
        assert_eq!(blocks(&[block(1, 20), vec![0xff; 8]].concat(), 1), None);
    }
}
