//! How the ends of a link reach into each other's memory: heaps of VMs, or those of a link within a board.

use std::os::fd::{AsFd, OwnedFd};

use window::Window;
use window::region::{Heap, HeapAddress, HeapOwner, Region, SharedBuffer, UnitAllocator};

use crate::address::Address;
use crate::endpoint::Endpoint;
use crate::handshake::MemberPair;
use crate::memory::Memory;

/// Where the ends of a link within a board sit in its region.
pub(crate) const AS_CREATOR: MemberPair = MemberPair { own: 0, peer: 1 };
pub(crate) const AS_ATTACHER: MemberPair = MemberPair { own: 1, peer: 0 };

impl Endpoint {
    /// The way to heaps of the region that a window is of, if its ends sit there.
    pub(crate) fn remote_memory_of(
        &self,
        window: &Window,
        members: Option<MemberPair>,
        peer: Address,
    ) -> Option<RemoteMemory> {
        let allocator = match peer.nic == self.address.nic {
            // This heap is this link's alone.
            true => UnitAllocator::in_process(),
            false => self.board.heap_allocator(),
        };
        RemoteMemory::new(window, members?, allocator)
    }
}

/// The heaps of a link's two members. They are mapped when they are needed first.
#[derive(Debug)]
pub(crate) struct RemoteMemory {
    /// Of the region, which is the window's too.
    file: OwnedFd,
    members: MemberPair,
    /// This side's member, in that region.
    owner: HeapOwner,
    /// Who has what of its heap.
    allocator: UnitAllocator,
    own: Option<Heap>,
    peer: Option<Heap>,
}

impl RemoteMemory {
    /// `None` when this host lacks descriptors.
    fn new(window: &Window, members: MemberPair, allocator: UnitAllocator) -> Option<Self> {
        Some(Self {
            allocator,
            owner: HeapOwner::new(window.as_fd(), members.own).ok()?,
            file: window.as_fd().try_clone_to_owned().ok()?,
            members,
            own: None,
            peer: None,
        })
    }

    /// Whether the peer can copy from there.
    pub(crate) fn contains(&self, buffer: &SharedBuffer) -> bool {
        self.owner == buffer.owner()
    }

    /// The heap of the peer's member; `None` when this host lacks memory, or the region is none.
    pub(crate) fn peer(&mut self) -> Option<&Heap> {
        if self.peer.is_none() {
            self.peer = self.heap(self.members.peer);
        }
        self.peer.as_ref()
    }

    /// Memory of this side's member; `None` when there is no room.
    pub(crate) fn allocate(&mut self, length: usize) -> Option<SharedBuffer> {
        if self.own.is_none() {
            self.own = self.heap(self.members.own);
        }
        self.own.as_ref()?.allocate(&self.allocator, length).ok()?
    }

    fn heap(&self, member: u32) -> Option<Heap> {
        let region = Region::attach(self.file.try_clone().ok()?).ok()?;
        region.heap(member).ok()?
    }
}

/// Copy a message from a heap. `None` when it cannot be there; false when the memory has become
/// somebody else's meanwhile.
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
