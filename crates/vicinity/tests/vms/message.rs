//! Messages between VMs of one host and of two hosts, and between VMs and hosts. The program under test also
//! runs in the guests. The hosts are network namespaces with an Ethernet link between them.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use vm_harness::host::{ChildProcess, run};
use vm_harness::vm::{Job, SMP_MAXCPUS_2, Spec, Vm};

use crate::common::until;
use crate::guest;
use crate::rig::{Rig, step};

/// Time limit of a command on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// VMs `a`, `b` and `d` of one trust group.
const ALPHA: &str = "
[message]
uplink = { interface = \"mx\", host-name = \"alpha\" }
[[message.member]]
name = \"a\"
group = \"g\"
[[message.member]]
name = \"b\"
group = \"g\"
[[message.member]]
name = \"d\"
group = \"g\"
[[message.member]]
name = \"host\"
";

const BETA: &str = "
[message]
uplink = { interface = \"mx\", host-name = \"beta\" }
[[message.member]]
name = \"c\"
[[message.member]]
name = \"host\"
";

/// Path in the guests of the module that passes interrupts to programs.
pub(crate) const MODULE: &str = "/lib/modules/vicinity_wake.ko";

/// Puts that module into the guests.
pub(crate) fn with_wake(rig: Rig) -> Rig {
    let module = guest::module("wake", rig.kernel());
    rig.with_file(&module, &MODULE[1..], "with-wake")
}

/// Two network namespaces with a link between them.
pub(crate) struct Link(pub(crate) [String; 2]);

fn ip(words: &[&str]) {
    let mut command = vm_harness::host::command("ip");
    command.args(words);
    run(command).unwrap();
}

impl Link {
    pub(crate) fn new(mtu: &str) -> Self {
        let link = Self(["a", "b"].map(|part| format!("vms-{}-{part}", std::process::id())));
        for name in &link.0 {
            ip(&["netns", "add", name]);
        }
        let [a, b] = &link.0;
        ip(&[
            "-n", a, "link", "add", "mx", "mtu", mtu, "type", "veth", "peer", "name", "mx", "mtu",
            mtu, "netns", b,
        ]);
        for name in &link.0 {
            ip(&["-n", name, "link", "set", "mx", "up"]);
        }
        link
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for name in &self.0 {
            let mut command = vm_harness::host::command("ip");
            // The namespace may never have been created.
            drop(command.args(["netns", "del", name]).output());
        }
    }
}

/// Returns the command `vicinity message` on a host.
fn message(rig: &Rig, words: &[&str]) -> std::process::Command {
    let mut command = vm_harness::host::command(env!("CARGO_BIN_EXE_vicinity"));
    command.env_remove("VICINITY_RUNTIME_DIR");
    command.arg("--runtime-dir").arg(rig.daemon().path(""));
    command.arg("message").args(words);
    command.stdin(Stdio::null());
    command
}

pub(crate) fn member(rig: &Rig, name: &str) -> Spec {
    let output = message(rig, &["qemu-args", name]).output().unwrap();
    let mut spec = rig.bare(name);
    spec.memory_mib = 512;
    spec.qemu_args = shlex::split(&String::from_utf8(output.stdout).unwrap()).unwrap();
    spec
}

/// Starts a program in a VM that opens a socket on its board. Returns when the socket exists.
pub(crate) fn open<'vm>(vm: &'vm Vm, program: &str, socket: &str, limit: Duration) -> Job<'vm> {
    let job = vm.start(program).unwrap();
    let there = format!("until test -S /run/vicinity/message/{socket}; do sleep 0.1; done");
    vm.check(&there, limit).unwrap();
    job
}

/// Makes a VM a member.
pub(crate) fn join(vm: &Vm, limit: Duration) -> Job<'_> {
    open(vm, "exec vicinity message join", "gateway.sock", limit)
}

/// Makes a VM a member that answers at endpoint 7.
fn join_and_answer(vm: &Vm) -> [Job<'_>; 2] {
    let gateway = join(vm, LIMIT);
    let answer = "exec vicinity message answer --endpoint 7";
    [gateway, open(vm, answer, "endpoints/7.sock", LIMIT)]
}

