//! TCP connections of unmodified programs by AF_VSOCK, between two VMs with stock kernels.

use std::path::PathBuf;

use vm_harness::vm::{Spec, Vm};

use crate::common::{root, vicinity};
use crate::direct_routes::agent;
use crate::guest::{give_address, iperf, sh, wait_for_port};
use crate::rig::{Rig, home, ip, step};

pub(crate) const CONFIG: &str = "
[[network]]
name = \"lan\"
[[network.port]]
vm = \"web\"
mac = \"52:54:00:98:00:01\"
allowed-ips = [\"10.98.0.1\"]
[[network.port]]
vm = \"db\"
mac = \"52:54:00:98:00:02\"
allowed-ips = [\"10.98.0.2\"]
[[vsock]]
vm = \"web\"
cid = 3
groups = [\"shop\"]
ports = []
[[vsock]]
vm = \"db\"
cid = 4
groups = [\"shop\"]
ports = [5201, \"7000-7010\"]
";

/// Memory of a guest with the agent, which has its debugging information.
const MEMORY_MIB: u32 = 512;

/// Where the package has the library.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/vicinity/libvicinity-sockets.so";

const CONFORMANCE: &str = "/usr/local/bin/conformance";

/// Builds a file of guest/sockets.
pub(crate) fn make(name: &str) -> PathBuf {
    let file = home().join("sockets").join(name);
    let mut command = vm_harness::host::command("make");
    command.arg("--silent").arg("--directory");
    command.arg(root().join("guest/sockets"));
    command.arg(format!("BUILD={}", home().join("sockets").display()));
    assert!(command.arg(&file).status().unwrap().success());
    file
}

/// Puts the library, the agent and the conformance program into the guests of a host.
pub(crate) fn with_sockets(rig: Rig) -> Rig {
    let file = |path: &'static str| path.trim_start_matches('/');
    rig.with_file(
        &make("libvicinity-sockets.so"),
        file(LIBRARY),
        "with-sockets",
    )
    .with_file(&make("conformance"), file(CONFORMANCE), "with-conformance")
    .with_file(
        &agent(),
        "usr/local/bin/vicinity-agent",
        "with-sockets-agent",
    )
}

/// Returns a VM with a NIC and a socket device.
fn spec(rig: &Rig, vm: &str, mib: u32) -> Spec {
    let config = rig.folder().join("vicinity.toml");
    let config = config.to_str().unwrap();
    let mut spec = rig.bare(vm);
    spec.memory_mib = mib;
    let memory = format!("{mib}M");
    spec.qemu_args = rig.qemu_args_with(vm, &["--memory", &memory, "--config", config]);
    let mut command = vicinity();
    command.args(["vsock", "qemu-args", vm, "--json", "--runtime-dir"]);
    let output = command.arg(rig.folder().join("run")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let more: Vec<String> = serde_json::from_slice(&output.stdout).unwrap();
    spec.qemu_args.extend(more);
    spec
}

/// Boots both VMs, each with its address and its agent.
pub(crate) fn boot(rig: &Rig, mib: u32) -> [Vm; 2] {
    let vms = rig.boot(["web", "db"].map(|vm| spec(rig, vm, mib)));
    for (number, vm) in (1..).zip(&vms) {
        give_address(vm, number);
        start_agent(vm);
    }
    vms
}

fn start_agent(vm: &Vm) {
    sh(
        vm,
        "setsid vicinity-agent sockets </dev/null >>/tmp/agent 2>&1 & echo $! >/tmp/agent.pid",
    );
}

/// Returns the command that runs a program with the library.
pub(crate) fn run(program: &str) -> String {
    format!("LD_PRELOAD={LIBRARY} {program}")
}

/// Starts a server.
pub(crate) fn serve(vm: &Vm, command: &str, port: u16) {
    sh(
        vm,
        &format!("setsid env {command} </dev/null >>/tmp/server 2>&1 &"),
    );
    wait_for_port(vm, port);
}

/// Returns the family by which a new connection of a client goes.
fn family(from: &Vm, client: &str, port: u16) -> String {
    sh(from, &format!("{client} family {} {port}", ip(2)))
}

/// Waits until new connections of clients with the library go by this family.
pub(crate) fn until_family(from: &Vm, family: &str, port: u16) {
    until_said(from, "family", family, port);
}

/// Waits until the conformance program as a server claims the connections of clients with the library. A server that
/// began before its agent announces itself by its first claim, and that connection may be forwarded.
fn until_claimed(from: &Vm, port: u16) {
    until_said(from, "server-family", "vsock", port);
}

fn until_said(from: &Vm, question: &str, family: &str, port: u16) {
    let now = run(&format!("{CONFORMANCE} {question} {} {port}", ip(2)));
    let until = format!(
        "for n in $(seq 100); do test \"$({now} 2>&1)\" = {family} && exit; sleep 0.2; done; {now} 2>&1; cat /tmp/agent >&2; \
         exit 1"
    );
    sh(from, &until);
}

/// Returns the bytes that a VM has sent by AF_VSOCK.
pub(crate) fn sent(rig: &Rig, vm: &str) -> u64 {
    let output = rig.daemon().command(&["vsock", "list", "--json"]);
    let all: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let one = all.iter().find(|one| one["vm"] == vm).unwrap();
    one["sent_bytes"].as_u64().unwrap()
}

#[test]
fn unmodified_programs_connect_by_af_vsock_and_fall_back_to_tcp() {
    let rig = with_sockets(Rig::new(Some(CONFIG)));
    let [web, db] = boot(&rig, MEMORY_MIB);
    serve(&db, &run(&format!("{CONFORMANCE} server 7000")), 7000);
    serve(&db, &format!("{CONFORMANCE} server 7002"), 7002);
    until_family(&web, "vsock", 7000);
    until_claimed(&web, 7000);

    step("the conformance program, to a server with the library and to one without");
    for (port, server) in [(7000, "vsock"), (7002, "inet")] {
        let client = run(&format!("{CONFORMANCE} client {} {port}", ip(2)));
        let said = sh(&web, &format!("SERVER_FAMILY={server} {client} 2>&1"));
        assert_eq!(said, "passed");
    }

    step("programs without the library, of other users, and with more rights than their user");
    assert_eq!(family(&web, CONFORMANCE, 7000), "inet");
    let as_nobody = |program: &str| {
        let user = "setpriv --reuid 65534 --regid 65534 --clear-groups";
        format!("{user} env {}", run(program))
    };
    assert_eq!(family(&web, &as_nobody(CONFORMANCE), 7000), "vsock");
    let suid = "/usr/local/bin/suid";
    sh(&web, &format!("install --mode 4755 {CONFORMANCE} {suid}"));
    assert_eq!(family(&web, &as_nobody(suid), 7000), "inet");

    step("iperf3");
    serve(&db, &run("iperf3 --server"), 5201);
    let before = sent(&rig, "web");
    let report = sh(
        &web,
        &run(&format!("iperf3 --client {} --bytes 8M --json", ip(2))),
    );
    assert!(report.contains("sum_received"), "{report}");
    assert!(sent(&rig, "web") - before >= 8 << 20);
    // Without the library, the same server serves by TCP.
    let before = sent(&rig, "web");
    iperf(&web, &ip(2), "--bytes 1M");
    assert_eq!(sent(&rig, "web"), before);

    step("a packet filter in the server's VM");
    sh(
        &db,
        "nft add table inet f; nft add chain inet f in '{ type filter hook input priority 0; }'; \
         nft add rule inet f in tcp dport 7000 drop",
    );
    until_family(&web, "inet", 7002);
    let client = run(&format!("timeout 2 {CONFORMANCE} family {} 7000", ip(2)));
    let refused = sh(&web, &format!("{client} || echo refused"));
    assert_eq!(refused, "refused");
    sh(&db, "nft flush ruleset");
    until_family(&web, "vsock", 7000);

    step("the agent of the server's VM is killed");
    sh(&db, "kill -9 $(cat /tmp/agent.pid)");
    until_family(&web, "inet", 7000);
    start_agent(&db);
    until_family(&web, "vsock", 7000);

    step("an agent is started before the last one ends");
    let last = sh(&db, "cat /tmp/agent.pid");
    start_agent(&db);
    let end = format!("sleep 1; kill {last}; while [ -d /proc/{last} ]; do sleep 0.1; done");
    sh(&db, &end);
    until_family(&web, "vsock", 7000);
    let rules = sh(&db, "ip rule");
    assert!(rules.contains("lookup 7669"), "{rules}");
}

#[test]
fn the_agents_constants_are_those_of_the_library() {
    let header = root().join("guest/sockets/layout.h");
    let header = std::fs::read_to_string(header).unwrap();
    for (name, value) in [
        ("TABLE_PATH", "\"/run/vicinity-agent/sockets\""),
        ("CLAIM_PATH", "\"/run/vicinity-agent/claim.sock\""),
        ("AGENT_MARK", "0x76696373u"),
        ("PORT_PREFIX", "0x56u"),
    ] {
        assert!(
            header.contains(&format!("#define {name} {value}")),
            "{name}"
        );
    }
    let sources = root().join("guest/agent/src/sockets");
    for (file, text) in [
        ("table.rs", "\"/run/vicinity-agent/sockets\""),
        ("claim.rs", "\"/run/vicinity-agent/claim.sock\""),
        ("routing.rs", "0x7669_6373"),
        ("address.rs", "0x56"),
    ] {
        let source = std::fs::read_to_string(sources.join(file)).unwrap();
        assert!(source.contains(text), "{file}");
    }
}
