//! The memory type with which a guest's kernel maps the region. KVM on AMD processors obeys this type, and
//! TCG does not, but the guest's kernel reports it in both cases.

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

/// Prints the path below /proc of a guest's gateway process; fails if there is none.
const GATEWAY: &str =
    "grep --no-messages --files-with-matches --line-regexp vicinity /proc/[0-9]*/comm";

/// Parses the numbers of a line such as `PAT: [mem 0x1000-0x2000] write-back`, or `0x1000 0x1fff
/// 0x0`.
fn range(line: &str) -> Option<[u64; 2]> {
    let mut numbers = line.split("0x").skip(1).map(|rest| {
        let digits = rest.split(|it: char| !it.is_ascii_hexdigit()).next();
        u64::from_str_radix(digits.unwrap_or_default(), 16).ok()
    });
    Some([numbers.next()??, numbers.next()??])
}

/// Returns the address of the region, and the memory types with which the kernel has mapped parts
/// of it.
fn mapped(vm: &Vm) -> (u64, Vec<String>) {
    let device = "$(dirname $(grep --files-with-matches 0x1110 /sys/bus/pci/devices/*/device))";
    let bar = sh(vm, &format!("head -n 3 {device}/resource | tail -n 1"));
    let [start, end] = range(&bar).unwrap();
    let debug = "/sys/kernel/debug";
    let list = sh(
        vm,
        &format!(
            "mountpoint --quiet {debug} || mount -t debugfs none {debug}; cat {debug}/x86/pat_memtype_list"
        ),
    );
    let inside = |line: &&str| range(line).is_some_and(|[at, _]| (start..=end).contains(&at));
    let kind = |line: &str| line.rsplit(' ').next().unwrap_or_default().to_owned();
    let mut kinds: Vec<String> = list.lines().filter(inside).map(kind).collect();
    kinds.sort();
    kinds.dedup();
    (start, kinds)
}

/// Returns how often the gateway woke up while a VM was idle for five seconds.
fn wakeups(vm: &Vm) -> u32 {
    let count =
        "grep --no-filename ^voluntary $(dirname $(COMM))/task/*/status".replace("COMM", GATEWAY);
    // Traffic has to have ended for a while.
    let text = sh(vm, &format!("sleep 2; {count}; echo; sleep 5; {count}"));
    let sum = |text: &str| {
        let of_line = |line: &str| line.rsplit('\t').next().unwrap().parse::<u32>().unwrap();
        text.lines().map(of_line).sum::<u32>()
    };
    let (before, after) = text.split_once("\n\n").unwrap();
    sum(after) - sum(before)
}

#[test]
fn the_region_is_write_back_memory_with_the_module_and_an_idle_vm_sleeps() {
    let rig = with_wake(Rig::new(Some(MEMBERS)).with_program());
    let specs = ["small", "large"].map(|name| member(&rig, name));
    let mut specs = specs.into_iter().zip(MEMORY_MIB).map(|(mut spec, memory)| {
        spec.memory_mib = memory;
        spec
    });
    let vms = rig.boot([specs.next().unwrap(), specs.next().unwrap()]);

    for vm in &vms {
        step("without the module: sysfs maps the region uncached, and the gateway polls rarely");
        let joined = join(vm, LIMIT);
        assert_eq!(mapped(vm).1, ["uncached-minus"], "{}", vm.name());
        let count = wakeups(vm);
        println!("{} wakes up {count} times in 5 s", vm.name());
        assert!((1..=1000).contains(&count), "{count}");
        joined.kill().unwrap();

        step("with the module: above 4 GiB, write-back, and one wake-up a second");
        sh(vm, &format!("insmod {MODULE}"));
        let joined = open(
            vm,
            "exec vicinity message join 2>/tmp/said",
            "gateway.sock",
            LIMIT,
        );
        let (start, kinds) = mapped(vm);
        assert!(start >= 4 << 30, "{} has it at {start:#x}", vm.name());
        assert_eq!(kinds, ["write-back"], "{}", vm.name());
        let count = wakeups(vm);
        println!("{} wakes up {count} times in 5 s", vm.name());
        assert!(count <= 10, "{count}");
        let said = sh(vm, "cat /tmp/said");
        assert!(
            said.contains("joined") && !said.contains("uncached"),
            "{said}"
        );

        step(
            "the driver is unbound while a gateway runs, which loses its mappings; without the driver, other \
                gateways work",
        );
        let unbind =
            "cd /sys/bus/pci/drivers/vicinity_wake; for it in 0000:*; do echo $it >unbind; done";
        sh(vm, unbind);
        sh(vm, &format!("while {GATEWAY}; do sleep 0.1; done"));
        drop(joined);
        sh(vm, "rmmod vicinity_wake");
        join(vm, LIMIT).kill().unwrap();
        is_well(vm);
    }
}
