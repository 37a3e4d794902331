//! A space: its VM mounts it, and clients on the host fetch from it.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use vm_harness::host::run;
use vm_harness::vm::{Spec, Vm};

use crate::common::Pauses;
use crate::rig::{Rig, step};
use crate::space_nginx::Nginx;

/// Time limit of a command on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// A budget of 24 slots of 256 KiB each.
const CONFIG: &str = "
space-budget = 24
[[space]]
vm = \"red\"
listen = \"127.0.0.1:0\"
allow = [\"127.0.0.1\"]
";

pub(crate) fn space(rig: &Rig, words: &[&str]) -> String {
    let mut command = vm_harness::host::command(env!("CARGO_BIN_EXE_vicinity"));
    command.env_remove("VICINITY_RUNTIME_DIR");
    command.arg("--runtime-dir").arg(rig.daemon().path(""));
    command.arg("space").args(words);
    command.stdin(Stdio::null());
    run(command).unwrap()
}

/// Returns the error message of a command that the daemon refuses.
fn refused(rig: &Rig, words: &[&str]) -> String {
    let mut command = vm_harness::host::command(env!("CARGO_BIN_EXE_vicinity"));
    command.env_remove("VICINITY_RUNTIME_DIR");
    command.arg("--runtime-dir").arg(rig.daemon().path(""));
    command.arg("space").args(words);
    command.stdin(Stdio::null());
    run(command).unwrap_err().to_string()
}

pub(crate) fn with_space(rig: &Rig) -> Spec {
    let mut spec = rig.bare("red");
    spec.qemu_args = shlex::split(&space(rig, &["qemu-args", "red"])).unwrap();
    spec
}

pub(crate) fn status(rig: &Rig) -> serde_json::Value {
    let text = space(rig, &["list", "--json"]);
    serde_json::from_str::<serde_json::Value>(&text).unwrap()[0].take()
}

fn slots(rig: &Rig, vm: &str) -> u64 {
    let text = space(rig, &["show", vm]);
    let status: serde_json::Value = serde_json::from_str(&text).unwrap();
    status["slots"].as_u64().unwrap()
}

/// Waits until the controller has made this decision about `red`.
fn until_said(rig: &Rig, word: &str) {
    let end = std::time::Instant::now() + LIMIT;
    loop {
        let said = space(rig, &["explain", "red"]);
        if said.contains(word) {
            return;
        }
        assert!(std::time::Instant::now() < end, "{word}: {said}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Returns the script from docs/space.md that keeps a space mounted in its VM.
fn keeper() -> &'static str {
    let book = include_str!("../../../../docs/space.md");
    let script = book.split_once("```sh\n#!/bin/sh\n").unwrap().1;
    script.split_once("```").unwrap().0
}

pub(crate) fn until(rig: &Rig, what: &str, good: impl Fn(&serde_json::Value) -> bool) {
    let end = std::time::Instant::now() + LIMIT;
    let mut pauses = Pauses::new();
    loop {
        let status = status(rig);
        if good(&status) {
            return;
        }
        assert!(std::time::Instant::now() < end, "{what}: {status}");
        pauses.wait();
    }
}

/// Fetches a path as a client. Returns the status and the body's checksum.
fn fetch(rig: &Rig, path: &str, more: &[&str]) -> (String, String) {
    let at = status(rig)["listen"].as_str().unwrap().to_owned();
    get(rig.folder(), &format!("http://{at}{path}"), more)
}

/// Fetches a URL, and writes the body into this folder. Returns the status and the body's checksum.
pub(crate) fn get(folder: &Path, url: &str, more: &[&str]) -> (String, String) {
    let body = folder.join("body");
    let mut curl = vm_harness::host::command("curl");
    curl.args([
        "--silent",
        "--path-as-is",
        "--write-out",
        "%{http_code}",
        "--output",
    ]);
    curl.arg(&body).args(more).arg(url);
    let code = run(curl).unwrap();
    let mut sum = vm_harness::host::command("md5sum");
    sum.arg(&body);
    let sum = run(sum).unwrap();
    (code, sum.split(' ').next().unwrap().to_owned())
}

pub(crate) fn guest(vm: &Vm, line: &str) -> String {
    vm.check(line, LIMIT).unwrap().trim().to_owned()
}

fn guest_sum(vm: &Vm, file: &str) -> String {
    guest(vm, &format!("md5sum < {file} | cut -d' ' -f1"))
}

#[test]
fn programs_write_clients_fetch_and_a_full_space_waits() {
    let rig = Rig::new(Some(CONFIG));
    step("spaces are created, resized and removed while the daemon runs");
    assert_eq!(slots(&rig, "red"), 24);
    space(&rig, &["create", "green"]);
    assert_eq!((slots(&rig, "red"), slots(&rig, "green")), (12, 12));
    let large = refused(&rig, &["set", "red", "slots=17"]);
    assert!(large.contains("more slots than the budget"), "{large}");
    let listen = refused(&rig, &["set", "red", "allow=[\"10.0.0.1\"]"]);
    assert!(listen.contains("only `slots`"), "{listen}");
    space(&rig, &["set", "red", "slots=8"]);
    assert_eq!(slots(&rig, "red"), 8);
    assert!(space(&rig, &["top", "--once"]).contains("green"));
    let [red] = rig.boot([with_space(&rig)]);
    let put = |line: &str| guest(&red, line);
    step("mount, and operations on folders");
    let keeper = keeper().replace("/mnt", "/s").replace('\'', "'\\''");
    let keeper = format!("mkdir /s; exec bash -c '{keeper}' > /dev/null 2>&1");
    let keeper = red.start(&keeper).unwrap();
    put("until mountpoint -q /s; do sleep 0.1; done; mkdir /s/d && echo hello > /s/d/a.txt");
    put("cp -p /s/d/a.txt /s/b.txt && mv /s/b.txt /s/d/b.txt && chmod 600 /s/d/b.txt");
    put("echo again >> /s/d/b.txt && test \"$(cat /s/d/b.txt)\" = \"hello\nagain\"");
    assert_eq!(put("cd /s && ls d | tr '\\n' ' '"), "a.txt b.txt");
    for refused in [
        "ln -s /etc/passwd /s/l",
        "ln /s/d/a.txt /s/h",
        "mknod /s/n c 1 3",
        "mkdir /s/d",
    ] {
        put(&format!("! {refused} 2>&1"));
    }
    step("clients fetch files");
    put("head -c 700000 /dev/urandom > /tmp/r && cp /tmp/r /s/r.bin");
    let whole = guest_sum(&red, "/tmp/r");
    assert_eq!(
        fetch(&rig, "/r.bin", &[]),
        ("200".to_owned(), whole.clone())
    );
    let part = guest(
        &red,
        "tail -c +262001 /tmp/r | head -c 1000 | md5sum | cut -d' ' -f1",
    );
    let range = ["--range", "262000-262999"];
    assert_eq!(
        fetch(&rig, "/r.bin", &range),
        ("206".to_owned(), part.clone())
    );
    let h2 = ["--http2-prior-knowledge"];
    assert_eq!(
        fetch(&rig, "/r.bin", &h2),
        ("200".to_owned(), whole.clone())
    );
    for path in ["/../etc/passwd", "/d", "/l"] {
        assert_eq!(fetch(&rig, path, &[]).0, "404", "{path}");
    }
    step("the user's own nginx");
    let nginx = Nginx::start(&rig, status(&rig)["listen"].as_str().unwrap());
    assert_eq!(nginx.fetch("/web/r.bin", &[]), ("200".to_owned(), whole));
    let part = ("206".to_owned(), part);
    assert_eq!(nginx.fetch("/web/r.bin", &range), part);
    for path in ["/web/none", "/r.bin", "/web/../r.bin"] {
        assert_eq!(nginx.fetch(path, &[]).0, "404", "{path}");
    }
    drop(nginx);
    step("an unfinished file is not published");
    let writer = red
        .start("exec 3> /s/half; echo x >&3; until test -e /tmp/go; do sleep 0.1; done")
        .unwrap();
    put("until test -s /s/half; do sleep 0.1; done");
    assert_eq!(fetch(&rig, "/half", &[]).0, "503");
    put("touch /tmp/go");
    writer.wait(LIMIT).unwrap();
    assert_eq!(fetch(&rig, "/half", &[]).0, "200");
    step("full: the write waits, and continues when slots become free");
    put("rm -r /s/*");
    put("head -c 1500000 /dev/zero > /s/one");
    let writer = red
        .start("exec dd if=/tmp/r of=/s/two bs=64k 2>&1")
        .unwrap();
    until(&rig, "a write waits", |status| status["waiting"] == 1);
    assert!(space(&rig, &["list"]).contains("full"));
    assert_eq!(fetch(&rig, "/one", &[]).0, "200");
    space(&rig, &["set", "red", "slots=16"]);
    writer.wait(LIMIT).unwrap();
    assert_eq!(fetch(&rig, "/two", &[]).1, guest_sum(&red, "/tmp/r"));
    step("files in use stay, however small the space becomes");
    space(&rig, &["set", "red", "slots=8"]);
    assert_eq!(slots(&rig, "red"), 9);
    put("rm /s/one");
    step("the controller gives a waiting space more slots, and explains why");
    space(&rig, &["set", "red", "slots="]);
    // The space returns slots all the time, so the controller does not give its slots to another
    // space.
    let small = red
        .start("while :; do echo x > /s/g && rm /s/g; sleep 0.1; done")
        .unwrap();
    let large = red.start("head -c 2500000 /dev/zero > /s/f").unwrap();
    until_said(&rig, "GROW_BLOCKED");
    let said = space(&rig, &["explain", "red"]);
    assert!(said.contains("its writes wait for slots"), "{said}");
    large.wait(LIMIT).unwrap();
    small.kill().unwrap();
    put("rm -f /s/f /s/g");
    assert_eq!(slots(&rig, "red") + slots(&rig, "green"), 24);
    space(&rig, &["remove", "green"]);
    space(&rig, &["set", "red", "slots=8"]);
    step("the supervisor restarts a killed process, and published files remain");
    let sum = guest_sum(&red, "/s/two");
    let device = "$(stat -c %i /sys/bus/virtio/drivers/virtiofs/virtio*)";
    let before = put(&format!("echo {device}"));
    rig.daemon().signal_process("space-red", Signal::KILL);
    until(&rig, "it runs again", |status| {
        status["restarts"] == 1 && status["up"] == true
    });
    assert_eq!(fetch(&rig, "/two", &[]), ("200".to_owned(), sum.clone()));
    // A process that opens a file before the VM has the new device waits indefinitely.
    let again = format!(
        "while [ \"{device}\" = {before} ]; do sleep 0.1; done; until test -s /s/two; do sleep 0.1; done"
    );
    if let Err(error) = red.check(&again, LIMIT) {
        let has = put("ls -l /sys/bus/virtio/drivers/virtiofs; grep ' /s ' /proc/mounts || true");
        panic!(
            "the VM has no device that works: {error}\nit has {has}\nthe daemon says {}",
            status(&rig)
        );
    }
    assert_eq!(guest_sum(&red, "/s/two"), sum);
    assert_eq!(status(&rig)["reason"], serde_json::Value::Null);
    step("a write that can never fit fails at once");
    put("! dd if=/dev/zero of=/s/three bs=1k count=1 seek=3000 && rm /s/three");
    step("a VM that dies loses only its unfinished files");
    put(
        "bash -c 'exec 3> /s/half; echo x >&3; sleep 1000' > /dev/null 2>&1 & until test -s /s/half; do sleep 0.1; done",
    );
    until(&rig, "a file is being written", |status| {
        status["unfinished"] == 1
    });
    drop(keeper);
    drop(red);
    until(&rig, "it is gone", |status| status["unfinished"] == 0);
    assert_eq!(fetch(&rig, "/two", &[]).0, "200");
    assert_eq!(status(&rig)["used"], 3);
    let mut rig = rig;
    rig.end(Signal::TERM);
}
