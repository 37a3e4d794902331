//! The sockets plane of a real daemon, with front-ends that are drivers of guests.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

use common::{Daemon, until};
use front_end::wire::request;
use front_end::{VsockDevice, VsockOptions, Wire};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const CONFIG: &str = "
[[vsock]]
vm = \"web\"
cid = 3
groups = [\"shop\"]
[[vsock]]
vm = \"db\"
cid = 4
groups = [\"shop\"]
ports = [5432]
[[vsock]]
vm = \"alone\"
cid = 5
";

const REQUEST: u16 = 1;
const RESPONSE: u16 = 2;
const RESET: u16 = 3;
const DATA: u16 = 5;

/// Returns the header of a stream's packet (virtio 1.3, 5.10.6).
fn header(op: u16, (from, from_port): (u64, u32), (to, to_port): (u64, u32), len: u32) -> Vec<u8> {
    let mut bytes = [from.to_le_bytes(), to.to_le_bytes()].concat();
    for word in [from_port, to_port, len] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend([1_u16.to_le_bytes(), op.to_le_bytes()].concat());
    for word in [0_u32, 1 << 18, 0] {
        bytes.extend(word.to_le_bytes());
    }
    bytes
}

fn boot(daemon: &Daemon, vm: &str) -> (VsockDevice, u64) {
    let socket = daemon.path(&format!("vsock/{vm}.sock"));
    let wire = Wire::new(UnixStream::connect(socket).unwrap().into());
    let mut device = VsockDevice::new(wire, VsockOptions::default());
    let cid = device.start(|| {});
    device.sync();
    device.post(usize::MAX);
    (device, cid)
}

/// Returns the operation and the payload of the next packet.
fn next(device: &mut VsockDevice) -> (u16, Vec<u8>) {
    let (header, payload) = device.wait_to_receive();
    device.post(usize::MAX);
    (u16::from_le_bytes([header[30], header[31]]), payload)
}

fn list(daemon: &Daemon) -> Vec<Value> {
    let output = daemon.command(&["vsock", "list", "--json"]);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn establish(client: &mut VsockDevice, server: &mut VsockDevice, port: u32) {
    let (from, to) = ((3, port), (4, 5432));
    assert!(client.send(&header(REQUEST, from, to, 0), &[]));
    assert_eq!(next(server).0, REQUEST);
    assert!(server.send(&header(RESPONSE, to, from, 0), &[]));
    assert_eq!(next(client).0, RESPONSE);
    assert!(client.send(&header(DATA, from, to, 5), b"hello"));
    assert_eq!(next(server), (DATA, b"hello".to_vec()));
}

#[test]
fn vms_of_a_group_connect_and_a_killed_process_resets_connections_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some(CONFIG));
    let ((mut web, cid), (mut db, _)) = (boot(&daemon, "web"), boot(&daemon, "db"));
    assert_eq!(cid, 3);
    let (mut alone, _) = boot(&daemon, "alone");
    establish(&mut web, &mut db, 1000);
    // Not this port, and not this VM, which has a process of its own.
    for to in [(4, 22), (5, 5432)] {
        assert!(web.send(&header(REQUEST, (3, 1), to, 0), &[]));
        assert_eq!(next(&mut web).0, RESET);
    }
    assert!(alone.send(&header(REQUEST, (5, 1), (4, 5432), 0), &[]));
    assert_eq!(next(&mut alone).0, RESET);
    let process = |vm: &str| daemon.process(&format!("vsock-{vm}"));
    assert!(process("web").is_some() && process("alone").is_some() && process("db").is_none());
    for restart in 1..4 {
        // Figures that were not reported end with the process.
        list(&daemon);
        let before = process("web").unwrap();
        let pid = Pid::from_raw(i32::try_from(before).unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        assert_eq!(next(&mut web).0, RESET, "of the connection that was idle");
        assert_eq!(next(&mut db).0, RESET);
        establish(&mut web, &mut db, 1000 + restart);
        let status = list(&daemon);
        assert_eq!(status[0]["restarts"], restart);
    }
    let status = list(&daemon);
    let text = |at: usize, key: &str| status[at][key].to_string();
    let vms: Vec<_> = status
        .iter()
        .map(|vsock| vsock["vm"].as_str().unwrap())
        .collect();
    assert_eq!(vms, ["web", "db", "alone"]);
    assert_eq!(
        (text(0, "cid"), text(0, "connections")),
        ("3".into(), "1".into())
    );
    assert_eq!(
        (text(0, "begun"), text(0, "sent_bytes")),
        ("4".into(), "20".into())
    );
    assert_eq!(text(1, "received_bytes"), "20");
    assert_eq!(
        (text(2, "not_allowed"), text(2, "restarts")),
        ("0".into(), "0".into())
    );
    let metrics = String::from_utf8(daemon.command(&["metrics"]).stdout).unwrap();
    assert!(
        metrics.contains("vicinity_vsock_connections{vm=\"web\"} 1\n"),
        "{metrics}"
    );
    assert!(
        metrics.contains("vicinity_vsock_refused_total{vm=\"web\",reason=\"not-allowed\"} 1\n")
    );
    // The end of a VM resets its peers' connections.
    drop(db);
    assert_eq!(next(&mut web).0, RESET);
    until("the end", || list(&daemon)[1]["attached"] == false);
    let (mut db, _) = boot(&daemon, "db");
    establish(&mut web, &mut db, 1);
}

#[test]
fn a_second_qemu_of_a_vm_is_refused_and_the_options_name_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some(CONFIG));
    let (mut web, _) = boot(&daemon, "web");
    let (mut db, _) = boot(&daemon, "db");
    let socket = daemon.path("vsock/web.sock");
    let wire = Wire::new(UnixStream::connect(&socket).unwrap().into());
    wire.wait_for_hang_up();
    establish(&mut web, &mut db, 1);
    let options = daemon.command(&["vsock", "qemu-args", "web"]).stdout;
    let options = String::from_utf8(options).unwrap();
    assert!(
        options.contains(&format!("path={}", socket.display())),
        "{options}"
    );
    assert!(options.contains("vhost-user-vsock-pci"));
}

