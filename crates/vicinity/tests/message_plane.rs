//! The message plane as a part of `vicinity serve`. Its members are the host itself and gateways in
//! this process, which the message plane cannot tell from those of VMs.
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
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use common::member::Member;
use common::trace::{RARE_CALLS, Trace, calls, descriptors};
use common::{Daemon, until, vicinity};
use message::remote::{Gateway, Transport};
use message::{Board, Code, Endpoint, MessageError, Options, Pattern, Peer};
use rustix::process::Signal;
use serde_json::{Value, json};

const CONFIG: &str = "
[[message.member]]
name = \"a\"
group = \"g\"
[[message.member]]
name = \"b\"
group = \"g\"
[[message.member]]
name = \"c\"
[[message.member]]
name = \"host\"
";

/// The data plane arms its alarm before it interrupts a VM. No member here is a VM; `vms/message.rs` has some.
const ALARM: &str = "timer_settime";

/// Limit of every wait. A wait that reaches it is a hang.
const HANG: Option<Duration> = Some(Duration::from_secs(60));

/// Joins the daemon, with a board of this name.
fn join(daemon: &Daemon, folder: &Path, name: &str) -> Member {
    let socket = daemon.path(&format!("message-plane/{name}.sock"));
    Member::join(&socket, &folder.join(name))
}

/// Makes progress on both endpoints until the first endpoint's request ends.
fn both(one: &mut Endpoint, other: &mut Endpoint, request: message::Request) -> Code {
    let mut code = None;
    until("a request", || {
        for _ in 0..10_000 {
            code = one.test(request).unwrap().map(|got| got.status.code);
            other.progress();
            if code.is_some() {
                return true;
            }
        }
        false
    });
    code.unwrap()
}

fn connect(one: &mut Endpoint, other: &mut Endpoint) -> Peer {
    let request = one.iconnect(other.address(), 0, 0).unwrap();
    assert_eq!(both(one, other, request), Code::Success);
    one.connect(other.address(), 0, HANG).unwrap()
}

/// Sends a message of every protocol from one endpoint to the other.
fn exchange(one: &mut Endpoint, other: &mut Endpoint) {
    let peer = connect(one, other);
    for length in [8, 5_000, 300_000] {
        let wanted = other.irecv(Pattern::ANY, vec![0; length]).unwrap();
        let sent = one.isend(peer, 1, vec![7; length]).unwrap();
        assert_eq!(both(other, one, wanted), Code::Success, "{length}");
        assert_eq!(both(one, other, sent), Code::Success, "{length}");
    }
}

fn counters(daemon: &Daemon) -> Value {
    let mut command = vicinity();
    command.args(["message", "counters", "--json", "--runtime-dir"]);
    let output = command.arg(daemon.path("")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn member(counters: &Value, name: &str) -> Value {
    let all = counters["members"].as_array().unwrap();
    let mine = all.iter().find(|member| member["name"] == name);
    mine.cloned().unwrap()
}

/// Waits until the gateway of the host's programs has joined.
fn wait_for_host(daemon: &Daemon) {
    until("this host's gateway", || {
        let counters = counters(daemon);
        counters["up"] == true && member(&counters, "host")["joined"] == true
    });
}

#[test]
fn members_exchange_messages_and_go_on_after_the_data_plane_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some(CONFIG));
    let join = |name| join(&daemon, folder.path(), name);
    let members = ["a", "b", "c"].map(join);
    let [mut a, mut b, mut c] = members.each_ref().map(Member::open);
    exchange(&mut a, &mut b);
    exchange(&mut a, &mut c);
    wait_for_host(&daemon);
    let host = || {
        let board = Board::open(&daemon.path("message")).unwrap();
        Endpoint::open(&board, &Options::default()).unwrap()
    };
    exchange(&mut host(), &mut c);
    let before = counters(&daemon);
    // The host counts the messages that it passes on, and no others.
    assert_eq!(member(&before, "a")["messages"], 3);
    assert_eq!(member(&before, "a")["bytes"], 305_008);
    let sent_to = json!([{ "vm": "c", "frames": 3, "bytes": 305_008 }]);
    assert_eq!(member(&before, "a")["sent_to"], sent_to);
    assert_eq!(member(&before, "b")["sent_to"], json!([]));
    assert_eq!(member(&before, "b")["messages"], 0);
    assert_eq!(member(&before, "host")["messages"], 3);
    assert_eq!(member(&before, "c")["links_total"], 2);
    let faults = |name| member(&before, name)["protocol_errors"].as_u64();
    assert!(
        ["a", "b", "c", "host"]
            .iter()
            .all(|name| faults(name) == Some(0))
    );

    let peer = a.connect(b.address(), 0, HANG).unwrap();
    let pending = a.issend(peer, 2, vec![1; 8]).unwrap();
    daemon.signal_process("messages", Signal::KILL);
    assert_eq!(both(&mut a, &mut c, pending), Code::Closed);
    drop((a, b, c));
    drop(members);
    until("the next data plane", || counters(&daemon)["restarts"] == 1);
    let members = ["a", "b", "c"].map(join);
    let [mut a, mut b, mut c] = members.each_ref().map(Member::open);
    exchange(&mut a, &mut b);
    exchange(&mut c, &mut a);
    wait_for_host(&daemon);
    exchange(&mut host(), &mut a);
    drop((a, b, c));
    drop(members);
    assert_eq!(daemon.stop(), Some(0));
    let board = folder.path().join("run/message");
    let names = |folder: &Path| {
        let entries = std::fs::read_dir(folder).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name())
            .collect::<BTreeSet<_>>()
    };
    let kept = ["endpoints", "heap", "nic"].map(Into::into);
    assert_eq!(names(&board), BTreeSet::from(kept));
    assert!(names(&board.join("endpoints")).is_empty());
    assert!(!folder.path().join("run/message-plane").exists());
}

