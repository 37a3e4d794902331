//! A group of VMs whose monitors answer as QEMU's do.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use serde_json::{Value, json};

use super::*;
use crate::paths;

/// A VM without a guest: its RAM, and a monitor. Like QEMU's, the monitor greets its client, has one client at a
/// time, answers each command, and lists an unplugged device until the guest has released it.
struct FakeQemu {
    _ram: std::os::fd::OwnedFd,
    /// The devices that the monitor was asked to unplug.
    unplugged: Receiver<String>,
    /// The connection, once a client has connected.
    connection: Receiver<UnixStream>,
    guest: Arc<Guest>,
}

/// What the monitor says of the guest.
struct Guest {
    /// Id and driver of each device that is plugged in.
    devices: Mutex<Vec<(String, String)>>,
    /// Whether the NIC is connected.
    nic: AtomicBool,
    /// The guest does not release the devices that it is asked for. As on QEMU's ACPI slots, a client may ask again.
    keeps_devices: AtomicBool,
}

impl FakeQemu {
    fn start(folder: &Path, name: &str, size: u64) -> Self {
        Self::start_with(folder, name, size, Vec::new())
    }

    /// Starts a VM into which these devices were plugged before, each with its id and driver.
    fn start_with(folder: &Path, name: &str, size: u64, devices: Vec<(String, String)>) -> Self {
        let ram = memfd_create(
            "memory-backend-memfd",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        );
        let ram = ram.unwrap();
        ftruncate(&ram, size).unwrap();
        fcntl_add_seals(&ram, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        let listener = UnixListener::bind(paths::monitor(folder, name)).unwrap();
        let (sender, unplugged) = channel();
        let (hand_over, connection) = channel();
        let guest = Arc::new(Guest {
            devices: Mutex::new(devices),
            nic: AtomicBool::new(true),
            keeps_devices: AtomicBool::new(false),
        });
        let of_monitor = Arc::clone(&guest);
        thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            hand_over.send(socket.try_clone().unwrap()).unwrap();
            serve(socket, size, &of_monitor, &sender);
        });
        Self {
            _ram: ram,
            unplugged,
            connection,
            guest,
        }
    }

    /// Releases a device of which the guest was not asked, and sends the event that QEMU sends then.
    fn release(&self, id: &str) {
        let mut devices = self.guest.devices.lock().unwrap();
        let before = devices.len();
        devices.retain(|(of, _)| of != id);
        assert!(devices.len() < before);
        let connection = self.connection.recv().unwrap();
        let data = json!({"device": id, "path": format!("/machine/peripheral/{id}")});
        let event = json!({"event": "DEVICE_DELETED", "data": data, "timestamp": {}});
        writeln!(&connection, "{event}").unwrap();
    }

    /// Returns the ids of the devices that are plugged in.
    fn devices(&self) -> Vec<String> {
        let devices = self.guest.devices.lock().unwrap();
        devices.iter().map(|(id, _)| id.clone()).collect()
    }

    /// Ends the VM, as its monitor's client sees it.
    fn end(&self) {
        let connection = self.connection.recv().unwrap();
        connection.shutdown(std::net::Shutdown::Both).unwrap();
    }

    /// Returns the devices that the monitor was asked to unplug since the last call.
    fn unplugged(&self) -> Vec<String> {
        self.unplugged.try_iter().collect()
    }
}

/// Answers the commands of one client until the connection ends.
fn serve(socket: UnixStream, size: u64, guest: &Guest, unplugged: &Sender<String>) {
    let mut out = socket.try_clone().unwrap();
    let mut send = |message: Value| writeln!(out, "{message}");
    if send(json!({"QMP": {"version": {}, "capabilities": ["oob"]}})).is_err() {
        return;
    }
    let mut releasing: Vec<String> = Vec::new();
    for line in BufReader::new(socket).lines().map_while(Result::ok) {
        let command: Value = serde_json::from_str(&line).unwrap();
        let arguments = &command["arguments"];
        let mut devices = guest.devices.lock().unwrap();
        let text = |key: &str| arguments[key].as_str().unwrap_or_default().to_owned();
        let answer = match command["execute"].as_str().unwrap() {
            "query-status" => json!({"status": "running", "running": true}),
            "query-memdev" => json!([{"id": "ram", "size": size, "share": true}]),
            "qom-get" => match text("property").as_str() {
                "memory-backend" => json!("/objects/ram"),
                "type" => json!("memory-backend-memfd"),
                _ => json!(""),
            },
            "human-monitor-command" => json!(format!(
                "FlatView #0\n AS \"memory\", root: system\n  {:016x}-{:016x} (prio 0, ram): ram\n",
                0,
                size - 1
            )),
            "add-fd" => json!({"fdset-id": 1, "fd": 30}),
            "device_add" => {
                devices.push((text("id"), text("driver")));
                json!({})
            }
            "device_del" => {
                releasing.push(text("id"));
                unplugged.send(text("id")).unwrap();
                json!({})
            }
            "qom-list" if text("path") == "/machine/peripheral" => {
                let children = devices
                    .iter()
                    .map(|(id, driver)| json!({"name": id, "type": format!("child<{driver}>")}));
                let children = json!(children.collect::<Vec<_>>());
                if !guest.keeps_devices.load(Ordering::SeqCst) {
                    devices.retain(|(id, _)| !releasing.contains(id));
                    releasing.clear();
                }
                children
            }
            "query-chardev" => chardevs(guest.nic.load(Ordering::SeqCst)),
            "qom-list" | "query-memory-devices" | "query-fdsets" => json!([]),
            _ => json!({}),
        };
        if send(json!({"return": answer})).is_err() {
            return;
        }
    }
}