#[test]
fn messages_that_qemu_sends_without_waiting_for_answers_are_all_answered() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some(CONFIG));
    let (mut web, _) = boot(&daemon, "web");
    let (mut db, _) = boot(&daemon, "db");
    for _ in 0..8 {
        for device in [&web, &db] {
            let asked = [
                request::GET_FEATURES,
                request::GET_STATUS,
                request::SET_OWNER,
            ];
            assert!(
                asked
                    .iter()
                    .all(|request| device.wire.send(*request, &[], &[]))
            );
        }
        for device in [&web, &db] {
            let _ = device.wire.number(request::GET_FEATURES);
            let _ = device.wire.number(request::GET_STATUS);
        }
    }
    establish(&mut web, &mut db, 1);
}

#[test]
fn programs_of_the_host_connect_to_a_vm_and_a_vm_to_them() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some(CONFIG));
    let (mut alone, _) = boot(&daemon, "alone");
    let mut program = UnixStream::connect(daemon.path("vsock/alone.vsock")).unwrap();
    program.write_all(b"CONNECT 22\n").unwrap();
    let (request, _) = alone.wait_to_receive();
    let port = u32::from_le_bytes(request[16..20].try_into().unwrap());
    assert_eq!((request[0], request[20]), (2, 22));
    assert!(alone.send(&header(RESPONSE, (5, 22), (2, port), 0), &[]));
    let mut line = String::new();
    let mut reader = BufReader::new(program.try_clone().unwrap());
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, format!("OK {port}\n"));
    program.write_all(b"hello").unwrap();
    assert_eq!(next(&mut alone), (DATA, b"hello".to_vec()));
    // To a program that listens, and to a port where none does.
    let listener = UnixListener::bind(daemon.path("vsock/alone.vsock_1024")).unwrap();
    assert!(alone.send(&header(REQUEST, (5, 7), (2, 1024), 0), &[]));
    assert_eq!(next(&mut alone).0, RESPONSE);
    assert!(alone.send(&header(DATA, (5, 7), (2, 1024), 2), b"hi"));
    let (mut accepted, _) = listener.accept().unwrap();
    let mut bytes = [0; 2];
    accepted.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"hi");
    assert!(alone.send(&header(REQUEST, (5, 8), (2, 1025), 0), &[]));
    assert_eq!(next(&mut alone).0, RESET);
}
