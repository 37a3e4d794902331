//! A VM, controlled through its QEMU's monitor: its window and its views.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde_json::{Value, json};
use window::ivshmem;

use crate::chardevs::Chardev;
use crate::control::Control;
use crate::open_files::{self, FileId};
use crate::ports;
use crate::qemu_fd_workaround::{self, Numbers, unique};
use crate::qmp::Qmp;
use crate::ram::{MEMORY, Ram, Range};
use crate::resources::MemberResources;
use crate::{DirectError, io};

/// QEMU's id of the control window's device and of its character device.
const WINDOW: &str = "vicinity-direct";

/// The start of QEMU's id of a view's device; the peer's name follows.
const VIEW: &str = "vicinity-view-of-";

/// A QEMU whose guest runs.
#[derive(Debug)]
pub(crate) struct Vm {
    qmp: Qmp,
    pub(crate) process: i32,
    pub(crate) ram: Ram,
    /// The views that are plugged in or being unplugged, by the name of the peer.
    views: HashMap<String, View>,
    /// The socket over which QEMU received the doorbells. If this side closes it, QEMU may close it without
    /// reading it. `None` if another process made the connection.
    socket: Option<ivshmem::Member>,
    /// While the window is being unplugged: the descriptors that QEMU had before.
    numbers_before: Option<Numbers>,
}

/// The devices with which a VM was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundDevices {
    /// No device of the direct channel.
    Nothing,
    /// This group's window.
    Window,
    /// Devices of another group, or of one that has ended.
    Leftovers,
}

/// A peer's memory that is plugged into this VM.
#[derive(Debug)]
struct View {
    /// The peer's memory: another one is another VM of that name. None while that is to be found
    /// out, for a view that was there before this process.
    of: Option<FileId>,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Plugged,
    /// QEMU has asked the guest to release the device.
    Unplugging,
    /// QEMU refused the device, for this reason.
    Refused(String),
}

impl Vm {
    /// Connects to a monitor. Returns `None` when no guest runs there.
    pub(crate) fn connect(
        monitor: &Path,
        control: &Control,
    ) -> Result<Option<(Self, FoundDevices)>, DirectError> {
        let Some(mut qmp) = Qmp::connect(monitor)? else {
            return Ok(None);
        };
        if !qmp.is_running()? {
            return Ok(None);
        }
        let mut vm = Self {
            process: qmp.process()?,
            ram: Ram::of(&mut qmp)?,
            qmp,
            views: HashMap::new(),
            socket: None,
            numbers_before: None,
        };
        let found = vm.find_leftovers(control)?;
        Ok(Some((vm, found)))
    }

    fn find_leftovers(&mut self, control: &Control) -> Result<FoundDevices, DirectError> {
        self.remove_passed()?;
        let has_window = self.has_window()?;
        let views = self.qmp.names("/machine/peripheral", VIEW)?;
        if !has_window {
            let nothing = views.is_empty() && self.qmp.names("/objects", MEMORY)?.is_empty();
            return Ok(if nothing {
                FoundDevices::Nothing
            } else {
                FoundDevices::Leftovers
            });
        }
        let window = control.id()?;
        let open = open_files::memfds(self.process)?;
        if !open.iter().any(|open| open.id == window) {
            return Ok(FoundDevices::Leftovers);
        }
        let views = views.iter().filter_map(|name| name.strip_prefix(VIEW));
        let there = |name: &str| {
            let (of, state) = (None, State::Plugged);
            (name.to_owned(), View { of, state })
        };
        self.views = views.map(there).collect();
        Ok(FoundDevices::Window)
    }

    /// Returns the guest-physical ranges of its RAM; see [`Ram::ranges`].
    pub(crate) fn ranges(&mut self) -> Result<Vec<Range>, DirectError> {
        self.ram.ranges(&mut self.qmp)
    }