/// Returns the answer of QEMU 10.0 with a NIC, its monitor, and a socket on which QEMU listens.
fn chardevs(nic: bool) -> Value {
    let nic = if nic { "" } else { "disconnected:" };
    json!([
        {"frontend-open": false, "filename": "disconnected:unix:/l.sock,server=on", "label": "lst"},
        {"frontend-open": true, "filename": "unix:/a.qmp,server=on", "label": "compat_monitor0"},
        {"frontend-open": true, "filename": format!("{nic}unix:/nic.sock"), "label": "nic"}
    ])
}

/// Starts VMs a, b, c and d, and lets them join. The smallest has this many MiB. The sizes tell the memories apart,
/// because the VMs of all tests are this process.
fn joined(folder: &Path, smallest: u64) -> (Group, [FakeQemu; 4]) {
    let names = ["a", "b", "c", "d"];
    let vms = std::array::from_fn(|index| {
        FakeQemu::start(folder, names[index], smallest << (20 + index))
    });
    let mut group = Group::new(folder, &names.map(str::to_owned)).unwrap();
    let now = Instant::now();
    // Found, joined, and seen by the others.
    for _ in 0..3 {
        group.advance_at(now).unwrap();
    }
    let states: Vec<_> = group.statuses().collect();
    assert!(
        states
            .iter()
            .all(|one| one.state == "joined" && one.reason.is_none()),
        "{states:?}"
    );
    (group, vms)
}

#[test]
fn views_of_vms_that_end_are_unplugged_together_after_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let (mut group, [a, b, c, d]) = joined(folder.path(), 16);
    let start = Instant::now();
    let at = |group: &mut Group, milliseconds| {
        let now = start + Duration::from_millis(milliseconds);
        group.advance_at(now).unwrap();
    };
    b.end();
    at(&mut group, 0);
    c.end();
    at(&mut group, 900);
    assert_eq!(group.statuses().nth(1).unwrap().state, "absent");
    assert!(a.unplugged().is_empty() && d.unplugged().is_empty());
    at(&mut group, 1000);
    for vm in [&a, &d] {
        assert_eq!(vm.unplugged(), ["vicinity-view-of-b", "vicinity-view-of-c"]);
    }
    // Nothing is asked twice, and a later end begins a time of its own.
    at(&mut group, 1250);
    d.end();
    at(&mut group, 1500);
    at(&mut group, 2499);
    assert!(a.unplugged().is_empty());
    at(&mut group, 2500);
    assert_eq!(a.unplugged(), ["vicinity-view-of-d"]);
}

#[test]
fn the_view_of_a_vm_that_leaves_is_unplugged_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (mut group, [a, b, c, _d]) = joined(folder.path(), 256);
    b.end();
    let now = Instant::now();
    group.advance_at(now).unwrap();
    assert!(group.set_left("c", true));
    group.advance_at(now).unwrap();
    // Its peers use another path from now on. Then its devices are removed.
    thread::sleep(Duration::from_millis(1100));
    group.advance_at(now).unwrap();
    assert_eq!(a.unplugged(), ["vicinity-view-of-c"]);
    group.advance_at(now).unwrap();
    assert!(!c.unplugged().is_empty());
}

