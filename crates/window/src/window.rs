//! A window: shared memory, and each side's view of it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use crate::chunk_claim::Claims;
use crate::doorbell::{Ringer, Sleeper};
use crate::lane::{Consumer, Producer};
use crate::layout::{HEADER, LANES, Layout, LayoutError};
use crate::memfd;
use crate::raw::{Access, Mapping, SharedBytes, Word};

/// An error when a window is created or attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// The file could be truncated, which would raise `SIGBUS` at the next access.
    #[error("the peer's memory is not sealed against changes of its length")]
    Unsealed,
    /// The file's length differs from the one that its header demands.
    #[error("the peer's memory has {got} bytes instead of {expected}")]
    Length {
        /// Bytes of the file.
        got: u64,
        /// Bytes that the header demands.
        expected: u64,
    },
    /// The header is not valid.
    #[error("the peer's memory is not a window: {0}")]
    Layout(#[from] LayoutError),
    /// The kernel refused a call.
    #[error("the kernel refused a system call: {0}")]
    Kernel(Errno),
}

/// The two sides of a window. The side determines which direction a process writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side that created the window: it produces in direction 0.
    Creator,
    /// The side that attached the window: it produces in direction 1.
    Attacher,
}

/// Shared memory with two directions. Each side calls [`ends`](Self::ends) once.
#[derive(Debug)]
pub struct Window {
    file: Arc<OwnedFd>,
    /// Offset of the window in the file.
    offset: u64,
    layout: Layout,
}

/// A side's ends of all lanes, claims and doorbells.
#[derive(Debug)]
pub struct Ends {
    /// The lanes that this side writes.
    pub producers: [Producer; LANES],
    /// The lanes that this side reads.
    pub consumers: [Consumer; LANES],
    /// The chunk claims of outgoing messages.
    pub claims_out: Claims,
    /// The chunk claims of incoming messages: this side begins the epochs.
    pub claims_in: Claims,
    /// Announces whether this side sleeps.
    pub sleeper: Sleeper,
    /// Returns whether the peer sleeps.
    pub ringer: Ringer,
}

impl Ends {
    /// Has this side write all data by ordinary stores from now on: the other side is in the same thread, and finds the data in the
    /// cache. With non-temporal stores, it would read memory.
    pub fn keep_in_cache(&mut self) {
        self.producers.iter_mut().for_each(Producer::keep_in_cache);
    }
}

impl Window {
    /// Creates a window in a sealed memfd.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn create(layout: Layout) -> Result<Self, WindowError> {
        let kernel = WindowError::Kernel;
        let file = memfd::create(c"vicinity-window", layout.length()).map_err(kernel)?;
        memfd::seal_shared(file.as_fd()).map_err(kernel)?;
        let window = Self::at(Arc::new(file), 0, layout);
        window.write_header()?;
        Ok(window)
    }

    /// Writes the header into memory that was never written.
    pub(crate) fn write_header(&self) -> Result<(), WindowError> {
        let header = self.layout.header();
        let written = rustix::io::pwrite(&self.file, &header, self.offset);
        match written.map_err(WindowError::Kernel)? {
            all if all == header.len() => Ok(()),
            _ => Err(WindowError::Kernel(Errno::IO)),
        }
    }

    /// Returns the window at an offset of a file that is known to be long enough.
    pub(crate) fn at(file: Arc<OwnedFd>, offset: u64, layout: Layout) -> Self {
        Self {
            file,
            offset,
            layout,
        }
    }

    /// Attaches a window that a peer created, after checking file, header and length. `offset` is
    /// where the window begins in the file.
    ///
    /// # Errors
    /// See [`WindowError`].
    pub fn attach(file: OwnedFd, offset: u64) -> Result<Self, WindowError> {
        let length = memfd::final_length(file.as_fd()).ok_or(WindowError::Unsealed)?;
        let got = length.saturating_sub(offset);
        let layout = Layout::from_header(&read_header(file.as_fd(), offset, got)?)?;
        let expected = layout.length();
        if got < expected {
            return Err(WindowError::Length { got, expected });
        }
        Ok(Self::at(Arc::new(file), offset, layout))
    }

    /// Resets the window: writes its header, and removes all records. No process may use the window
    /// meanwhile.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn reset(&self) -> Result<(), WindowError> {
        let memory = self.bytes()?;
        let wrong = WindowError::Kernel(Errno::INVAL);
        memory.write(0, &self.layout.header()).ok_or(wrong)?;
        for direction in 0..2 {
            let control = self.layout.control_and_rings(direction);
            for at in control.step_by(ZEROES.len()) {
                memory.write(at, &ZEROES).ok_or(wrong)?;
            }
        }
        Ok(())
    }

    /// Returns the sizes of the window.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Maps the window for one side.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn ends(&self, side: Side) -> Result<Ends, WindowError> {
        let mapping = self.map()?;
        self.split(&mapping, side)
            .ok_or(WindowError::Kernel(Errno::INVAL))
    }

    /// Returns the offset of the window in its file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Maps all bytes of the window, without structure.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn bytes(&self) -> Result<SharedBytes, WindowError> {
        let length = self.layout.length();
        SharedBytes::new(&self.map()?, 0, length, Access::ReadWrite)
            .ok_or(WindowError::Kernel(Errno::INVAL))
    }

    fn map(&self) -> Result<Arc<Mapping>, WindowError> {
        let mapping = Mapping::new(
            self.file.as_fd(),
            self.offset,
            self.layout.length(),
            Access::ReadWrite,
        );
        Ok(Arc::new(mapping.map_err(WindowError::Kernel)?))
    }

    /// Every part fits, because the layout was checked against the length.
    fn split(&self, mapping: &Arc<Mapping>, side: Side) -> Option<Ends> {
        let (writes, reads) = match side {
            Side::Creator => (0, 1),
            Side::Attacher => (1, 0),
        };
        let [out0, out1] = self.layout.lane_offsets(writes);
        let [in0, in1] = self.layout.lane_offsets(reads);
        // The consumer of a direction writes its doorbell word.
        let [theirs, ours] =
            [writes, reads].map(|direction| self.layout.doorbell_offset(direction));
        Some(Ends {
            producers: [
                Producer::new(mapping, &out0)?,
                Producer::new(mapping, &out1)?,
            ],
            consumers: [Consumer::new(mapping, &in0)?, Consumer::new(mapping, &in1)?],
            claims_out: Claims::new(mapping, self.layout.claims_offset(writes))?,
            claims_in: Claims::new(mapping, self.layout.claims_offset(reads))?,
            sleeper: Sleeper::new(Word::new(mapping, ours)?),
            ringer: Ringer::new(Word::new(mapping, theirs)?),
        })
    }
}

/// Control pages and rings are multiples of this length.
const ZEROES: [u8; 512] = [0; 512];

/// Reads the header of a window of at most `length` bytes.
fn read_header(
    file: BorrowedFd<'_>,
    offset: u64,
    length: u64,
) -> Result<[u8; HEADER], WindowError> {
    let mut header = [0; HEADER];
    let page = length.min(4096);
    if page < HEADER as u64 {
        return Err(LayoutError::Magic.into());
    }
    let mapping = Mapping::new(file, offset, page, Access::Read).map_err(WindowError::Kernel)?;
    SharedBytes::new(&Arc::new(mapping), 0, page, Access::Read)
        .and_then(|page| page.read(0, &mut header))
        .ok_or(WindowError::Kernel(Errno::INVAL))?;
    Ok(header)
}

impl AsFd for Window {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
