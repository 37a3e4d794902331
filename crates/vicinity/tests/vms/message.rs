//! Messages between VMs, and between a VM and the host: the program itself runs in the guests.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use lab::host::Tied;
use lab::vm::{Job, Spec, Vm};
use rustix::process::{Pid, Signal, kill_process};

use crate::rig::{Rig, step};

/// On a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// `vicinity message serve` for VMs `a` and `b` of one trust group, VM `c`, and the host.
fn serve(folder: &Path) -> Tied {
    let mut command = lab::host::command(env!("CARGO_BIN_EXE_vicinity"));
    command.arg("--runtime-dir").arg(folder);
    command.args(["message", "serve", "a=g", "b=g", "c", "host"]);
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let serve = Tied::spawn(command).unwrap();
    while !folder.join("message/gateway.sock").exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    serve
}

fn member(rig: &Rig, folder: &Path, name: &str) -> Spec {
    let mut command = crate::common::vicinity();
    command.arg("--runtime-dir").arg(folder);
    command.args(["message", "qemu-args", name]);
    let output = command.output().unwrap();
    let mut spec = rig.bare(name);
    spec.memory_mib = 512;
    spec.qemu_args = shlex::split(&String::from_utf8(output.stdout).unwrap()).unwrap();
    spec
}

/// Become a member, and answer at endpoint 7.
fn join(vm: &Vm) -> [Job<'_>; 2] {
    let wait = |file: &str| {
        let wait = format!("until test -S /run/vicinity/message/{file}; do sleep 0.1; done");
        vm.check(&wait, LIMIT).unwrap();
    };
    let gateway = vm.start("exec vicinity message join").unwrap();
    wait("gateway.sock");
    let answerer = vm
        .start("exec vicinity message answer --endpoint 7")
        .unwrap();
    wait("7.sock");
    [gateway, answerer]
}

fn ping(vm: &Vm, peer: &str, length: u32, count: u32) -> String {
    let command = format!("vicinity message ping {peer} --length {length} --count {count}");
    vm.check(&command, LIMIT).unwrap()
}

#[test]
fn vms_and_the_host_exchange_messages() {
    let rig = Rig::new(None).with_program();
    let folder = rig.folder().join("plane");
    std::fs::create_dir(&folder).unwrap();
    let _serve = serve(&folder);
    let vms = rig.boot(["a", "b", "c"].map(|name| member(&rig, &folder, name)));
    let [a, b, c] = &vms;

    step("every VM is a member");
    let [_in_a, _in_b, in_c] = vms.each_ref().map(join);

    step("direct and mediated, every protocol, each message checked");
    for peer in ["b:7", "c:7"] {
        for length in [0, 8, 5000, 100_000, 1 << 20] {
            println!("a to {peer}: {}", ping(a, peer, length, 20).trim());
        }
    }
    println!("c to b: {}", ping(c, "b:7", 5000, 20).trim());

    step("the host and a VM, both ways");
    let mut answer = lab::host::command(env!("CARGO_BIN_EXE_vicinity"));
    answer.arg("--runtime-dir").arg(&folder);
    answer.args(["message", "answer", "--endpoint", "7"]);
    answer.stdin(Stdio::null()).stderr(Stdio::null());
    let answerer = Tied::spawn(answer).unwrap();
    while !folder.join("message/7.sock").exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("a to host: {}", ping(a, "host:7", 5000, 20).trim());
    let host = |peer: &str| {
        let mut command = crate::common::vicinity();
        command.arg("--runtime-dir").arg(&folder);
        command.args([
            "message", "ping", peer, "--length", "100000", "--count", "20",
        ]);
        command.output().unwrap()
    };
    let output = host("a:7");
    assert!(output.status.success(), "{output:?}");
    drop(answerer);

    step("a killed process is missed; the others are not");
    let endless = |peer| format!("vicinity message ping {peer} --count 5000000");
    let pinging = a.start(&endless("c:7")).unwrap();
    let [_gateway_of_c, answerer_in_c] = in_c;
    answerer_in_c.kill().unwrap();
    let ended = pinging.wait(LIMIT).unwrap();
    assert!(ended.stderr.contains("not open"), "{ended:?}");
    ping(a, "b:7", 8, 20);

    step("so is a VM");
    let pinging = a.start(&endless("b:7")).unwrap();
    let qemu = Pid::from_raw(i32::try_from(b.id()).unwrap()).unwrap();
    kill_process(qemu, Signal::KILL).unwrap();
    let ended = pinging.wait(LIMIT).unwrap();
    assert!(ended.stderr.contains("not open"), "{ended:?}");
    assert!(!host("b:7").status.success());
    ping(c, "a:7", 8, 20);
}
