//! The specification of a VM, and its QEMU command line.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::accel::Accel;
use crate::host;
use crate::image::Image;
use crate::time_stamp_counter;

/// The back-end of a NIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// A tap of the host, inside the network namespace of this name.
    Tap {
        /// The tap's name.
        tap: String,
        /// The namespace's name for `ip netns`.
        namespace: String,
        /// Whether the kernel's vhost-net moves the frames instead of QEMU.
        vhost: bool,
    },
    /// A vhost-user back-end.
    VhostUser {
        /// The socket's path.
        socket: PathBuf,
        /// QEMU opens the socket and waits for the back-end, instead of connecting to it.
        qemu_listens: bool,
    },
}

/// A NIC of a VM: virtio-net with any back-end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    /// The back-end.
    pub link: Link,
    /// MAC address, `52:54:00:…`.
    pub mac: String,
    /// The guest's address on the NIC with prefix length, `10.0.0.1/24`, or none.
    pub address: Option<String>,
    /// More properties of QEMU's `virtio-net-pci`, for instance `mrg_rxbuf=off`.
    pub properties: Vec<String>,
}

/// QEMU's options for one CPU in a machine that could have two. Under TCG, QEMU makes a guest's compare-and-swap atomic
/// only in such a machine; VMs of which both copy parts of a large message need that (see `window::locks`).
pub const SMP_MAXCPUS_2: [&str; 2] = ["-smp", "1,maxcpus=2"];

/// The specification of a VM. Fields may be changed before [`super::Vm::boot`].
#[derive(Clone, Debug)]
pub struct Spec {
    /// Name of the VM: the guest's host name and the prefix of its log files.
    pub name: String,
    /// Memory in MiB. The image itself needs about 200.
    pub memory_mib: u32,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Whether one thread of QEMU emulates all virtual CPUs under TCG, one after the other. With a thread for each, QEMU
    /// 10.0 sometimes aborts (`iotlb_to_section`) while a guest with several CPUs sets its devices up: one CPU still
    /// uses the memory map that another CPU has just replaced.
    pub one_thread: bool,
    /// NICs, in the guest's order; there may be none.
    pub nics: Vec<Nic>,
    /// Further words of the guest's kernel command line.
    pub kernel_args: Vec<String>,
    /// More QEMU arguments.
    pub qemu_args: Vec<String>,
    /// Folder for the logs of the console and of QEMU.
    pub logs: PathBuf,
}

impl Spec {
    /// Returns a VM with 512 MiB, one virtual CPU and no NIC, whose logs go to `logs`.
    #[must_use]
    pub fn new(name: &str, logs: &Path) -> Self {
        Self {
            name: name.to_owned(),
            memory_mib: 512,
            vcpus: 1,
            one_thread: false,
            nics: Vec::new(),
            kernel_args: Vec::new(),
            qemu_args: Vec::new(),
            logs: logs.to_owned(),
        }
    }

    /// Adds a NIC.
    #[must_use]
    pub fn nic(mut self, nic: Nic) -> Self {
        self.nics.push(nic);
        self
    }

    /// Returns the log file of the guest's serial console.
    #[must_use]
    pub fn console_log(&self) -> PathBuf {
        self.logs.join(format!("{}.console.log", self.name))
    }

    /// Returns the log file of QEMU's own messages.
    #[must_use]
    pub fn qemu_log(&self) -> PathBuf {
        self.logs.join(format!("{}.qemu.log", self.name))
    }

