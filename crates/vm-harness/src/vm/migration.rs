//! Migrates a running VM from one QEMU of this host to another.
//!
//! [`Vm::incoming`] starts the destination with the specification of the source, except for links
//! and logs. After the migration, [`Vm::wait_ready`] on the destination connects to the guest, and
//! the source is paused; the caller drops it.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::instance::Vm;
use super::qmp::Qmp;
use super::spec::Spec;
use crate::error::{Error, Result};
use crate::image::Image;
use crate::interrupt;

/// Interval at which the host asks QEMU for the state of a migration.
const ASK: Duration = Duration::from_millis(50);

/// A migration under way. Dropping the value does not stop the migration.
#[derive(Debug)]
pub struct Migration<'vm> {
    vm: &'vm Vm,
    qmp: Qmp,
}

/// The cost of a migration, as QEMU measured it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigrationCost {
    /// Time from the guest's stop at the source to its start at the destination.
    pub downtime: Duration,
    /// Time from the beginning to the end.
    pub total: Duration,
    /// Bytes of memory sent.
    pub bytes: u64,
    /// Passes over the memory. There are several, because the guest dirties pages during a pass.
    pub passes: u64,
}

impl Vm {
    /// Starts a QEMU that waits for an incoming migration.
    ///
    /// # Errors
    /// Those of [`Vm::boot`], or QEMU does not start.
    pub fn incoming(image: &Image, mut spec: Spec) -> Result<Self> {
        spec.qemu_args
            .extend(["-incoming", "defer"].map(str::to_owned));
        let vm = Self::boot(image, spec)?;
        let limit = Duration::from_secs(20);
        let mut qmp = interrupt::poll("QEMU's monitor", limit, || Ok(vm.qmp().ok()))?;
        let uri = uri(&vm.run.path().join("migration"));
        qmp.execute("migrate-incoming", &json!({"uri": uri}))?;
        drop(qmp);
        Ok(vm)
    }

    /// Begins to migrate the guest to a QEMU of [`Vm::incoming`], with these parameters of QEMU's
    /// `migrate-set-parameters`.
    ///
    /// # Errors
    /// QEMU refuses; its message is in the error.
    pub fn migrate(&self, to: &Self, parameters: &Value) -> Result<Migration<'_>> {
        let mut qmp = self.qmp()?;
        qmp.execute("migrate-set-parameters", parameters)?;
        let uri = uri(&to.run.path().join("migration"));
        qmp.execute("migrate", &json!({"uri": uri}))?;
        Ok(Migration { vm: self, qmp })
    }
}

fn uri(socket: &Path) -> String {
    format!("unix:{}", socket.display())
}

impl Migration<'_> {
    /// Returns QEMU's response to `query-migrate`.
    ///
    /// # Errors
    /// QEMU has ended.
    pub fn state(&mut self) -> Result<Value> {
        self.qmp.execute("query-migrate", &json!({}))
    }

    /// Changes parameters of the running migration.
    ///
    /// # Errors
    /// QEMU refuses.
    pub fn set(&mut self, parameters: &Value) -> Result<()> {
        let set = self.qmp.execute("migrate-set-parameters", parameters);
        set.map(drop)
    }

    /// Waits for a status of the migration: `active`, `completed`, `cancelled`.
    ///
    /// # Errors
    /// The migration failed, ended with another status, or did not reach the status within `limit`.
    pub fn wait_for(&mut self, status: &str, limit: Duration) -> Result<Value> {
        let end = Instant::now() + limit;
        loop {
            let state = self.state()?;
            let now = state.get("status").and_then(Value::as_str).unwrap_or("");
            if now == status {
                return Ok(state);
            }
            let over = matches!(now, "failed" | "completed" | "cancelled");
            if over || Instant::now() >= end {
                let why = format!("its migration did not become {status}: {state}");
                return Err(self.vm.failure(&why));
            }
            interrupt::sleep(ASK)?;
        }
    }

    /// Waits for the end of the migration.
    ///
    /// # Errors
    /// The migration failed, or did not end within `limit`.
    pub fn wait(mut self, limit: Duration) -> Result<MigrationCost> {
        let state = self.wait_for("completed", limit)?;
        let number = |path| state.pointer(path).and_then(Value::as_u64);
        let read = || {
            Some(MigrationCost {
                downtime: Duration::from_millis(number("/downtime")?),
                total: Duration::from_millis(number("/total-time")?),
                bytes: number("/ram/transferred")?,
                passes: number("/ram/dirty-sync-count")?,
            })
        };
        read().ok_or_else(|| Error::unreadable("QEMU's migration state", &state.to_string()))
    }

    /// Cancels the migration: the guest continues at the source.
    ///
    /// # Errors
    /// The migration ended before, or QEMU has ended.
    pub fn cancel(mut self, limit: Duration) -> Result<()> {
        self.qmp.execute("migrate_cancel", &json!({}))?;
        self.wait_for("cancelled", limit).map(drop)
    }
}
