//! The memory type with which a guest's kernel maps the region. KVM on AMD processors obeys this type, and
//! TCG does not, but the guest's kernel reports it in both cases.

use vm_harness::message_region::{GATEWAY, Mapping, gateway_wakeups};
use vm_harness::vm::Vm;

use crate::direct::is_well;
use crate::guest::sh;
use crate::message::{LIMIT, MODULE, join, member, open, with_wake};
use crate::rig::{Rig, step};

const MEMBERS: &str = "
[[message.member]]
name = \"small\"
[[message.member]]
name = \"large\"
";

/// Memory without and with a part above 4 GiB, because firmware places BARs accordingly.
const MEMORY_MIB: [u32; 2] = [1024, 5120];

/// Returns the address of the region, and the memory types with which the kernel has mapped parts
/// of it.
fn mapped(vm: &Vm) -> (u64, Vec<String>) {
    let mapping = Mapping::of(vm).unwrap();
    (mapping.address, mapping.memory_types)
}

#[test]
#[ignore = "`make soak` runs it; vms_and_hosts_exchange_messages has VMs with the module and without"]
fn the_region_is_write_back_memory_with_the_module_and_an_idle_vm_sleeps() {
    let rig = with_wake(Rig::new(Some(MEMBERS)).with_program());
    let specs = ["small", "large"].map(|name| member(&rig, name));
    let mut specs = specs.into_iter().zip(MEMORY_MIB).map(|(mut spec, memory)| {
        spec.memory_mib = memory;
        spec
    });
    let vms = rig.boot([specs.next().unwrap(), specs.next().unwrap()]);

    // Both VMs do each step together, so that neither joins or leaves while the other's wake-ups are counted.
    step("without the module: sysfs maps the region uncached, and the gateway polls rarely");
    let joined = vms.each_ref().map(|vm| join(vm, LIMIT));
    for (vm, count) in vms.iter().zip(wakeups(&vms)) {
        assert_eq!(mapped(vm).1, ["uncached-minus"], "{}", vm.name());
        println!("{} wakes up {count} times in 5 s", vm.name());
        assert!((1..=1000).contains(&count), "{count}");
    }
    for joined in joined {
        joined.kill().unwrap();
    }

    step("with the module: above 4 GiB, write-back, and one wake-up a second");
    let joined = vms.each_ref().map(|vm| {
        sh(vm, &format!("insmod {MODULE}"));
        let join = "exec vicinity message join 2>/tmp/said";
        open(vm, join, "gateway.sock", LIMIT)
    });
    for (vm, count) in vms.iter().zip(wakeups(&vms)) {
        let (start, kinds) = mapped(vm);
        assert!(start >= 4 << 30, "{} has it at {start:#x}", vm.name());
        assert_eq!(kinds, ["write-back"], "{}", vm.name());
        println!("{} wakes up {count} times in 5 s", vm.name());
        assert!(count <= 10, "{count}");
        let said = sh(vm, "cat /tmp/said");
        assert!(
            said.contains("joined") && !said.contains("uncached"),
            "{said}"
        );
    }

    step(
        "the driver is unbound while a gateway runs, which loses its mappings; without the driver, other gateways work",
    );
    for (vm, joined) in vms.iter().zip(joined) {
        let unbind =
            "cd /sys/bus/pci/drivers/vicinity_wake; for it in 0000:*; do echo $it >unbind; done";
        sh(vm, unbind);
        sh(vm, &format!("while {GATEWAY}; do sleep 0.1; done"));
        drop(joined);
        sh(vm, "rmmod vicinity_wake");
        join(vm, LIMIT).kill().unwrap();
        is_well(vm);
    }
    a_kernel_that_is_locked_down_says_what_is_missing(&vms[0]);
}

/// Returns how often the gateway of each VM woke up in the same five seconds.
fn wakeups(vms: &[Vm; 2]) -> [u64; 2] {
    std::thread::scope(|scope| {
        let counts = vms.each_ref().map(|vm| scope.spawn(|| gateway_wakeups(vm)));
        counts.map(|count| count.join().unwrap().unwrap())
    })
}

/// Locks the kernel of the VM down as Secure Boot does (kernel_lockdown(7)). Without a signed module, nothing works there.
fn a_kernel_that_is_locked_down_says_what_is_missing(vm: &Vm) {
    step(
        "a locked-down kernel refuses the unsigned module and the device, and `join` says what helps",
    );
    let lock = "mountpoint -q /sys/kernel/security || mount -t securityfs none /sys/kernel/security; \
        echo integrity >/sys/kernel/security/lockdown";
    sh(vm, lock);
    let loaded = vm.run(&format!("insmod {MODULE}"), LIMIT).unwrap();
    assert!(loaded.status != 0, "the unsigned module was loaded");
    let joined = vm.run("vicinity message join", LIMIT).unwrap();
    let said = joined.stderr;
    assert!(
        joined.status != 0 && said.contains("vicinity_wake"),
        "{said}"
    );
}
