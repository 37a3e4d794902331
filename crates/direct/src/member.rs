//! One VM of a group: what QEMU was told to give it, and to take away.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use window::ivshmem::{self, Doorbell, Server};

use crate::control::Control;
use crate::qmp::{Event, Qmp};
use crate::ram::Ram;
use crate::{DirectError, io};

/// QEMU's name of the control window's device and of its socket.
const WINDOW: &str = "vicinity-direct";

/// What QEMU calls a peer's memory, and the device that shows it; the peer's name follows.
const MEMORY: &str = "vicinity-memory-of-";
const VIEW: &str = "vicinity-view-of-";

/// A VM that may be a member.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) id: u16,
    monitor: PathBuf,
    socket: PathBuf,
    server: Server,
    /// The same for every VM that ever has this id: QEMU (10.0) corrupts its own memory when it is
    /// given another one for an id that it has forgotten, so it is never told to forget.
    pub(crate) doorbell: Doorbell,
    pub(crate) vm: Option<Vm>,
    /// Why it could not join, told once.
    complaint: Option<String>,
}

/// A VM that is one.
#[derive(Debug)]
pub(crate) struct Vm {
    qmp: Qmp,
    window: ivshmem::Member,
    pub(crate) ram: Ram,
    /// Peers that it sees, or that it is to forget.
    views: HashMap<u16, View>,
}

/// A peer's memory in a VM.
#[derive(Debug)]
struct View {
    peer: String,
    /// The descriptor of the peer's memory: another one is another VM of that name.
    of: PathBuf,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    There,
    /// QEMU has asked the guest to let go.
    Going,
    /// QEMU would not have it.
    Refused,
}

impl Member {
    pub(crate) fn new(folder: &Path, name: &str, id: u16) -> Result<Self, DirectError> {
        let socket = folder.join(format!("{name}.sock"));
        let server = Server::bind(&socket);
        Ok(Self {
            name: name.to_owned(),
            id,
            monitor: crate::group::monitor(folder, name),
            server: io(server, || format!("listen at {}", socket.display()))?,
            socket,
            doorbell: io(Doorbell::new(), || "make a doorbell".to_owned())?,
            vm: None,
            complaint: None,
        })
    }

    /// Join if the VM is there; whether it has joined. A VM that cannot is left out.
    pub(crate) fn join(&mut self, control: &Control) -> bool {
        match self.try_join(control) {
            Ok(vm) => {
                self.vm = vm;
                self.complaint = None;
            }
            Err(error) => {
                let text = error.to_string();
                if self.complaint.as_ref() != Some(&text) {
                    tracing::warn!("VM {} cannot join: {text}", self.name);
                    self.complaint = Some(text);
                }
            }
        }
        self.vm.is_some()
    }

    fn try_join(&self, control: &Control) -> Result<Option<Vm>, DirectError> {
        let Some(mut qmp) = Qmp::connect(&self.monitor)? else {
            return Ok(None);
        };
        check_window(&mut qmp)?;
        if !sweep(&mut qmp)? {
            return Ok(None);
        }
        let ram = Ram::of(&mut qmp)?;
        control.enter(self.id.into(), mac(&self.name), &ram.ranges)?;
        let window = self.give_window(&mut qmp, control)?;
        Ok(Some(Vm {
            qmp,
            window,
            ram,
            views: HashMap::new(),
        }))
    }

    /// QEMU waits for the server inside `device_add`, so everything must be on its way before.
    fn give_window(
        &self,
        qmp: &mut Qmp,
        control: &Control,
    ) -> Result<ivshmem::Member, DirectError> {
        let address = json!({"type": "unix", "data": {"path": self.socket}});
        let backend = json!({"type": "socket", "data": {"addr": address, "server": false}});
        qmp.execute("chardev-add", &json!({"id": WINDOW, "backend": backend}))?;
        let accepted = self.server.accept_alone(self.id, control.as_fd());
        let window = io(accepted, || "accept QEMU".to_owned())?;
        let window = window.ok_or_else(|| DirectError::Monitor("chardev-add".to_owned()))?;
        let device = json!({
            "driver": "ivshmem-doorbell", "id": WINDOW, "chardev": WINDOW, "vectors": 1
        });
        if let Err(error) = qmp.execute("device_add", &device) {
            let _gone = qmp.execute("chardev-remove", &json!({"id": WINDOW}));
            return Err(error);
        }
        Ok(window)
    }
}

impl Vm {
    /// Tell QEMU of a member's doorbell. A QEMU that does not listen is noticed by its monitor.
    pub(crate) fn introduce(&self, id: u16, doorbell: &Doorbell) {
        let _gone = self.window.introduce(id, doorbell);
    }

