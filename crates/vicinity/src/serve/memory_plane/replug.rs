//! Plugs a VM's space in again. QEMU connects a `vhost-user-fs` device only once, so the device is dead after
//! the space's process was killed. The supervisor unplugs the device and plugs in a new one, through a monitor
//! that QEMU has for this (`vicinity space qemu-args` prints it). The guest has to release the device, and it
//! does not while a program waits for the end of a request, so the supervisor retries without a limit. It does
//! nothing for a VM that has no such monitor, or that has ended.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use direct::{DirectError, Qmp};
use serde_json::json;

use crate::space_device::{CHARDEV, DEVICE, TAG};

/// The path of the devices that have ids, in QEMU's object tree.
const DEVICES: &str = "/machine/peripheral";

/// Time in which a guest releases an unplugged device. After it, the attempt fails, and the next one repeats the request.
const UNPLUG_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for which a new device must stay plugged in. A guest that was asked several times for the old device may release
/// the new one, too (`crates/direct/src/plug.rs` has the reason).
const STAY_TIME: Duration = Duration::from_secs(1);

/// Interval at which an attempt asks QEMU whether the device is still plugged in.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Pause between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Plugs a VM's space in again.
#[derive(Debug)]
pub(in crate::serve) struct Replug {
    vm: String,
    monitor: PathBuf,
    /// The space's socket, to which the VM's QEMU connects.
    socket: PathBuf,
    /// The state of the thread that plugs in the device. The thread ends when this is dropped.
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    is_running: bool,
    /// The space's process ended again during the attempt, so the new device may be connected to a process that has
    /// ended: the thread has to plug in once more.
    restart_requested: bool,
    last_error: Option<String>,
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
    NotReleased,
    #[error("the guest released the new device at once; another device is plugged in")]
    ReleasedAgain,
}

impl Replug {
    /// Returns the re-plugging of this VM's space. `monitor` is the socket of QEMU's monitor, and `socket` is that of
    /// the space.
    pub(in crate::serve) fn new(vm: &str, monitor: PathBuf, socket: PathBuf) -> Self {
        let (vm, state) = (vm.to_owned(), Arc::default());
        Self {
            vm,
            monitor,
            socket,
            state,
        }
    }

    /// Starts to plug in the dead device again; the thread retries without a limit.
    pub(in crate::serve) fn start(&self) {
        let mut state = lock(&self.state);
        state.restart_requested = state.is_running;
        if state.is_running {
            return;
        }
        let mut task = PlugTask {
            monitor: self.monitor.clone(),
            socket: self.socket.clone(),
            bus: None,
        };
        let (weak, vm) = (Arc::downgrade(&self.state), self.vm.clone());
        let thread = std::thread::Builder::new().name("replug".to_owned());
        match thread.spawn(move || task.retry_until_plugged(&vm, &weak)) {
            Ok(_) => state.is_running = true,
            Err(error) => {
                tracing::error!(%error, "space of {}: cannot plug the device in: no thread", self.vm);
            }
        }
    }

    /// Returns why the VM does not have its device, while the thread tries to plug it in.
    pub(in crate::serve) fn failure_reason(&self) -> Option<String> {
        let error = lock(&self.state).last_error.clone()?;
        Some(format!("the VM's device does not work: {error}"))
    }
}

/// The task of the thread that plugs in a device.
struct PlugTask {
    monitor: PathBuf,
    socket: PathBuf,
    /// The bus of the unplugged device, once an attempt has read it.
    bus: Option<String>,
}

impl PlugTask {
    fn retry_until_plugged(&mut self, vm: &str, state: &Weak<Mutex<State>>) {
        loop {
            let done = self.attempt();
            let Some(state) = state.upgrade() else {
                return;
            };
            let mut state = lock(&state);
            match done {
                Ok(()) if state.restart_requested => state.restart_requested = false,
                Ok(()) => {
                    *state = State::default();
                    return;
                }
                Err(error) => {
                    let error = error.to_string();
                    if state.last_error.as_ref() != Some(&error) {
                        tracing::warn!("space of {vm}: the VM's device does not work: {error}");
                    }
                    state.last_error = Some(error);
                }
            }
            drop(state);
            std::thread::sleep(RETRY_INTERVAL);
        }
    }

