//! The memory regions of a VM, as its front-end describes them, and the translation of addresses.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::dirty_log::DirtyLog;
use crate::fault::{ProtocolFault, RegionFault, RingFault};
use crate::limits::{MAX_GUEST_MEMORY, MAX_MEMORY_SLOTS};
use crate::raw::{Mapping, Span};

/// A memory region as a vhost-user message describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionInfo {
    /// Guest-physical address, which descriptors use.
    pub guest: u64,
    /// Size in bytes.
    pub size: u64,
    /// Address in the front-end, which ring addresses use.
    pub user: u64,
    /// Offset of the region in its file.
    pub offset: u64,
}

#[derive(Clone, Debug)]
struct Region {
    info: RegionInfo,
    mapping: Arc<Mapping>,
}

/// The regions of a VM, ordered by guest-physical address, without overlaps.
///
/// A value is immutable: adding or removing a region returns a new value that shares the mappings, so
/// users of the old value can continue to use it.
#[derive(Clone, Debug, Default)]
pub struct GuestMemory {
    regions: Vec<Region>,
    /// The dirty log, while writes are logged; it covers every region.
    log: Option<Arc<DirtyLog>>,
}

impl GuestMemory {
    /// Returns the memory with one more region.
    ///
    /// # Errors
    /// The region is out of range, overlaps another, or cannot be mapped.
    pub fn with(&self, info: RegionInfo, fd: BorrowedFd<'_>) -> Result<Self, ProtocolFault> {
        self.try_with(info, fd)
            .map_err(|why| ProtocolFault::Region {
                guest: info.guest,
                size: info.size,
                why,
            })
    }

    fn try_with(&self, info: RegionInfo, fd: BorrowedFd<'_>) -> Result<Self, RegionFault> {
        let end = |start: u64| start.checked_add(info.size).ok_or(RegionFault::Range);
        let (guest_end, user_end) = (end(info.guest)?, end(info.user)?);
        if info.size == 0 {
            return Err(RegionFault::Range);
        }
        if !self.log.as_ref().is_none_or(|log| log.covers(guest_end)) {
            return Err(RegionFault::NotLogged);
        }
        let overlaps = |other: &Region| {
            let o = &other.info;
            (info.guest < o.guest + o.size && o.guest < guest_end)
                || (info.user < o.user + o.size && o.user < user_end)
        };
        if self.regions.iter().any(overlaps) {
            return Err(RegionFault::Overlap);
        }
        let total: u64 = self.regions.iter().map(|r| r.info.size).sum();
        if self.regions.len() >= MAX_MEMORY_SLOTS
            || total
                .checked_add(info.size)
                .is_none_or(|sum| sum > MAX_GUEST_MEMORY)
        {
            return Err(RegionFault::TooMany);
        }
        let mapping = Mapping::new(fd, info.offset, info.size).map_err(RegionFault::Map)?;
        let mut regions = self.regions.clone();
        let place = regions.partition_point(|r| r.info.guest < info.guest);
        regions.insert(
            place,
            Region {
                info,
                mapping: Arc::new(mapping),
            },
        );
        Ok(Self {
            regions,
            log: self.log.clone(),
        })
    }

    /// Returns the memory without the region at these addresses.
    ///
    /// # Errors
    /// There is no such region.
    pub fn without(&self, info: &RegionInfo) -> Result<Self, ProtocolFault> {
        let same = |r: &Region| {
            (r.info.guest, r.info.user, r.info.size) == (info.guest, info.user, info.size)
        };
        let place = self
            .regions
            .iter()
            .position(same)
            .ok_or(ProtocolFault::NoRegion(info.guest))?;
        let mut regions = self.regions.clone();
        regions.remove(place);
        Ok(Self {
            regions,
            log: self.log.clone(),
        })
    }

