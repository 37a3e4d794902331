//! Plugging a VM's space in again. QEMU connects a `vhost-user-fs` device once, so when the space's process
//! was killed the device is dead: it is taken out and plugged in anew, by a monitor that QEMU has for this
//! (`vicinity space qemu-args` prints it). The guest has to release the device, which it does not while a
//! program waits for the end of a request; so it is tried for as long as it takes. A VM without such a
//! monitor, or that is gone, is left alone.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use direct::{DirectError, Qmp};
use serde_json::json;

use crate::space_device::{CHARDEV, DEVICE, TAG};

/// QEMU's devices that have names.
const DEVICES: &str = "/machine/peripheral";

/// Guests release what is unplugged within so long; then they are asked again.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often QEMU is asked whether the device is still there.
const LOOK: Duration = Duration::from_millis(100);

/// Between attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// Plugs a VM's space in again.
#[derive(Debug)]
pub(in crate::serve) struct Replug {
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
        "the guest has not released the device; a program in the guest may be using it. Restart the VM if this \
            persists"
    )]
    Held,
}

impl Replug {
    /// Of this VM, whose QEMU has its monitor and its space's socket there.
    pub(in crate::serve) fn new(vm: &str, monitor: PathBuf, socket: PathBuf) -> Self {
        let (vm, state) = (vm.to_owned(), Arc::default());
        Self {
            vm,
            monitor,
            socket,
            state,
        }
    }

    /// The device is dead: plug it in again, however long that takes.
    pub(in crate::serve) fn start(&self) {
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
            Err(error) => {
                tracing::error!(%error, "space of {}: cannot start a thread that plugs the device in", 
            self.vm)
            }
        }
    }

    /// Why the VM does not have its device, if it is to be plugged in again.
    pub(in crate::serve) fn trouble(&self) -> Option<String> {
        let trouble = lock(&self.state).trouble.clone()?;
        Some(format!("the VM's device does not work: {trouble}"))
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
                        tracing::warn!("space of {vm}: the VM's device does not work: {error}");
                    }
                    state.trouble = Some(error);
                }
            }
            drop(state);
            std::thread::sleep(PAUSE);
        }
    }

    /// Unplugs the device, if that was not done yet, and plugs it in.
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

