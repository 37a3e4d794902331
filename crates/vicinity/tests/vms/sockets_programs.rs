//! Unmodified programs of other languages, and servers as Debian has them, by AF_VSOCK between two VMs.

use std::path::{Path, PathBuf};

use vm_harness::host::command;
use vm_harness::vm::Vm;

use crate::common::root;
use crate::guest::sh;
use crate::rig::{Rig, home, ip, step};
use crate::sockets::{CONFIG, boot, run, sent, serve, until_family, with_sockets};

/// Memory of a guest: its packages are in its memory, too.
const MEMORY_MIB: u32 = 2048;

const PACKAGES: [&str; 7] = [
    "default-jre-headless",
    "ncat",
    "nginx-light",
    "nodejs",
    "python3",
    "redis-server",
    "redis-tools",
];

/// Bytes that an echo client sends.
const BYTES: u64 = 300_000;

fn source(name: &str) -> PathBuf {
    root().join("guest/sockets/tests/languages").join(name)
}

/// Compiles the program in Go, statically, if this machine has Go.
fn go_program(folder: &Path) -> Option<PathBuf> {
    let file = folder.join("echo-go");
    let mut build = command("go");
    build
        .args(["build", "-o"])
        .arg(&file)
        .arg(source("echo.go"));
    build.env("CGO_ENABLED", "0").env("GO111MODULE", "off");
    build
        .status()
        .is_ok_and(|status| status.success())
        .then_some(file)
}

/// Compiles the program in Java, if this machine has a compiler.
fn java_class(folder: &Path) -> Option<PathBuf> {
    let mut build = command("javac");
    build
        .args(["--release", "11", "-d"])
        .arg(folder)
        .arg(source("Echo.java"));
    let is_built = build.status().is_ok_and(|status| status.success());
    is_built.then(|| folder.join("Echo.class"))
}

/// Sends data to an echo server, checks what the client sees, and returns the bytes that went by AF_VSOCK.
fn echo(rig: &Rig, web: &Vm, client: &str, port: u16) -> u64 {
    let before = sent(rig, "web");
    let said = sh(web, &format!("{client} client {} {port} {BYTES}", ip(2)));
    assert_eq!(said, format!("{} {port}", ip(2)), "{client}");
    sent(rig, "web") - before
}

#[test]
#[ignore = "long: make soak"]
fn programs_of_other_languages_and_servers_of_debian_use_af_vsock() {
    let folder = home().join("languages");
    std::fs::create_dir_all(&folder).unwrap();
    let mut rig = with_sockets(Rig::new(Some(CONFIG)).with_packages(&PACKAGES));
    let mut programs = vec![
        ("python3 /root/echo.py", 7001),
        ("node /root/echo.js", 7002),
    ];
    for name in ["echo.py", "echo.js", "messages.py"] {
        rig = rig.with_file(&source(name), &format!("root/{name}"), name);
    }
    if let Some(class) = java_class(&folder) {
        rig = rig.with_file(&class, "root/Echo.class", "echo-java");
        programs.push((
            "/usr/lib/jvm/default-java/bin/java -Xshare:off -cp /root Echo",
            7003,
        ));
    }
    let go = go_program(&folder);
    if let Some(program) = &go {
        rig = rig.with_file(program, "root/echo-go", "echo-go");
    }
    let [web, db] = boot(&rig, MEMORY_MIB);
    serve(&db, &run("/usr/local/bin/conformance server 7000"), 7000);
    until_family(&web, "vsock", 7000);
    for (program, port) in programs {
        step(program);
        serve(&db, &run(&format!("{program} server {port}")), port);
        assert!(echo(&rig, &web, &run(program), port) >= BYTES);
        // A client without the library reaches the same server by TCP.
        assert!(echo(&rig, &web, program, port) < BYTES);
    }
    if go.is_some() {
        step("Go: its server gets forwarded connections, its client connects by TCP");
        serve(&db, &run("/root/echo-go server 7004"), 7004);
        assert!(echo(&rig, &web, &run("python3 /root/echo.py"), 7004) >= BYTES);
        assert_eq!(echo(&rig, &web, &run("/root/echo-go"), 7004), 0);
    }
    servers_of_debian(&rig, &web, &db);
    programs_that_know_af_vsock(&web, &db);
}

