//! The heaps that both ends of a link can access: those of VMs' members, or those of a link within
//! a board.

use std::os::fd::{AsFd, OwnedFd};

use window::Window;
use window::region::{Heap, HeapAddress, HeapOwner, Region, SharedBuffer, UnitAllocator};

use crate::handshake::MemberPair;
use crate::memory::Memory;

/// The members that the ends of a link within a board belong to, in the region of that link.
pub(crate) const AS_CREATOR: MemberPair = MemberPair { own: 0, peer: 1 };
pub(crate) const AS_ATTACHER: MemberPair = MemberPair { own: 1, peer: 0 };

/// The heaps of a link's two members, mapped at first use.
#[derive(Debug)]
pub(crate) struct RemoteMemory {
    /// The region's file, which is the window's, too.
    file: OwnedFd,
    members: MemberPair,
    /// The identity of the heap of this side's member.
    owner: HeapOwner,
    /// The allocator of that heap.
    allocator: UnitAllocator,
    own: Option<Heap>,
    peer: Option<Heap>,
}

impl RemoteMemory {
    /// `None` if no descriptors are left.
    pub(crate) fn new(
        window: &Window,
        members: MemberPair,
        allocator: UnitAllocator,
    ) -> Option<Self> {
        Some(Self {
            allocator,
            owner: HeapOwner::new(window.as_fd(), members.own).ok()?,
            file: window.as_fd().try_clone_to_owned().ok()?,
            members,
            own: None,
            peer: None,
        })
    }

    /// Returns whether the peer can copy from this buffer.
    pub(crate) fn contains(&self, buffer: &SharedBuffer) -> bool {
        self.owner == buffer.owner()
    }

    /// Returns the heap of the peer's member; `None` if memory is short, or the file is no region.
    pub(crate) fn peer(&mut self) -> Option<&Heap> {
        if self.peer.is_none() {
            self.peer = self.heap(self.members.peer);
        }
        self.peer.as_ref()
    }

    /// Returns the heap of this side's member; `None` as above.
    pub(crate) fn own(&mut self) -> Option<&Heap> {
        if self.own.is_none() {
            self.own = self.heap(self.members.own);
        }
        self.own.as_ref()
    }

    /// Allocates memory on the heap of this side's member; `None` if there is no room.
    pub(crate) fn allocate(&mut self, length: usize) -> Option<SharedBuffer> {
        self.own()?;
        self.own.as_ref()?.allocate(&self.allocator, length).ok()?
    }

    fn heap(&self, member: u32) -> Option<Heap> {
        let region = Region::attach(self.file.try_clone().ok()?).ok()?;
        region.heap(member).ok()?
    }
}

/// Copies a message from a heap. `None` if the address is out of bounds; false if the memory was
/// revoked meanwhile.
pub(crate) fn copy(
    heap: &Heap,
    address: HeapAddress,
    to: &mut Memory,
    wanted: u64,
) -> Option<bool> {
    let mut at = 0;
    match to {
        Memory::SharedBuffer(buffer) => {
            heap.copy_to(address, 0, buffer, usize::try_from(wanted).ok()?)
        }
        memory => memory.fill(0, wanted, |piece| {
            heap.read(address, at, piece)?;
            at += piece.len() as u64;
            Some(())
        }),
    }?;
    Some(heap.is_valid(address, wanted))
}
