//! Which control group is charged for a VM's memory: that of the process that touches a page first.
//!
//! The kernel charges a page of a memfd to the group of the task that faults it in (`shmem_get_folio_gfp` in Linux'
//! `mm/shmem.c`). Receive buffers are often pages that the guest has never written, so a worker touches them first.
//!
//! Needs root, and control groups with the memory controller, of version 1 or 2. This is the only test of its file,
//! because it moves its own process between groups.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use common::{Daemon, until};
use front_end::{Layout, Nic, Options, Wire, frame};
use vm_harness::host::{ChildProcess, command};

const LAN: &str = "
[[network]]
name = \"lan\"
[[network.port]]
vm = \"vm1\"
[[network.port]]
vm = \"vm2\"
[[network.port]]
vm = \"qemu\"
";

const MIB: u64 = 1 << 20;

/// Frames that are sent: each goes into a receive buffer of two pages, of which it touches the first.
const FRAMES: u64 = 1000;

/// A control group for memory, which is removed when this value is dropped.
struct Group {
    folder: PathBuf,
    /// The group in which this process was before.
    home: PathBuf,
}

impl Group {
    /// Makes a group beside that of this process.
    fn new(name: &str) -> io::Result<Self> {
        let home = home()?;
        let parent = home.parent().filter(|it| it.join("cgroup.procs").exists());
        let folder = parent
            .unwrap_or(&home)
            .join(format!("vicinity-{name}-{}", std::process::id()));
        fs::create_dir(&folder)?;
        let group = Self { folder, home };
        // In version 2 the controller may not be handed down.
        fs::metadata(group.folder.join("memory.stat"))?;
        Ok(group)
    }

    /// Moves this process into the group. Its children begin there.
    fn enter(&self) -> io::Result<()> {
        enter(&self.folder)
    }

    /// Returns the bytes of shared memory that are charged to the group.
    fn charged(&self) -> u64 {
        let text = fs::read_to_string(self.folder.join("memory.stat")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("shmem "));
        line.unwrap().trim().parse().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        drop(enter(&self.home));
        // A process that is being reaped may still be in the group.
        for _ in 0..100 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

fn enter(folder: &Path) -> io::Result<()> {
    let id = std::process::id().to_string();
    fs::write(folder.join("cgroup.procs"), id)
}

/// Returns the folder of this process's group in the hierarchy that has the memory controller.
fn home() -> io::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let has_memory = |list: &str| list.split(',').any(|one| one == "memory");
    let first = groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        has_memory(parts.next()?).then(|| parts.next())?
    });
    let kind = if first.is_some() { "cgroup" } else { "cgroup2" };
    let unified = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let mount = mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let is_it = right.next() == Some(kind)
            && (kind == "cgroup2" || right.nth(1).is_some_and(has_memory));
        is_it.then(|| left.split(' ').nth(4)).flatten()
    });
    let path = first.or(unified).ok_or(io::ErrorKind::NotFound)?;
    let mount = Path::new(mount.ok_or(io::ErrorKind::NotFound)?);
    Ok(mount.join(path.trim_start_matches('/')))
}

/// Connects a VM with receive buffers that it has not touched; with `touch`, it has touched all of its memory, as QEMU
/// does with `prealloc=on`.
fn connect(daemon: &Daemon, station: u16, touch: bool) -> Nic {
    let socket = daemon.path(&format!("lan/vm{station}.sock"));
    let stream = UnixStream::connect(socket).unwrap();
    let options = Options {
        size: 1024,
        receive_bytes: 8192,
        ..Options::default()
    };
    let mut nic = Nic::new(Wire::new(stream.into()), options);
    if touch {
        let size: u64 = nic.ram.regions().iter().map(|region| region.size).sum();
        for page in (0..size).step_by(4096) {
            let mut byte = [0];
            nic.ram.read(page, &mut byte);
            nic.ram.write(page, &byte);
        }
    }
    nic.start(|| {});
    daemon.until_state(&format!("vm{station}"), "running");
    nic
}

/// Sends frames from one VM to another, and returns how much more is charged to both groups afterwards.
fn charge_of_frames(daemon: &Daemon, [switch, vm]: [&Group; 2], touch: bool) -> [u64; 2] {
    let mut sender = connect(daemon, 1, false);
    let before = [switch, vm].map(Group::charged);
    let mut receiver = connect(daemon, 2, touch);
    // The switch learns the receiver's address.
    let hello = frame::numbered(frame::mac(1), frame::mac(2), 0, 60);
    receiver.wait_to_send(&hello, Layout::One);
    while sender.wait_to_receive().frame != hello {}
    for number in 0..FRAMES {
        let bytes = frame::numbered(frame::mac(2), frame::mac(1), number, 200);
        sender.wait_to_send(&bytes, Layout::One);
    }
    for _ in 0..FRAMES {
        receiver.wait_to_receive();
    }
    // The kernel brings its figures up to date within two seconds.
    std::thread::sleep(std::time::Duration::from_millis(2500));
    let after = [switch, vm].map(Group::charged);
    [0, 1].map(|index| after[index].saturating_sub(before[index]))
}

/// Starts QEMU, stopped, in the group of this process, and returns how much is charged to the group for its memory.
fn charge_of_qemu(daemon: &Daemon, vm: &Group, more: &[&str]) -> u64 {
    let arguments = [
        &["qemu-args", "qemu", "--memory", "64M", "--one-line"],
        more,
    ]
    .concat();
    let output = daemon.command(&arguments);
    assert!(output.status.success(), "{output:?}");
    let options = String::from_utf8(output.stdout).unwrap();
    let accel = vm_harness::accel::expected().unwrap().name();
    let line =
        format!("exec qemu-system-x86_64 -S -accel {accel} -display none -nodefaults {options}");
    let mut shell = command("sh");
    shell.args(["-c", &line]).stdin(Stdio::null());
    let before = vm.charged();
    let _qemu = ChildProcess::spawn(shell).unwrap();
    until("QEMU's connection", || {
        daemon.port("qemu")["state"] != "waiting"
    });
    std::thread::sleep(std::time::Duration::from_millis(2500));
    vm.charged().saturating_sub(before)
}

#[test]
fn memory_is_charged_to_the_vm_if_it_touches_it_first() {
    let groups = Group::new("switch").and_then(|one| Ok([one, Group::new("vm")?]));
    let [switch, vm] = match groups.and_then(|groups| groups[1].enter().map(|()| groups)) {
        Ok(groups) => groups,
        Err(error) => {
            eprintln!("skipped: no control group for memory can be made here: {error}");
            return;
        }
    };
    let folder = tempfile::tempdir().unwrap();
    switch.enter().unwrap();
    let daemon = Daemon::start(folder.path(), Some(LAN));
    vm.enter().unwrap();

    let [worker, guest] = charge_of_frames(&daemon, [&switch, &vm], false);
    assert!(worker >= 3 * MIB && guest < 2 * MIB, "{worker} {guest}");
    daemon.until_state("vm2", "waiting");
    let [worker, guest] = charge_of_frames(&daemon, [&switch, &vm], true);
    assert!(worker < MIB && guest >= 8 * MIB, "{worker} {guest}");

    let untouched = charge_of_qemu(&daemon, &vm, &[]);
    let touched = charge_of_qemu(&daemon, &vm, &["--prealloc"]);
    assert!(
        untouched < 8 * MIB && touched >= 64 * MIB,
        "{untouched} {touched}"
    );
}
