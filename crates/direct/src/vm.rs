//! A VM, by its QEMU: the window and the views that it has.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use serde_json::{Value, json};
use window::ivshmem;

use crate::control::Control;
use crate::open_files::{self, FileId};
use crate::parts::Seat;
use crate::ports;
use crate::qemu_fd_workaround::{self, Numbers, unique};
use crate::qmp::{Qmp, process_of};
use crate::ram::{Ram, Range};
use crate::{DirectError, io};

/// QEMU's name of the control window's device and of its socket.
const WINDOW: &str = "vicinity-direct";

/// What QEMU calls a peer's memory. What follows is used once: the memory of a device that is gone
/// may stay for some time, and QEMU ends when another one with its name is plugged in there.
const MEMORY: &str = "vicinity-memory";

/// What it calls the device that shows it; the peer's name follows.
const VIEW: &str = "vicinity-view-of-";

/// A QEMU whose guest runs.
#[derive(Debug)]
pub(crate) struct Vm {
    qmp: Qmp,
    pub(crate) process: i32,
    pub(crate) ram: Ram,
    /// Peers that it sees, or that it is to forget.
    views: HashMap<String, View>,
    /// Where QEMU hears of doorbells; it may close it unread when this side does. None when it was
    /// another process's.
    socket: Option<ivshmem::Member>,
    /// While the window is being taken away: descriptors that QEMU had before.
    numbers_before: Option<Numbers>,
}

/// What a VM was found with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing of ours.
    Nothing,
    /// This group's window.
    Window,
    /// What is left of another group, or of one that has ended.
    Leftovers,
}

/// A peer's memory in a VM.
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
    /// QEMU has asked the guest to let go.
    Unplugging,
    /// QEMU would not have it, and why.
    Refused(String),
}