    /// Unplugs the dead device, unless an earlier attempt did, and plugs in a new one.
    fn attempt(&mut self) -> Result<(), ReplugError> {
        let Some(mut qmp) = Qmp::connect(&self.monitor)? else {
            return Ok(());
        };
        if is_plugged(&mut qmp)? {
            let place = json!({"path": format!("{DEVICES}/{DEVICE}"), "property": "parent_bus"});
            let bus = qmp.execute("qom-get", &place)?;
            let bus = bus.as_str().and_then(|path| path.rsplit('/').next());
            self.bus = bus.map(str::to_owned);
            unplug(&mut qmp)?;
        }
        let Some(bus) = &self.bus else {
            return Ok(());
        };
        // The command fails if an earlier attempt removed the character device already.
        let _gone = qmp.execute("chardev-remove", &json!({"id": CHARDEV}));
        let address = json!({"type": "unix", "data": {"path": self.socket}});
        let backend = json!({"type": "socket", "data": {"addr": address, "server": false}});
        qmp.execute("chardev-add", &json!({"id": CHARDEV, "backend": backend}))?;
        let device = json!({
            "driver": "vhost-user-fs-pci", "id": DEVICE, "chardev": CHARDEV, "tag": TAG, "bus": bus,
        });
        qmp.execute("device_add", &device)?;
        std::thread::sleep(STAY_TIME);
        match is_plugged(&mut qmp)? {
            true => Ok(()),
            false => Err(ReplugError::ReleasedAgain),
        }
    }
}

fn is_plugged(qmp: &mut Qmp) -> Result<bool, DirectError> {
    let names = qmp.names(DEVICES, DEVICE)?;
    Ok(names.iter().any(|name| name == DEVICE))
}