/// Starts a process that answers at endpoint 7 of a host.
fn answer(rig: &Rig) -> ChildProcess {
    let mut command = message(rig, &["answer", "--endpoint", "7"]);
    command.stderr(Stdio::null());
    let answerer = ChildProcess::spawn(command).unwrap();
    for file in ["endpoints/7.sock", "gateway.sock"] {
        while !rig.daemon().path("message").join(file).exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    answerer
}

fn ping(vm: &Vm, peer: &str, length: u32, count: u32) -> String {
    let command = format!("vicinity message ping {peer} --length {length} --count {count}");
    let said = vm.check(&command, LIMIT).unwrap();
    println!("{} to {peer}: {}", vm.name(), said.trim());
    said
}

/// Returns the host's counters of each member.
pub(crate) fn counted(rig: &Rig) -> Vec<serde_json::Value> {
    let output = message(rig, &["counters", "--json"]).output().unwrap();
    let counters: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    counters["members"].as_array().unwrap().clone()
}

/// Returns how many links a member has now.
fn links(rig: &Rig, name: &str) -> u64 {
    let mut members = counted(rig).into_iter();
    let member = members.find(|member| member["name"] == name).unwrap();
    member["links"].as_u64().unwrap()
}

#[test]
fn vms_and_hosts_exchange_messages() {
    let link = Link::new("4200");
    let [alpha, beta] = &link.0;
    let alpha = with_wake(Rig::within(alpha, ALPHA).with_program());
    let beta = alpha.beside_within(beta, BETA);
    let vms = [(&alpha, "a"), (&alpha, "b"), (&beta, "c"), (&alpha, "d")];
    let vms = alpha.boot(vms.map(|(rig, name)| {
        let mut spec = member(rig, name);
        if name != "d" {
            // With room for a second CPU, QEMU makes an emulated guest's compare-and-swap atomic
            // also with respect to other VMs.
            spec.qemu_args.extend(SMP_MAXCPUS_2.map(str::to_owned));
        }
        spec
    }));
    let [a, b, c, d] = &vms;
    let _hosts = [&alpha, &beta].map(answer);

    step("every VM is a member, two with interrupts");
    for vm in [a, b] {
        vm.check(&format!("insmod {MODULE}"), LIMIT).unwrap();
    }
    let [_in_a, _in_b, in_c, _in_d] = vms.each_ref().map(join_and_answer);

    step("each member lists the members, also those of other hosts");
    let all = "for name in alpha beta a b c; do \
               until grep --silent \" $name$\" /run/vicinity/message/hosts; do sleep 0.1; done; \
               done";
    for vm in &vms {
        vm.check(all, LIMIT).unwrap();
    }

    step("direct, mediated and between hosts: every protocol, and every message is checked");
    for peer in ["b:7", "alpha:7", "c:7"] {
        for length in [0, 8, 5000, 100_000, 1 << 20] {
            let said = ping(a, peer, length, 20);
            let how = match (peer, length) {
                (_, ..=32_768) => "us\n",
                ("b:7", _) => "us, copied once",
                _ => "us, streamed\n",
            };
            assert!(said.contains(how), "{said}");
        }
    }
    // A side that loses its processor does not copy, and then the other side copies everything. So
    // repeat until both sides have copied.
    while !ping(a, "b:7", 4 << 20, 20).contains("by both sides") {}
    let alone = "20 round trips of 4194304 B";
    for (vm, peer) in [(a, "d:7"), (d, "a:7")] {
        let said = ping(vm, peer, 4 << 20, 20);
        assert!(
            said.contains(alone) && said.ends_with("us, copied once\n"),
            "{said}"
        );
    }
    for peer in ["b:7", "d:7"] {
        let perf = format!("vicinity message perf {peer} --lengths 1048576");
        a.check(&perf, LIMIT).unwrap();
    }
    ping(b, "beta:7", 100_000, 20);
    ping(c, "alpha:7", 5000, 20);
    let from_beta = |peer| {
        let words = ["ping", peer, "--length", "100000", "--count", "20"];
        message(&beta, &words).output().unwrap()
    };
    let output = from_beta("a:7");
    assert!(output.status.success(), "{output:?}");

    step("an interrupt wakes a sleeping program in a VM");
    let interrupts = || {
        let line = b
            .check("grep vicinity_wake /proc/interrupts", LIMIT)
            .unwrap();
        let count = line.split_whitespace().nth(1).unwrap();
        count.parse::<u64>().unwrap()
    };
    let awake = "grep --no-filename --silent '(vicinity) R' /proc/[0-9]*/stat";
    b.check(&format!("while {awake}; do :; done"), LIMIT)
        .unwrap();
    let before = interrupts();
    ping(a, "b:7", 8, 20);
    assert!(interrupts() > before, "{before}");

    step("the data plane is killed: running VMs connect to the next one");
    let killed = alpha.daemon().signal_process("messages", Signal::KILL);
    until("another process", || {
        let now = alpha.daemon().process("messages");
        now.is_some_and(|id| id != killed)
    });
    let answers = |peer: &str| {
        let ping = format!("until vicinity message ping {peer} --count 5; do sleep 0.2; done");
        a.check(&ping, LIMIT).unwrap();
    };
    for peer in ["b:7", "alpha:7", "c:7"] {
        answers(peer);
        let said = ping(a, peer, 100_000, 20);
        assert_eq!(said.contains("copied once"), peer == "b:7", "{said}");
    }

    step(
        "the peers of a killed process get errors, also on the other host; other links are unaffected",
    );
    let endless = |peer| format!("vicinity message ping {peer} --count 5000000");
    let pinging = a.start(&endless("c:7")).unwrap();
    let [_gateway_of_c, answerer_in_c] = in_c;
    answerer_in_c.kill().unwrap();
    let ended = pinging.wait(LIMIT).unwrap();
    assert!(ended.stderr.contains("not open"), "{ended:?}");
    ping(a, "b:7", 8, 20);

    step("the peers of a killed VM get errors");
    until("the end of the last link", || links(&alpha, "b") == 0);
    let pinging = a.start(&endless("b:7")).unwrap();
    until("a link", || links(&alpha, "b") == 1);
    let qemu = Pid::from_raw(i32::try_from(b.id()).unwrap()).unwrap();
    kill_process(qemu, Signal::KILL).unwrap();
    let ended = pinging.wait(LIMIT).unwrap();
    assert!(ended.stderr.contains("not open"), "{ended:?}");
    assert!(!from_beta("b:7").status.success());
    ping(c, "a:7", 8, 20);
}
