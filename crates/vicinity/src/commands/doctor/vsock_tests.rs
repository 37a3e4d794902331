//! Tests of each mistake with a socket device.

use serde_json::json;

use super::super::check::Verdict;
use super::*;

const RUNTIME_DIR: &str = "/run/vicinity";

fn device(vm: &str, cid: u32, attached: bool) -> VsockStatus {
    serde_json::from_value(json!({
        "vm": vm, "cid": cid, "groups": [], "up": true, "restarts": 0, "reason": null, "agent": false,
        "attached": attached, "connections": 0, "begun": 0, "sent_packets": 0, "sent_bytes": 0, "received_bytes": 0,
        "invalid": 0, "not_allowed": 0, "too_many": 0, "no_connection": 0, "deferred": 0, "stuck": 0,
    }))
    .unwrap()
}

/// A QEMU with the device of its VM, and with one of the kernel.
fn qemu(vm: &str, has_device: bool, vhost_cid: Option<u32>) -> (u32, Machine) {
    let socket = format!("{RUNTIME_DIR}/vsock/{vm}.sock");
    let machine = Machine {
        name: Some(vm.to_owned()),
        sockets: has_device.then_some(socket).into_iter().collect(),
        vhost_cid,
        ..Machine::default()
    };
    (42, machine)
}

/// Returns the findings and the remedies of the warnings about a device. Anything but a warning fails.
fn told(device: VsockStatus, machines: &[(u32, Machine)]) -> Vec<(String, String)> {
    let checks = examine(Path::new(RUNTIME_DIR), &[device], machines);
    let warned = checks.into_iter().map(|check| {
        assert_eq!(check.verdict, Verdict::Warn, "{check:?}");
        (check.found, check.remedy.unwrap())
    });
    warned.collect()
}

#[test]
fn a_device_that_runs_or_whose_vm_is_off_is_well() {
    let dir = Path::new(RUNTIME_DIR);
    assert!(
        examine(dir, &[], &[]).is_empty(),
        "without a device there is no check"
    );
    for (attached, machines) in [
        (true, vec![qemu("web", true, None)]),
        (false, Vec::new()),
        (false, vec![qemu("db", true, None)]),
        // Another CID of the kernel is no clash.
        (
            true,
            vec![qemu("web", true, None), qemu("other", false, Some(9))],
        ),
    ] {
        let checks = examine(dir, &[device("web", 3, attached)], &machines);
        assert_eq!(
            (checks.len(), checks[0].verdict),
            (1, Verdict::Ok),
            "{checks:?}"
        );
    }
}

#[test]
fn a_process_that_does_not_run_is_told_with_its_reason() {
    let mut down = device("web", 3, true);
    down.up = false;
    down.reason = Some("killed by SIGKILL".to_owned());
    let told = told(down, &[]);
    assert!(
        told[0].0.contains("web's") && told[0].0.contains("(killed by SIGKILL)"),
        "{told:?}"
    );
    assert!(told[0].1.contains("journalctl"));
}

#[test]
fn a_qemu_without_the_device_and_one_that_lost_it_have_different_remedies() {
    let without = told(device("web", 3, false), &[qemu("web", false, None)]);
    assert!(
        without[0].1.contains("vicinity vsock qemu-args web"),
        "{without:?}"
    );
    let mut lost = device("web", 3, false);
    lost.reason = Some("it ended in the middle of a message".to_owned());
    let lost = told(lost, &[qemu("web", true, None)]);
    assert!(
        lost[0].0.contains("(it ended in the middle of a message)"),
        "{lost:?}"
    );
    assert!(lost[0].1.starts_with("restart web"));
}

#[test]
fn a_device_of_the_kernel_beside_and_a_cid_of_both_are_told() {
    let both = told(device("web", 3, true), &[qemu("web", true, Some(8))]);
    assert!(both[0].1.contains("remove vhost-vsock-pci"), "{both:?}");
    let clash = told(
        device("web", 3, true),
        &[qemu("web", true, None), qemu("old", false, Some(3))],
    );
    assert_eq!(clash.len(), 1);
    assert!(
        clash[0].0.contains("the CID 3 is web's") && clash[0].0.contains("reach old"),
        "{clash:?}"
    );
    assert!(clash[0].1.contains("another `cid`"));
}

#[test]
fn a_guest_without_buffers_is_told_to_load_its_driver() {
    let mut stuck = device("db", 4, true);
    stuck.figures.stuck = 7;
    let told = told(stuck, &[qemu("db", true, None)]);
    assert!(told[0].0.starts_with("7 connections to db"), "{told:?}");
    assert!(told[0].1.contains("modprobe vmw_vsock_virtio_transport"));
}

#[test]
fn a_vm_without_an_agent_is_told_if_a_vm_of_its_group_has_one() {
    let grouped = |vm: &str, cid, group: &str, agent| VsockStatus {
        groups: vec![group.to_owned()],
        agent,
        ..device(vm, cid, true)
    };
    let dir = Path::new(RUNTIME_DIR);
    let checks = |devices: &[VsockStatus]| examine(dir, devices, &[]);
    let (web, db) = (
        grouped("web", 3, "shop", false),
        grouped("db", 4, "shop", true),
    );
    let told = checks(&[web.clone(), db.clone()]);
    assert_eq!(
        (told.len(), told[0].verdict),
        (1, Verdict::Warn),
        "{told:?}"
    );
    assert!(
        told[0].found.starts_with("web has no vicinity-agent"),
        "{told:?}"
    );
    for well in [
        // No VM uses TCP programs, or not with this one.
        [web.clone(), grouped("db", 4, "shop", false)],
        [web, grouped("db", 4, "farm", true)],
        [grouped("web", 3, "shop", true), db.clone()],
        [device("web", 3, false), db],
    ] {
        assert_eq!(checks(&well)[0].verdict, Verdict::Ok, "{well:?}");
    }
}
