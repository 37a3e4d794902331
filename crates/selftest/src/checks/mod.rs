//! The checks, in the order in which they run: what a report needs most comes first.

mod boot;
mod direct;
mod facts;
mod hypervisor;
mod interruptions;
mod messages;
mod migration;
mod space;
mod switch;

use std::time::Duration;

use crate::check::{Check, Requirement};
use crate::testbed::Testbed;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Memory for the two larger VMs: the guests use a small part of their 6 GiB.
const PAIR: Requirement = Requirement::MemoryMib(1536);

/// Every check.
pub(crate) const ALL: [Check<Testbed>; 18] = [
    Check {
        id: "doctor",
        title: "What `vicinity doctor` says",
        shows: "what this host can do, and what is missing to serve VMs",
        needs: &[],
        usual: seconds(0),
        limit: seconds(60),
        run: facts::doctor,
    },
    Check {
        id: "image",
        title: "Guest image and accelerator",
        shows: "that a guest image can be built from Debian packages here, and whether a kernel boots under KVM",
        needs: &[],
        usual: seconds(5),
        limit: seconds(300),
        run: facts::image,
    },
    Check {
        id: "boot-pc-5g",
        title: "Boot: pc, SeaBIOS, 5 GiB",
        shows: "that a VM with memory above 4 GiB boots, where its firmware places the region of the message plane, \
                and how the guest's kernel maps the region",
        needs: &[Requirement::Vms, Requirement::MemoryMib(768)],
        usual: seconds(15),
        limit: seconds(150),
        run: boot::pc_5g,
    },
    Check {
        id: "boot-q35-1g",
        title: "Boot: q35, SeaBIOS, 1 GiB",
        shows: "the same for a VM whose memory is all below 4 GiB",
        needs: &[Requirement::Vms, Requirement::MemoryMib(768)],
        usual: seconds(15),
        limit: seconds(150),
        run: boot::q35_1g,
    },
    Check {
        id: "stop-continue",
        title: "QEMU stops and continues a VM under a flood",
        shows: "that the VM receives each time: the switch loses no interrupt when QEMU stops and starts the rings",
        needs: &[Requirement::Vms, PAIR],
        usual: seconds(20),
        limit: seconds(120),
        run: interruptions::stop_continue,
    },
    Check {
        id: "restart",
        title: "The data plane is killed under load",
        shows: "that a TCP connection between two VMs goes on each time, without a reboot of a guest",
        needs: &[Requirement::Vms, PAIR],
        usual: seconds(20),
        limit: seconds(120),
        run: interruptions::restart,
    },
    Check {
        id: "switch",
        title: "Two VMs over the switch, beside tap and bridge",
        shows: "that the VMs reach each other, and the throughput and round trip of TCP over either",
        needs: &[Requirement::Vms, PAIR],
        usual: seconds(30),
        limit: seconds(120),
        run: switch::compare,
    },
    Check {
        id: "messages",
        title: "Messages between two VMs",
        shows: "that messages of 8 B to 4 MiB arrive through shared memory, and their latency and rate",
        needs: &[Requirement::Vms, PAIR],
        usual: seconds(20),
        limit: seconds(210),
        run: messages::exchange,
    },
    Check {
        id: "messages-overcommit",
        title: "Messages while two vCPUs share a CPU",
        shows: "how much longer messages take when each VM has to wait for the other one's CPU",
        needs: &[Requirement::Vms, PAIR],
        usual: seconds(15),
        limit: seconds(210),
        run: messages::overcommit,
    },
    Check {
        id: "idle",
        title: "Wake-ups of an idle VM",
        shows: "how often the gateway of an idle VM wakes up, without interrupts and with the module that passes them",
        needs: &[Requirement::Vms, Requirement::MemoryMib(768)],
        usual: seconds(20),
        limit: seconds(120),
        run: messages::idle,
    },
    Check {
        id: "direct",
        title: "Direct channel: q35 and pc",
        shows: "that two VMs see each other's memory, exchange packets, leave under load and join again",
        needs: &[Requirement::Vms, Requirement::Modules, PAIR],
        usual: seconds(35),
        limit: seconds(150),
        run: direct::join_and_leave,
    },
    Check {
        id: "migration",
        title: "Migration between two QEMUs",
        shows: "that a VM moves to another QEMU and another port under load, and its address and TCP connection follow",
        needs: &[Requirement::Vms, PAIR],
        usual: seconds(30),
        limit: seconds(150),
        run: migration::migrate,
    },
    Check {
        id: "space",
        title: "A space: the VM writes, the host transmits",
        shows: "that a file which a VM writes is fetched over HTTP with the same bytes",
        needs: &[Requirement::Vms, Requirement::MemoryMib(768)],
        usual: seconds(10),
        limit: seconds(90),
        run: space::publish,
    },
    Check {
        id: "boot-q35-ovmf-1g",
        title: "Boot: q35, OVMF, 1 GiB",
        shows: "the same as the other boots for UEFI firmware",
        needs: &[
            Requirement::Vms,
            Requirement::Ovmf,
            Requirement::MemoryMib(768),
        ],
        usual: seconds(40),
        limit: seconds(150),
        run: boot::q35_ovmf_1g,
    },
    Check {
        id: "halt-polling",
        title: "Halt polling as `vicinity top` shows it",
        shows: "that the figure of `top` is that of the kernel's statistics",
        needs: &[
            Requirement::Vms,
            Requirement::Kvm,
            Requirement::KvmStatistics,
        ],
        usual: seconds(10),
        limit: seconds(90),
        run: hypervisor::halt_polling,
    },
    Check {
        id: "exits",
        title: "Exits of an idle VM",
        shows: "how often the processor leaves an idle guest, by KVM's statistics",
        needs: &[
            Requirement::Vms,
            Requirement::Kvm,
            Requirement::KvmStatistics,
        ],
        usual: seconds(10),
        limit: seconds(90),
        run: hypervisor::exits,
    },
    Check {
        id: "vfio",
        title: "A VM with a passed-through NIC",
        shows: "that the direct channel refuses this VM, whose QEMU would pin the memory of its peers",
        needs: &[Requirement::Vms, Requirement::Kvm, Requirement::VfioNic],
        usual: seconds(15),
        limit: seconds(90),
        run: hypervisor::vfio,
    },
    Check {
        id: "leftovers",
        title: "Nothing is left behind",
        shows: "that every process, namespace and folder of the self-test ends with it",
        needs: &[],
        usual: seconds(0),
        limit: seconds(60),
        run: facts::leftovers,
    },
];
