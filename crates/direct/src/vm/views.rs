//! The views of a VM: plugs in and unplugs them, and keeps the list of them.

use std::os::fd::AsFd;

use serde_json::json;

use super::{State, VIEW, View, Vm};
use crate::DirectError;
use crate::open_files;
use crate::ports;
use crate::qemu_fd_workaround::unique;
use crate::qmp::DEVICES;
use crate::ram::{MEMORY, Ram};

impl Vm {
    /// Plugs in or unplugs the view of a peer's memory, so that the VM sees `ram` or nothing.
    pub(crate) fn set_view(&mut self, name: &str, ram: Option<&Ram>) -> Result<(), DirectError> {
        self.identify_view(name, ram)?;
        let wanted = ram.map(|ram| ram.id);
        let Some(view) = self.views.get(name) else {
            return ram.map_or(Ok(()), |ram| self.plug_view(name, ram));
        };
        match &view.state {
            State::Plugged | State::Refused(_) if view.of == wanted => {}
            State::Plugged | State::Unplugging => self.unplug_view(name),
            State::Refused(_) => {
                self.views.remove(name);
            }
        }
        Ok(())
    }

    /// Finds out whose memory a view shows that was plugged in before this process started.
    fn identify_view(&mut self, name: &str, ram: Option<&Ram>) -> Result<(), DirectError> {
        let (Some(view), Some(ram)) = (self.views.get_mut(name), ram) else {
            return Ok(());
        };
        if view.of.is_none() {
            let open = open_files::memfds(self.process)?;
            view.of = open
                .iter()
                .find(|open| open.id == ram.id)
                .map(|open| open.id);
        }
        Ok(())
    }

    fn plug_view(&mut self, name: &str, ram: &Ram) -> Result<(), DirectError> {
        let memory = unique(MEMORY);
        let id = format!("{VIEW}{name}");
        let device = json!({"driver": "ivshmem-plain", "memdev": memory});
        let shown = self.add_memory(&memory, ram).and_then(|()| {
            let shown = self.hot_plug.plug(&mut self.qmp, &id, device, ports::VIEW);
            if shown.is_err() {
                let _gone = self.qmp.execute("object-del", &json!({"id": memory}));
            }
            shown
        });
        let state = match &shown {
            Ok(_) => State::Plugged,
            Err(error) => State::Refused(error.to_string()),
        };
        let of = Some(ram.id);
        self.views.insert(name.to_owned(), View { of, state });
        shown
    }

    /// Adds a peer's memory as an object of QEMU. `memory-backend-file` opens its file by path, so QEMU
    /// receives a descriptor and opens that again (`file_ram_open` in QEMU's `system/physmem.c`). A path into
    /// this process's `/proc` would need the right to trace this process, which only root's QEMUs have. The
    /// object has its own descriptor then, so QEMU closes the one that was passed.
    fn add_memory(&mut self, id: &str, ram: &Ram) -> Result<(), DirectError> {
        let passed = self.qmp.add_fd(MEMORY, ram.as_fd())?;
        let object = json!({
            "qom-type": "memory-backend-file", "id": id, "size": ram.size, "share": true,
            "readonly": true, "mem-path": format!("/proc/self/fd/{}", passed.fd),
            // Otherwise a core dump of this QEMU has the RAM of all its peers.
            "dump": false, "merge": false,
        });
        let added = self.qmp.execute("object-add", &object);
        self.qmp.remove_fd(passed.id)?;
        added.map(drop)
    }

    /// Has QEMU close the descriptors that a process passed which ended before it could remove them.
    pub(super) fn remove_passed(&mut self) -> Result<(), DirectError> {
        for set in self.qmp.fd_sets(MEMORY)? {
            self.qmp.remove_fd(set)?;
        }
        Ok(())
    }

    /// Returns the reason why the VM does not see a peer's memory, for the first such peer by name.
    pub(crate) fn reason(&self) -> Option<String> {
        let refused = self
            .views
            .iter()
            .filter_map(|(name, view)| match &view.state {
                State::Refused(reason) => Some((name, reason)),
                State::Plugged | State::Unplugging => None,
            });
        let first = refused.min();
        first.map(|(name, reason)| format!("the VM cannot map the memory of {name}: {reason}"))
    }

    /// Asks the guest to release a view, again if that is due.
    fn unplug_view(&mut self, name: &str) {
        if let Some(view) = self.views.get_mut(name) {
            view.state = State::Unplugging;
        }
        self.hot_plug
            .request_unplug(&mut self.qmp, &format!("{VIEW}{name}"));
    }

    /// Removes the views that the guest has released from the list, also those that nothing asked it for. While views are
    /// being unplugged, asks QEMU for its list of devices each time, because QEMU sends the event of a device's removal only
    /// when nothing uses the device's memory any more, which can be long after.
    pub(crate) fn collect_removed_views(&mut self) -> Result<(), DirectError> {
        let is_unplugging = |view: &View| view.state == State::Unplugging;
        if !self.device_deleted && !self.views.values().any(is_unplugging) {
            return Ok(());
        }
        let there = self.qmp.names(DEVICES, VIEW)?;
        let is_refused = |view: &View| matches!(view.state, State::Refused(_));
        let before = self.views.len();
        self.views
            .retain(|name, view| is_refused(view) || there.contains(&format!("{VIEW}{name}")));
        if self.views.len() < before {
            // QEMU may accept now what it refused before.
            self.views.retain(|_, view| !is_refused(view));
        }
        self.drop_memories()?;
        self.device_deleted = false;
        Ok(())
    }

    /// Removes peers' memories that no device uses.
    pub(super) fn drop_memories(&mut self) -> Result<(), DirectError> {
        for memory in self.qmp.names("/objects", MEMORY)? {
            // QEMU refuses this while a device uses the memory.
            let _shown = self.qmp.execute("object-del", &json!({"id": memory}));
        }
        Ok(())
    }
}