/// Requests the guest to release the device, and waits until it has.
fn unplug(qmp: &mut Qmp) -> Result<(), ReplugError> {
    let requested = qmp.execute("device_del", &json!({"id": DEVICE}));
    let end = Instant::now() + UNPLUG_TIMEOUT;
    while is_plugged(qmp)? {
        if Instant::now() >= end {
            // QEMU may also refuse a request that repeats a pending one.
            return Err(requested.map_or_else(ReplugError::from, |_| ReplugError::NotReleased));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // No thread panics while the state is inconsistent, so a poisoned state is valid.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;

    use serde_json::Value;

    use super::*;

    /// A double of QEMU's monitor, with the commands that this module sends.
    #[derive(Default)]
    struct Qemu {
        plugged: bool,
        /// Number of `qom-list` replies, after a `device_del`, that still list the device.
        polls_until_release: u32,
        /// Remaining number of such replies while the device is being unplugged.
        polls_left: Option<u32>,
        /// Number of `device_add` commands that fail.
        failing_adds: u32,
        /// Number of new devices that the guest releases unasked.
        released_adds: u32,
        commands: Vec<String>,
    }

    impl Qemu {
        /// Serves each client that connects.
        fn serve(self, monitor: UnixListener) -> Arc<Mutex<Self>> {
            let shared = Arc::new(Mutex::new(self));
            let qemu = Arc::clone(&shared);
            std::thread::spawn(move || {
                for stream in monitor.incoming() {
                    Self::serve_client(&qemu, stream.unwrap());
                }
            });
            shared
        }

        fn serve_client(qemu: &Mutex<Self>, mut stream: UnixStream) {
            stream.write_all(b"{\"QMP\": {}}\n").unwrap();
            for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                let request: Value = serde_json::from_str(&line.unwrap()).unwrap();
                let command = request["execute"].as_str().unwrap();
                let answer = qemu.lock().unwrap().answer(command, &request["arguments"]);
                let answer = match answer {
                    Ok(answer) => json!({"return": answer}),
                    Err(why) => json!({"error": {"desc": why}}),
                };
                writeln!(stream, "{answer}").unwrap();
            }
        }

        /// Returns how often this command came.
        fn times(&self, command: &str) -> usize {
            self.commands.iter().filter(|one| *one == command).count()
        }

        fn answer(&mut self, command: &str, arguments: &Value) -> Result<Value, &'static str> {
            match command {
                "qom-list" => {
                    self.polls_left = match self.polls_left {
                        Some(0) => {
                            self.plugged = false;
                            None
                        }
                        polls_left => polls_left.map(|polls| polls - 1),
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
                "device_del" => self.polls_left = Some(self.polls_until_release),
                "device_add" if self.plugged => return Err("it is there"),
                "device_add" if self.failing_adds > 0 => {
                    self.failing_adds -= 1;
                    return Err("not yet");
                }
                "device_add" => {
                    self.plugged = self.released_adds == 0;
                    self.released_adds = self.released_adds.saturating_sub(1);
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
        let end = Instant::now() + 6 * UNPLUG_TIMEOUT;
        while !done() {
            assert!(Instant::now() < end, "it does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn is_done(replug: &Replug) -> bool {
        !lock(&replug.state).is_running
    }

    #[test]
    fn a_dead_device_is_unplugged_and_plugged_in_on_the_same_bus() {
        let folder = tempfile::tempdir().unwrap();
        let qemu = Qemu {
            plugged: true,
            polls_until_release: 2,
            failing_adds: 1,
            ..Qemu::default()
        };
        let qemu = qemu.serve(monitor(folder.path()));
        let replug = replug(folder.path());
        replug.start();
        until(|| replug.failure_reason().is_some());
        assert_eq!(
            replug.failure_reason().unwrap(),
            "the VM's device does not work: QEMU refused device_add: not yet"
        );
        until(|| is_done(&replug));
        assert_eq!(replug.failure_reason(), None);
        let qemu = qemu.lock().unwrap();
        assert!(qemu.plugged);
        // The second attempt finds the device unplugged.
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
    fn a_device_whose_process_ends_during_the_attempt_is_plugged_in_once_more() {
        let folder = tempfile::tempdir().unwrap();
        let monitor = monitor(folder.path());
        let replug = replug(folder.path());
        replug.start();
        // The first attempt still waits for QEMU.
        replug.start();
        let qemu = Qemu {
            plugged: true,
            ..Qemu::default()
        };
        let qemu = qemu.serve(monitor);
        until(|| is_done(&replug));
        let qemu = qemu.lock().unwrap();
        assert_eq!((qemu.times("device_del"), qemu.times("device_add")), (2, 2));
    }

    #[test]
    fn a_new_device_that_the_guest_releases_at_once_is_plugged_in_again() {
        let folder = tempfile::tempdir().unwrap();
        let qemu = Qemu {
            plugged: true,
            released_adds: 1,
            ..Qemu::default()
        };
        let qemu = qemu.serve(monitor(folder.path()));
        let replug = replug(folder.path());
        replug.start();
        until(|| is_done(&replug));
        let qemu = qemu.lock().unwrap();
        assert!(qemu.plugged);
        assert_eq!((qemu.times("device_del"), qemu.times("device_add")), (1, 2));
    }

    #[test]
    fn a_vm_without_the_device_or_a_monitor_is_not_changed() {
        let folder = tempfile::tempdir().unwrap();
        let replug = replug(folder.path());
        replug.start();
        until(|| is_done(&replug));
        let qemu = Qemu::default().serve(monitor(folder.path()));
        replug.start();
        until(|| is_done(&replug));
        assert_eq!(qemu.lock().unwrap().commands, ["qmp_capabilities"]);
        assert_eq!(replug.failure_reason(), None);
    }
}