    /// Returns QEMU's command line; its sockets are made in `run`.
    pub(super) fn command(&self, image: &Image, accel: Accel, run: &Path) -> Command {
        let mut qemu = self.program();
        let memory = self.memory_mib;
        qemu.args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
        ])
        // QEMU names its threads, so that tools can tell virtual CPUs from other threads.
        .arg("-name")
        .arg(format!("{},debug-threads=on", self.name))
        .args(accel.qemu_args(self.one_thread))
        .args(["-smp", &self.vcpus.to_string(), "-m", &format!("{memory}M")])
        .args(["-machine", "pc"]);
        if !self.brings_memory() {
            qemu.args(["-machine", "memory-backend=ram", "-object"]);
            qemu.arg(format!(
                "memory-backend-memfd,id=ram,size={memory}M,share=on"
            ));
        }
        qemu.arg("-kernel")
            .arg(self.kernel(image, accel))
            .arg("-initrd")
            .arg(&image.initrd)
            .args(["-append", &self.kernel_line(accel)])
            .arg("-qmp")
            .arg(format!(
                "unix:{},server=on,wait=off",
                run.join("qmp").display()
            ))
            .arg("-chardev")
            .arg(format!(
                "socket,id=console,path={},server=on,wait=off,logfile={}",
                run.join("console").display(),
                self.console_log().display()
            ))
            .args(["-serial", "chardev:console", "-chardev"])
            .arg(format!(
                "socket,id=agent,path={},server=on,wait=off",
                run.join("agent").display()
            ))
            .args(["-device", "virtio-serial-pci", "-device"])
            .arg("virtserialport,chardev=agent,name=org.qemu.guest_agent.0");
        for (number, nic) in self.nics.iter().enumerate() {
            qemu.args(nic.qemu_args(number));
        }
        qemu.args(&self.qemu_args);
        qemu
    }

    /// Returns the file that QEMU boots: the kernel of the package. An emulated guest need not unpack it, except with
    /// firmware of its own, because only QEMU's own firmware boots an unpacked kernel.
    fn kernel<'a>(&self, image: &'a Image, accel: Accel) -> &'a Path {
        let has_firmware = self.qemu_args.iter().any(|it| it.contains("pflash"));
        match &image.unpacked_kernel {
            Some(unpacked) if accel == Accel::Tcg && !has_firmware => unpacked,
            _ => &image.kernel,
        }
    }

    /// Whether `qemu_args` define the VM's memory. A second memory back-end would be useless, and harmful too: if a
    /// VM's memory is not its first memory back-end, QEMU under TCG loses writes during a migration
    /// (docs/migration.md).
    fn brings_memory(&self) -> bool {
        let mut arguments = self.qemu_args.iter();
        arguments.any(|argument| argument.starts_with("memory-backend-"))
    }

    /// Returns a command that starts QEMU, inside the network namespace of the taps if there is one.
    fn program(&self) -> Command {
        let mut namespaces = self.nics.iter().filter_map(|nic| match &nic.link {
            Link::Tap { namespace, .. } => Some(namespace),
            Link::VhostUser { .. } => None,
        });
        match namespaces.next() {
            Some(namespace) => {
                let mut ip = host::command("ip");
                ip.args(["netns", "exec", namespace, "qemu-system-x86_64"]);
                ip
            }
            None => host::command("qemu-system-x86_64"),
        }
    }

    /// Returns the kernel command line. The kernel's test of its timer compares ticks of an emulated clock with the
    /// processor's own. On a busy host an emulated guest may fail this test and panic; under KVM the kernel skips the
    /// test. For the same reason an emulated guest may mark its time-stamp counter, which is the host's, as unstable,
    /// and then spend most of its time reading an emulated timer. The kernel's tests of its own cryptography take a tenth
    /// of an emulated guest's boot.
    fn kernel_line(&self, accel: Accel) -> String {
        let mut line = format!(
            "console=ttyS0 quiet panic=-1 no_timer_check lab.host={}",
            self.name
        );
        if accel == Accel::Tcg {
            line.push_str(" tsc=reliable cryptomgr.notests");
            if let Some(khz) = time_stamp_counter::host_khz() {
                line.push_str(&format!(" tsc_early_khz={khz}"));
            }
        }
        for argument in &self.kernel_args {
            line.push(' ');
            line.push_str(argument);
        }
        for nic in &self.nics {
            if let Some(address) = &nic.address {
                line.push_str(&format!(" lab.nic={},{address}", nic.mac));
            }
        }
        line
    }
}

impl Nic {
    fn qemu_args(&self, number: usize) -> Vec<String> {
        let mut args = Vec::new();
        let mut add = |option: &str, value: String| args.extend([option.to_owned(), value]);
        match &self.link {
            Link::Tap { tap, vhost, .. } => {
                let vhost = if *vhost { "on" } else { "off" };
                add(
                    "-netdev",
                    format!(
                        "tap,id=net{number},ifname={tap},script=no,downscript=no,vhost={vhost}"
                    ),
                );
            }
            Link::VhostUser {
                socket,
                qemu_listens,
            } => {
                let listen = if *qemu_listens { ",server=on" } else { "" };
                let socket = socket.display();
                add(
                    "-chardev",
                    format!("socket,id=vhost{number},path={socket}{listen}"),
                );
                add(
                    "-netdev",
                    format!("vhost-user,id=net{number},chardev=vhost{number}"),
                );
            }
        }
        let mut device = format!(
            "virtio-net-pci,netdev=net{number},mac={},romfile=",
            self.mac
        );
        for property in &self.properties {
            device.push(',');
            device.push_str(property);
        }
        add("-device", device);
        args
    }
}