/// Returns a group of one VM, which has a view of an ended group's member, and whose NIC has lost its daemon. The VM has
/// this many MiB, see [`joined`].
fn with_leftovers(folder: &Path, mib: u64) -> (Group, FakeQemu) {
    let view = ("vicinity-view-of-x", "ivshmem-plain");
    let view = (view.0.to_owned(), view.1.to_owned());
    let vm = FakeQemu::start_with(folder, "a", mib << 20, vec![view]);
    vm.guest.nic.store(false, Ordering::SeqCst);
    let mut group = Group::new(folder, &["a".to_owned()]).unwrap();
    for _ in 0..3 {
        group.advance().unwrap();
    }
    let status = group.statuses().next().unwrap();
    assert_eq!(status.state, "leaving", "{status:?}");
    assert!(vm.unplugged().is_empty());
    (group, vm)
}

#[test]
fn devices_of_an_ended_group_are_unplugged_once_the_nic_is_connected() {
    let folder = tempfile::tempdir().unwrap();
    let (mut group, vm) = with_leftovers(folder.path(), 4);
    vm.guest.nic.store(true, Ordering::SeqCst);
    for _ in 0..5 {
        group.advance().unwrap();
    }
    assert!(vm.unplugged().contains(&"vicinity-view-of-x".to_owned()));
    assert_eq!(group.statuses().next().unwrap().state, "joined");
}

#[test]
fn a_nic_that_is_never_connected_does_not_keep_the_devices_of_an_ended_group() {
    let folder = tempfile::tempdir().unwrap();
    let (mut group, vm) = with_leftovers(folder.path(), 2);
    let found = Instant::now().checked_sub(Duration::from_secs(5));
    group.members[0].state = MemberState::Leftovers(found.unwrap());
    for _ in 0..5 {
        group.advance().unwrap();
    }
    assert!(vm.unplugged().contains(&"vicinity-view-of-x".to_owned()));
}

#[test]
fn devices_of_a_vm_that_leaves_are_unplugged_once_its_nic_is_connected() {
    let folder = tempfile::tempdir().unwrap();
    let (mut group, [_a, _b, c, _d]) = joined(folder.path(), 4096);
    c.guest.nic.store(false, Ordering::SeqCst);
    let since = Instant::now().checked_sub(Duration::from_secs(2)).unwrap();
    assert!(group.set_left("c", true));
    group.members[2].state = MemberState::Leaving(since);
    for _ in 0..3 {
        group.advance().unwrap();
    }
    assert!(c.unplugged().is_empty());
    c.guest.nic.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        group.advance().unwrap();
    }
    assert!(!c.unplugged().is_empty());
}

#[test]
fn a_guest_is_asked_once_for_each_device() {
    let folder = tempfile::tempdir().unwrap();
    let (mut group, [_a, _b, c, _d]) = joined(folder.path(), 1 << 16);
    c.guest.keeps_devices.store(true, Ordering::SeqCst);
    group.members[2].state = MemberState::Unplugging;
    assert!(group.set_left("c", true));
    for _ in 0..5 {
        group.advance().unwrap();
    }
    let views = ["a", "b", "d"].map(|name| format!("vicinity-view-of-{name}"));
    assert_eq!(c.unplugged(), views);
    c.guest.keeps_devices.store(false, Ordering::SeqCst);
    for _ in 0..5 {
        group.advance().unwrap();
    }
    assert_eq!(c.unplugged(), ["vicinity-direct"]);
}

#[test]
fn a_view_that_the_guest_released_unasked_is_plugged_in_again() {
    let folder = tempfile::tempdir().unwrap();
    let (mut group, [a, _b, _c, _d]) = joined(folder.path(), 1 << 20);
    let before = a.devices();
    a.release("vicinity-view-of-c");
    group.advance().unwrap();
    let mut now = a.devices();
    now.sort();
    assert_eq!(now, before);
    assert!(a.unplugged().is_empty());
}

#[test]
fn a_vm_whose_guest_released_the_window_unasked_joins_again() {
    let folder = tempfile::tempdir().unwrap();
    let (mut group, [a, b, _c, _d]) = joined(folder.path(), 1 << 24);
    let mut before = [a.devices(), b.devices()];
    a.release("vicinity-direct");
    group.advance().unwrap();
    assert_eq!(group.statuses().next().unwrap().state, "leaving");
    // Its views are unplugged, it joins, and its peers' and its own views are plugged in.
    for _ in 0..6 {
        group.advance().unwrap();
    }
    let mut now = [a.devices(), b.devices()];
    before.iter_mut().chain(&mut now).for_each(|ids| ids.sort());
    assert_eq!(now, before);
    assert_eq!(group.statuses().next().unwrap().state, "joined");
}
