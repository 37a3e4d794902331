//! A VM's memory, as its front-end describes it.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::dirty_log::DirtyLog;
use crate::fault::{ProtocolFault, RegionFault, RingFault};
use crate::limits::{MAX_GUEST_MEMORY, MAX_MEMORY_SLOTS};
use crate::raw::{Mapping, Span};

/// A region as a message describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionInfo {
    /// Guest-physical address: what descriptors name.
    pub guest: u64,
    /// Size in bytes.
    pub size: u64,
    /// Address in the front-end: what ring addresses name.
    pub user: u64,
    /// Offset into the file.
    pub offset: u64,
}

#[derive(Clone, Debug)]
struct Region {
    info: RegionInfo,
    mapping: Arc<Mapping>,
}

/// The regions of a VM, ordered by guest-physical address, none overlapping another.
///
/// A value never changes: adding or removing a region makes a new one that shares the mappings,
/// so whoever holds the old one can still use it.
#[derive(Clone, Debug, Default)]
pub struct GuestMemory {
    regions: Vec<Region>,
    /// Covers every region.
    log: Option<Arc<DirtyLog>>,
}

impl GuestMemory {
    /// The memory with one more region.
    ///
    /// # Errors
    /// The region is impossible, overlaps another, or cannot be mapped.
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

    /// The memory without the region at the same addresses.
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

    /// The same memory, with this log or none.
    ///
    /// # Errors
    /// The log has no room for a region.
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

    /// The log of writes, while there is one.
    #[inline]
    #[must_use]
    pub fn log(&self) -> Option<&Arc<DirtyLog>> {
        self.log.as_ref()
    }

    /// Note in the log that the first `written` bytes of these spans were written.
    #[cold]
    pub fn mark(&self, spans: &[Span<'_>], written: u32) {
        let Some(log) = &self.log else { return };
        let mut left = written;
        for span in spans {
            let count = span.length().min(left);
            left -= count;
            // Where the span was found, not the first place with the same bytes: regions may
            // share a file.
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

    /// How many regions there are.
    #[must_use]
    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    /// Whether the front-end truncated any of it, or its log.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.regions.iter().any(|region| region.mapping.truncated())
            || self.log.as_ref().is_some_and(|log| log.truncated())
    }

    /// The bytes at a guest-physical address, if they all lie in one region.
    #[inline(always)]
    #[must_use]
    pub fn contiguous(&self, address: u64, length: u32) -> Option<Span<'_>> {
        let (region, offset) = self.find(address)?;
        region.mapping.span(offset, length)
    }

    /// Find the bytes at a guest-physical address; calls `found` for each contiguous piece, in
    /// order. There is more than one where a buffer crosses from one region to the next.
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

    /// The region that holds a guest-physical address, and the offset into it.
    ///
    /// VMs have a handful of regions, and the first ones hold most of the RAM: for those a scan
    /// beats a search.
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

    /// The mapping and offset of `length` bytes at an address of the front-end, all in one
    /// region. For rings.
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
