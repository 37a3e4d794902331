//! A window: the memory, and both sides' view of it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use crate::doorbell::{Ringer, Sleeper};
use crate::lane::{Consumer, Producer};
use crate::layout::{HEADER, LANES, Layout, LayoutError};
use crate::memfd;
use crate::raw::{Access, Foreign, Mapping, Word};

/// A window that cannot be made or used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// Its file could be truncated under our hands.
    #[error("the peer's memory is not sealed against changes of its length")]
    Unsealed,
    /// Its file has not the length its header asks for.
    #[error("the peer's memory has {got} bytes where {expected} are needed")]
    Length {
        /// Bytes it has.
        got: u64,
        /// Bytes it needs.
        expected: u64,
    },
    /// Its header.
    #[error("the peer's memory is no window: {0}")]
    Layout(#[from] LayoutError),
    /// This host cannot.
    #[error("the kernel refused: {0}")]
    Kernel(Errno),
}

/// Which side of a window this is. It says who writes which direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that made it: produces in direction 0.
    Creator,
    /// The other one: produces in direction 1.
    Guest,
}

/// Shared memory with two directions. Each side takes its [`Ends`] once.
#[derive(Debug)]
pub struct Window {
    file: OwnedFd,
    layout: Layout,
}

/// What a side works with.
#[derive(Debug)]
pub struct Ends {
    /// Lanes this side writes.
    pub producers: [Producer; LANES],
    /// Lanes this side reads.
    pub consumers: [Consumer; LANES],
    /// Says whether this side sleeps.
    pub sleeper: Sleeper,
    /// Tells whether the other one does.
    pub ringer: Ringer,
}

impl Window {
    /// Make one.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn create(layout: Layout) -> Result<Self, WindowError> {
        let kernel = WindowError::Kernel;
        let file = memfd::create(c"vicinity-window", layout.length()).map_err(kernel)?;
        let header = layout.header();
        let written = rustix::io::pwrite(&file, &header, 0).map_err(kernel)?;
        if written != header.len() {
            return Err(kernel(Errno::IO));
        }
        memfd::seal_shared(file.as_fd()).map_err(kernel)?;
        Ok(Self { file, layout })
    }

    /// Use one that a peer made, after checking its seals, its header and its length.
    ///
    /// # Errors
    /// See [`WindowError`].
    pub fn attach(file: OwnedFd) -> Result<Self, WindowError> {
        let got = memfd::final_length(file.as_fd()).ok_or(WindowError::Unsealed)?;
        let mut header = [0; HEADER];
        let read = rustix::io::pread(&file, &mut header, 0).map_err(WindowError::Kernel)?;
        if read != header.len() {
            return Err(LayoutError::Magic.into());
        }
        let layout = Layout::from_header(&header)?;
        let expected = layout.length();
        if got < expected {
            return Err(WindowError::Length { got, expected });
        }
        Ok(Self { file, layout })
    }

    /// Its sizes.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Map it for a side.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn ends(&self, side: Side) -> Result<Ends, WindowError> {
        let mapping = self.map()?;
        self.find(&mapping, side)
            .ok_or(WindowError::Kernel(Errno::INVAL))
    }

    /// All of its bytes, for a test that plays the hostile peer.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn scribble(&self) -> Result<Foreign, WindowError> {
        let length = self.layout.length();
        Foreign::new(&self.map()?, 0, length, Access::ReadWrite)
            .ok_or(WindowError::Kernel(Errno::INVAL))
    }

    fn map(&self) -> Result<Arc<Mapping>, WindowError> {
        let mapping = Mapping::new(self.file.as_fd(), self.layout.length(), Access::ReadWrite);
        Ok(Arc::new(mapping.map_err(WindowError::Kernel)?))
    }

    /// Every place fits, because the layout was checked against the length.
    fn find(&self, mapping: &Arc<Mapping>, side: Side) -> Option<Ends> {
        let (writes, reads) = match side {
            Side::Creator => (0, 1),
            Side::Guest => (1, 0),
        };
        let [out0, out1] = self.layout.places(writes);
        let [in0, in1] = self.layout.places(reads);
        // The consumer of a direction keeps its doorbell.
        let [theirs, ours] = [writes, reads].map(|direction| self.layout.doorbell(direction));
        Some(Ends {
            producers: [
                Producer::new(mapping, &out0)?,
                Producer::new(mapping, &out1)?,
            ],
            consumers: [Consumer::new(mapping, &in0)?, Consumer::new(mapping, &in1)?],
            sleeper: Sleeper::new(Word::new(mapping, ours)?),
            ringer: Ringer::new(Word::new(mapping, theirs)?),
        })
    }
}

impl AsFd for Window {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
