//! Live migration: from one QEMU of this host to another.
//!
//! The receiving VM is started by [`Vm::incoming`] with what the moving one was booted with, links
//! and logs apart. Once it has moved, [`Vm::wait_ready`] on the receiving one finds the guest, and
//! the other is a paused shell to be dropped.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::instance::Vm;
use super::qmp::Qmp;
use super::spec::Spec;
use crate::error::{Error, Result};
use crate::image::Image;
use crate::interrupt;

/// How often a waiting host asks how far it is.
const ASK: Duration = Duration::from_millis(50);

/// A migration under way. It goes on when this is dropped.
#[derive(Debug)]
pub struct Migration<'vm> {
    vm: &'vm Vm,
    qmp: Qmp,
}

/// What a migration took, by QEMU's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// From the guest's stop here to its start there.
    pub downtime: Duration,
    /// From begin to end.
    pub total: Duration,
    /// Bytes of memory sent.
    pub bytes: u64,
    /// Times memory was gone through: more than one because the guest ran meanwhile.
    pub passes: u64,
}

impl Vm {
    /// Start a QEMU without a guest, to receive one.
    ///
    /// # Errors
    /// Those of [`Vm::boot`], or QEMU does not come up.
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

    /// Begin to move the guest to a QEMU that waits for it, with these parameters of QEMU's
    /// `migrate-set-parameters`.
    ///
    /// # Errors
    /// QEMU refuses: its words are in the error.
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
    /// QEMU's answer to `query-migrate`.
    ///
    /// # Errors
    /// QEMU is gone.
    pub fn state(&mut self) -> Result<Value> {
        self.qmp.execute("query-migrate", &json!({}))
    }

    /// Change parameters while it is under way.
    ///
    /// # Errors
    /// QEMU refuses.
    pub fn set(&mut self, parameters: &Value) -> Result<()> {
        let set = self.qmp.execute("migrate-set-parameters", parameters);
        set.map(drop)
    }

    /// Wait until it is this far: `active`, `completed`, `cancelled`.
    ///
    /// # Errors
    /// It failed, ended in another way, or did not come so far within `limit`.
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

    /// Wait for its end.
    ///
    /// # Errors
    /// It failed, or did not end within `limit`.
    pub fn wait(mut self, limit: Duration) -> Result<Moved> {
        let state = self.wait_for("completed", limit)?;
        let number = |path| state.pointer(path).and_then(Value::as_u64);
        let read = || {
            Some(Moved {
                downtime: Duration::from_millis(number("/downtime")?),
                total: Duration::from_millis(number("/total-time")?),
                bytes: number("/ram/transferred")?,
                passes: number("/ram/dirty-sync-count")?,
            })
        };
        read().ok_or_else(|| Error::unreadable("QEMU's migration state", &state.to_string()))
    }

    /// Give it up: the guest stays where it is.
    ///
    /// # Errors
    /// It ended before, or QEMU is gone.
    pub fn cancel(mut self, limit: Duration) -> Result<()> {
        self.qmp.execute("migrate_cancel", &json!({}))?;
        self.wait_for("cancelled", limit).map(drop)
    }
}
