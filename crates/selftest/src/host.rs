//! Facts about the host that explain the figures. None of them identifies the host.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vm_harness::machine::Machine;

/// The folder of KVM's statistics.
pub(crate) const KVM_STATISTICS: &str = "/sys/kernel/debug/kvm";

/// What the host is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The processor's vendor, as CPUID names it: `GenuineIntel`, `AuthenticAMD`.
    pub vendor: String,
    /// The processor's model.
    pub processor: String,
    /// Processors that the self-test may use.
    pub cpus: usize,
    /// NUMA nodes.
    pub numa_nodes: usize,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Whether the host is a VM itself.
    pub is_vm: bool,
    /// The kernel's release.
    pub kernel: String,
    /// The distribution.
    pub system: String,
    /// The version of QEMU; empty if there is none.
    pub qemu: String,
    /// Huge pages for shared memory: the chosen word of `shmem_enabled`.
    pub shmem_enabled: String,
    /// Huge pages that are reserved.
    pub huge_pages: u64,
    /// How long KVM polls before an idle vCPU sleeps, ns; none without KVM.
    pub halt_poll_ns: Option<u64>,
    /// Whether `/dev/kvm` exists.
    pub has_kvm_device: bool,
    /// Whether `/dev/vhost-net` exists.
    pub has_vhost_net: bool,
    /// Whether OVMF, the UEFI firmware of VMs, is installed.
    pub has_ovmf: bool,
    /// NICs that are bound to `vfio-pci`.
    pub vfio_nics: usize,
    /// Whether the self-test ran as root.
    pub is_root: bool,
}

impl Host {
    /// Reads the facts.
    #[must_use]
    pub fn read_facts() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let (machine, qemu) = match Machine::describe() {
            Ok(machine) => {
                let qemu = machine.qemu.clone();
                (Some(machine), qemu)
            }
            Err(_) => (None, String::new()),
        };
        let shmem = read("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
        Self {
            vendor: field(&cpuinfo, "vendor_id", ':'),
            processor: field(&cpuinfo, "model name", ':'),
            cpus: vm_harness::machine::cpus(),
            numa_nodes: numbered("/sys/devices/system/node", "node"),
            memory_mib: number(&read("/proc/meminfo"), "MemTotal") / 1024,
            is_vm: has_flag(&cpuinfo, "hypervisor"),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            system: field(&read("/etc/os-release"), "PRETTY_NAME", '='),
            qemu: machine.map_or(qemu, |machine| machine.qemu),
            shmem_enabled: chosen(&shmem),
            huge_pages: number(&read("/proc/meminfo"), "HugePages_Total"),
            halt_poll_ns: read("/sys/module/kvm/parameters/halt_poll_ns")
                .trim()
                .parse()
                .ok(),
            has_kvm_device: Path::new("/dev/kvm").exists(),
            has_vhost_net: Path::new("/dev/vhost-net").exists(),
            has_ovmf: Firmware::find().is_some(),
            vfio_nics: vfio_nics().len(),
            is_root: rustix::process::geteuid().is_root(),
        }
    }

    /// Returns the facts as names and values, for people.
    #[must_use]
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
        let poll = self
            .halt_poll_ns
            .map_or_else(|| "-".to_owned(), |ns| format!("{ns} ns"));
        vec![
            ("Processor", format!("{} ({})", self.processor, self.vendor)),
            (
                "CPUs",
                format!("{} on {} NUMA nodes", self.cpus, self.numa_nodes),
            ),
            ("Memory", format!("{} MiB", self.memory_mib)),
            ("The host is a VM", yes(self.is_vm)),
            ("System", self.system.clone()),
            ("Kernel", self.kernel.clone()),
            ("QEMU", self.qemu.clone()),
            (
                "Huge pages",
                format!(
                    "{} reserved; shared memory: {}",
                    self.huge_pages, self.shmem_enabled
                ),
            ),
            ("Halt polling", poll),
            (
                "/dev/kvm, /dev/vhost-net",
                format!("{}, {}", yes(self.has_kvm_device), yes(self.has_vhost_net)),
            ),
            ("OVMF", yes(self.has_ovmf)),
            ("NICs bound to vfio-pci", self.vfio_nics.to_string()),
        ]
    }
}

