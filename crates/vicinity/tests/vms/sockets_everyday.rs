//! Everyday uses of AF_VSOCK between two VMs: OpenSSH and `scp`, PostgreSQL by the library, and connections that stay TCP.

use vm_harness::vm::Vm;

use crate::guest::sh;
use crate::rig::{Rig, ip, step};
use crate::sockets::{CONFIG, boot, make, run, sent, serve, until_family, with_sockets};
use crate::sockets_figures::{before, compare};

/// Memory of a guest: its packages are in its memory, too.
const MEMORY_MIB: u32 = 1536;

const PACKAGES: [&str; 3] = ["openssh-client", "openssh-server", "postgresql"];

const FIGURES: &str = "/usr/local/bin/figures";

/// Bytes that `scp` copies.
const BYTES: u64 = 3_000_000;

/// Boots two VMs, in which the library uses AF_VSOCK for connections from `web` to `db`.
fn vms() -> (Rig, [Vm; 2]) {
    let rig = with_sockets(Rig::new(Some(CONFIG)).with_packages(&PACKAGES));
    let inside = FIGURES.trim_start_matches('/');
    let rig = rig.with_file(&make("figures"), inside, "everyday-figures");
    let [web, db] = boot(&rig, MEMORY_MIB);
    for vm in [&web, &db] {
        // What the packages' scripts make: the guests' image has their files alone, and no shell but bash.
        sh(
            vm,
            "test -e /bin/sh || ln -s bash /bin/sh; mkdir -p /run/sshd; \
             echo 'sshd:x:101:65534::/run/sshd:/usr/sbin/nologin' >>/etc/passwd; \
             echo 'postgres:x:102:102::/var/lib/pg:/bin/bash' >>/etc/passwd; echo 'postgres:x:102:' >>/etc/group",
        );
    }
    serve(&db, &run("/usr/local/bin/conformance server 7000"), 7000);
    until_family(&web, "vsock", 7000);
    (rig, [web, db])
}

/// Starts PostgreSQL with the library on port 7002 of a VM.
fn start_postgres(db: &Vm) {
    let user = "setpriv --reuid postgres --regid postgres --clear-groups";
    sh(
        db,
        &format!(
            "set -e; chmod 755 /; test -d /dev/shm || mkdir -m 1777 /dev/shm; chmod 1777 /tmp; install -d -o postgres -m 700 /var/lib/pg; \
             {user} /usr/lib/postgresql/*/bin/initdb -D /var/lib/pg -A trust >/tmp/initdb 2>&1 || {{ id postgres; cat /tmp/initdb; exit 1; }} >&2; \
             echo 'host all all 10.98.0.0/24 trust' >>/var/lib/pg/pg_hba.conf"
        ),
    );
    let options = "-D /var/lib/pg -p 7002 -c listen_addresses=0.0.0.0 -c unix_socket_directories=/tmp -c fsync=off";
    serve(
        db,
        &run(&format!(
            "{user} /usr/lib/postgresql/*/bin/postgres {options}"
        )),
        7002,
    );
}

fn pgbench(options: &str) -> String {
    let ip = ip(2);
    format!("/usr/lib/postgresql/*/bin/pgbench -h {ip} -p 7002 -U postgres {options} postgres 2>&1")
}

#[test]
#[ignore = "long: make soak"]
fn openssh_scp_and_postgresql_use_af_vsock() {
    let (rig, [web, db]) = vms();
    step("OpenSSH: a server for each connection, as systemd's socket units start it");
    let public = sh(
        &web,
        "mkdir -p -m 700 /root/.ssh; ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519; \
         printf 'Host db\\n  User root\\n  ProxyCommand socat - VSOCK-CONNECT:4:7001\\n  \
         StrictHostKeyChecking accept-new\\n' >/root/.ssh/config; cat /root/.ssh/id_ed25519.pub",
    );
    sh(
        &db,
        &format!(
            "mkdir -p -m 700 /root/.ssh; chmod 700 /root; chown root: /root /root/.ssh; \
             echo '{public}' >/root/.ssh/authorized_keys; ssh-keygen -A >/dev/null; \
             echo 'Subsystem sftp internal-sftp' >/root/sshd; \
             setsid socat VSOCK-LISTEN:7001,fork EXEC:'/usr/sbin/sshd -i -f /root/sshd' </dev/null >/tmp/sshd 2>&1 &"
        ),
    );
    let said = sh(
        &web,
        "for n in $(seq 20); do timeout 60 ssh db hostname 2>/tmp/ssh && exit; sleep 0.5; done; cat /tmp/ssh; exit 1",
    );
    assert_eq!(said, "db");
    step("scp");
    let before = sent(&rig, "web");
    sh(
        &web,
        &format!("head -c {BYTES} /dev/urandom >/root/file; timeout 120 scp -q /root/file db:got"),
    );
    let sum = sh(&web, "sha256sum </root/file");
    assert_eq!(sum, sh(&db, "sha256sum </root/got"));
    assert!(sent(&rig, "web") - before >= BYTES);
    step("scp, from there to here");
    let before = sent(&rig, "db");
    sh(&web, "timeout 120 scp -q db:got /root/back");
    assert_eq!(sum, sh(&web, "sha256sum </root/back"));
    assert!(sent(&rig, "db") - before >= BYTES);

    step("PostgreSQL");
    start_postgres(&db);
    let before = sent(&rig, "db");
    sh(&web, &run(&format!("sh -c '{}'", pgbench("-i -q -s 1"))));
    let said = sh(&web, &run(&format!("sh -c '{}'", pgbench("-c 4 -t 20"))));
    assert!(
        said.contains("number of transactions actually processed: 80/80"),
        "{said}"
    );
    assert!(said.contains("number of failed transactions: 0 "), "{said}");
    assert!(
        sent(&rig, "db") - before > 10_000,
        "the answers go by AF_VSOCK"
    );
    // The server sees the client's address.
    let psql = format!(
        "/usr/lib/postgresql/*/bin/psql -h {} -p 7002 -U postgres -Atc \"select host(inet_client_addr())\" postgres",
        ip(2)
    );
    assert_eq!(sh(&web, &run(&psql)), ip(1));
}

#[test]
#[ignore = "prints figures: `make soak` runs it"]
fn figures_of_af_vsock_with_pgbench_and_of_connections_that_stay_tcp() {
    let (_rig, [web, db]) = vms();
    start_postgres(&db);
    sh(&web, &pgbench("-i -q -s 1"));
    let tps = |said: &str| before(said, " (");
    for (title, options) in [
        ("pgbench -S, 1 client", "-S -c 1 -T 3"),
        ("pgbench -S, 8 clients", "-S -c 8 -T 3"),
        ("pgbench, 4 clients", "-c 4 -T 3"),
        ("pgbench -S -C, 1 client", "-S -C -c 1 -T 3"),
    ] {
        let command = format!("{} | grep ^tps", pgbench(options));
        let library = run(&format!("sh -c '{command}'"));
        compare(&web, title, [&command, &library], tps);
    }
    // The host does not offer these ports by AF_VSOCK: both connections are TCP.
    serve(&db, &format!("{FIGURES} server 8000"), 8000);
    serve(&db, &run(&format!("{FIGURES} server 8001")), 8001);
    for what in ["stream", "trips", "connects"] {
        let command = |port| format!("{FIGURES} {what} 2 {} {port}", ip(2));
        let (without, with) = (command(8000), run(&command(8001)));
        compare(&web, &format!("TCP, {what}"), [&without, &with], |said| {
            said.trim().parse().unwrap()
        });
    }
}
