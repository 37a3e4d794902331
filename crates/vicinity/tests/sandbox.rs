//! The sandbox of a real data plane at work: the descriptors that it holds, and that it may make
//! exactly the system calls that it makes.
//!
//! Needs root and strace.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::trace::{Trace, calls, descriptors};
use common::{Daemon, until};
use front_end::frame::{BROADCAST, mac, numbered};
use front_end::{Layout, Nic, Options, Wire};
use rustix::process::Signal;

const CONFIG: &str = "
[[network]]
name = \"lan\"
workers = 2
uplink = { tap = \"vic0\" }
[[network.port]]
vm = \"a\"
[[network.port]]
vm = \"b\"
[[network.port]]
vm = \"c\"
";

/// Allowed calls that a trace need not contain, and the reasons.
const RARE_CALLS: [(&str, &str); 8] = [
    ("futex", "for a panic; see there"),
    (
        "brk",
        "depends on what was allocated before; see crates/sandbox/tests/confined.rs",
    ),
    ("mremap", "as brk"),
    ("rt_sigprocmask", "for abort; see there"),
    ("gettid", "as rt_sigprocmask"),
    ("getpid", "as rt_sigprocmask"),
    ("tgkill", "as rt_sigprocmask"),
    (
        "clock_gettime",
        "only on machines where the kernel's page cannot tell the time",
    ),
];

/// Starts a daemon in its own network namespace, which ends with the daemon.
fn daemon(folder: &Path) -> Daemon {
    let mut command = Command::new("unshare");
    command.args(["--net", env!("CARGO_BIN_EXE_vicinity")]);
    Daemon::start_by(command, folder, Some(CONFIG))
}

fn nic(daemon: &Daemon, vm: &str) -> Nic {
    let socket = daemon.path(&format!("lan/{vm}.sock"));
    let wire = Wire::new(UnixStream::connect(socket).unwrap().into());
    let mut nic = Nic::new(wire, Options::default());
    nic.start(|| {});
    nic.sync();
    daemon.until_state(vm, "running");
    nic
}

/// Makes a data plane do everything that it can do: forward frames between VMs, to and from the
/// uplink, and handle memory that vanishes, and front-ends that connect and disconnect.
fn work(daemon: &Daemon) {
    let (mut a, mut b) = (nic(daemon, "a"), nic(daemon, "b"));
    for number in 0..200 {
        a.wait_to_send(&numbered(mac(2), mac(1), number, 600), Layout::One);
        b.wait_to_receive();
        b.wait_to_send(&numbered(mac(1), mac(2), number, 60), Layout::One);
        a.wait_to_receive();
    }
    // The worker updates its figures when it works and some time has passed.
    std::thread::sleep(Duration::from_millis(200));
    let flood = numbered(BROADCAST, mac(1), 0, 60);
    a.wait_to_send(&flood, Layout::One);
    b.wait_to_receive();
    until("a frame from the uplink", || {
        from_uplink(daemon);
        b.receive().is_some()
    });
    let c = nic(daemon, "c");
    c.ram.truncate(0);
    // When the worker reads the ring, it finds that the ring's memory is gone.
    c.tx.kick();
    until("the end of c", || {
        daemon.port("c")["quarantines"].as_u64() == Some(1)
    });
    // A SIGBUS for an address outside of every VM's memory. A process sent this signal, so it is
    // not a real fault and ends nothing.
    daemon.signal_data_plane("lan", Signal::BUS);
    drop(b);
    daemon.until_state("b", "waiting");
}

/// Has the host send an ARP request for an address behind the uplink.
fn from_uplink(daemon: &Daemon) {
    let pid = daemon.child.id().to_string();
    let script = "ip addr replace 10.9.0.1/24 dev vic0; echo > /dev/udp/10.9.0.2/9";
    let done = Command::new("nsenter")
        .args(["--net", "--target", &pid, "bash", "-c", script])
        .status();
    assert!(done.unwrap().success());
}

#[test]
fn every_call_is_allowed_and_every_allowed_call_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path());
    let log = folder.path().join("calls");
    let trace = Trace::attach(daemon.data_plane("lan").unwrap(), &log);
    work(&daemon);
    assert_eq!(daemon.network("lan")["restarts"], 0, "a call was denied");
    assert_eq!(daemon.stop(), Some(0));
    trace.ended();
    let made = calls(&log);
    let allowed: BTreeSet<String> = sandbox::noted(sandbox::ProcessKind::Network)
        .into_iter()
        .map(str::to_owned)
        .collect();
    let unused: Vec<&str> = allowed
        .difference(&made)
        .map(String::as_str)
        .filter(|call| RARE_CALLS.iter().all(|(seldom, _)| seldom != call))
        .collect();
    assert!(unused.is_empty(), "allowed and never made: {unused:?}");
    let denied: Vec<&String> = made.difference(&allowed).collect();
    assert!(denied.is_empty(), "made and not allowed: {denied:?}");
}

/// Returns the threads of a process.
fn threads(process: u32) -> Vec<String> {
    let folder = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let names = folder.map(|task| task.unwrap().file_name().into_string().unwrap());
    names.collect()
}

/// Returns those threads that are workers.
fn workers(process: u32) -> Vec<String> {
    let mut threads = threads(process);
    threads.retain(|thread| {
        let name = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/comm"));
        !name.unwrap().starts_with("reclaim-")
    });
    threads
}

/// An attacker that runs code in the data plane needs only one thread that is not confined.
#[test]
fn every_worker_is_confined() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path());
    let id = daemon.data_plane("lan").unwrap();
    // The data plane answers only after all its threads have confined themselves.
    assert_eq!(daemon.network("lan")["up"], true);
    let threads = threads(id);
    // Two workers, one thread that closes descriptors, and one that unmaps memory.
    assert_eq!(threads.len(), 4);
    for thread in threads {
        let status = std::fs::read_to_string(format!("/proc/{id}/task/{thread}/status")).unwrap();
        let said = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.unwrap().trim().to_owned()
        };
        assert_eq!(
            (said("Seccomp:"), said("NoNewPrivs:")),
            ("2".into(), "1".into())
        );
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(said(set), "0000000000000000", "{set}");
        }
    }
}

#[test]
fn a_data_plane_holds_what_it_was_handed_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path());
    let id = daemon.data_plane("lan").unwrap();
    let log = std::fs::read_link(format!("/proc/{id}/fd/2")).unwrap();
    let log = log.to_string_lossy().split(':').next().unwrap().to_owned();
    let mut own = vec![
        // The socket to the supervisor.
        "socket".to_owned(),
        // The folder in which the kernel describes the process's descriptors.
        format!("/proc/{id}/fd"),
    ];
    // For each worker: its queue of the uplink, the descriptor on which it sleeps, the one that
    // wakes it, and the file from which it reads its own run time.
    for worker in workers(id) {
        own.push("/dev/net/tun".to_owned());
        own.extend(["anon_inode", "anon_inode"].map(str::to_owned));
        own.push(format!("/proc/{id}/task/{worker}/schedstat"));
    }
    own.extend([log.clone(), log.clone(), log]);
    own.sort();
    assert_eq!(descriptors(id), own);
    let nic = nic(&daemon, "a");
    let more: Vec<String> = descriptors(id);
    // Its socket, and two rings' kick and call; its memory is mapped and not kept open.
    assert_eq!(more.len(), own.len() + 5, "{more:?}");
    drop(nic);
    daemon.until_state("a", "waiting");
    // A thread closes them, and no other thread waits for that.
    until("its descriptors are closed", || descriptors(id) == own);
}