    /// Plugs the window in. QEMU waits for the server inside `device_add`, so everything must have been
    /// sent before. QEMU receives the doorbells of all members, including those that are absent.
    ///
    /// QEMU receives its end of the connection over the monitor. So no other process can connect, and QEMU,
    /// which may run as another user, in other namespaces and with another security label, opens no socket
    /// by name.
    pub(crate) fn give_window(
        &mut self,
        id: u16,
        member_resources: &[MemberResources],
        control: &Control,
    ) -> Result<(), DirectError> {
        self.refuse_passthrough()?;
        self.refuse_encryption()?;
        self.drop_chardevs()?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let (socket, of_qemu) = io(pair, || "make a socket".to_owned())?;
        let chardev = unique(WINDOW);
        self.qmp.pass_fd(&chardev, of_qemu.as_fd())?;
        let address = json!({"type": "fd", "data": {"str": chardev}});
        let backend = json!({"type": "socket", "data": {"addr": address, "server": false}});
        self.qmp
            .execute("chardev-add", &json!({"id": chardev, "backend": backend}))?;
        let member = ivshmem::Member::adopt(socket);
        let admitted = member.admit_without_doorbell(id, control.as_fd());
        io(admitted, || "accept QEMU's connection".to_owned())?;
        for (peer, resources) in (0..).zip(member_resources) {
            let told = member.send_doorbell(peer, &resources.doorbell);
            io(told, || "pass a doorbell to QEMU".to_owned())?;
        }
        let device = json!({
            "driver": "ivshmem-doorbell", "id": WINDOW, "chardev": chardev, "vectors": 1
        });
        let given = self.plug(device, ports::WINDOW);
        if given.is_err() {
            self.drop_chardevs()?;
        }
        self.socket = Some(member);
        given.map(drop)
    }

    /// Refuses a VM with a device of the host (VFIO). QEMU maps all memory of the VM for such a device, also
    /// what is plugged in later. So it would pin the RAM of every peer, and it ends the VM when that fails
    /// (`vfio_listener_region_add` in QEMU's `hw/vfio/listener.c`: "unable to continue").
    fn refuse_passthrough(&mut self) -> Result<(), DirectError> {
        match self.qmp.passthrough()? {
            Some(device) => Err(DirectError::Passthrough(device)),
            None => Ok(()),
        }
    }

    /// Refuses a VM whose memory is encrypted. Its guest shares only its bounce buffers with other software of the
    /// host, and not the packets that the driver would name to the peers.
    fn refuse_encryption(&mut self) -> Result<(), DirectError> {
        match self.qmp.encryption()? {
            Some(object) => Err(DirectError::Encrypted(object)),
            None => Ok(()),
        }
    }

