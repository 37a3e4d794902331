//! The devices that the daemon plugs into the QEMUs of a trust group, and the messages about QEMUs without
//! room for them. No guest takes part: firmware that finds nothing to boot is enough.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
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

/// The options for a VM's memory as a member needs it.
const MEMORY: [&str; 6] = [
    "-m",
    "64M",
    "-object",
    "memory-backend-memfd,id=ram,size=64M,share=on",
    "-machine",
    "memory-backend=ram",
];

/// Starts a QEMU that may join, with these options.
fn power_on(rig: &Rig, name: &str, options: &[&str]) -> ChildProcess {
    power_on_with(rig, name, &[&MEMORY, options].concat())
}

/// Starts a QEMU that may join if these options give it the right memory.
fn power_on_with(rig: &Rig, name: &str, options: &[&str]) -> ChildProcess {
    let mut qemu = command("qemu-system-x86_64");
    qemu.args(rig.accel())
        .args(["-display", "none", "-nodefaults"]);
    qemu.args(options);
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
#[ignore = "`make soak` runs it; qemus_of_other_users_are_given_each_others_memory has two"]
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

/// Returns the descriptors of a QEMU that are memories of VMs.
fn memories(qemu: &ChildProcess) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{}/fd", qemu.id())).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_memory = |path: &PathBuf| {
        let link = fs::read_link(path).unwrap_or_default();
        link.to_string_lossy().starts_with("/memfd:")
            && fs::metadata(path).is_ok_and(|file| file.len() == 64 << 20)
    };
    paths.filter(is_memory).collect()
}

/// Opens a memory again as this user, as a QEMU of that user could that has a descriptor for reading. Returns
/// whether that succeeds for reading, and for writing.
fn opened_again(memory: &PathBuf, user: u32) -> [bool; 2] {
    ["<", "<>"].map(|how| {
        let mut shell = command("sh");
        shell.args(["-c", &format!("exec 5{how} /proc/self/fd/0")]);
        shell.uid(user).gid(user).stderr(Stdio::null());
        shell.stdin(File::open(memory).unwrap());
        shell.status().unwrap().success()
    })
}

/// QEMUs that may not look into the daemon's `/proc`, nor into each other's, and connect to none of its sockets.
#[test]
fn qemus_of_other_users_are_given_each_others_memory() {
    let names = ["a", "b"];
    let users = [65534, 64055];
    let rig = Rig::new(Some(&config(&names)));
    let [a, b] = [0, 1].map(|index| {
        let user = format!("user={0}:{0}", users[index]);
        power_on(&rig, names[index], &["-run-with", &user])
    });
    for (name, qemu) in names.iter().zip([&a, &b]) {
        until("the view", || mapped(qemu) == [1, 1]);
        assert_eq!(standing(&rig, name), "joined");
        assert_eq!(reason(&rig, name), "");
    }

    step("neither can write the other's memory, or has more descriptors of it than one");
    for (qemu, user) in [(&a, users[0]), (&b, users[1])] {
        assert_eq!(
            fs::metadata(format!("/proc/{}", qemu.id())).unwrap().uid(),
            user
        );
        until("its own memory and the other's", || {
            memories(qemu).len() == 2
        });
        for memory in memories(qemu) {
            assert_eq!(opened_again(&memory, user), [true, false]);
        }
    }
}

#[test]
fn memory_that_peers_could_not_see_is_refused_with_the_reason() {
    let rig = Rig::new(Some(&config(&["a", "b", "c", "d", "e", "f"])));
    let memfd = |id: &str| format!("memory-backend-memfd,id={id},size=64M,share=on");
    let [one, two, more] = ["one", "two", "more"].map(memfd);
    let a = power_on(&rig, "a", &[]);
    let node = |id: &str| format!("node,memdev={id}");

    step("a guest with one NUMA node joins");
    let b = ["-m", "64M", "-object", &one, "-numa", &node("one")];
    let b = power_on_with(&rig, "b", &b);
    for qemu in [&a, &b] {
        until("the view", || mapped(qemu) == [1, 1]);
    }
    assert_eq!(reason(&rig, "b"), "");

    step("others do not");
    let nodes = [node("one"), node("two")];
    let c = ["-object", &one, "-object", &two, "-m", "128M"];
    let c = [&c[..], &["-numa", &nodes[0], "-numa", &nodes[1]]].concat();
    let dimm = "pc-dimm,id=more-memory,memdev=more";
    let virtio_mem = "virtio-mem-pci,id=more-memory,memdev=more,requested-size=0";
    let room = ["-m", "64M,slots=2,maxmem=1G", "-object", &more];
    let file = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = file.path().join("memory").display().to_string();
    let file = format!("memory-backend-file,id=ram,size=64M,share=on,mem-path={file}");
    let refused = [
        ("c", c, "2 objects"),
        (
            "d",
            [&MEMORY, &room[..], &["-device", dimm]].concat(),
            "`dimm`, more-memory",
        ),
        (
            "e",
            [&MEMORY, &room[..], &["-device", virtio_mem]].concat(),
            "`virtio-mem`, more-memory",
        ),
        (
            "f",
            [&MEMORY[..2], &["-object", &file], &MEMORY[4..]].concat(),
            "`memory-backend-file`",
        ),
    ];
    for (name, options, why) in refused {
        let qemu = power_on_with(&rig, name, &options);
        until("the reason", || reason(&rig, name).contains(why));
        assert_ne!(standing(&rig, name), "joined");
        drop(qemu);
    }
    assert_eq!([mapped(&a), mapped(&b)], [[1, 1]; 2]);
}
