//! The devices that the daemon plugs into the QEMUs of a trust group, and the messages about QEMUs without
//! room for them. No guest takes part: firmware that finds nothing to boot is enough.

use std::fs;
use std::process::Stdio;

use vm_harness::host::{ChildProcess, command};

use crate::common::until;
use crate::direct::{config, member_of, standing, words};
use crate::rig::{Rig, step};

/// Two of the eight members do not see each other's memory.
const PAIR: &str = "
[[direct.group.pair]]
vms = [\"a\", \"b\"]
policy = \"never\"
";

/// Starts a QEMU that may join, with these options.
fn power_on(rig: &Rig, name: &str, options: &[&str]) -> ChildProcess {
    let mut qemu = command("qemu-system-x86_64");
    qemu.args(rig.accel())
        .args(["-display", "none", "-nodefaults"]);
    let memory = "memory-backend-memfd,id=ram,size=64M,share=on";
    qemu.args(["-m", "64M", "-object", memory]);
    qemu.args(["-machine", "memory-backend=ram"]).args(options);
    qemu.args(words(rig, &["direct", "qemu-args", name]));
    qemu.stdin(Stdio::null()).stdout(Stdio::null());
    qemu.stderr(Stdio::null());
    ChildProcess::spawn(qemu).unwrap()
}

/// Starts a QEMU that may join, on a `q35` machine with root ports for `views` views.
fn power_on_q35(rig: &Rig, name: &str, views: u16) -> ChildProcess {
    let views = views.to_string();
    let with_ports = ["direct", "qemu-args", name, "--memory", "64M", "--ports"];
    let ports = words(rig, &[&with_ports[..], &[&views]].concat());
    let ports: Vec<&str> = ports.iter().skip(2).map(String::as_str).collect();
    power_on(rig, name, &[&["-machine", "q35"], &ports[..]].concat())
}

/// Returns how many mappings of the size of a VM's memory a QEMU has: those that it may write, and
/// those that it may only read.
fn mapped(qemu: &ChildProcess) -> [usize; 2] {
    let maps = fs::read_to_string(format!("/proc/{}/maps", qemu.id())).unwrap();
    let of_a_vm = |line: &&str| {
        let range = line.split(' ').next().unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|at| u64::from_str_radix(at, 16).unwrap());
        line.contains("/memfd:") && end - start == 64 << 20
    };
    let lines: Vec<&str> = maps.lines().filter(of_a_vm).collect();
    [" rw-s ", " r--s "].map(|rights| lines.iter().filter(|line| line.contains(rights)).count())
}

/// Returns the number of peers whose memory would be in a core dump of this QEMU: those whose mapping lacks
/// the flag `dd` (`VM_DONTDUMP`).
fn dumped(qemu: &ChildProcess) -> usize {
    let maps = fs::read_to_string(format!("/proc/{}/smaps", qemu.id())).unwrap();
    let mut views = 0;
    let mut is_view = false;
    for line in maps.lines() {
        if line.contains("/memfd:") {
            is_view = line.contains(" r--s ");
        }
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            views += usize::from(is_view && !flags.split(' ').any(|flag| flag == "dd"));
            is_view = false;
        }
    }
    views
}

/// Returns the reason that the daemon reports for a VM.
fn reason(rig: &Rig, vm: &str) -> String {
    let reason = member_of(rig, vm)["reason"].clone();
    reason.as_str().unwrap_or_default().to_owned()
}

#[test]
fn eight_qemus_are_given_each_others_memory_for_reading_only() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let rig = Rig::new(Some(&(config(&names) + PAIR)));
    step("all VMs join at once, half of them on each kind of machine");
    let qemus = names.map(|name| match name < "e" {
        true => power_on(&rig, name, &[]),
        false => power_on_q35(&rig, name, 7),
    });
    for (name, qemu) in names.iter().zip(&qemus) {
        let views = if *name < "c" { 6 } else { 7 };
        until("all views", || mapped(qemu) == [1, views]);
        assert_eq!(standing(&rig, name), "joined");
        assert_eq!(reason(&rig, name), "");
        assert_eq!(dumped(qemu), 0, "{name}");
    }

    step("one VM powers off, and only its memory is unmapped");
    let [first, .., last] = qemus;
    drop(last);
    until("it to be gone", || standing(&rig, "h") == "absent");
    assert_eq!(mapped(&first)[0], 1);
}

#[test]
fn the_reason_of_a_machine_without_root_ports_names_them() {
    let rig = Rig::new(Some(&config(&["a", "b", "c", "d"])));
    let _a = power_on(&rig, "a", &[]);
    let _b = power_on(&rig, "b", &[]);
    let without = power_on(&rig, "c", &["-machine", "q35"]);
    let narrow = power_on_q35(&rig, "d", 1);

    step("a machine without root ports accepts no device while it runs");
    until("the reason to be reported", || {
        reason(&rig, "c").contains("--ports")
    });
    assert!(reason(&rig, "c").contains("q35"));
    assert_eq!(standing(&rig, "c"), "out");
    assert_eq!(mapped(&without), [1, 0]);

    step("a machine with root ports for one view, in a group with two other members");
    until("the reason to be reported", || {
        reason(&rig, "d").contains("--ports")
    });
    assert!(reason(&rig, "d").starts_with("the VM cannot map the memory of "));
    assert_eq!(standing(&rig, "d"), "joined");
    assert_eq!(mapped(&narrow), [1, 1]);
}