fn servers_of_debian(rig: &Rig, web: &Vm, db: &Vm) {
    step("redis");
    let redis = "redis-server --save '' --bind 0.0.0.0 --port";
    serve(db, &run(&format!("{redis} 7005 --protected-mode no")), 7005);
    let before = sent(rig, "web");
    let client = format!(
        "redis-benchmark -h {} -p 7005 -n 500 -c 10 -t set,get -q",
        ip(2)
    );
    let said = sh(web, &run(&client));
    assert!(said.contains("GET:"), "{said}");
    assert!(sent(rig, "web") - before > 1000 * 20);
    // Without the library the agent forwards the connection. It must not look like one of a local client.
    serve(db, &format!("{redis} 7006 --protected-mode yes"), 7006);
    let said = sh(web, &run(&format!("redis-cli -h {} -p 7006 ping", ip(2))));
    assert!(said.contains("DENIED"), "{said}");

    step("nginx");
    let config = "events {} http { access_log /tmp/access; sendfile on; server { listen 7007; root /root; } }";
    sh(
        db,
        &format!(
            "mkdir -p /var/log/nginx /var/lib/nginx; echo '{config}' >/root/nginx.conf; head -c 700000 /dev/urandom >/root/file; chmod 755 /root; chmod 644 /root/file"
        ),
    );
    serve(db, &run("nginx -c /root/nginx.conf"), 7007);
    let before = sent(rig, "db");
    let read = format!(
        "import sys, urllib.request as r; sys.stdout.buffer.write(r.urlopen(\"http://{}:7007/file\").read())",
        ip(2)
    );
    let got = sh(
        web,
        &format!("{} | sha256sum", run(&format!("python3 -c '{read}'"))),
    );
    assert_eq!(got, sh(db, "sha256sum </root/file"));
    assert!(sent(rig, "db") - before >= 700_000);
    // The log has the client's address.
    let log = sh(db, "cat /tmp/access");
    assert!(log.starts_with(&ip(1)), "{log}");
}

/// What docs/sockets-tcp.md shows under "everyday uses".
fn programs_that_know_af_vsock(web: &Vm, db: &Vm) {
    step("ncat");
    sh(
        db,
        "setsid ncat --vsock --listen --keep-open --exec /bin/cat 7008 </dev/null >/tmp/ncat 2>&1 &",
    );
    let said = sh(
        web,
        "for n in $(seq 50); do (echo hello; sleep 1) | timeout 5 ncat --vsock 4 7008 && exit; sleep 0.2; done; exit 1",
    );
    assert_eq!(said, "hello");

    step("SOCK_SEQPACKET keeps the ends of messages");
    sh(
        db,
        "setsid python3 /root/messages.py serve 7010 </dev/null >/tmp/messages 2>&1 &",
    );
    let said = sh(
        web,
        "for n in $(seq 50); do timeout 20 python3 /root/messages.py send 4 7010 && exit; sleep 0.2; done; exit 1",
    );
    assert_eq!(said, "7 messages, the longest with 200000 bytes");

    step("ssh, by socat");
    let key = "dropbearkey -t ed25519 -f";
    let public = sh(
        web,
        &format!("{key} /tmp/ssh.key >/dev/null; dropbearkey -y -f /tmp/ssh.key | grep ^ssh-"),
    );
    sh(
        db,
        &format!(
            "mkdir -p -m 700 /root/.ssh; chmod 700 /root; echo '{public}' >/root/.ssh/authorized_keys; \
             echo /bin/bash >/etc/shells; {key} /tmp/host.key >/dev/null; \
             setsid socat VSOCK-LISTEN:7009,fork EXEC:'dropbear -i -s -r /tmp/host.key' </dev/null >/tmp/socat 2>&1 &"
        ),
    );
    let ssh = "dbclient -y -y -i /tmp/ssh.key -J 'socat - VSOCK-CONNECT:4:7009' root@db hostname";
    let said = sh(
        web,
        &format!(
            "for n in $(seq 20); do timeout 20 {ssh} 2>/dev/null && exit; sleep 0.5; done; exit 1"
        ),
    );
    assert_eq!(said, "db");
}
