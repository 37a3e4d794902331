//! How large a space is, and its memory.

use memory_plane::space_memory;
use space::store::ledger_bytes;

use crate::config::{MIN_SPACE_SLOTS, SLOT_BYTES, Space};
use crate::processes::space::protocol::Size;
use crate::serve::systemd::fd_store::Memory;

/// Factor by which a space's number of slots can grow while its process runs.
const MAX_GROWTH_FACTOR: u32 = 4;

/// Creates memory for a new space, with places for `most` slots.
pub(in crate::serve) fn new_memory(name: &str, most: u32) -> std::io::Result<Memory> {
    Ok(Memory {
        slots: space_memory::create(name, u64::from(SLOT_BYTES) * u64::from(most))?,
        ledger: space_memory::create(name, ledger_bytes(most))?,
        most,
        came_back: false,
    })
}

impl Size {
    /// Returns the size of a space that starts. `room` is the number of slots that its existing memory has places
    /// for, if it has any. A space that the controller sizes starts without slots; the controller assigns some.
    pub(in crate::serve) fn of(config: &Space, budget: Option<u32>, room: Option<u32>) -> Self {
        let slots = config.slots.unwrap_or(0);
        let most = slots
            .saturating_mul(MAX_GROWTH_FACTOR)
            .max(budget.unwrap_or(0));
        let most = room.unwrap_or(most.max(MIN_SPACE_SLOTS));
        if slots > most {
            tracing::warn!(
                "space of {}: the configuration sets {slots} slots, but the stored memory with the published \
                    files has room for {most}, which the space gets; to have more, remove the space with all its \
                    files, and create it again",
                config.vm
            );
        }
        Self {
            slots: slots.min(most),
            limit: slots.clamp(MIN_SPACE_SLOTS, most.max(MIN_SPACE_SLOTS)),
            most,
        }
    }
}