    /// Plugs in or unplugs the view of a peer's memory, so that the VM sees `ram` or nothing.
    pub(crate) fn set_view(&mut self, name: &str, ram: Option<&Ram>) -> Result<(), DirectError> {
        self.identify_view(name, ram)?;
        let wanted = ram.map(|ram| ram.id);
        let Some(view) = self.views.get(name) else {
            return ram.map_or(Ok(()), |ram| self.plug_view(name, ram));
        };
        match &view.state {
            State::Plugged if view.of != wanted => self.unplug_view(name),
            State::Refused(_) if view.of != wanted => {
                self.views.remove(name);
                Ok(())
            }
            _ => Ok(()),
        }
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
        let device = json!({
            "driver": "ivshmem-plain", "id": format!("{VIEW}{name}"), "memdev": memory
        });
        let shown = self.add_memory(&memory, ram).and_then(|()| {
            let shown = self.plug(device, ports::VIEW);
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
        shown.map(drop)
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
    fn remove_passed(&mut self) -> Result<(), DirectError> {
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

    /// Plugs a device in: into a free root port of these, if the VM has any.
    fn plug(&mut self, mut device: Value, ports: &str) -> Result<Value, DirectError> {
        let ports = self.qmp.names("/machine/peripheral", ports)?;
        if !ports.is_empty() {
            let free = self
                .free_of(&ports)?
                .ok_or_else(|| ports::missing("has no free root port; start it with more"))?;
            if let Some(fields) = device.as_object_mut() {
                fields.insert("bus".to_owned(), json!(free));
            }
        }
        let plugged = self.qmp.execute("device_add", &device);
        plugged.map_err(|error| match error {
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

    fn free_of(&mut self, ports: &[String]) -> Result<Option<String>, DirectError> {
        for port in ports {
            // A port's bus has its name.
            let bus = format!("/machine/peripheral/{port}/{port}");
            if self.qmp.names(&bus, "child[")?.is_empty() {
                return Ok(Some(port.clone()));
            }
        }
        Ok(None)
    }

    fn unplug_view(&mut self, name: &str) -> Result<(), DirectError> {
        if let Some(view) = self.views.get_mut(name) {
            view.state = State::Unplugging;
        }
        let device = format!("{VIEW}{name}");
        self.qmp
            .execute("device_del", &json!({"id": device}))
            .map(drop)
    }

    /// Reads the monitor's events. Returns whether the guest restarts; an error when the VM has ended.
    pub(crate) fn read_events(&mut self) -> Result<bool, DirectError> {
        self.qmp.read_events()
    }

    /// Removes the views that the guest has released from the list. Asks QEMU for its list of devices,
    /// because QEMU sends the event of a device's removal only when nothing uses the device's memory any
    /// more, which can be long after.
    pub(crate) fn collect_removed_views(&mut self) -> Result<(), DirectError> {
        let is_unplugging = |view: &View| view.state == State::Unplugging;
        if !self.views.values().any(is_unplugging) {
            return Ok(());
        }
        let there = self.qmp.names("/machine/peripheral", VIEW)?;
        let going = self.views.iter().filter(|(_, view)| is_unplugging(view));
        let gone = going.map(|(name, _)| name.clone());
        let gone: Vec<_> = gone
            .filter(|name| !there.contains(&format!("{VIEW}{name}")))
            .collect();
        for name in &gone {
            self.views.remove(name);
        }
        if !gone.is_empty() {
            // QEMU may accept now what it refused before.
            let is_refused = |view: &View| matches!(view.state, State::Refused(_));
            self.views.retain(|_, view| !is_refused(view));
        }
        self.drop_memories()
    }

    /// Removes peers' memories that no device uses.
    fn drop_memories(&mut self) -> Result<(), DirectError> {
        for memory in self.qmp.names("/objects", MEMORY)? {
            // QEMU refuses this while a device uses the memory.
            let _shown = self.qmp.execute("object-del", &json!({"id": memory}));
        }
        Ok(())
    }

    /// Unplugs all devices, views first. Returns whether none is left. The guest must release each device,
    /// so the caller has to repeat this.
    pub(crate) fn unplug_all(&mut self) -> Result<bool, DirectError> {
        let devices = self.qmp.names("/machine/peripheral", VIEW)?;
        if !devices.is_empty() {
            devices
                .iter()
                .for_each(|device| self.request_unplug(device));
            return Ok(false);
        }
        self.drop_memories()?;
        self.views.clear();
        if self.has_window()? {
            if self.numbers_before.is_none() {
                self.numbers_before = Some(Numbers::of(self.process)?);
            }
            self.request_unplug(WINDOW);
            return Ok(false);
        }
        self.socket = None;
        if let Some(before) = self.numbers_before.take() {
            qemu_fd_workaround::apply(&mut self.qmp, self.process, &before)?;
        }
        self.drop_chardevs()?;
        Ok(true)
    }

    /// Whether QEMU tries to connect a character device, such as the one of a NIC whose daemon has ended.
    pub(crate) fn is_reconnecting(&mut self) -> Result<bool, DirectError> {
        let chardevs = self.qmp.chardevs()?;
        Ok(chardevs.iter().any(Chardev::is_reconnecting))
    }

    /// Removes the character devices of windows. One stays while QEMU still keeps its device.
    fn drop_chardevs(&mut self) -> Result<(), DirectError> {
        for Chardev { label, .. } in self.qmp.chardevs()? {
            if label.starts_with(WINDOW) {
                let _kept = self.qmp.execute("chardev-remove", &json!({"id": label}));
            }
        }
        Ok(())
    }

    /// Asks the guest to release a device.
    fn request_unplug(&mut self, device: &str) {
        // QEMU refuses this when it has asked the guest already.
        let _result = self.qmp.execute("device_del", &json!({"id": device}));
    }

    fn has_window(&mut self) -> Result<bool, DirectError> {
        Ok(!self.qmp.names("/machine/peripheral", WINDOW)?.is_empty())
    }
}

impl AsFd for Vm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.qmp.as_fd()
    }
}
