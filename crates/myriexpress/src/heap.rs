//! Calls for one-sided access: memory that every member of the trust group can access, and access to
//! such memory of peers.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use message::{Atomic, Heap, HeapAddress, SharedBuffer, Width};

use crate::abi::{Address, HeapHandle};
use crate::codes::{Result, Return};
use crate::limits::HEAP_BLOCKS;
use crate::shared::Shared;

/// The memory that the program has allocated, by address. It belongs to the process: the program may
/// still use it when its endpoint is closed.
static BLOCKS: Mutex<BTreeMap<usize, SharedBuffer>> = Mutex::new(BTreeMap::new());

fn blocks() -> MutexGuard<'static, BTreeMap<usize, SharedBuffer>> {
    BLOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `mx_heap_alloc`: returns the address; `None` if there is no heap or no room.
pub(crate) fn allocate(shared: &Shared, length: u64) -> Result<Option<usize>> {
    let length = usize::try_from(length).map_err(|_| Return::NO_RESOURCES)?;
    let mut locked = shared.lock_for_call()?;
    if blocks().len() >= HEAP_BLOCKS {
        return Ok(None);
    }
    let Some(block) = locked.core()?.endpoint.allocate_for_group(length) else {
        return Ok(None);
    };
    let address = block.as_ptr().as_ptr().expose_provenance();
    blocks().insert(address, block);
    Ok(Some(address))
}

/// `mx_heap_free`: returns whether the address is that of a block.
pub(crate) fn free(address: usize) -> bool {
    blocks().remove(&address).is_some()
}

/// `mx_heap_handle`: `None` if the bytes are not all in one block.
pub(crate) fn handle(address: usize, length: u64) -> Option<HeapHandle> {
    let blocks = blocks();
    let (start, block) = blocks.range(..=address).next_back()?;
    let offset = (address - start) as u64;
    let end = offset.checked_add(length)?;
    let HeapAddress { unit, generation } = block.address();
    (end <= block.length()).then_some(HeapHandle {
        unit,
        generation,
        offset,
        length,
    })
}

/// Why the program accesses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To move data. The polls between such accesses, as MPI makes them, wait for nothing.
    Work,
    /// To look whether something has happened. Such an access is a part of a wait.
    Look,
}

/// Memory of a peer that this process can access.
pub(crate) struct Remote {
    heap: Heap,
    address: HeapAddress,
    from: u64,
}

impl Remote {
    /// `None` if the bytes are not all in the handle's memory, or this process cannot access it.
    pub(crate) fn new(
        shared: &Shared,
        peer: Address,
        handle: HeapHandle,
        offset: u64,
        length: u64,
        purpose: Purpose,
    ) -> Result<Option<Self>> {
        let mut locked = shared.lock_for_call()?;
        let core = locked.core()?;
        let peer = core.peer(peer)?;
        let end = offset.checked_add(length);
        let inside = end.is_some_and(|end| end <= handle.length);
        let from = handle.offset.checked_add(offset).filter(|_| inside);
        let heap = core.endpoint.heap_of(peer);
        if purpose == Purpose::Work {
            core.endpoint.made_progress();
        }
        // The lock is not held during the access: a copy may take long.
        Ok(heap.zip(from).map(|(heap, from)| Self {
            heap,
            address: HeapAddress {
                unit: handle.unit,
                generation: handle.generation,
            },
            from,
        }))
    }

    /// Loads a 64-bit word; `None` if it could not. The program waits until it is at least `least`, as sequence
    /// numbers are.
    pub(crate) fn look(&self, shared: &Shared, least: u64) -> Result<Option<u64>> {
        let value = self.heap.load(self.address, self.from).ok();
        let reached = value.is_some_and(|value| value.wrapping_sub(least) < 1 << 63);
        let mut locked = shared.lock_for_call()?;
        let endpoint = &mut locked.core()?.endpoint;
        match reached {
            true => endpoint.made_progress(),
            false => endpoint.looked(),
        }
        Ok(value)
    }

    /// Copies bytes there; returns whether it did.
    pub(crate) fn put(&self, bytes: &[u8]) -> bool {
        self.heap.put_bytes(self.address, self.from, bytes).is_ok()
    }

    /// Copies bytes from there; returns whether it did.
    pub(crate) fn get(&self, bytes: &mut [u8]) -> bool {
        self.heap.get_bytes(self.address, self.from, bytes).is_ok()
    }

    /// Changes a word there; returns its value before, if it did.
    pub(crate) fn atomic(&self, width: Width, operation: Atomic) -> Option<u64> {
        self.heap
            .atomic(self.address, self.from, width, operation)
            .ok()
    }
}
