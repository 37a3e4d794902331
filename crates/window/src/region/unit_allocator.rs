//! The allocator of a heap's units.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::layout::UNIT;
use crate::limits;
use crate::ranges::Ranges;
use crate::raw::Lease;

/// The allocator of a member's heap.
#[derive(Clone, Debug)]
pub struct UnitAllocator(Backend);

#[derive(Clone, Debug)]
enum Backend {
    /// The kernel keeps the allocations, as locks on a file.
    FileLocks(PathBuf),
    /// This process keeps the allocations.
    InProcess(Arc<Mutex<Ranges>>),
}

impl UnitAllocator {
    /// For a heap that the programs of one kernel share. The kernel keeps the allocations, as locks
    /// on this file, so it frees those of a program that ends, however it ends. The file is created
    /// when it is needed.
    #[must_use]
    pub fn file_locks(file: PathBuf) -> Self {
        Self(Backend::FileLocks(file))
    }

    /// For a heap that only this allocator and its clones allocate from.
    #[must_use]
    pub fn in_process() -> Self {
        let most = u64::from(*limits::UNITS.end()) * UNIT;
        Self(Backend::InProcess(Arc::new(Mutex::new(Ranges::new(most)))))
    }

    /// Allocates the first `count` consecutive free units, of the first `limit`.
    pub(super) fn take(&self, count: u32, limit: u32) -> Result<Option<Allocation>, Errno> {
        match &self.0 {
            Backend::FileLocks(path) => {
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
                let mode = Mode::from_raw_mode(0o666);
                let file = rustix::fs::open(path, flags, mode)?;
                let lease = Lease::take(file, count, limit)?;
                Ok(lease.map(|lease| Allocation {
                    units: lease.start()..lease.start() + count,
                    holder: Owner::Lock(lease),
                }))
            }
            Backend::InProcess(ranges) => Ok(Allocation::take(ranges, count, limit)),
        }
    }
}

/// Units that one program has allocated; freed when this is dropped.
#[derive(Debug)]
pub(super) struct Allocation {
    pub(super) units: Range<u32>,
    holder: Owner,
}

#[derive(Debug)]
enum Owner {
    /// Dropping the lease releases the lock.
    Lock(#[expect(dead_code, reason = "held")] Lease),
    Ranges(Arc<Mutex<Ranges>>),
}

impl Allocation {
    fn take(ranges: &Arc<Mutex<Ranges>>, count: u32, limit: u32) -> Option<Self> {
        let start = lock(ranges).allocate(u64::from(count) * UNIT)?;
        // There are at most 1024 units.
        let start = u32::try_from(start / UNIT).unwrap_or(u32::MAX);
        let held = Self {
            units: start..start.saturating_add(count),
            holder: Owner::Ranges(Arc::clone(ranges)),
        };
        // The first free range: if it is behind the limit, no range before the limit is free.
        (held.units.end <= limit).then_some(held)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Owner::Ranges(ranges) = &self.holder {
            let Range { start, end } = self.units;
            lock(ranges).release(u64::from(start) * UNIT, u64::from(end - start) * UNIT);
        }
    }
}

fn lock(ranges: &Mutex<Ranges>) -> std::sync::MutexGuard<'_, Ranges> {
    ranges.lock().unwrap_or_else(PoisonError::into_inner)
}