/// Has the guest release the device.
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

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;

    use serde_json::Value;

    use super::*;

    /// As much of a QEMU as is asked.
    #[derive(Default)]
    struct Qemu {
        plugged: bool,
        /// So often it is still there when it was to be taken out.
        holds: u32,
        /// How often it still will be.
        leaves: Option<u32>,
        /// So many devices are not taken.
        refuses: u32,
        commands: Vec<String>,
    }

    impl Qemu {
        /// Serves each client that connects.
        fn serve(self, monitor: UnixListener) -> Arc<Mutex<Self>> {
            let shared = Arc::new(Mutex::new(self));
            let qemu = Arc::clone(&shared);
            std::thread::spawn(move || {
                for stream in monitor.incoming() {
                    Self::converse(&qemu, stream.unwrap());
                }
            });
            shared
        }

        fn converse(qemu: &Mutex<Self>, mut stream: UnixStream) {
            stream.write_all(b"{\"QMP\": {}}\n").unwrap();
            for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                let asked: Value = serde_json::from_str(&line.unwrap()).unwrap();
                let command = asked["execute"].as_str().unwrap();
                let answer = qemu.lock().unwrap().answer(command, &asked["arguments"]);
                let answer = match answer {
                    Ok(answer) => json!({"return": answer}),
                    Err(why) => json!({"error": {"desc": why}}),
                };
                writeln!(stream, "{answer}").unwrap();
            }
        }

        fn answer(&mut self, command: &str, arguments: &Value) -> Result<Value, &'static str> {
            match command {
                "qom-list" => {
                    self.leaves = match self.leaves {
                        Some(0) => {
                            self.plugged = false;
                            None
                        }
                        leaves => leaves.map(|times| times - 1),
                    };
                    // QEMU 10.0 lists the folder's own type first, then the children.
                    let own = json!({"name": "type", "type": "string"});
                    let device = json!({"name": DEVICE, "type": "child<vhost-user-fs-pci>"});
                    return Ok(match self.plugged {
                        true => json!([own, device]),
                        false => json!([own]),
                    });
                }
                "qom-get" => return Ok(json!("/machine/peripheral/port3/pcie.7")),
                "device_del" => self.leaves = Some(self.holds),
                "device_add" if self.plugged => return Err("it is there"),
                "device_add" if self.refuses > 0 => {
                    self.refuses -= 1;
                    return Err("not yet");
                }
                "device_add" => {
                    self.plugged = true;
                    assert_eq!(arguments["bus"], "pcie.7");
                    assert_eq!(arguments["chardev"], CHARDEV);
                }
                "chardev-add" => {
                    let address = &arguments["backend"]["data"]["addr"];
                    assert_eq!(address["data"]["path"], "/run/space/db.sock");
                }
                _ => {}
            }
            self.commands.push(command.to_owned());
            Ok(json!({}))
        }
    }

    fn monitor(folder: &Path) -> UnixListener {
        UnixListener::bind(folder.join("qmp")).unwrap()
    }

    fn replug(folder: &Path) -> Replug {
        Replug::new("db", folder.join("qmp"), "/run/space/db.sock".into())
    }

    fn until(done: impl Fn() -> bool) {
        let end = Instant::now() + 6 * PATIENCE;
        while !done() {
            assert!(Instant::now() < end, "it does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn is_done(replug: &Replug) -> bool {
        !lock(&replug.state).at_work
    }

    #[test]
    fn a_dead_device_is_taken_out_and_plugged_in_where_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let qemu = Qemu {
            plugged: true,
            holds: 2,
            refuses: 1,
            ..Qemu::default()
        };
        let qemu = qemu.serve(monitor(folder.path()));
        let replug = replug(folder.path());
        replug.start();
        until(|| replug.trouble().is_some());
        assert_eq!(
            replug.trouble().unwrap(),
            "the VM's device does not work: QEMU refused device_add: not yet"
        );
        until(|| is_done(&replug));
        assert_eq!(replug.trouble(), None);
        let qemu = qemu.lock().unwrap();
        assert!(qemu.plugged);
        // It was out already when it was tried again.
        let first = [
            "qmp_capabilities",
            "device_del",
            "chardev-remove",
            "chardev-add",
        ];
        let second = [
            "qmp_capabilities",
            "chardev-remove",
            "chardev-add",
            "device_add",
        ];
        assert_eq!(qemu.commands, [first, second].concat());
    }

    #[test]
    fn one_whose_process_dies_meanwhile_is_plugged_in_once_more() {
        let folder = tempfile::tempdir().unwrap();
        let monitor = monitor(folder.path());
        let replug = replug(folder.path());
        replug.start();
        // The first time QEMU has not answered yet.
        replug.start();
        let qemu = Qemu {
            plugged: true,
            ..Qemu::default()
        };
        let qemu = qemu.serve(monitor);
        until(|| is_done(&replug));
        let qemu = qemu.lock().unwrap();
        let times = |wanted| qemu.commands.iter().filter(|one| *one == wanted).count();
        assert_eq!((times("device_del"), times("device_add")), (2, 2));
    }

    #[test]
    fn a_vm_without_the_device_or_a_monitor_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let replug = replug(folder.path());
        replug.start();
        until(|| is_done(&replug));
        let qemu = Qemu::default().serve(monitor(folder.path()));
        replug.start();
        until(|| is_done(&replug));
        assert_eq!(qemu.lock().unwrap().commands, ["qmp_capabilities"]);
        assert_eq!(replug.trouble(), None);
    }
}
