//! Where the writes of a device are logged while its VM migrates, and when.
//!
//! QEMU tells in either order: for a running device the log, then to use it; for one that starts
//! in the middle of a migration to use it, then its rings, then the log.

use std::os::fd::AsFd;
use std::sync::Arc;

use super::Backend;
use crate::dirty_log::DirtyLog;
use crate::fault::{Fault, ProtocolFault};
use crate::features::protocol;
use crate::raw::Foreign;

impl<S> Backend<S> {
    /// Begin or end logging. An end means the log as well: the front-end gives another one for the
    /// next migration.
    pub(super) fn set_logging(&mut self, on: bool) -> Result<(), Fault> {
        if on == self.logging {
            return Ok(());
        }
        self.logging = on;
        if !on {
            self.log = None;
        }
        self.apply_log()
    }

    pub(super) fn set_log(&mut self, size: u64, offset: u64, fds: &[Foreign]) -> Result<(), Fault> {
        if self.protocol_features & protocol::LOG_SHMFD == 0 {
            return Err(ProtocolFault::NotNegotiated(6).into());
        }
        let Some(fd) = fds.first() else {
            return Ok(());
        };
        let log = DirtyLog::new(fd.as_fd(), size, offset)
            .map_err(|why| ProtocolFault::Log { size, why })?;
        self.log = Some(Arc::new(log));
        self.apply_log()
    }

    /// A stopped device has nothing to log, and the front-end is free to take the log away: when
    /// rings start again in the middle of a migration, QEMU sends another one, behind their start.
    pub(super) fn drop_log_when_stopped(&mut self) -> Result<(), Fault> {
        if self.log.is_none() || self.vrings_mut().any(|vring| vring.is_running()) {
            return Ok(());
        }
        self.log = None;
        self.apply_log()
    }

    /// Log where, and whether, the front-end wants. Until it has said where, rings wait: what they
    /// write would be lost.
    fn apply_log(&mut self) -> Result<(), Fault> {
        let waits = self.logging && self.log.is_none();
        for vring in self.vrings_mut() {
            vring.set_waits_for_log(waits);
        }
        let log = self.log.clone().filter(|_| self.logging);
        self.replace_memory(self.memory.logged_by(log)?)
    }
}
