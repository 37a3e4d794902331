//! One-sided access to memory of peers, for programs with a protocol of their own for the addresses.
//!
//! The memory is on the heap of the member that a program belongs to: each member of the trust
//! group can map it, and so can all programs of the member itself. Endpoints of a board without
//! such a member share no memory that several peers can write.

use window::locks;
use window::region::{Heap, SharedBuffer};

use crate::endpoint::Endpoint;
use crate::ids::{Peer, SELF};
use crate::remote_memory::RemoteMemory;

impl Endpoint {
    /// Allocates memory that every member of the trust group can access by
    /// [`heap_of`](Self::heap_of). `None` if there is no peer in the group yet, the heap is full, or
    /// other machines do not respect this machine's atomic operations ([`window::locks`]).
    #[must_use]
    pub fn allocate_for_group(&mut self, length: usize) -> Option<SharedBuffer> {
        self.own_member()?.allocate(length)
    }

    /// Returns the heap on which a peer's memory from
    /// [`allocate_for_group`](Self::allocate_for_group) is. `None` if this side cannot access it.
    #[must_use]
    pub fn heap_of(&mut self, peer: Peer) -> Option<Heap> {
        if peer == SELF || !locks::are_effective() {
            return None;
        }
        let nic = self.address_of(peer)?.nic;
        let heap = match nic == self.address.nic {
            // A program of this member: its link must exist, but the heap is that of other links.
            true => {
                self.peers.link(peer)?;
                self.own_member()?.own()
            }
            false => self.peers.link(peer)?.remote_memory.as_mut()?.peer(),
        };
        heap.cloned()
    }

    /// Returns the heaps of a link to another member of the group.
    fn own_member(&mut self) -> Option<&mut RemoteMemory> {
        let usable = locks::are_effective();
        let links = self.peers.links().filter(|link| usable && link.remote);
        links.filter_map(|link| link.remote_memory.as_mut()).next()
    }
}
