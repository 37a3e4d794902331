//! VMs without an operating system: QEMU with the test firmware `tiny.s`, which starts the NIC a
//! moment after a reset and then sends frames without end. Tests start and end thousands of them.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use vm_harness::host::{ChildProcess, command, run};

use crate::common::until;
use crate::rig::Rig;

/// Address at which the firmware writes how often it has started its NIC, and how many frames since
/// the present start have come back unchanged.
const BOOTS: u64 = 0x7000;
const FRAMES: u64 = 0x7004;

/// The assembled firmware.
pub(crate) struct Firmware(PathBuf);

impl Firmware {
    pub(crate) fn assemble(folder: &Path) -> Self {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vms/tiny.s");
        let [object, image] = ["tiny.o", "tiny.bin"].map(|name| folder.join(name));
        let mut assembler = command("as");
        assembler.args(["--32", source, "-o"]).arg(&object);
        run(assembler).unwrap();
        let mut linker = command("ld");
        linker.args(["-m", "elf_i386", "--oformat", "binary"]);
        linker.args(["-Ttext=0", "--entry=start"]);
        linker.arg(&object).arg("-o").arg(&image);
        run(linker).unwrap();
        Self(image)
    }
}

/// A VM that runs the firmware. It is killed when this value is dropped.
pub(crate) struct Tiny {
    _qemu: ChildProcess,
    memory: File,
    /// QEMU's monitor.
    monitor: File,
}

impl Tiny {
    /// Starts a VM. Its NIC runs, and frames come back, when this function returns.
    pub(crate) fn start(rig: &Rig, firmware: &Firmware, vm: &str) -> Self {
        let tiny = Self::power_on(rig, firmware, vm);
        tiny.until_started(1, 1);
        tiny
    }

    /// Starts several VMs in parallel.
    pub(crate) fn start_all(rig: &Rig, firmware: &Firmware, vms: &[String]) -> Vec<Self> {
        let all: Vec<Self> = vms
            .iter()
            .map(|vm| Self::power_on(rig, firmware, vm))
            .collect();
        all.iter().for_each(|tiny| tiny.until_started(1, 1));
        all
    }

    fn power_on(rig: &Rig, firmware: &Firmware, vm: &str) -> Self {
        let (commands, monitor) = rustix::pipe::pipe().unwrap();
        let mut qemu = command("qemu-system-x86_64");
        qemu.args(rig.accel())
            .args(["-display", "none", "-nodefaults"]);
        qemu.args(["-monitor", "stdio", "-bios"]).arg(&firmware.0);
        qemu.args(rig.qemu_args(vm));
        qemu.stdin(commands).stdout(Stdio::null());
        qemu.stderr(Stdio::null());
        let qemu = ChildProcess::spawn(qemu).unwrap();
        let mut memory = None;
        until("the VM's memory", || {
            memory = find_memory(qemu.id());
            memory.is_some()
        });
        Self {
            _qemu: qemu,
            memory: memory.unwrap(),
            monitor: OwnedFd::into(monitor),
        }
    }

    /// Resets the VM with frames in flight, and waits until `frames` more have come back.
    pub(crate) fn reset(&mut self, frames: u32) {
        let boots = self.number(BOOTS);
        self.monitor.write_all(b"system_reset\n").unwrap();
        self.until_started(boots + 1, frames);
    }

    fn until_started(&self, boots: u32, frames: u32) {
        let started = || self.number(BOOTS) == boots && self.number(FRAMES) >= frames;
        for _ in 0..100_000 {
            if started() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_micros(500));
        }
        panic!("start {boots} did not come about");
    }

    fn number(&self, at: u64) -> u32 {
        let mut bytes = [0; 4];
        // The file is empty before QEMU has set its length.
        match self.memory.read_exact_at(&mut bytes, at) {
            Ok(()) => u32::from_le_bytes(bytes),
            Err(_) => 0,
        }
    }
}

/// Opens the memory of QEMU's guest. If there are several memory files, as with the combined
/// options of the lab and of `vicinity qemu-args`, opens the one in use: the file with the most
/// blocks.
pub(crate) fn find_memory(qemu: u32) -> Option<File> {
    let descriptors = std::fs::read_dir(format!("/proc/{qemu}/fd"))
        .ok()?
        .flatten();
    let is_memory = |path: &Path| {
        let target = std::fs::read_link(path).unwrap_or_default();
        target == Path::new("/memfd:memory-backend-memfd (deleted)")
    };
    let found = descriptors.filter(|descriptor| is_memory(&descriptor.path()));
    let files = found.filter_map(|descriptor| File::open(descriptor.path()).ok());
    files.max_by_key(|file| file.metadata().map_or(0, |metadata| metadata.blocks()))
}