impl Vm {
    /// Connect to a monitor; `None` when no guest runs there.
    pub(crate) fn connect(
        monitor: &Path,
        control: &Control,
    ) -> Result<Option<(Self, Found)>, DirectError> {
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

    fn find_leftovers(&mut self, control: &Control) -> Result<Found, DirectError> {
        let has_window = self.has_window()?;
        let views = self.qmp.names("/machine/peripheral", VIEW)?;
        if !has_window {
            let nothing = views.is_empty() && self.qmp.names("/objects", MEMORY)?.is_empty();
            return Ok(if nothing {
                Found::Nothing
            } else {
                Found::Leftovers
            });
        }
        let window = control.id()?;
        let open = open_files::memfds(self.process)?;
        if !open.iter().any(|open| open.id == window) {
            return Ok(Found::Leftovers);
        }
        let views = views.iter().filter_map(|name| name.strip_prefix(VIEW));
        let there = |name: &str| {
            let (of, state) = (None, State::Plugged);
            (name.to_owned(), View { of, state })
        };
        self.views = views.map(there).collect();
        Ok(Found::Window)
    }

    /// Where its RAM is; see [`Ram::ranges`].
    pub(crate) fn ranges(&mut self) -> Result<Vec<Range>, DirectError> {
        self.ram.ranges(&mut self.qmp)
    }

    /// Give it the window. QEMU waits for the server inside `device_add`, so everything must be on
    /// its way before; and it learns of everybody's doorbell, also of those who are not there yet.
    pub(crate) fn give_window(
        &mut self,
        id: u16,
        socket: &Path,
        seats: &[Seat],
        control: &Control,
    ) -> Result<(), DirectError> {
        let Some(seat) = seats.get(usize::from(id)) else {
            return Err(DirectError::TooMany);
        };
        let address = json!({"type": "unix", "data": {"path": socket}});
        let backend = json!({"type": "socket", "data": {"addr": address, "server": false}});
        self.refuse_passthrough()?;
        self.drop_chardevs()?;
        let chardev = unique(WINDOW);
        self.qmp
            .execute("chardev-add", &json!({"id": chardev, "backend": backend}))?;
        // Others that may connect to the socket may have come first.
        let socket = loop {
            let accepted = io(seat.server.accept(), || "accept QEMU".to_owned())?;
            let accepted =
                accepted.ok_or_else(|| DirectError::Monitor("chardev-add".to_owned()))?;
            if process_of(&accepted)? == self.process {
                break accepted;
            }
            tracing::warn!("a process that is not this VM's QEMU was turned away");
        };
        let member = ivshmem::Member::adopt(socket);
        let admitted = member.admit_alone(id, control.as_fd());
        io(admitted, || "greet QEMU".to_owned())?;
        for (peer, seat) in (0..).zip(seats) {
            let told = member.introduce(peer, &seat.doorbell);
            io(told, || "tell QEMU of a doorbell".to_owned())?;
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

    /// A VM with a device of the host (VFIO) cannot join. QEMU maps all memory of the VM for such a device, also
    /// what is plugged in later. So it would pin the RAM of every peer, and it ends the VM when that fails
    /// (`vfio_listener_region_add` in QEMU's `hw/vfio/listener.c`: "unable to continue").
    fn refuse_passthrough(&mut self) -> Result<(), DirectError> {
        match self.qmp.passthrough()? {
            Some(device) => Err(DirectError::Passthrough(device)),
            None => Ok(()),
        }
    }

    /// See this peer's memory, or nothing of it.
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

    /// Whose memory a view shows that was there before this process.
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
        let object = json!({
            "qom-type": "memory-backend-file", "id": memory, "size": ram.size, "share": true,
            "readonly": true, "mem-path": ram.path(),
            // Otherwise a core dump of this QEMU has the RAM of all its peers.
            "dump": false, "merge": false,
        });
        let device = json!({
            "driver": "ivshmem-plain", "id": format!("{VIEW}{name}"), "memdev": memory
        });
        let shown = self.qmp.execute("object-add", &object).and_then(|_| {
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

    /// Why a peer's memory is not seen, of the first such peer.
    pub(crate) fn trouble(&self) -> Option<String> {
        let refused = self
            .views
            .iter()
            .filter_map(|(name, view)| match &view.state {
                State::Refused(reason) => Some((name, reason)),
                State::Plugged | State::Unplugging => None,
            });
        let first = refused.min();
        first.map(|(name, reason)| format!("does not see the memory of {name}: {reason}"))
    }

    /// Plug a device in: into a free one of these ports, if the VM has any.
    fn plug(&mut self, mut device: Value, ports: &str) -> Result<Value, DirectError> {
        let ports = self.qmp.names("/machine/peripheral", ports)?;
        if !ports.is_empty() {
            let free = self
                .free_of(&ports)?
                .ok_or_else(|| ports::wanted("has no root port left: start it with more"))?;
            if let Some(fields) = device.as_object_mut() {
                fields.insert("bus".to_owned(), json!(free));
            }
        }
        let plugged = self.qmp.execute("device_add", &device);
        plugged.map_err(|error| match error {
            DirectError::Refused { reason, .. }
                if reason.contains("does not support hotplugging") =>
            {
                ports::wanted(
                    "takes devices only in root ports while it runs (q35): start it with some",
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

    /// Whether the guest starts again. An error when the VM is gone.
    pub(crate) fn read_events(&mut self) -> Result<bool, DirectError> {
        self.qmp.read_events()
    }

    /// Forget peers' views that the guest has let go of. QEMU's list of devices is asked: it tells
    /// of the end of a device when nothing uses the device's memory any more, which can be long after.
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
            // There may be room now for what was refused.
            let is_refused = |view: &View| matches!(view.state, State::Refused(_));
            self.views.retain(|_, view| !is_refused(view));
        }
        self.drop_memories()
    }

    /// Remove peers' memories that no device shows.
    fn drop_memories(&mut self) -> Result<(), DirectError> {
        for memory in self.qmp.names("/objects", MEMORY)? {
            // Refused while a device shows it.
            let _shown = self.qmp.execute("object-del", &json!({"id": memory}));
        }
        Ok(())
    }

    /// Take everything away, views first; whether all is gone. The guest has to let go of each, so
    /// this is to be said again and again.
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

    /// Remove the windows' sockets. One stays if QEMU still keeps what is left of its device.
    fn drop_chardevs(&mut self) -> Result<(), DirectError> {
        let answer = self.qmp.execute("query-chardev", &json!({}))?;
        let all = answer.as_array().into_iter().flatten();
        let labels = all.filter_map(|one| one.get("label").and_then(Value::as_str));
        for label in labels.filter(|label| label.starts_with(WINDOW)) {
            let _kept = self.qmp.execute("chardev-remove", &json!({"id": label}));
        }
        Ok(())
    }

    /// Have the guest let go of a device.
    fn request_unplug(&mut self, device: &str) {
        // Refused when it has been asked already.
        let _asked = self.qmp.execute("device_del", &json!({"id": device}));
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