/// Files of the UEFI firmware.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Firmware {
    /// The code, which QEMU maps read-only.
    pub(crate) code: PathBuf,
    /// The variables, of which a VM gets a copy.
    pub(crate) variables: PathBuf,
}

impl Firmware {
    /// Finds OVMF where Debian, Fedora and Arch install it.
    pub(crate) fn find() -> Option<Self> {
        let places = [
            (
                "/usr/share/OVMF/OVMF_CODE_4M.fd",
                "/usr/share/OVMF/OVMF_VARS_4M.fd",
            ),
            (
                "/usr/share/OVMF/OVMF_CODE.fd",
                "/usr/share/OVMF/OVMF_VARS.fd",
            ),
            (
                "/usr/share/edk2/ovmf/OVMF_CODE.fd",
                "/usr/share/edk2/ovmf/OVMF_VARS.fd",
            ),
            (
                "/usr/share/edk2/x64/OVMF_CODE.4m.fd",
                "/usr/share/edk2/x64/OVMF_VARS.4m.fd",
            ),
        ];
        let mut found = places
            .into_iter()
            .filter(|(code, variables)| Path::new(code).exists() && Path::new(variables).exists());
        found.next().map(|(code, variables)| Self {
            code: code.into(),
            variables: variables.into(),
        })
    }
}

/// Returns the PCI addresses of NICs that are bound to `vfio-pci`.
pub(crate) fn vfio_nics() -> Vec<String> {
    let entries = fs::read_dir("/sys/bus/pci/drivers/vfio-pci");
    let devices = entries.into_iter().flatten().flatten();
    let nics = devices.filter(|device| {
        // Class 02 of PCI is network controllers.
        fs::read_to_string(device.path().join("class")).is_ok_and(|class| class.starts_with("0x02"))
    });
    nics.filter_map(|nic| nic.file_name().into_string().ok())
        .collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the value of the first line `name<separator>value`.
fn field(text: &str, name: &str, separator: char) -> String {
    let mut lines = text.lines().filter_map(|line| line.split_once(separator));
    let found = lines.find(|(key, _)| key.trim() == name);
    found.map_or_else(String::new, |(_, value)| {
        value.trim().trim_matches('"').to_owned()
    })
}

fn number(text: &str, name: &str) -> u64 {
    let value = field(text, name, ':');
    let digits = value.split(' ').next().unwrap_or_default();
    digits.parse().unwrap_or(0)
}

fn has_flag(cpuinfo: &str, flag: &str) -> bool {
    field(cpuinfo, "flags", ':')
        .split(' ')
        .any(|word| word == flag)
}

/// Returns the word in brackets: `always within_size advise [never] deny force`.
fn chosen(text: &str) -> String {
    text.split(['[', ']'])
        .nth(1)
        .unwrap_or("not there")
        .to_owned()
}

/// Counts the entries of a folder whose name is `prefix` and a number.
fn numbered(folder: &str, prefix: &str) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.strip_prefix(prefix)
            .is_some_and(|rest| rest.parse::<u32>().is_ok())
    });
    named.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_facts() {
        let host = Host::read_facts();
        assert!(
            host.cpus > 0 && host.memory_mib > 100 && !host.kernel.is_empty(),
            "{host:?}"
        );
        assert!(host.rows().iter().all(|(name, _)| !name.is_empty()));
    }

    #[test]
    fn fields_are_found() {
        assert_eq!(chosen("always advise [never] deny\n"), "never");
        let cpuinfo = "processor : 0\nvendor_id : AuthenticAMD\nflags : fpu svm hypervisor\n";
        assert_eq!(field(cpuinfo, "vendor_id", ':'), "AuthenticAMD");
        assert!(has_flag(cpuinfo, "hypervisor") && !has_flag(cpuinfo, "vmx"));
        assert_eq!(number("MemTotal:   2048 kB\n", "MemTotal"), 2048);
    }
}
