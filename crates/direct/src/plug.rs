//! Plugs devices into a VM that runs, and asks its guest to release them.
//!
//! A guest may release a device that nothing asked it for. A user of the guest can do so. And a guest that was asked
//! twice may release the *next* device in that slot: with ACPI, QEMU's `device_del` is refused only for the first
//! millisecond (`acpi_pcihp_device_unplug_request_cb()` in its `hw/acpi/pcihp.c`), each request makes the guest's
//! firmware notify the guest's kernel for each slot whose device is to be released (the method `PCNT` in
//! `hw/i386/acpi-build.c`), and Linux ejects what is in the slot when it handles the notification (`hotplug_event()`
//! in its `drivers/pci/hotplug/acpiphp_glue.c`). So [`HotPlug`] repeats a request late, and a device that is gone
//! is plugged in again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::DirectError;
use crate::ports;
use crate::qmp::{DEVICES, Qmp};

/// The time after which a request is repeated. A guest that boots ignores requests. In a slot of PCI Express without ACPI,
/// QEMU refuses a repetition for as long (`pcie_cap_slot_unplug_request_cb()` in its `hw/pci/pcie.c`).
const REPEAT_INTERVAL: Duration = Duration::from_secs(5);

/// Plugs in and unplugs the devices of one VM.
#[derive(Debug, Default)]
pub(crate) struct HotPlug {
    /// When the guest was last asked to release each device, by QEMU's id.
    requests: HashMap<String, Instant>,
}

impl HotPlug {
    /// Plugs a device in: into a free root port of these, if the VM has any.
    pub(crate) fn plug(
        &mut self,
        qmp: &mut Qmp,
        id: &str,
        mut device: Value,
        ports: &str,
    ) -> Result<(), DirectError> {
        self.requests.remove(id);
        let ports = qmp.names(DEVICES, ports)?;
        if let Some(fields) = device.as_object_mut() {
            fields.insert("id".to_owned(), json!(id));
            if !ports.is_empty() {
                let free = free_of(qmp, &ports)?
                    .ok_or_else(|| ports::missing("has no free root port; start it with more"))?;
                fields.insert("bus".to_owned(), json!(free));
            }
        }
        let plugged = qmp.execute("device_add", &device);
        plugged.map(drop).map_err(|error| match error {
            DirectError::Refused { reason, .. }
                if reason.contains("does not support hotplugging") =>
            {
                ports::missing(
                    "accepts devices only in root ports while it runs (q35); start it with root ports",
                )
            }
            error => error,
        })
    }

    /// Asks the guest to release a device, if it was not asked a short time ago.
    pub(crate) fn request_unplug(&mut self, qmp: &mut Qmp, id: &str) {
        if self.is_due(id, Instant::now()) {
            // QEMU refuses this if the device is gone, or if another process asked a short time ago.
            let _result = qmp.execute("device_del", &json!({"id": id}));
        }
    }

    /// Returns whether the guest is to be asked for a device at this time, and records that it is.
    fn is_due(&mut self, id: &str, now: Instant) -> bool {
        let last = self.requests.get(id);
        let is_due =
            last.is_none_or(|last| now.saturating_duration_since(*last) >= REPEAT_INTERVAL);
        if is_due {
            self.requests.insert(id.to_owned(), now);
        }
        is_due
    }
}

fn free_of(qmp: &mut Qmp, ports: &[String]) -> Result<Option<String>, DirectError> {
    for port in ports {
        // A port's bus has its name.
        if qmp
            .names(&format!("{DEVICES}/{port}/{port}"), "child[")?
            .is_empty()
        {
            return Ok(Some(port.clone()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_asked_again_for_a_device_after_five_seconds() {
        let mut hot_plug = HotPlug::default();
        let start = Instant::now();
        let asked = [("a", 0), ("a", 4), ("b", 4), ("a", 5), ("a", 9), ("b", 9)];
        let is_due = asked.map(|(id, at)| hot_plug.is_due(id, start + Duration::from_secs(at)));
        assert_eq!(is_due, [true, false, true, true, false, true]);
    }
}
