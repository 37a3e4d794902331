//! Captures: copies of the frames that a port sends and receives, for a reader such as a packet capture
//! tool.
//!
//! The reader has one end of a datagram socket and the data plane the other. A worker collects frames in a
//! datagram, and sends it when it is full and before the worker waits for events. A capture never delays
//! forwarding. If the reader is slow, the socket has no room; if the worker is busy, its
//! [`CaptureBudget`](crate::capture_budget) limits how many frames it copies. Frames that are left out are
//! counted as missed. A port without captures costs one test for each run of frames.
//!
//! A datagram has the number of frames missed so far (8 bytes), and then frames. In front of each frame is
//! its description: time (8), length (4), bytes that follow (4), direction (4). All numbers are little
//! endian. The time is in nanoseconds since 1970. A frame is as the port's VM sees it: with its VLAN tag if
//! it has one, and before segmentation and checksums for the receiver.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::PoisonError;

use rustix::net::{SendAncillaryBuffer, SendFlags};

use crate::frame::{ETHERNET, Head, Rest};
use crate::sync::{Mutex, MutexGuard};

/// Bytes of the description in front of a frame.
const DESCRIPTION: usize = 20;

/// A datagram is sent before it grows longer than this; one frame always fits.
const FULL: usize = 64 << 10;

/// Longest datagram: a frame of the greatest length behind others.
pub const MAX_DATAGRAM: usize = 2 * FULL + 4096;

/// The direction of a captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The port sent the frame.
    Sent,
    /// The frame was delivered to the port.
    Received,
}

/// A captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured<'b> {
    /// Nanoseconds since 1970.
    pub time: u64,
    /// Whether the port sent or received it.
    pub direction: Direction,
    /// The frame's length in bytes.
    pub length: u32,
    /// The first bytes of the frame.
    pub bytes: &'b [u8],
}

/// Reads a datagram: returns the number of frames missed so far, and the frames. The iterator ends at the
/// first invalid description.
#[must_use]
pub fn read(datagram: &[u8]) -> Option<(u64, impl Iterator<Item = Captured<'_>>)> {
    let (missed, mut rest) = datagram.split_first_chunk()?;
    let frames = std::iter::from_fn(move || {
        let (time, tail) = rest.split_first_chunk()?;
        let (length, tail) = tail.split_first_chunk()?;
        let (count, tail) = tail.split_first_chunk()?;
        let (direction, tail) = tail.split_first_chunk()?;
        let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
        let (bytes, tail) = tail.split_at_checked(count)?;
        rest = tail;
        Some(Captured {
            time: u64::from_le_bytes(*time),
            direction: match u32::from_le_bytes(*direction) {
                0 => Direction::Sent,
                _ => Direction::Received,
            },
            length: u32::from_le_bytes(*length),
            bytes,
        })
    });
    Some((u64::from_le_bytes(*missed), frames))
}

/// One capture of a port.
#[derive(Debug)]
pub(crate) struct Capture {
    pub(crate) number: u32,
    socket: OwnedFd,
    /// Most bytes to copy of each frame.
    most: u32,
    batch: Mutex<Batch>,
}

/// The datagram that is being filled.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    frames: u64,
    pub(crate) missed: u64,
}

impl Capture {
    /// Creates the capture with this number, which sends up to `most` bytes of each frame to a
    /// non-blocking socket.
    pub(crate) fn new(number: u32, socket: OwnedFd, most: u32) -> Self {
        Self {
            number,
            socket,
            most,
            // Allocated once: the sandbox does not allow every system call that allocates memory.
            batch: Mutex::new(Batch {
                bytes: Vec::with_capacity(MAX_DATAGRAM),
                ..Batch::default()
            }),
        }
    }

    pub(crate) fn batch(&self) -> MutexGuard<'_, Batch> {
        self.batch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a frame to the datagram, up to the capture's number of bytes; returns the number of bytes
    /// copied.
    pub(crate) fn note(
        &self,
        time: u64,
        direction: Direction,
        head: &Head,
        mut rest: Rest<'_, '_>,
    ) -> u32 {
        let count = head.length.min(self.most);
        let room = count as usize;
        let mut batch = self.batch();
        if batch.bytes.len() + DESCRIPTION + room > FULL {
            self.send(&mut batch);
        }
        if batch.bytes.is_empty() {
            // `send` writes the number of missed frames here.
            batch.bytes.extend([0; 8]);
        }
        let direction: u32 = match direction {
            Direction::Sent => 0,
            Direction::Received => 1,
        };
        batch.bytes.extend(time.to_le_bytes());
        for word in [head.length, count, direction] {
            batch.bytes.extend(word.to_le_bytes());
        }
        let begin = batch.bytes.len();
        let ethernet = head.ethernet();
        let ethernet = ethernet.get(..room).unwrap_or(&ethernet);
        batch.bytes.extend(ethernet);
        batch.bytes.resize(begin + room, 0);
        let behind = begin + ETHERNET as usize;
        rest.read(batch.bytes.get_mut(behind..).unwrap_or_default());
        batch.frames += 1;
        count
    }

    pub(crate) fn flush(&self) {
        let mut batch = self.batch();
        if batch.frames > 0 {
            self.send(&mut batch);
        }
    }

    /// Sends the datagram, or counts its frames as missed.
    fn send(&self, batch: &mut Batch) {
        let Batch {
            bytes,
            frames,
            missed,
        } = batch;
        if let Some(place) = bytes.first_chunk_mut() {
            *place = missed.to_le_bytes();
        }
        let mut none = SendAncillaryBuffer::default();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        // syscalls: sendmsg
        let sent = rustix::net::sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut none, flags);
        if sent.is_err() {
            *missed += *frames;
        }
        *frames = 0;
        bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The input is a valid datagram with up to three frames, of which up to three bytes are changed and
    /// which may be truncated.
    #[test]
    fn any_datagram_is_read_to_its_end() {
        use std::cell::Cell;
        let frame = (
            any::<u64>(),
            any::<u32>(),
            0..3u32,
            prop::collection::vec(any::<u8>(), 0..40),
        );
        let frames = prop::collection::vec(frame, 0..4);
        let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
        let keep = prop_oneof![2 => Just(usize::MAX), 1 => 0..100usize];
        let [whole, other] = [Cell::new(0), Cell::new(0)];
        let mut runner = proptest::test_runner::TestRunner::default();
        let checked = runner.run(&(frames, changes, keep), |(frames, changes, keep)| {
            let mut bytes = 7u64.to_le_bytes().to_vec();
            for (time, length, direction, body) in &frames {
                bytes.extend(time.to_le_bytes());
                bytes.extend(length.to_le_bytes());
                bytes.extend(u32::try_from(body.len()).unwrap().to_le_bytes());
                bytes.extend(direction.to_le_bytes());
                bytes.extend(body);
            }
            for (at, byte) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            bytes.truncate(keep);
            let shown: Vec<_> = read(&bytes)
                .into_iter()
                .flat_map(|(_, frames)| frames)
                .collect();
            prop_assert!(shown.len() <= bytes.len() / 20);
            prop_assert!(shown.iter().map(|frame| frame.bytes.len()).sum::<usize>() <= bytes.len());
            let count = match shown.len() == frames.len() && !frames.is_empty() {
                true => &whole,
                false => &other,
            };
            count.set(count.get() + 1);
            Ok(())
        });
        checked.unwrap();
        let counts = (whole.get(), other.get());
        assert!(counts.0 > 50 && counts.1 > 20, "{counts:?}");
    }
}
