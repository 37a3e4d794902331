//! Starts and stops the dirty log of a device while its VM migrates.
//!
//! QEMU sends the messages in either order. For a running device it sends the log (`SET_LOG_BASE`) and
//! then requests logging (`SET_FEATURES`). For a device that starts in the middle of a migration it
//! requests logging, then starts the rings, and then sends the log.

use std::os::fd::AsFd;
use std::sync::Arc;

use super::Backend;
use crate::dirty_log::DirtyLog;
use crate::fault::{Fault, ProtocolFault};
use crate::features::protocol;
use crate::raw::ForeignFd;

impl<S> Backend<S> {
    /// Starts or stops logging. Stopping also drops the log: the front-end sends another one for the
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

    pub(super) fn set_log(
        &mut self,
        size: u64,
        offset: u64,
        fds: &[ForeignFd],
    ) -> Result<(), Fault> {
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

    /// Drops the log if no ring runs. A stopped device writes nothing, and the front-end may unmap the
    /// log: when rings start again in the middle of a migration, QEMU sends another log after their
    /// start.
    pub(super) fn drop_log_when_stopped(&mut self) -> Result<(), Fault> {
        if self.log.is_none() || self.vrings_mut().any(|vring| vring.is_running()) {
            return Ok(());
        }
        self.log = None;
        self.apply_log()
    }

    /// Applies the present state of logging to memory and rings. While logging is requested and the
    /// front-end has not sent the log, the rings carry no traffic: their writes would be missing from
    /// the log.
    fn apply_log(&mut self) -> Result<(), Fault> {
        let waits = self.logging && self.log.is_none();
        for vring in self.vrings_mut() {
            vring.set_waits_for_log(waits);
        }
        let log = self.log.clone().filter(|_| self.logging);
        self.replace_memory(self.memory.logged_by(log)?)
    }
}
