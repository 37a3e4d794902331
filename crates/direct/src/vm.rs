//! A VM, controlled through its QEMU's monitor: its window and its views.

mod views;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde_json::json;
use window::ivshmem;

use crate::chardevs::Chardev;
use crate::control::Control;
use crate::open_files::{self, FileId};
use crate::plug::HotPlug;
use crate::ports;
use crate::qemu_fd_workaround::{self, Numbers, unique};
use crate::qmp::{DEVICES, Qmp};
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
    /// The descriptors that QEMU had while it had the window. `None` until they are read.
    window_numbers: Option<Numbers>,
    hot_plug: HotPlug,
    /// QEMU has removed a device since the last call of [`Vm::collect_removed_views`].
    device_deleted: bool,
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
            window_numbers: None,
            hot_plug: HotPlug::default(),
            device_deleted: false,
        };
        let found = vm.find_leftovers(control)?;
        Ok(Some((vm, found)))
    }

    fn find_leftovers(&mut self, control: &Control) -> Result<FoundDevices, DirectError> {
        self.remove_passed()?;
        let has_window = self.has_window()?;
        let views = self.qmp.names(DEVICES, VIEW)?;
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
        let device = json!({"driver": "ivshmem-doorbell", "chardev": chardev, "vectors": 1});
        let qmp = &mut self.qmp;
        let given = self.hot_plug.plug(qmp, WINDOW, device, ports::WINDOW);
        self.socket = Some(member);
        if given.is_err() {
            self.drop_chardevs()?;
        }
        given
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

    /// Reads the monitor's events. Returns whether the guest restarts; an error when the VM has ended.
    pub(crate) fn read_events(&mut self) -> Result<bool, DirectError> {
        let events = self.qmp.read_events()?;
        self.device_deleted |= events.device_deleted;
        Ok(events.reset)
    }

    /// Returns whether the window is gone. The guest may release devices that nothing asked it for, see [`crate::plug`].
    /// Reads the descriptors of a window that is there, once.
    pub(crate) fn has_lost_window(&mut self) -> Result<bool, DirectError> {
        if self.device_deleted && !self.has_window()? {
            return Ok(true);
        }
        if self.window_numbers.is_none() {
            self.read_window_numbers()?;
        }
        Ok(false)
    }

    /// Unplugs all devices, views first. Returns whether none is left. The guest must release each device,
    /// so the caller has to repeat this.
    pub(crate) fn unplug_all(&mut self) -> Result<bool, DirectError> {
        let devices = self.qmp.names(DEVICES, VIEW)?;
        if !devices.is_empty() {
            for device in &devices {
                self.hot_plug.request_unplug(&mut self.qmp, device);
            }
            return Ok(false);
        }
        self.drop_memories()?;
        self.views.clear();
        if self.has_window()? {
            self.read_window_numbers()?;
            self.hot_plug.request_unplug(&mut self.qmp, WINDOW);
            return Ok(false);
        }
        self.socket = None;
        if let Some(before) = self.window_numbers.take() {
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

    /// Adds the descriptors that QEMU has now to those that it had while it had the window.
    fn read_window_numbers(&mut self) -> Result<(), DirectError> {
        let numbers = self.window_numbers.get_or_insert_default();
        numbers.add_those_of(self.process)
    }

    fn has_window(&mut self) -> Result<bool, DirectError> {
        Ok(!self.qmp.names(DEVICES, WINDOW)?.is_empty())
    }
}

impl AsFd for Vm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.qmp.as_fd()
    }
}
