//! The VMs of the self-test, and commands inside their guests.

use std::time::Duration;

use vm_harness::error::{Error, Result};
use vm_harness::vm::Vm;

use crate::outcome::Outcome;

/// Longest time that a command in a guest may take on a busy host.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Messages of a kernel in which something went wrong. A soft lockup is none of them: a guest reports it if a busy host
/// does not run the guest for some time.
const KERNEL_ERRORS: &str =
    "BUG:|Oops|refcount_t|is not a head|NETDEV WATCHDOG|virtio_net.*(error|fail)";

/// A VM of the self-test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guest {
    /// `q35` with SeaBIOS and 1 GiB: the bridge, the switch, messages, the direct channel.
    One,
    /// `pc` with SeaBIOS and 5 GiB, a part of it above 4 GiB: the bridge, the switch, messages, the space.
    Two,
    /// `q35` with OVMF and 1 GiB: the switch, messages.
    Three,
    /// `pc` with 512 MiB, which migrates: the switch, the direct channel.
    Mover,
}

impl Guest {
    /// Every VM, in the order of its number.
    pub(crate) const ALL: [Self; 4] = [Self::One, Self::Two, Self::Three, Self::Mover];

    /// Returns the VM's name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Two => "two",
            Self::Three => "three",
            Self::Mover => "mover",
        }
    }

    /// Returns the number in the VM's addresses.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Three => 3,
            Self::Mover => 4,
        }
    }

    /// Returns the VM's memory, MiB.
    pub(crate) const fn memory_mib(self) -> u32 {
        match self {
            Self::One | Self::Three => 1024,
            Self::Two => 5120,
            Self::Mover => 512,
        }
    }

    /// Whether the VM has the region of the message plane.
    pub(crate) const fn has_region(self) -> bool {
        !matches!(self, Self::Mover)
    }
}

/// Runs a command in a guest, which must succeed, and returns its output without blanks around it.
pub(crate) fn sh(vm: &Vm, command: &str) -> Result<String> {
    Ok(vm.check(command, LIMIT)?.trim().to_owned())
}

/// Runs a command in a guest again and again until it succeeds.
pub(crate) fn until(vm: &Vm, command: &str) -> Result<()> {
    sh(vm, &format!("until {command}; do sleep 0.1; done")).map(drop)
}

/// Sends echo requests and requires that all are answered.
pub(crate) fn ping(from: &Vm, to: &str) -> Result<()> {
    let printed = from.run(&format!("ping -c 5 -i 0.1 -W 10 {to}"), LIMIT)?;
    match printed.stdout.contains(" 5 received") {
        true => Ok(()),
        false => Err(Error::Host(format!(
            "VM {} got no answer to some of 5 echo requests: {}",
            from.name(),
            printed.stdout.lines().last().unwrap_or_default()
        ))),
    }
}

/// Starts the traffic's servers in a guest, unless they run.
pub(crate) fn serve(vm: &Vm) -> Result<()> {
    let listening = "test $(ss -Htuln '( sport = :11111 or sport = :5201 )' | wc -l) -ge 3";
    match vm.run(listening, LIMIT)?.status {
        0 => Ok(()),
        _ => vm_harness::workload::serve(vm),
    }
}

/// Turns the outcome into a failure if the kernel of a guest reports an error.
pub(crate) fn require_clean_kernel(outcome: Outcome, vm: &Vm) -> Result<Outcome> {
    let lines = sh(
        vm,
        &format!("dmesg | grep -E '{KERNEL_ERRORS}' | grep -v 'soft lockup' | head -n 5 || true"),
    )?;
    Ok(outcome.require(lines.is_empty(), || {
        format!("the kernel of VM {} reports: {lines}", vm.name())
    }))
}
