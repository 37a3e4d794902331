//! Finds the role of a VM's thread by the thread's name.
//!
//! QEMU names its threads if its command line contains `-name …,debug-threads=on`, as that of libvirt
//! does. Otherwise all threads have the name of the program.

use serde::{Deserialize, Serialize};

/// The role of a VM's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A virtual CPU, which runs the guest.
    Vcpu,
    /// QEMU's main loop.
    Main,
    /// An I/O thread, a pool worker, or another helper of QEMU.
    Io,
    /// The kernel's vhost worker: a kernel thread, and since Linux 6.4 a task of QEMU's process.
    Vhost,
    /// A thread to which QEMU gave no name. It can be a vCPU or a helper.
    Unnamed,
}

/// The number of characters of a thread's name that the kernel stores.
const NAME_LENGTH: usize = 15;

impl Role {
    /// Returns the role of a thread with this name. `main` is whether it is the first thread of its
    /// process. `nameless` is the name of threads to which QEMU gave none ([`nameless`]).
    #[must_use]
    pub fn of(name: &str, main: bool, nameless: Option<&str>) -> Self {
        if main {
            Self::Main
        } else if vcpu_accelerator(name).is_some() {
            Self::Vcpu
        } else if name.starts_with("vhost-") {
            Self::Vhost
        } else if Some(name) == nameless {
            Self::Unnamed
        } else {
            Self::Io
        }
    }

    /// Returns whether the observer counts the thread as part of the guest. It counts all others as
    /// part of the backend.
    #[must_use]
    pub fn is_guest(self) -> bool {
        matches!(self, Self::Vcpu | Self::Unnamed)
    }
}

/// Returns the name of threads to which QEMU gave none: that of the process's first thread. Returns
/// `None` if vCPUs have names. Then other threads with the program's name are helper threads of a
/// library.
#[must_use]
pub fn nameless<'a>(first: &'a str, mut names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let named = names.any(|name| vcpu_accelerator(name).is_some());
    (!named).then_some(first)
}

/// Returns `KVM` or `TCG` from a vCPU's name, for example `CPU 0/KVM`. If TCG uses one thread for all
/// vCPUs, its name is `ALL CPUs/TCG`.
#[must_use]
pub fn vcpu_accelerator(name: &str) -> Option<&str> {
    let (cpu, accelerator) = name.split_once('/')?;
    let number = cpu.strip_prefix("CPU ");
    let one = number.is_some_and(|text| text.parse::<u32>().is_ok());
    (one || cpu == "ALL CPUs").then_some(accelerator)
}

/// Returns the id of the process for which a kernel thread named `vhost-PID` works.
#[must_use]
pub fn vhost_owner(name: &str) -> Option<u32> {
    name.strip_prefix("vhost-")?.parse().ok()
}

/// Returns whether a thread name is that of this network's workers (`net-NETWORK`, which the kernel
/// truncates).
#[must_use]
pub fn is_worker_of(name: &str, network: &str) -> bool {
    let full = format!("net-{network}");
    let kept: String = full.chars().take(NAME_LENGTH).collect();
    name == kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str) -> Role {
        Role::of(name, false, Some("qemu-system-x86"))
    }

    #[test]
    fn qemus_names_are_known() {
        assert_eq!(role("CPU 0/KVM"), Role::Vcpu);
        assert_eq!(role("CPU 17/TCG"), Role::Vcpu);
        assert_eq!(role("ALL CPUs/TCG"), Role::Vcpu);
        assert_eq!(role("IO io1"), Role::Io);
        assert_eq!(role("call_rcu"), Role::Io);
        assert_eq!(role("worker"), Role::Io);
        assert_eq!(role("vhost-4711"), Role::Vhost);
        assert_eq!(role("qemu-system-x86"), Role::Unnamed);
        let main = Role::of("qemu-system-x86", true, Some("qemu-system-x86"));
        assert_eq!(main, Role::Main);
        assert!(!main.is_guest() && role("CPU 0/KVM").is_guest());
    }

    #[test]
    fn where_vcpus_have_names_a_nameless_thread_is_none() {
        let names = ["qemu-system-x86", "CPU 0/TCG", "qemu-system-x86"];
        assert_eq!(nameless(names[0], names.into_iter()), None);
        assert_eq!(Role::of(names[2], false, None), Role::Io);
        let names = ["qemu-system-x86"; 3];
        assert_eq!(nameless(names[0], names.into_iter()), Some(names[0]));
    }

    #[test]
    fn the_accelerator_and_the_owner_are_in_the_name() {
        assert_eq!(vcpu_accelerator("CPU 3/KVM"), Some("KVM"));
        assert_eq!(vcpu_accelerator("CPU x/KVM"), None);
        assert_eq!(vhost_owner("vhost-4711"), Some(4711));
        assert_eq!(vhost_owner("vhost-"), None);
    }

    #[test]
    fn a_long_networks_worker_is_known_by_the_part_the_kernel_keeps() {
        assert!(is_worker_of("net-lan", "lan"));
        assert!(!is_worker_of("net-lan", "land"));
        assert!(is_worker_of("net-backbone-we", "backbone-west"));
    }
}