    /// See this peer's memory, or nothing at this id.
    pub(crate) fn see(&mut self, id: u16, peer: Option<(&str, &Ram)>) -> Result<(), DirectError> {
        let wanted = peer.map(|(_, ram)| ram.path());
        let stale = |view: &View| Some(&view.of) != wanted.as_ref();
        match (self.views.get(&id), peer) {
            (None, Some((name, ram))) => self.show(id, name, ram),
            (Some(view), _) if view.state == State::There && stale(view) => self.hide(id),
            (Some(view), _) if view.state == State::Refused && stale(view) => {
                self.views.remove(&id);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn show(&mut self, id: u16, name: &str, ram: &Ram) -> Result<(), DirectError> {
        let memory = format!("{MEMORY}{name}");
        let object = json!({
            "qom-type": "memory-backend-file", "id": memory, "size": ram.size, "share": true,
            "readonly": true, "mem-path": ram.path(),
        });
        let device = json!({
            "driver": "ivshmem-plain", "id": format!("{VIEW}{name}"), "memdev": memory
        });
        let mut view = View {
            peer: name.to_owned(),
            of: ram.path(),
            state: State::There,
        };
        let shown = self.qmp.execute("object-add", &object).and_then(|_| {
            let shown = self.qmp.execute("device_add", &device);
            if shown.is_err() {
                let _gone = self.qmp.execute("object-del", &json!({"id": memory}));
            }
            shown
        });
        if shown.is_err() {
            view.state = State::Refused;
        }
        self.views.insert(id, view);
        shown.map(drop)
    }

    fn hide(&mut self, id: u16) -> Result<(), DirectError> {
        let Some(view) = self.views.get_mut(&id) else {
            return Ok(());
        };
        view.state = State::Going;
        let device = format!("{VIEW}{}", view.peer);
        self.qmp
            .execute("device_del", &json!({"id": device}))
            .map(drop)
    }

    /// What has happened; whether the guest starts again. An error when the VM is gone.
    pub(crate) fn hear(&mut self) -> Result<bool, DirectError> {
        let mut reset = false;
        for event in self.qmp.events()? {
            match event {
                Event::Reset => reset = true,
                Event::Deleted(device) => self.forget(&device)?,
            }
        }
        Ok(reset)
    }

    fn forget(&mut self, device: &str) -> Result<(), DirectError> {
        let Some(name) = device.strip_prefix(VIEW) else {
            return Ok(());
        };
        self.views.retain(|_, view| view.peer != name);
        let memory = format!("{MEMORY}{name}");
        self.qmp
            .execute("object-del", &json!({"id": memory}))
            .map(drop)
    }

    /// Take all views away; the guest has to agree, see [`Vm::is_bare`].
    pub(crate) fn strip(&mut self) -> Result<(), DirectError> {
        let ids: Vec<_> = self.views.keys().copied().collect();
        ids.into_iter().try_for_each(|id| self.see(id, None))
    }

    /// Whether no view is left in the VM. Or an error: it is gone itself.
    pub(crate) fn is_bare(&mut self) -> Result<bool, DirectError> {
        self.hear()?;
        sweep(&mut self.qmp)
    }
}

impl AsFd for Vm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.qmp.as_fd()
    }
}

/// Remove views from a VM, also those that another process left; false while the guest has to let
/// go of one.
fn sweep(qmp: &mut Qmp) -> Result<bool, DirectError> {
    let devices = names(qmp, "/machine/peripheral", VIEW)?;
    for device in &devices {
        // Refused when it has been asked already.
        let _asked = qmp.execute("device_del", &json!({"id": device}));
    }
    if !devices.is_empty() {
        return Ok(false);
    }
    for memory in names(qmp, "/objects", MEMORY)? {
        qmp.execute("object-del", &json!({"id": memory}))?;
    }
    Ok(true)
}

/// QEMU (10.0) goes on listening to the doorbell of a window that is unplugged, in memory that it
/// has freed. So a VM keeps its window as long as it lives, and gets no other.
fn check_window(qmp: &mut Qmp) -> Result<(), DirectError> {
    match names(qmp, "/machine/peripheral", WINDOW)?.is_empty() {
        true => Ok(()),
        false => Err(DirectError::Memory(
            "it has the window of a `vicinity direct serve` that has ended, and QEMU cannot \
             replace it: restart the VM"
                .to_owned(),
        )),
    }
}

fn names(qmp: &mut Qmp, path: &str, prefix: &str) -> Result<Vec<String>, DirectError> {
    let answer = qmp.execute("qom-list", &json!({"path": path}))?;
    let all = answer.as_array().into_iter().flatten();
    let names = all.filter_map(|one| one.get("name").and_then(Value::as_str));
    let ours = names.filter(|name| name.starts_with(prefix));
    Ok(ours.map(str::to_owned).collect())
}

/// A locally administered address that depends on the name alone: FNV-1a, folded.
fn mac(name: &str) -> [u8; 6] {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let [.., a, b, c, d] = (hash ^ (hash >> 32)).to_be_bytes();
    [0x52, 0x56, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_hosts_own_and_stays() {
        assert_eq!(mac("a"), mac("a"));
        assert_ne!(mac("a"), mac("b"));
        assert_eq!(mac("a")[0] & 3, 2);
    }
}
