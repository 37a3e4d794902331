//! How the ends of a link reach into each other's memory: heaps of VMs, or those of a link within a board.

use std::os::fd::{AsFd, OwnedFd};

use window::Window;
use window::region::{Heap, Home, List, Place, Region, Stretch};

use crate::handshake::Seats;
use crate::memory::Memory;

/// Where the ends of a link within a board sit in its region.
pub(crate) const CREATOR: Seats = Seats { own: 0, peer: 1 };
pub(crate) const GUEST: Seats = Seats { own: 1, peer: 0 };

/// The heaps of a link's two members. They are mapped when they are needed first.
#[derive(Debug)]
pub(crate) struct RemoteMemory {
    /// Of the region, which is the window's too.
    file: OwnedFd,
    seats: Seats,
    /// This side's member, in that region.
    home: Home,
    /// Who has what of its heap.
    list: List,
    own: Option<Heap>,
    peer: Option<Heap>,
}

impl RemoteMemory {
    /// `None` when this host lacks descriptors.
    pub(crate) fn new(window: &Window, seats: Seats, list: List) -> Option<Self> {
        Some(Self {
            list,
            home: Home::new(window.as_fd(), seats.own).ok()?,
            file: window.as_fd().try_clone_to_owned().ok()?,
            seats,
            own: None,
            peer: None,
        })
    }

    /// Whether the peer can copy from there.
    pub(crate) fn covers(&self, stretch: &Stretch) -> bool {
        self.home == stretch.home()
    }

    /// The heap of the peer's member; `None` when this host lacks memory, or the region is none.
    pub(crate) fn peer(&mut self) -> Option<&Heap> {
        if self.peer.is_none() {
            self.peer = self.heap(self.seats.peer);
        }
        self.peer.as_ref()
    }

    /// Memory of this side's member; `None` when there is no room.
    pub(crate) fn lend(&mut self, length: usize) -> Option<Stretch> {
        if self.own.is_none() {
            self.own = self.heap(self.seats.own);
        }
        self.own.as_ref()?.lend(&self.list, length).ok()?
    }

    fn heap(&self, seat: u32) -> Option<Heap> {
        let region = Region::attach(self.file.try_clone().ok()?).ok()?;
        region.heap(seat).ok()?
    }
}

/// Copy a message from a heap. `None` when it cannot be there; false when the memory has become
/// somebody else's meanwhile.
pub(crate) fn copy(heap: &Heap, place: Place, to: &mut Memory, wanted: u64) -> Option<bool> {
    let mut at = 0;
    match to {
        Memory::Stretch(stretch) => heap.carry(place, 0, stretch, usize::try_from(wanted).ok()?),
        memory => memory.fill(0, wanted, |piece| {
            heap.read(place, at, piece)?;
            at += piece.len() as u64;
            Some(())
        }),
    }?;
    Some(heap.is_still(place, wanted))
}
