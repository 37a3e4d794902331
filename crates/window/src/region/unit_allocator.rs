//! Who has which units of a heap.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::layout::UNIT;
use crate::limits;
use crate::ranges::Ranges;
use crate::raw::Lease;

/// The list of who has which units of a member's heap.
#[derive(Clone, Debug)]
pub struct UnitAllocator(Backend);

#[derive(Clone, Debug)]
enum Backend {
    /// By the kernel, as locks on a file.
    FileLocks(PathBuf),
    /// Here.
    InProcess(Arc<Mutex<Ranges>>),
}

impl UnitAllocator {
    /// For a heap that programs of one kernel have in common: it keeps the list, as locks on this file, so that a
    /// program that ends, however it does, leaves nothing behind. The file is made when it is needed.
    #[must_use]
    pub fn file_locks(file: PathBuf) -> Self {
        Self(Backend::FileLocks(file))
    }

    /// For a heap that nobody lends but who has this list, and its clones.
    #[must_use]
    pub fn in_process() -> Self {
        let most = u64::from(*limits::UNITS.end()) * UNIT;
        Self(Backend::InProcess(Arc::new(Mutex::new(Ranges::new(most)))))
    }

    /// Hold `count` units in a row, of the first `limit`, that nobody else holds.
    pub(super) fn take(&self, count: u32, limit: u32) -> Result<Option<Allocation>, Errno> {
        match &self.0 {
            Backend::FileLocks(path) => {
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
                let mode = Mode::from_raw_mode(0o666);
                let file = rustix::fs::open(path, flags, mode)?;
                let lease = Lease::take(file, count, limit)?;
                Ok(lease.map(|lease| Allocation {
                    units: lease.start()..lease.start() + count,
                    holder: Holder::Lock(lease),
                }))
            }
            Backend::InProcess(ranges) => Ok(Allocation::take(ranges, count, limit)),
        }
    }
}

/// Units that one program has; free when this is dropped.
#[derive(Debug)]
pub(super) struct Allocation {
    pub(super) units: Range<u32>,
    holder: Holder,
}

#[derive(Debug)]
enum Holder {
    /// The lock goes with it.
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
            holder: Holder::Ranges(Arc::clone(ranges)),
        };
        // The first place that is free: if it is behind the end, there is none before.
        (held.units.end <= limit).then_some(held)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Holder::Ranges(ranges) = &self.holder {
            let Range { start, end } = self.units;
            lock(ranges).release(u64::from(start) * UNIT, u64::from(end - start) * UNIT);
        }
    }
}

fn lock(ranges: &Mutex<Ranges>) -> std::sync::MutexGuard<'_, Ranges> {
    ranges.lock().unwrap_or_else(PoisonError::into_inner)
}
