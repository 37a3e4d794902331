//! Tests of every mistake of an operator, each in a constructed state.

use observe::command_line::Nic;
use serde_json::json;
use switch::control::{Counters, WorkerReport};
use switch::guard::Rules;

use super::*;

#[path = "../../../tests/common/page.rs"]
mod page;

const ALL: u64 = GUEST_CSUM | GUEST_TSO;

fn port(vm: &str, state: State) -> PortStatus {
    serde_json::from_value(json!({
        "network": "lan", "vm": vm, "kind": Kind::Vm, "state": state, "mode": "server",
        "socket": format!("/run/lan/{vm}.sock"), "mac": null, "rules": Rules::default(),
        "residents": 1, "fdb_entries": 1, "features": ALL, "mtu": 0, "connections": 1, "quarantines": 0,
        "quarantine_left_ms": null, "reason": null, "counters": Counters::default(),
    }))
    .unwrap()
}

fn network(uplink: Option<&str>) -> NetworkStatus {
    serde_json::from_value(json!({
        "name": "lan", "up": true, "restarts": 0, "reason": null, "uplink": uplink,
        "folder": "/run/lan", "accept": false, "gather_us": 0, "ports": 2, "attached": 2,
        "worker": WorkerReport::default(),
    }))
    .unwrap()
}

fn machine(vm: &str, mac: &str) -> (u32, Machine) {
    let nic = Nic {
        socket: format!("/run/lan/{vm}.sock"),
        mac: Some(mac.to_owned()),
    };
    let machine = Machine {
        nics: vec![nic],
        shared: true,
        ..Machine::default()
    };
    (42, machine)
}

fn tap() -> Link {
    Link {
        mtu: 1500,
        up: true,
        tap: true,
        enslaved: true,
        addressed: false,
    }
}

/// Returns a state with two VMs and an uplink, without any mistake.
fn snapshot() -> Snapshot {
    Snapshot {
        networks: vec![network(Some("vic0"))],
        ports: vec![port("web", State::Running), port("db", State::Running)],
        machines: vec![
            machine("web", "52:54:00:00:00:0a"),
            machine("db", "52:54:00:00:00:0b"),
        ],
        links: [("vic0".to_owned(), tap())].into(),
        problems: Vec::new(),
        at: 1000.0,
    }
}

/// Returns a problem of a VM that began 42 s ago.
fn problem(kind: ProblemKind, vm: &str, text: &str) -> Problem {
    Problem {
        kind,
        severity: kind.severity(),
        vm: Some(vm.to_owned()),
        network: Some("lan".to_owned()),
        since: 958.0,
        text: text.to_owned(),
        remedy: Some(format!("vicinity port show lan {vm}")),
    }
}

/// Returns the finding of a state, which must be the only one.
fn wrong(snapshot: &Snapshot) -> String {
    let checks = snapshot.checks();
    let wrong: Vec<_> = checks
        .iter()
        .filter(|check| check.remedy.is_some())
        .map(|check| format!("{}: {} -> {:?}", check.name, check.found, check.remedy))
        .collect();
    assert!(wrong.len() <= 1, "{wrong:?}");
    wrong.concat()
}

fn is_named(snapshot: &Snapshot, parts: &[&str]) {
    let said = wrong(snapshot);
    for part in parts {
        assert!(said.contains(part), "{part:?} not in {said:?}");
    }
    page::assert_quoted(&said);
}

#[test]
fn all_is_well() {
    assert_eq!(wrong(&snapshot()), "");
    let mut snapshot = snapshot();
    snapshot.networks = vec![network(None)];
    assert_eq!(wrong(&snapshot), "");
    let last = snapshot.checks().pop().unwrap();
    assert!(last.found.contains("no network has an uplink"), "{last:?}");
}

#[test]
fn memory_that_is_not_shared() {
    let mut snapshot = snapshot();
    snapshot.machines[0].1.shared = false;
    is_named(
        &snapshot,
        &[
            "shared memory: the memory of web is private",
            "process 42",
            "libvirt-xml web",
        ],
    );
}