#[test]
fn a_data_plane_or_gateway_that_hangs_is_killed_and_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some(CONFIG));
    wait_for_host(&daemon);
    daemon.signal_process("message-host", Signal::KILL);
    until("the next gateway", || {
        counters(&daemon)["gateway_restarts"] == 1
    });
    wait_for_host(&daemon);
    // The supervisor checks that the gateway answers, as it does for the data plane.
    daemon.signal_process("message-host", Signal::STOP);
    daemon.signal_process("messages", Signal::STOP);
    until("the next gateway", || {
        counters(&daemon)["gateway_restarts"].as_u64() > Some(1)
    });
    until("the next data plane", || counters(&daemon)["restarts"] == 1);
    wait_for_host(&daemon);
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn a_board_is_described_with_a_daemon_and_without() {
    let folder = tempfile::tempdir().unwrap();
    let info = |runtime_dir: &Path| {
        let mut command = vicinity();
        command.args(["message", "info", "--json", "--runtime-dir"]);
        let output = command.arg(runtime_dir).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let nothing = info(folder.path());
    assert_eq!(
        (&nothing["nic"], &nothing["plane"]),
        (&Value::Null, &Value::Null)
    );
    assert!(
        !folder.path().join("message").exists(),
        "looking makes nothing"
    );
    let daemon = Daemon::start(folder.path(), Some(CONFIG));
    wait_for_host(&daemon);
    let board = Board::open(&daemon.path("message")).unwrap();
    let options = Options {
        endpoint: Some(7),
        ..Options::default()
    };
    let _endpoint = Endpoint::open(&board, &options).unwrap();
    let all = info(&daemon.path(""));
    let nic = format!("{:012x}", Board::nic_of("host"));
    assert_eq!(all["nic"], nic.as_str());
    assert_eq!(all["endpoints"], serde_json::json!([7]));
    assert_eq!(all["gateway"], true);
    assert_eq!(member(&all["plane"], "host")["nic"], nic.as_str());
    assert_eq!(member(&all["plane"], "c")["connected"], false);
}

#[test]
fn every_call_is_allowed_and_every_allowed_call_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some(CONFIG));
    wait_for_host(&daemon);
    let log = folder.path().join("calls");
    let trace = Trace::attach(daemon.process("messages").unwrap(), &log);
    {
        let members = ["a", "b", "c"].map(|name| join(&daemon, folder.path(), name));
        let [mut a, mut b, mut c] = members.each_ref().map(Member::open);
        exchange(&mut a, &mut b);
        exchange(&mut a, &mut c);
        // The data plane refuses a second connection of the same name at once.
        let mut second = UnixStream::connect(daemon.path("message-plane/a.sock")).unwrap();
        assert_eq!(second.read(&mut [0]).unwrap(), 0);
    }
    until("the end of the links' memory", || {
        calls(&log).contains("fallocate")
    });
    assert_eq!(counters(&daemon)["restarts"], 0, "a call was denied");
    assert_eq!(daemon.stop(), Some(0));
    trace.ended();
    let made = calls(&log);
    let allowed = sandbox::noted(sandbox::ProcessKind::Messages);
    let allowed: BTreeSet<String> = allowed.into_iter().map(str::to_owned).collect();
    let unused: Vec<&String> = allowed
        .difference(&made)
        .filter(|call| !RARE_CALLS.contains(&call.as_str()) && *call != ALARM)
        .collect();
    assert!(unused.is_empty(), "allowed and never made: {unused:?}");
    let denied: Vec<&String> = made.difference(&allowed).collect();
    assert!(denied.is_empty(), "made and not allowed: {denied:?}");
}

#[test]
fn the_data_plane_holds_what_it_was_handed_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let without = CONFIG.replace("[[message.member]]\nname = \"host\"\n", "");
    let daemon = Daemon::start(folder.path(), Some(&without));
    // The process answers only after it has confined itself.
    assert_eq!(counters(&daemon)["up"], true);
    let id = daemon.process("messages").unwrap();
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    for line in ["Seccomp:\t2", "NoNewPrivs:\t1", "CapEff:\t0000000000000000"] {
        assert!(status.contains(line), "{line}: {status}");
    }
    let own = descriptors(id);
    let count = |what: &str| own.iter().filter(|held| held.contains(what)).count();
    // The socket to its supervisor; a region for the group and one for `c`.
    assert_eq!((count("socket"), count("memfd")), (1, 2), "{own:?}");
    // The descriptor on which the process sleeps, and the one that would wake the process.
    assert_eq!(count("anon_inode"), 2, "{own:?}");
    // Standard input, output and error.
    assert_eq!(own.len(), 1 + 2 + 2 + 3, "{own:?}");
    let joined = join(&daemon, folder.path(), "a");
    // The member's socket, the descriptor that wakes the member, and the one with which the member
    // wakes the host.
    assert_eq!(descriptors(id).len(), own.len() + 3);
    drop(joined);
    until("its end", || descriptors(id) == own);
    let refused = Gateway::join(
        &folder.path().join("x"),
        &Transport::Socket(daemon.path("message-plane/x.sock")),
    );
    assert!(matches!(refused, Err(MessageError::Kernel(_))));
}
