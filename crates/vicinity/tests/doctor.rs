//! `vicinity doctor` with a daemon whose operator made every mistake at once.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::os::unix::net::UnixListener;
use std::process::Stdio;

use common::{Daemon, page};
use serde_json::Value;
use vm_harness::host::{ChildProcess, command};
use window::ivshmem::Client;
use window::region::Region;

/// Returns what `vicinity doctor` prints for a served object: the problem and the remedy.
fn said(checks: &[Value], name: &str) -> Vec<String> {
    let checks = checks.iter().filter(|check| check["purpose"] == "running");
    let checks = checks.filter(|check| check["name"] == name);
    checks
        .map(|check| format!("{} -> {}", check["found"], check["remedy"]))
        .collect()
}

fn examine(daemon: &Daemon) -> Vec<Value> {
    let output = daemon.command(&["doctor", "--json"]);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Starts a QEMU with the printed options, one of them changed.
fn qemu(daemon: &Daemon, vm: &str, change: [&str; 2]) -> ChildProcess {
    let output = daemon.command(&["qemu-args", vm, "--network", "lan", "--memory", "64M"]);
    assert!(output.status.success(), "{output:?}");
    let options = String::from_utf8(output.stdout).unwrap();
    assert!(options.contains(change[0]), "{options}");
    let options = options.replace(change[0], change[1]);
    let accel = vm_harness::accel::expected().unwrap().name();
    let line =
        format!("exec qemu-system-x86_64 -accel {accel} -display none -nodefaults {options}");
    let mut shell = command("sh");
    shell.args(["-c", &line]);
    shell.stdin(Stdio::null()).stderr(Stdio::null());
    ChildProcess::spawn(shell).unwrap()
}

/// Needs root, because the configuration has a tap.
#[test]
fn mistakes_are_named_with_the_vm_and_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let tap = format!("doc{}", std::process::id());
    let config = format!(
        "[[network]]\nname = \"lan\"\nuplink = {{ tap = \"{tap}\" }}\n\
         [[network.port]]\nvm = \"web\"\nmac = \"52:54:00:00:00:01\"\n\
         [[network.port]]\nvm = \"db\"\nmac = \"52:54:00:00:00:02\"\n\
         [[network]]\nname = \"open\"\naccept = true\n"
    );
    let daemon = Daemon::start(folder.path(), Some(&config));

    let _web = qemu(&daemon, "web", ["share=on", "share=off"]);
    let _db = qemu(&daemon, "db", ["52:54:00:00:00:02", "52:54:00:00:00:01"]);
    drop(UnixListener::bind(daemon.path("open/dead.sock")).unwrap());
    daemon.until_state("web", "connected");
    daemon.until_state("db", "running");

    let checks = examine(&daemon);
    for (name, parts) in [
        ("shared memory", ["the memory of web", "share=on"]),
        ("addresses", ["52:54:00:00:00:01 on lan", "its own address"]),
        ("sockets", ["open/dead.sock", "rm "]),
        ("uplinks", [&tap, "master BRIDGE"]),
    ] {
        let found = said(&checks, name);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            parts.iter().all(|part| found[0].contains(part)),
            "{found:?}"
        );
        page::assert_quoted(&found[0]);
    }
    assert!(said(&checks, "daemon")[0].contains("serves 2 network(s)"));
}

#[test]
fn a_control_socket_left_by_a_crash_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::start(folder.path(), None);
    assert!(said(&examine(&daemon), "daemon")[0].contains("-> null"));
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    let found = said(&examine(&daemon), "daemon");
    assert!(
        found[0].contains("remains from a daemon that died"),
        "{found:?}"
    );
}

/// A gateway in a VM without the driver `vicinity_wake` writes into its page that it polls.
#[test]
fn a_gateway_that_polls_is_named_with_what_it_costs() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[[message.member]]\nname = \"web\"\n";
    let daemon = Daemon::start(folder.path(), Some(config));
    let socket = daemon.path("message-plane/web.sock");
    common::until("the message plane", || socket.exists());
    let (client, memory) = Client::connect(&socket).unwrap();
    let page = Region::attach(memory).unwrap();
    let page = page.page(u32::from(client.id()) - 1).unwrap();
    let join = |number| {
        page.request_join(number);
        client.ring();
        common::until("the host", || page.joined_number() == number);
    };
    join(1);
    assert!(said(&examine(&daemon), "gateways")[0].contains("-> null"));
    page.set_polling(true);
    join(3);
    let found = said(&examine(&daemon), "gateways");
    assert_eq!(found.len(), 1, "{found:?}");
    for part in ["web's gateway polls", "100 wake-ups", "vicinity_wake"] {
        assert!(found[0].contains(part), "{found:?}");
    }
}
