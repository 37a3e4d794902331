//! The output of a capture: whole blocks of a pcapng file.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;

use crate::client::StreamEnd;

/// Type of a block that is a frame (pcapng, 4.3).
const ENHANCED_PACKET: u32 = 6;

/// Bytes of the longest block: the longest frame and its description.
const LONGEST: usize = 1 << 20;

/// Why a capture failed, or ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CaptureError {
    /// The file cannot be written.
    #[error("cannot write {}: {source}; the capture ended after {frames} frames; check the disk's free \
        space", path.display())]
    Write {
        path: PathBuf,
        source: io::Error,
        frames: u64,
    },
    /// The daemon sends data that is not a pcapng file.
    #[error(
        "the daemon sent data that is not pcapng; use a command and a daemon of the same version"
    )]
    Format,
    /// The daemon ended the capture.
    #[error(
        "the daemon ended the capture after {frames} frames, because its ports were removed or the daemon \
        ended; start the capture again"
    )]
    Ended { frames: u64 },
}

/// The output of blocks.
pub(super) struct Sink {
    /// None for standard output.
    path: Option<PathBuf>,
    /// Opened at the first write, so that a refused capture leaves the file unchanged.
    file: Option<File>,
    written: u64,
    /// The part of an incomplete block that has been received.
    pending: Vec<u8>,
    frames: u64,
    most: u64,
    error: Option<CaptureError>,
}

impl Sink {
    /// Returns a sink that writes to `path`, or to standard output, and ends after `most` frames.
    pub(super) fn new(path: Option<PathBuf>, most: u64) -> Self {
        Self {
            path,
            file: None,
            written: 0,
            pending: Vec::new(),
            frames: 0,
            most,
            error: None,
        }
    }

    pub(super) fn take(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        self.pending.extend(bytes);
        let (whole, frames) = match blocks(&self.pending, self.most - self.frames) {
            Some(found) => found,
            None => return self.fail(CaptureError::Format),
        };
        let rest = self.pending.split_off(whole);
        let blocks = std::mem::replace(&mut self.pending, rest);
        if let Err(source) = self.write(&blocks) {
            if self.path.is_none() && source.kind() == ErrorKind::BrokenPipe {
                // The reader has closed the pipe: it needs no more frames.
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
        self.error = Some(error);
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
            // Some readers reject a file that ends with a partial block.
            drop(file.set_len(self.written));
            return Err(error);
        }
        self.written += blocks.len() as u64;
        Ok(())
    }

    pub(super) fn end(self, end: StreamEnd) -> Result<(), CaptureError> {
        let frames = self.frames;
        match (self.error, end) {
            (Some(error), _) => Err(error),
            (None, StreamEnd::Daemon) => Err(CaptureError::Ended { frames }),
            (None, StreamEnd::Interrupted | StreamEnd::Receiver) => {
                tracing::info!("captured {frames} frames");
                Ok(())
            }
        }
    }
}

/// Returns the length of the whole blocks at the beginning of `bytes`, up to `most` frames, and their number
/// of frames; `None` if the bytes are not blocks.
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
