//! C programs that use MX in many VMs and on the host: each member sends messages to all members.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use vm_harness::host::ChildProcess;
use vm_harness::vm::Vm;

use crate::common::mx::Installed;
use crate::common::until;
use crate::message::{counted, join, member};
use crate::rig::{Rig, step};

/// Time limit of a command on a machine that is busy with forty VMs.
const LIMIT: Duration = Duration::from_secs(600);

/// Memory of a guest. While the guest unpacks its files, memory contains them twice.
const MEMORY_MIB: u32 = 384;

/// Messages that the program sends to each of its peers.
const KINDS: usize = 3;

/// Endpoint of each member.
const ENDPOINT: u32 = 9;

/// Returns the members: `grouped` VMs of one trust group, `alone` VMs without a trust group, and
/// the host.
fn members(grouped: usize, alone: usize) -> (Vec<String>, String) {
    let mut names: Vec<String> = (0..grouped + alone).map(|n| format!("vm{n}")).collect();
    names.push("host".to_owned());
    let member = |(number, name): (usize, &String)| {
        let group = match number < grouped {
            true => "group = \"g\"\n",
            false => "",
        };
        format!("[[message.member]]\nname = \"{name}\"\n{group}")
    };
    let config = names.iter().enumerate().map(member).collect();
    (names, config)
}

/// The library and the program, for the host and for guests.
struct Program {
    folder: TempDir,
    installed: Installed,
}

impl Program {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let installed = Installed::new(folder.path().join("mx"));
        let program = Self { folder, installed };
        let source = "examples/all_to_all.c";
        program.installed.compile(source, &program.file());
        program
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("all_to_all")
    }

    fn library(&self) -> PathBuf {
        self.installed.libraries().join("libmyriexpress.so")
    }

    /// Puts the library and the program into the guests, at the places of Debian's packages.
    fn inside(&self, rig: Rig) -> Rig {
        let rig = rig.with_file(&self.file(), "usr/local/bin/all_to_all", "all-to-all");
        let library = "usr/lib/libmyriexpress.so";
        rig.with_file(&self.library(), library, "with-myriexpress")
    }

    fn on_host(&self, rig: &Rig) -> Command {
        let mut command = vm_harness::host::command(self.file());
        command.env("LD_LIBRARY_PATH", self.installed.libraries());
        command.env("VICINITY_RUNTIME_DIR", rig.daemon().path(""));
        command.stdin(Stdio::null());
        command
    }
}

/// Returns the number of messages that the host passed on.
fn mediated(rig: &Rig) -> u64 {
    let members = counted(rig).into_iter();
    members
        .map(|member| member["messages"].as_u64().unwrap())
        .sum()
}

fn exchange(grouped: usize, alone: usize) {
    let (names, config) = members(grouped, alone);
    let program = Program::new();
    let rig = program.inside(Rig::isolated(&config).with_program());
    step("VMs boot");
    let vms: Vec<Vm> = names[..grouped + alone]
        .iter()
        .map(|name| {
            let mut spec = member(&rig, name);
            spec.memory_mib = MEMORY_MIB;
            rig.power_on(spec)
        })
        .collect();
    for vm in &vms {
        vm.wait_ready(LIMIT).unwrap();
        let _goes_on = join(vm, LIMIT);
    }
    step("every member sends every other member a message of each protocol");
    let peers: Vec<String> = names
        .iter()
        .map(|name| format!("{name}:{ENDPOINT}"))
        .collect();
    let jobs: Vec<_> = vms
        .iter()
        .enumerate()
        .map(|(rank, vm)| {
            let command = format!("exec all_to_all {rank} {}", peers.join(" "));
            vm.start(&command).unwrap()
        })
        .collect();
    let mut host = program.on_host(&rig);
    host.arg(vms.len().to_string()).args(&peers);
    let mut host = ChildProcess::spawn(host).unwrap();
    for job in jobs {
        let ended = job.wait(LIMIT).unwrap();
        assert!(ended.stdout.contains(" has all "), "{ended:?}");
    }
    until("the end of the host's program", || {
        host.ended().unwrap().is_some()
    });
    assert!(host.ended().unwrap().unwrap().success());
    // The host does not pass on messages of a member to itself, nor those within the group.
    let pairs = names.len() * (names.len() - 1) - grouped * grouped.saturating_sub(1);
    assert_eq!(mediated(&rig), (pairs * KINDS) as u64);
}

#[test]
#[ignore = "`make soak` runs it; vms_and_hosts_exchange_messages has four VMs"]
fn c_programs_of_vms_and_the_host_exchange_all_to_all() {
    exchange(3, 3);
}

#[test]
#[ignore = "long: make soak"]
fn as_many_vms_as_fit_exchange_all_to_all() {
    // The 48 links of a group's memory suffice: 36 between its VMs, nine with the host.
    exchange(9, 0);
    // The links of a VM's memory suffice, too: 39 with other VMs, one with the host.
    exchange(0, 40);
}
