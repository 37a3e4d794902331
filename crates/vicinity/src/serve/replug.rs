//! Plugging a VM's space in again. QEMU connects a `vhost-user-fs` device once, so when the space's process
//! was killed the device is dead: it is taken out and plugged in anew, by a monitor that QEMU has for this
//! (`vicinity space qemu-args` prints it). The guest has to let go of the device, which it does not while a
//! program waits for the end of a request; so it is tried for as long as it takes. A VM without such a
//! monitor, or that is gone, is left alone.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use direct::{DirectError, Qmp};
use serde_json::json;

use crate::spaces::{CHARDEV, DEVICE, TAG};

/// QEMU's devices that have names.
const DEVICES: &str = "/machine/peripheral";

/// Guests let go of what is unplugged within so long; then they are asked again.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often QEMU is asked whether the device is still there.
const LOOK: Duration = Duration::from_millis(100);

/// Between attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// Plugs a VM's space in again.
#[derive(Debug)]
pub(super) struct Replug {
    vm: String,
    monitor: PathBuf,
    /// Where its QEMU connects.
    socket: PathBuf,
    /// The thread that does it ends with this.
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    at_work: bool,
    /// The process that the device may be connected with is gone already.
    again: bool,
    trouble: Option<String>,
}

/// Why the device is not plugged in.
#[derive(Debug, thiserror::Error)]
enum ReplugError {
    #[error(transparent)]
    Qemu(#[from] DirectError),
    #[error(
        "the guest does not let go of it: a program may be waiting for it, then restart the VM"
    )]
    Held,
}

impl Replug {
    /// Of this VM, whose QEMU has its monitor and its space's socket there.
    pub(super) fn new(vm: &str, monitor: PathBuf, socket: PathBuf) -> Self {
        let (vm, state) = (vm.to_owned(), Arc::default());
        Self {
            vm,
            monitor,
            socket,
            state,
        }
    }

    /// The device is dead: plug it in again, however long that takes.
    pub(super) fn start(&self) {
        let mut state = lock(&self.state);
        state.again = state.at_work;
        if state.at_work {
            return;
        }
        let mut plug = Plug {
            monitor: self.monitor.clone(),
            socket: self.socket.clone(),
            bus: None,
        };
        let (weak, vm) = (Arc::downgrade(&self.state), self.vm.clone());
        let thread = std::thread::Builder::new().name("replug".to_owned());
        match thread.spawn(move || plug.keep_trying(&vm, &weak)) {
            Ok(_) => state.at_work = true,
            Err(error) => tracing::error!(%error, "space of {}", self.vm),
        }
    }

    /// Why the VM does not have its device, if it is to be plugged in again.
    pub(super) fn trouble(&self) -> Option<String> {
        let trouble = lock(&self.state).trouble.clone()?;
        Some(format!("the VM's device is dead: {trouble}"))
    }
}

/// What a thread plugs in.
struct Plug {
    monitor: PathBuf,
    socket: PathBuf,
    /// Where the device was, once that is known.
    bus: Option<String>,
}

impl Plug {
    fn keep_trying(&mut self, vm: &str, state: &Weak<Mutex<State>>) {
        loop {
            let done = self.attempt();
            let Some(state) = state.upgrade() else {
                return;
            };
            let mut state = lock(&state);
            match done {
                Ok(()) if state.again => state.again = false,
                Ok(()) => {
                    *state = State::default();
                    return;
                }
                Err(error) => {
                    let error = error.to_string();
                    if state.trouble.as_ref() != Some(&error) {
                        tracing::warn!("space of {vm}: the VM's device is dead: {error}");
                    }
                    state.trouble = Some(error);
                }
            }
            drop(state);
            std::thread::sleep(PAUSE);
        }
    }

    /// Take it out, if that has not been done, and plug it in.
    fn attempt(&mut self) -> Result<(), ReplugError> {
        let Some(mut qmp) = Qmp::connect(&self.monitor)? else {
            return Ok(());
        };
        if is_there(&mut qmp)? {
            let place = json!({"path": format!("{DEVICES}/{DEVICE}"), "property": "parent_bus"});
            let bus = qmp.execute("qom-get", &place)?;
            let bus = bus.as_str().and_then(|path| path.rsplit('/').next());
            self.bus = bus.map(str::to_owned);
            unplug(&mut qmp)?;
        }
        let Some(bus) = &self.bus else {
            return Ok(());
        };
        // Not there is nothing to remove.
        let _gone = qmp.execute("chardev-remove", &json!({"id": CHARDEV}));
        let address = json!({"type": "unix", "data": {"path": self.socket}});
        let backend = json!({"type": "socket", "data": {"addr": address, "server": false}});
        qmp.execute("chardev-add", &json!({"id": CHARDEV, "backend": backend}))?;
        let device = json!({
            "driver": "vhost-user-fs-pci", "id": DEVICE, "chardev": CHARDEV, "tag": TAG, "bus": bus,
        });
        qmp.execute("device_add", &device)?;
        Ok(())
    }
}

fn is_there(qmp: &mut Qmp) -> Result<bool, DirectError> {
    let names = qmp.names(DEVICES, DEVICE)?;
    Ok(names.iter().any(|name| name == DEVICE))
}

/// Have the guest let go of it.
fn unplug(qmp: &mut Qmp) -> Result<(), ReplugError> {
    let asked = qmp.execute("device_del", &json!({"id": DEVICE}));
    let end = Instant::now() + PATIENCE;
    while is_there(qmp)? {
        if Instant::now() >= end {
            // Refused, too, when it was asked before.
            return Err(asked.map_or_else(ReplugError::from, |_| ReplugError::Held));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Nothing between two states of it can panic.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
