//! Maps the regions of the VM's memory that the front-end sends.

use std::os::fd::AsFd;
use std::sync::Arc;

use super::{Backend, ring_fault};
use crate::fault::Fault;
use crate::memory::{GuestMemory, RegionInfo};
use crate::raw::ForeignFd;

impl<S> Backend<S> {
    /// Maps these regions in place of all others.
    pub(super) fn set_memory(
        &mut self,
        regions: &[RegionInfo],
        fds: &[ForeignFd],
    ) -> Result<(), Fault> {
        let log = self.memory.log().cloned();
        let mut memory = GuestMemory::default().logged_by(log)?;
        for (info, fd) in regions.iter().zip(fds) {
            memory = memory.with(*info, fd.as_fd())?;
        }
        self.replace_memory(memory)
    }

    /// Maps another region.
    pub(super) fn add_region(&mut self, info: RegionInfo, fds: &[ForeignFd]) -> Result<(), Fault> {
        match fds.first() {
            Some(fd) => self.replace_memory(self.memory.with(info, fd.as_fd())?),
            None => Ok(()),
        }
    }

    /// Replaces the memory, and locates the parts of running rings in it.
    pub(super) fn replace_memory(&mut self, memory: GuestMemory) -> Result<(), Fault> {
        let memory = Arc::new(memory);
        self.memory = Arc::clone(&memory);
        for (ring, vring) in self.vrings_mut().enumerate() {
            vring.relocate(&memory).map_err(ring_fault(ring))?;
        }
        Ok(())
    }
}
