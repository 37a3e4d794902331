//! AF_VSOCK sockets of stock kernels and programs: between two VMs, and between a VM and the host.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::process::{Pid, Signal, kill_process};
use vm_harness::vm::{Spec, Vm};

use crate::common::vicinity;
use crate::guest::sh;
use crate::rig::{Rig, step};

const CONFIG: &str = "
[[vsock]]
vm = \"web\"
cid = 3
groups = [\"shop\"]
[[vsock]]
vm = \"db\"
groups = [\"shop\"]
cid = 4
ports = [\"5000-5002\"]
";

/// Returns a VM with a socket device and no NIC.
fn spec(rig: &Rig, vm: &str) -> Spec {
    let mut command = vicinity();
    command.args(["vsock", "qemu-args", vm, "--json", "--runtime-dir"]);
    let output = command.arg(rig.folder().join("run")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut spec = rig.bare(vm);
    spec.qemu_args = serde_json::from_slice(&output.stdout).unwrap();
    spec
}

/// Sends a line from one VM to the echo server of another one, and returns what comes back.
fn echo(from: &Vm, line: &str) -> String {
    sh(
        from,
        &format!("echo {line} | timeout 20 socat -t 10 - VSOCK-CONNECT:4:5000"),
    )
}

#[test]
fn stock_guests_connect_by_af_vsock_to_each_other_and_to_the_host() {
    let rig = Rig::new(Some(CONFIG));
    let [web, db] = rig.boot([spec(&rig, "web"), spec(&rig, "db")]);
    step("streams between the VMs");
    for server in [
        "VSOCK-LISTEN:5000,fork EXEC:cat",
        "-u VSOCK-LISTEN:5001 CREATE:/tmp/got",
    ] {
        sh(
            &db,
            &format!("setsid socat {server} </dev/null >/dev/null 2>&1 &"),
        );
    }
    sh(
        &db,
        "until grep -q vsock /proc/modules; do sleep 0.1; done; sleep 1",
    );
    assert_eq!(echo(&web, "hello"), "hello");
    sh(&web, "head -c 4000000 /dev/urandom >/tmp/sent");
    sh(
        &web,
        "timeout 60 socat -u FILE:/tmp/sent VSOCK-CONNECT:4:5001",
    );
    let sent = sh(&web, "sha256sum </tmp/sent");
    let got = sh(
        &db,
        "for n in $(seq 50); do pgrep -f LISTEN:5001 >/dev/null || break; sleep 0.1; done; sha256sum </tmp/got",
    );
    assert_eq!(sent, got);
    step("a port that is not allowed, and a port that is and where nobody listens");
    for port in [22, 5002] {
        let refused = sh(
            &web,
            &format!("socat - VSOCK-CONNECT:4:{port} 2>&1 </dev/null || true"),
        );
        assert!(refused.contains("reset"), "{refused}");
    }
    step("the host and a VM");
    let path = |name: &str| rig.daemon().path(&format!("vsock/{name}"));
    let mut program = UnixStream::connect(path("db.vsock")).unwrap();
    program.write_all(b"CONNECT 5000\n").unwrap();
    let mut reader = BufReader::new(program.try_clone().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.starts_with("OK "), "{line}");
    program.write_all(b"from the host\n").unwrap();
    line.clear();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "from the host\n");
    let listener = UnixListener::bind(path("db.vsock_1024")).unwrap();
    sh(
        &db,
        "echo from the VM | timeout 20 socat -u - VSOCK-CONNECT:2:1024",
    );
    let mut text = String::new();
    listener
        .accept()
        .unwrap()
        .0
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "from the VM\n");
    step("the process is killed");
    sh(
        &web,
        "setsid socat -u VSOCK-CONNECT:4:5000 CREATE:/tmp/idle </dev/null >/dev/null 2>&1 & echo $! >/tmp/pid",
    );
    sh(&web, "sleep 1; kill -0 $(cat /tmp/pid)");
    let process = rig.daemon().process("vsock-web").unwrap();
    kill_process(Pid::from_raw(process as i32).unwrap(), Signal::KILL).unwrap();
    sh(
        &web,
        "for n in $(seq 100); do kill -0 $(cat /tmp/pid) || exit 0; sleep 0.1; done; exit 1",
    );
    assert_eq!(echo(&web, "again"), "again");
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty(), "the host's connection has ended");
}