    /// Returns the same memory with this dirty log, or without one.
    ///
    /// # Errors
    /// The log does not cover every region.
    pub fn logged_by(&self, log: Option<Arc<DirtyLog>>) -> Result<Self, ProtocolFault> {
        let past = |region: &&Region| {
            let end = region.info.guest + region.info.size;
            log.as_ref().is_some_and(|log| !log.covers(end))
        };
        if let Some(region) = self.regions.iter().find(past) {
            return Err(ProtocolFault::Region {
                guest: region.info.guest,
                size: region.info.size,
                why: RegionFault::NotLogged,
            });
        }
        Ok(Self {
            regions: self.regions.clone(),
            log,
        })
    }

    /// Returns the dirty log, while writes are logged.
    #[inline]
    #[must_use]
    pub fn log(&self) -> Option<&Arc<DirtyLog>> {
        self.log.as_ref()
    }

    /// Marks the first `written` bytes of these spans as dirty, if writes are logged.
    #[cold]
    pub fn mark(&self, spans: &[Span<'_>], written: u32) {
        let Some(log) = &self.log else { return };
        let mut left = written;
        for span in spans {
            let count = span.length().min(left);
            left -= count;
            // Compare with the region's mapping, because several regions may share a file.
            let place = self.regions.iter().find_map(|region| {
                let offset = region.mapping.offset_of(span)?;
                Some(region.info.guest + offset)
            });
            debug_assert!(place.is_some(), "a span of other memory");
            if let Some(address) = place {
                log.mark(address, count);
            }
        }
    }

    /// Returns the number of regions.
    #[must_use]
    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    /// Returns whether the front-end truncated the file of a region or of the log.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.regions.iter().any(|region| region.mapping.truncated())
            || self.log.as_ref().is_some_and(|log| log.truncated())
    }

    /// Returns the bytes at a guest-physical address, if they all lie in one region.
    #[inline(always)]
    #[must_use]
    pub fn contiguous(&self, address: u64, length: u32) -> Option<Span<'_>> {
        let (region, offset) = self.find(address)?;
        region.mapping.span(offset, length)
    }

    /// Translates the bytes at a guest-physical address; calls `found` for each contiguous piece, in
    /// order. A buffer that crosses from one region to the next has several pieces.
    ///
    /// # Errors
    /// Some of the bytes are outside every region, or `found` failed.
    pub fn translate<'m>(
        &'m self,
        address: u64,
        length: u32,
        mut found: impl FnMut(Span<'m>) -> Result<(), RingFault>,
    ) -> Result<(), RingFault> {
        let (mut at, mut left) = (address, length);
        while left > 0 {
            let outside = RingFault::Address { address, length };
            let (region, offset) = self.find(at).ok_or(outside)?;
            let room = region.info.size - offset;
            let piece = u32::try_from(room).unwrap_or(u32::MAX).min(left);
            found(region.mapping.span(offset, piece).ok_or(outside)?)?;
            // Cannot overflow: the region's end does not.
            at += u64::from(piece);
            left -= piece;
        }
        Ok(())
    }

    /// Returns the region that contains a guest-physical address, and the offset into it.
    ///
    /// Most VMs have at most eight regions, and the first ones contain most of the RAM: for these a
    /// linear scan is faster than a binary search.
    #[inline(always)]
    fn find(&self, address: u64) -> Option<(&Region, u64)> {
        let within = |region: &Region| {
            let offset = address.wrapping_sub(region.info.guest);
            (offset < region.info.size).then_some(offset)
        };
        if self.regions.len() <= 8 {
            return self
                .regions
                .iter()
                .find_map(|region| Some((region, within(region)?)));
        }
        let after = self
            .regions
            .partition_point(|region| region.info.guest <= address);
        let region = self.regions.get(after.checked_sub(1)?)?;
        Some((region, within(region)?))
    }

    /// Returns the mapping and the offset of `length` bytes at an address of the front-end, if they
    /// all lie in one region. Rings are located this way.
    #[must_use]
    pub fn locate_user(&self, address: u64, length: u32) -> Option<(Arc<Mapping>, u64)> {
        let end = address.checked_add(u64::from(length))?;
        let region = self
            .regions
            .iter()
            .find(|r| r.info.user <= address && end <= r.info.user + r.info.size)?;
        Some((Arc::clone(&region.mapping), address - region.info.user))
    }
}