#[test]
fn a_vm_with_encrypted_memory() {
    let mut snapshot = snapshot();
    snapshot.machines[1].1.encrypted = true;
    is_named(
        &snapshot,
        &["encrypted memory: db's", "bounce buffer", "direct channel"],
    );
}

#[test]
fn two_vms_with_one_address() {
    let mut snapshot = snapshot();
    snapshot.machines[1] = machine("db", "52:54:00:00:00:0A");
    is_named(
        &snapshot,
        &["addresses: 52:54:00:00:00:0a on lan", "db and web"],
    );
}

/// The result does not depend on the options of the VMs' NICs.
#[test]
fn two_vms_that_use_one_address() {
    let mut snapshot = snapshot();
    snapshot.machines[1] = machine("db", "52:54:00:00:00:0a");
    let text = "web and db both use the address 52:54:00:00:00:0a: each loses the other's frames.";
    snapshot.problems = vec![problem(ProblemKind::DuplicateAddress, "web", text)];
    is_named(
        &snapshot,
        &["addresses: for 42 s: web and db", "port show lan web"],
    );
}

#[test]
fn a_vm_whose_frames_are_too_long_for_the_uplink() {
    let mut snapshot = snapshot();
    for port in &mut snapshot.ports {
        port.mtu = 9000;
    }
    snapshot.ports[1].mtu = 0;
    is_named(
        &snapshot,
        &["MTU: web sends up to 9000", "vic0 accepts only 1500"],
    );
}

#[test]
fn vms_of_one_network_with_different_mtus() {
    let mut snapshot = snapshot();
    snapshot.ports[0].mtu = 1400;
    snapshot.ports[1].mtu = 1500;
    is_named(
        &snapshot,
        &["MTU: web has the MTU 1400, and db", "host_mtu"],
    );
}

#[test]
fn a_vm_without_offloads() {
    let mut snapshot = snapshot();
    snapshot.ports[1].features = GUEST_CSUM;
    is_named(
        &snapshot,
        &["offloads: db does not accept large frames", "guest_tso4"],
    );
}

#[test]
fn a_vm_that_has_not_started_its_driver_has_no_offloads_yet() {
    let mut snapshot = snapshot();
    snapshot.ports[1] = port("db", State::Connected);
    snapshot.ports[1].features = 0;
    assert_eq!(wrong(&snapshot), "");
}

#[test]
fn an_uplink_that_leads_nowhere_and_one_that_is_down() {
    let mut snapshot = snapshot();
    let nowhere = Link {
        enslaved: false,
        ..tap()
    };
    snapshot.links.insert("vic0".to_owned(), nowhere);
    is_named(
        &snapshot,
        &["uplinks: vic0 of lan is not on a bridge", "master BRIDGE"],
    );
    let down = Link { up: false, ..tap() };
    snapshot.links.insert("vic0".to_owned(), down);
    is_named(&snapshot, &["vic0 of lan is down", "ip link set vic0 up"]);
}

#[test]
fn a_port_in_quarantine_comes_with_the_reason() {
    let mut snapshot = snapshot();
    let text = "The supervisor refuses web for a while: it broke the protocol.";
    snapshot.problems = vec![problem(ProblemKind::Quarantined, "web", text)];
    is_named(
        &snapshot,
        &[
            "ports: for 42 s: The supervisor refuses web",
            "port show lan web",
        ],
    );
}

#[test]
fn memory_of_a_vm_in_quarantine_is_told_once() {
    let mut snapshot = snapshot();
    snapshot.machines[0].1.shared = false;
    let text = "The memory of web is private to its QEMU, so the switch cannot forward its frames: its ring is not \
                in guest memory.";
    snapshot.problems = vec![problem(ProblemKind::PrivateMemory, "web", text)];
    is_named(
        &snapshot,
        &["shared memory: for 42 s: The memory of web is private"],
    );
}
