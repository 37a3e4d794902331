//! The uplink as a process of `vicinity serve`, and the members that use it.

use std::collections::BTreeSet;

use message::{Board, Code};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::member::Member;
use crate::common::trace::{RARE_CALLS, Trace, calls, descriptors};
use crate::common::until;
use crate::hosts::{Hosts, both, connect, connect_again, exchange, pattern};
use crate::shared_interface::{Program, all_pairs};

/// Announcements of a host that starts, one a second (mxoe-wire 6).
const INTRODUCTIONS: u64 = 8;

#[test]
fn an_uplink_that_hangs_is_killed_and_started_again() {
    let mut hosts = Hosts::new(false);
    let daemon = hosts.serve(0);
    hosts.serve(1);
    let (mut a, mut b) = (hosts.open(0, " beta"), hosts.open(1, " alpha"));
    connect(&mut a, &mut b);
    stop(hosts.process(daemon, "message-uplink"));
    until("the next uplink", || {
        hosts.counters(0)["uplink_restarts"] == 1
    });
    let (mut a, mut b) = (hosts.open(0, " beta"), hosts.open(1, " alpha"));
    connect_again(&mut a, &mut b);
}

#[test]
fn an_uplink_that_is_killed_is_started_again() {
    let mut hosts = Hosts::new(false);
    let daemon = hosts.serve(0);
    hosts.serve(1);
    let (mut a, mut b) = (hosts.open(0, " beta"), hosts.open(1, " alpha"));
    let (mut to_b, _) = connect(&mut a, &mut b);
    for (name, key) in [
        ("message-uplink", "uplink_restarts"),
        ("messages", "restarts"),
    ] {
        let waits = a.issend(to_b, 1, pattern(100_000, 1)).unwrap();
        kill(hosts.process(daemon, name));
        let code = both(&mut a, &mut b, waits).status.code;
        assert!(matches!(code, Code::Closed | Code::Unreachable), "{code:?}");
        until(name, || hosts.counters(0)[key] == 1);
        // The links have ended, and so have the connections that used them.
        (a, b) = (hosts.open(0, " beta"), hosts.open(1, " alpha"));
        let (there, back) = connect_again(&mut a, &mut b);
        exchange(&mut a, &mut b, there);
        exchange(&mut b, &mut a, back);
        to_b = there;
    }
    // An uplink process ends when its interface goes down. The next process starts when the
    // interface is up again.
    let restarts = || hosts.counters(0)["uplink_restarts"].as_u64().unwrap();
    let before = restarts();
    hosts.set_interface(0, "down");
    until("the uplink's end", || restarts() > before);
    hosts.set_interface(0, "up");
    (a, b) = (hosts.open(0, " beta"), hosts.open(1, " alpha"));
    let (there, _) = connect_again(&mut a, &mut b);
    exchange(&mut a, &mut b, there);
}

#[test]
fn an_uplink_with_nothing_to_send_ends_when_its_interface_goes_down() {
    let mut hosts = Hosts::new(false);
    hosts.serve(0);
    // After its announcements, the uplink sends nothing for minutes.
    until("the last introduction", || {
        hosts.counters(0)["uplink"]["sent"].as_u64() >= Some(INTRODUCTIONS)
    });
    hosts.set_interface(0, "down");
    until("its end", || {
        hosts.counters(0)["uplink_restarts"].as_u64() > Some(0)
    });
}

#[test]
fn members_that_change_hosts_are_found_where_they_are() {
    let mut hosts = Hosts::new(false);
    for place in [0, 1] {
        hosts.serve_with(place, &["web", "db"]);
    }
    let join = |place: usize, name: &str| {
        let socket = hosts
            .runtime(place)
            .join(format!("message-plane/{name}.sock"));
        let member = Member::join(
            &socket,
            &hosts.folder.path().join(format!("{place}-{name}")),
        );
        until("names", || {
            hosts.knows(&member.board, " alpha") && hosts.knows(&member.board, " beta")
        });
        member
    };
    for (of_web, of_db) in [(0, 1), (1, 0), (1, 1)] {
        let members = (join(of_web, "web"), join(of_db, "db"));
        let (mut web, mut db) = (members.0.open(), members.1.open());
        assert_eq!(web.address().nic, Board::nic_of("web"));
        let (to_db, to_web) = connect_again(&mut web, &mut db);
        exchange(&mut web, &mut db, to_db);
        exchange(&mut db, &mut web, to_web);
        drop((web, db));
    }
}

#[test]
fn an_uplink_makes_every_call_it_may_and_holds_what_it_was_handed() {
    let mut hosts = Hosts::new(false);
    let daemon = hosts.serve(0);
    hosts.serve(1);
    // The uplink confines itself before it receives any frame.
    let (mut a, mut b) = (hosts.open(0, " beta"), hosts.open(1, " alpha"));
    let uplink = hosts.process(daemon, "message-uplink");
    let status = std::fs::read_to_string(format!("/proc/{uplink}/status")).unwrap();
    for line in ["Seccomp:\t2", "NoNewPrivs:\t1", "CapEff:\t0000000000000000"] {
        assert!(status.contains(line), "{line}: {status}");
    }
    let own = descriptors(uplink);
    let count = |what: &str| own.iter().filter(|held| held.contains(what)).count();
    // The sockets to its supervisor, to the host and on the interface; the region that it shares.
    assert_eq!((count("socket"), count("memfd")), (3, 1), "{own:?}");
    // The files by which it shares the interface with programs of the host.
    assert_eq!(count("message-mx"), 2, "{own:?}");
    // The descriptor on which the uplink sleeps, the one that would wake it, and the one with which
    // it wakes the host.
    assert_eq!(count("anon_inode"), 3, "{own:?}");
    assert_eq!(own.len(), 3 + 1 + 2 + 3 + 3, "{own:?}");
    let log = hosts.folder.path().join("calls");
    let trace = Trace::attach(uplink, &log);
    let (to_b, _) = connect(&mut a, &mut b);
    exchange(&mut a, &mut b, to_b);
    // The uplink leaves the endpoints of such programs to them.
    all_pairs(&mut [Program::start(&hosts, 0, 7), Program::start(&hosts, 1, 7)]);
    until("the uplink's counters", || {
        hosts.counters(0)["uplink"]["sent"].as_u64() > Some(250)
    });
    assert_eq!(hosts.counters(0)["uplink_restarts"], 0, "a call was denied");
    let mut child = hosts.children.remove(daemon);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait().unwrap();
    trace.ended();
    let made = calls(&log);
    let allowed = sandbox::noted(sandbox::ProcessKind::Uplink);
    let allowed: BTreeSet<String> = allowed.into_iter().map(str::to_owned).collect();
    let unused: Vec<&String> = allowed
        .difference(&made)
        .filter(|call| !RARE_CALLS.contains(&call.as_str()))
        .collect();
    assert!(unused.is_empty(), "allowed and never made: {unused:?}");
    let denied: Vec<&String> = made.difference(&allowed).collect();
    assert!(denied.is_empty(), "made and not allowed: {denied:?}");
}

fn kill(process: u32) {
    send(process, Signal::KILL);
}

fn stop(process: u32) {
    send(process, Signal::STOP);
}

fn send(process: u32, signal: Signal) {
    let process = Pid::from_raw(process.try_into().unwrap()).unwrap();
    kill_process(process, signal).unwrap();
}
