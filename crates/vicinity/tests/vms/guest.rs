//! Actions inside a guest.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use vm_harness::vm::Vm;

use crate::rig::{home, ip};

/// Time limit that ends a test that hangs.
pub(crate) const GUARD: Duration = Duration::from_secs(120);

/// Runs a shell command, which must succeed. Returns its output, trimmed.
pub(crate) fn sh(vm: &Vm, command: &str) -> String {
    match vm.check(command, GUARD) {
        Ok(output) => output.trim().to_owned(),
        Err(error) => panic!("{error}"),
    }
}

/// Configures the address of this number on the only NIC of a VM.
pub(crate) fn give_address(vm: &Vm, number: u8) {
    let address = ip(number);
    sh(
        vm,
        &format!("ip addr add {address}/24 dev eth0; ip link set eth0 up"),
    );
}

/// Sends five echo requests, and asserts that all are answered.
pub(crate) fn ping(from: &Vm, to: &str) {
    let said = sh(from, &format!("ping -c 5 -i 0.02 -W 30 {to}"));
    assert!(said.contains(" 5 received"), "{said}");
}

/// Starts a server for [`iperf`] in a VM.
pub(crate) fn serve_iperf(vm: &Vm) {
    sh(vm, "iperf3 --server --daemon");
    wait_for_port(vm, 5201);
}

/// Waits until a program listens on a TCP port of the guest.
pub(crate) fn wait_for_port(vm: &Vm, port: u16) {
    let listens = format!("ss -Htln 'sport = :{port}' | grep -q .");
    sh(vm, &format!("until {listens}; do sleep 0.1; done"));
}

/// Runs iperf3 with a server, and returns the `end` of its report. `more` may contain `--reverse`.
pub(crate) fn iperf(from: &Vm, to: &str, more: &str) -> Value {
    let report = sh(from, &format!("iperf3 --client {to} --json {more}"));
    let report: Value = serde_json::from_str(&report).unwrap();
    report["end"].clone()
}

/// Sends data by TCP in both directions, and asserts that most of it arrives before the sender
/// closes the connection. The client of iperf3 ends the test when it has written all data to its socket, and
/// the server does not count what is still in the send buffer, so the buffers are small.
pub(crate) fn tcp_both_ways(from: &Vm, to: &str, mib: u32) {
    for direction in ["", "--reverse"] {
        let end = iperf(
            from,
            to,
            &format!("--bytes {mib}M --window 256K {direction}"),
        );
        let received = end["sum_received"]["bytes"].as_u64().unwrap();
        let wanted = u64::from(mib) << 20;
        assert!(
            received > wanted / 2,
            "{received} of {wanted} bytes from {} to {to} {direction}",
            from.name()
        );
    }
}

/// Copies a file of random bytes over TCP, and compares the hashes at both ends.
pub(crate) fn copy_file(from: &Vm, to: &Vm, to_ip: &str, mib: u32) {
    sh(
        to,
        "rm -f /tmp/copy; setsid socat -u TCP-LISTEN:7000 CREATE:/tmp/copy </dev/null >/dev/null 2>&1 &",
    );
    wait_for_port(to, 7000);
    sh(from, &format!("head -c {mib}M /dev/urandom >/tmp/file"));
    sh(from, &format!("socat -u OPEN:/tmp/file TCP:{to_ip}:7000"));
    let bytes = u64::from(mib) << 20;
    let arrived = format!("test $(stat -c %s /tmp/copy) = {bytes}");
    sh(to, &format!("until {arrived}; do sleep 0.1; done"));
    let sum = |vm, file| sh(vm, &format!("sha256sum <{file}; rm {file}"));
    assert_eq!(sum(from, "/tmp/file"), sum(to, "/tmp/copy"));
}

/// Returns a counter of the guest's network stack.
pub(crate) fn stack_counter(vm: &Vm, name: &str) -> u64 {
    let said = sh(vm, &format!("nstat -asz {name}"));
    let line = said.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.split_whitespace().nth(1));
    value.unwrap_or_else(|| panic!("{said}")).parse().unwrap()
}

/// Returns the bytes and packets that a NIC of the guest has received.
pub(crate) fn received(vm: &Vm, device: &str) -> [u64; 2] {
    ["bytes", "packets"].map(|what| {
        let file = format!("/sys/class/net/{device}/statistics/rx_{what}");
        sh(vm, &format!("cat {file}")).parse().unwrap()
    })
}

/// Echo requests that a guest sends in the background until [`Pinging::stop`].
pub(crate) struct Pinging<'vm>(&'vm Vm);

impl<'vm> Pinging<'vm> {
    pub(crate) fn start(vm: &'vm Vm, to: &str) -> Self {
        let ping = format!("ping -i 0.1 {to} </dev/null >/tmp/ping.log 2>&1");
        sh(vm, &format!("setsid {ping} & echo $! >/tmp/ping.pid"));
        let pinging = Self(vm);
        pinging.goes_on();
        pinging
    }

    /// Waits until more answers have arrived than so far.
    pub(crate) fn goes_on(&self) {
        let count = "grep -c 'bytes from' /tmp/ping.log";
        let wait = format!("n=$({count}); until [ $({count}) -gt $((n + 2)) ]; do sleep 0.1; done");
        sh(self.0, &wait);
    }

    /// Stops sending. Returns how many echo requests were sent and how many were answered.
    pub(crate) fn stop(self) -> [u64; 2] {
        let wait = "while kill -0 $(</tmp/ping.pid) 2>/dev/null; do sleep 0.1; done";
        sh(self.0, &format!("kill -INT $(</tmp/ping.pid); {wait}"));
        let said = sh(self.0, "grep transmitted /tmp/ping.log");
        let mut words = said.split(' ');
        let mut number = |skip| words.nth(skip).unwrap().parse().unwrap();
        [number(0), number(2)]
    }
}

/// Builds the guests' module `vicinity_NAME` for a kernel, from `guest/NAME`. A source that has not changed is not
/// copied again, so `make` compiles for the first test that needs the module, and not for each.
pub(crate) fn module(name: &str, release: &str) -> PathBuf {
    let folder = home().join(format!("{name}-{release}"));
    fs::create_dir_all(&folder).unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../guest")
        .join(name);
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let copy = folder.join(path.file_name().unwrap());
        let text = fs::read(&path).unwrap();
        if fs::read(&copy).ok().as_ref() != Some(&text) {
            fs::write(copy, text).unwrap();
        }
    }
    let mut make = vm_harness::host::command("make");
    make.arg("--directory").arg(&folder);
    make.args([format!("RELEASE={release}"), "KCFLAGS=-Werror".to_owned()]);
    vm_harness::host::run(make).unwrap_or_else(|error| panic!("{error}: scripts/setup test"));
    let stripped = folder.join("stripped.ko");
    let mut strip = vm_harness::host::command("strip");
    strip.arg("--strip-debug").arg("-o").arg(&stripped);
    strip.arg(folder.join(format!("vicinity_{name}.ko")));
    vm_harness::host::run(strip).unwrap();
    stripped
}
