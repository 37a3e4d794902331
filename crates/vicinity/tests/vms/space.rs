//! A space: its VM mounts it, clients of the host fetch from it.

use std::process::Stdio;
use std::time::Duration;

use lab::host::run;
use lab::vm::{Spec, Vm};
use rustix::process::{Pid, Signal, kill_process};

use crate::rig::{Rig, step};

/// On a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Of 2 MiB.
const CONFIG: &str = "
[[space]]
vm = \"red\"
slots = 8
listen = \"127.0.0.1:0\"
allow = [\"127.0.0.1\"]
";

fn space(rig: &Rig, words: &[&str]) -> String {
    let mut command = lab::host::command(env!("CARGO_BIN_EXE_vicinity"));
    command.env_remove("VICINITY_RUNTIME_DIR");
    command.arg("--runtime-dir").arg(rig.daemon().path(""));
    command.arg("space").args(words);
    command.stdin(Stdio::null());
    run(command).unwrap()
}

fn with_space(rig: &Rig) -> Spec {
    let mut spec = rig.bare("red");
    spec.qemu_args = shlex::split(&space(rig, &["qemu-args", "red"])).unwrap();
    spec
}

fn status(rig: &Rig) -> serde_json::Value {
    let text = space(rig, &["list", "--json"]);
    serde_json::from_str::<serde_json::Value>(&text).unwrap()[0].take()
}

fn until(rig: &Rig, what: &str, good: impl Fn(&serde_json::Value) -> bool) {
    let end = std::time::Instant::now() + LIMIT;
    loop {
        let status = status(rig);
        if good(&status) {
            return;
        }
        assert!(std::time::Instant::now() < end, "{what}: {status}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a client gets: the status, and the body's checksum.
fn fetch(rig: &Rig, path: &str, more: &[&str]) -> (String, String) {
    let at = status(rig)["listen"].as_str().unwrap().to_owned();
    let body = rig.folder().join("body");
    let mut curl = lab::host::command("curl");
    curl.args([
        "--silent",
        "--path-as-is",
        "--write-out",
        "%{http_code}",
        "--output",
    ]);
    curl.arg(&body).args(more).arg(format!("http://{at}{path}"));
    let code = run(curl).unwrap();
    let mut sum = lab::host::command("md5sum");
    sum.arg(&body);
    let sum = run(sum).unwrap();
    (code, sum.split(' ').next().unwrap().to_owned())
}

/// The process of the space: a child of the daemon's.
fn process(rig: &Rig) -> Pid {
    let daemon = rig.pid();
    let children = format!("/proc/{daemon}/task/{daemon}/children");
    let children = std::fs::read_to_string(children).unwrap();
    let named = |child: &&str| {
        let name = std::fs::read_to_string(format!("/proc/{child}/comm")).unwrap();
        name.trim() == "space-red"
    };
    let child = children.split_whitespace().find(named).unwrap();
    Pid::from_raw(child.parse().unwrap()).unwrap()
}

fn guest(vm: &Vm, line: &str) -> String {
    vm.check(line, LIMIT).unwrap().trim().to_owned()
}

fn guest_sum(vm: &Vm, file: &str) -> String {
    guest(vm, &format!("md5sum < {file} | cut -d' ' -f1"))
}

#[test]
fn programs_write_clients_fetch_and_a_full_space_waits() {
    let rig = Rig::new(Some(CONFIG));
    let [red] = rig.boot([with_space(&rig)]);
    let put = |line: &str| guest(&red, line);
    step("mount, and what programs do with folders");
    put("mkdir -p /s && mount -t virtiofs space /s && mkdir /s/d && echo hello > /s/d/a.txt");
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
    step("fetch");
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
    assert_eq!(fetch(&rig, "/r.bin", &range), ("206".to_owned(), part));
    let h2 = ["--http2-prior-knowledge"];
    assert_eq!(fetch(&rig, "/r.bin", &h2), ("200".to_owned(), whole));
    for path in ["/../etc/passwd", "/d", "/l"] {
        assert_eq!(fetch(&rig, path, &[]).0, "404", "{path}");
    }
    step("a file that is being written is nobody's yet");
    let writer = red
        .start("exec 3> /s/half; echo x >&3; until test -e /tmp/go; do sleep 0.1; done")
        .unwrap();
    put("until test -s /s/half; do sleep 0.1; done");
    assert_eq!(fetch(&rig, "/half", &[]).0, "503");
    put("touch /tmp/go");
    writer.wait(LIMIT).unwrap();
    assert_eq!(fetch(&rig, "/half", &[]).0, "200");
    step("full: it waits, and goes on when slots return");
    put("rm -r /s/*");
    put("head -c 1500000 /dev/zero > /s/one");
    let writer = red
        .start("exec dd if=/tmp/r of=/s/two bs=64k 2>&1")
        .unwrap();
    until(&rig, "a write waits", |status| status["waiting"] == 1);
    assert!(space(&rig, &["list"]).contains("full"));
    assert_eq!(fetch(&rig, "/one", &[]).0, "200");
    put("rm /s/one");
    writer.wait(LIMIT).unwrap();
    assert_eq!(fetch(&rig, "/two", &[]).1, guest_sum(&red, "/tmp/r"));
    step("too much for ever is said at once");
    put("! dd if=/dev/zero of=/s/three bs=1k count=1 seek=3000 && rm /s/three");
    step("a VM that dies loses what it had not finished, and nothing else");
    put(
        "bash -c 'exec 3> /s/half; echo x >&3; sleep 1000' > /dev/null 2>&1 & until test -s /s/half; do sleep 0.1; done",
    );
    until(&rig, "a file is being written", |status| {
        status["unfinished"] == 1
    });
    drop(red);
    until(&rig, "it is gone", |status| status["unfinished"] == 0);
    assert_eq!(fetch(&rig, "/two", &[]).0, "200");
    let (status, slots) = (status(&rig), |status: &serde_json::Value| {
        status["used"].clone()
    });
    assert_eq!(slots(&status), 3, "{status}");
    step("the next one finds it");
    let [red] = rig.boot([with_space(&rig)]);
    guest(&red, "mkdir -p /s && mount -t virtiofs space /s");
    assert_eq!(guest_sum(&red, "/s/two"), fetch(&rig, "/two", &[]).1);
    drop(red);
    step("a process that is killed is started again, with an empty space");
    kill_process(process(&rig), Signal::KILL).unwrap();
    until(&rig, "it runs again", |status| {
        status["restarts"] == 1 && status["up"] == true
    });
    assert_eq!(fetch(&rig, "/two", &[]).0, "404");
    let mut rig = rig;
    rig.end(Signal::TERM);
}
