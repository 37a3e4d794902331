//! Connections between a trust group's VMs. The guests' agent routes them by the direct channel
//! while the channel works, and otherwise by the ordinary NIC. Applications do not notice the
//! change.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use vm_harness::vm::{Spec, Vm};

use crate::common::until;
use crate::direct::{insert, is_well, standing, until_devices, with_module, words};
use crate::guest::{GUARD, give_address, serve_iperf, sh, wait_for_port};
use crate::load::Load;
use crate::migration::{Hosts, Stream, arriving, check};
use crate::rig::{Rig, home, ip, step};
use crate::ssh::Session;

/// Path of the agent in the guests.
const AGENT: &str = "/usr/local/bin/vicinity-agent";

const CONFIG: &str = "
[[network]]
name = \"lan\"
uplink = { tap = \"vic0\" }
[[network.port]]
vm = \"red\"
[[network.port]]
vm = \"blue\"
[[direct.group]]
name = \"g\"
members = [\"red\", \"blue\"]
";

/// Builds the agent as for guests.
pub(crate) fn agent() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/agent");
    let mut command = vm_harness::host::command(script);
    // Figures are those of what the package has.
    let profile = if cfg!(debug_assertions) {
        "dev"
    } else {
        "release"
    };
    command.args(["--profile", profile]);
    command.env("CARGO_TARGET_DIR", home().join("agent"));
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success());
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

fn host(rig: Rig, agent: &Path) -> Rig {
    with_module(rig).with_file(agent, &AGENT[1..], "with-agent")
}

/// Returns a VM that has an ordinary NIC and may join.
fn member(rig: &Rig, name: &str) -> Spec {
    let config = rig.folder().join("vicinity.toml");
    let config = config.to_str().unwrap();
    let nic = [
        "qemu-args",
        name,
        "--one-line",
        "--memory",
        "512M",
        "--config",
        config,
    ];
    let mut spec = rig.bare(name);
    spec.memory_mib = 512;
    spec.qemu_args = words(rig, &nic);
    spec.qemu_args
        .extend(words(rig, &["direct", "qemu-args", name]));
    spec
}

/// Waits until the guest routes packets to this address by this device, and packets arrive.
fn until_by(vm: &Vm, to: &str, device: &str) {
    let by = format!("ip route get {to} | grep -q 'dev {device} '");
    sh(vm, &format!("until {by}; do sleep 0.05; done"));
    let rises = |what: &str| format!("cat /sys/class/net/{device}/statistics/{what}_packets");
    for what in ["tx", "rx"] {
        let count = rises(what);
        sh(
            vm,
            &format!("n=$({count}); until [ $({count}) -gt $((n + 20)) ]; do sleep 0.05; done"),
        );
    }
}

fn start_agent(vm: &Vm) {
    sh(
        vm,
        &format!("setsid {AGENT} </dev/null >/tmp/agent 2>&1 & echo $! >/tmp/agent.pid"),
    );
}

/// Returns QEMU's parameters for a migration that ends soon, because this test is not about
/// migration itself.
fn soon() -> Value {
    json!({"max-bandwidth": 400 << 20, "downtime-limit": 1000})
}

fn leave(rig: &Rig, vm: &str) {
    let output = rig.daemon().command(&["direct", "leave", vm]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(standing(rig, vm), "out");
}

#[test]
fn connections_survive_every_change_of_channel() {
    let agent = agent();
    let one = host(Rig::isolated(CONFIG), &agent);
    let two = host(one.beside(CONFIG), &agent);
    let hosts = Hosts::cabled(one, two);
    let (one, two) = (&hosts.one, &hosts.two);
    let [red, blue] = one.boot(["red", "blue"].map(|name| member(one, name)));
    for (number, vm) in (1..).zip([&red, &blue]) {
        give_address(vm, number);
    }
    serve_iperf(&blue);
    sh(&blue, "iperf3 --server --daemon --port 5202");
    wait_for_port(&blue, 5202);

    step("before: frames pass through the switch");
    let load = Load::start(&red, &ip(2), 5201);
    let stream = Stream::start(&red, &blue, &ip(2));
    let mut session = Session::start(&red, &blue, &ip(2));
    until_by(&red, &ip(2), "eth0");

    session.next("module and agent come");
    step("with module and agent: frames pass through the direct device");
    for vm in [&red, &blue] {
        insert(vm);
        start_agent(vm);
    }
    until_by(&red, &ip(2), "direct0");
    until_by(&blue, &ip(1), "direct0");

    // The connection begins with the direct device's long packets.
    let young = Load::start(&red, &ip(2), 5202);
    young.goes_on();

    session.next("the module goes and comes");
    step("one VM unloads the module, and loads it again");
    sh(&blue, "rmmod vicinity_direct");
    until_by(&red, &ip(2), "eth0");
    young.goes_on();
    insert(&blue);
    until_by(&red, &ip(2), "direct0");

    session.next("an agent ends, and another starts");
    step("an agent ends, and starts again");
    sh(&red, "kill $(</tmp/agent.pid)");
    until_by(&red, &ip(2), "eth0");
    start_agent(&red);
    until_by(&red, &ip(2), "direct0");

    session.next("the peer leaves, and moves");
    step("one VM leaves, and migrates to the other host");
    leave(one, "blue");
    until_by(&red, &ip(2), "eth0");
    young.goes_on();
    let away = arriving(two, member(two, "blue"), 1);
    check(&blue.migrate(&away, &soon()).unwrap().wait(GUARD).unwrap());
    away.wait_ready(GUARD).unwrap();
    drop(blue);
    until_by(&red, &ip(2), "eth0");
    until("to join there", || standing(two, "blue") == "joined");

    session.next("it moves back, and joins");
    step("it migrates back");
    leave(two, "blue");
    let back = arriving(one, member(one, "blue"), 2);
    check(&away.migrate(&back, &soon()).unwrap().wait(GUARD).unwrap());
    back.wait_ready(GUARD).unwrap();
    drop(away);
    until("to join again", || standing(one, "blue") == "joined");
    until_devices(&back, 2);
    until_by(&red, &ip(2), "direct0");
    until_by(&back, &ip(1), "direct0");
    young.goes_on();

    step("no data was lost, and all checks pass");
    stream.stop(&back);
    session.stop();
    for load in [load, young] {
        println!("longest pause of iperf3: {:.1} s", load.stop());
    }
    for vm in [&red, &back] {
        println!("{}: {}", vm.name(), sh(vm, "cat /tmp/agent"));
        is_well(vm);
    }
}
