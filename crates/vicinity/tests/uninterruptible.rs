//! A data plane with a thread that waits in the kernel where no signal reaches it (state D). This affects at
//! most its own network, and only for a limited time.
//!
//! A front-end passes a file of a file system that the front-end itself serves. The data plane refuses the
//! file without using it. But closing the file is an operation of that file system, too, and the front-end
//! does not answer it.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::fs::File;
use std::io::{IoSlice, Read};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::silent::Silent;
use common::{Daemon, until, vicinity};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::Signal;

const TWO: &str = r#"
    [[network]]
    name = "blue"
    [[network.port]]
    vm = "a"
    [[network.port]]
    vm = "hostile"

    [[network]]
    name = "green"
    [[network.port]]
    vm = "b"
"#;

/// The daemon answers every request within this time.
const ANSWERS: Duration = Duration::from_secs(1);

/// Receives the daemon's notifications on this socket, as systemd does. Returns the time of the
/// latest one.
fn pulse(path: &Path) -> Arc<Mutex<Instant>> {
    let manager = UnixDatagram::bind(path).unwrap();
    let heard = Arc::new(Mutex::new(Instant::now()));
    let last = heard.clone();
    std::thread::spawn(move || {
        while manager.recv(&mut [0; 1000]).is_ok() {
            *last.lock().unwrap() = Instant::now();
        }
    });
    heard
}

/// Sends `VHOST_USER_SET_VRING_KICK` of ring 0 with a descriptor.
fn hand_over(front_end: &UnixStream, file: &File) {
    let (request, version, size) = (12_u32, 1_u32, 8_u32);
    let header = [request, version, size].map(u32::to_le_bytes).concat();
    let message = [header, 0_u64.to_le_bytes().to_vec()].concat();
    let descriptors = [file.as_fd()];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let bytes = [IoSlice::new(&message)];
    sendmsg(front_end, &bytes, &mut ancillary, SendFlags::empty()).unwrap();
}

/// Returns the states of a process's threads.
fn states(id: u32) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{id}/task"));
    let status = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("status"));
    let state = |text: String| Some(text.split_once("State:\t")?.1.chars().next()?.to_string());
    let threads = threads.into_iter().flatten().flatten();
    threads
        .filter_map(|thread| state(status(thread).ok()?))
        .collect()
}

/// Returns whether a thread of a process waits for the answer of a FUSE file system.
fn waits_for_fuse(id: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{id}/task")).unwrap();
    threads.flatten().any(|thread| {
        let place = std::fs::read_to_string(thread.path().join("wchan"));
        place.is_ok_and(|place| place == "request_wait_answer")
    })
}

/// Sends all requests that users and programs send, and asserts that the daemon answers each within
/// [`ANSWERS`].
fn all_is_answered(daemon: &Daemon) {
    let timed = |what: &str, ask: &dyn Fn()| {
        let started = Instant::now();
        ask();
        let took = started.elapsed();
        assert!(took < ANSWERS, "{what}: {took:?}");
    };
    timed("port list", &|| {
        assert!(
            daemon.port("hostile").is_object(),
            "it is known all the same"
        );
        assert_eq!(daemon.port("b")["state"], "connected");
    });
    timed("metrics", &|| {
        let output = daemon.command(&["metrics"]);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("network=\"green\""), "{text}");
    });
    // The command asks the daemon twice, with an interval of a second between the requests.
    let started = Instant::now();
    let output = daemon.command(&["top", "--once"]);
    assert!(output.status.success(), "{output:?}");
    let took = started.elapsed();
    assert!(took < Duration::from_secs(1) + 2 * ANSWERS, "top: {took:?}");
}

/// The tests run one at a time: a process that a test starts inherits the other test's file for a moment, and
/// waits in the kernel to close it.
static ALONE: Mutex<()> = Mutex::new(());

/// Closes this process's own descriptor of the file in a thread, because the close waits, too. Every process
/// that this process starts before the close would also wait.
fn close(file: File) -> JoinHandle<()> {
    let closing = std::thread::spawn(move || drop(file));
    until("this process closes it", || {
        waits_for_fuse(std::process::id())
    });
    closing
}

#[test]
fn a_close_that_does_not_end_does_not_affect_other_ports() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some(TWO));
    let connect = |path| UnixStream::connect(daemon.path(path)).unwrap();
    let _neighbour = connect("green/b.sock");
    daemon.until_state("b", "connected");
    let silent = Silent::mount();
    let hostile = connect("blue/hostile.sock");
    daemon.until_state("hostile", "connected");
    let id = daemon.data_plane("blue").unwrap();
    let file = silent.open();
    hand_over(&hostile, &file);
    let closing = close(file);
    until("a thread that closes it", || waits_for_fuse(id));
    // The first quarantine ends after a second.
    until("its quarantine", || {
        daemon.port("hostile")["quarantines"] == 1
    });

    // The thread that closes descriptors is stuck, and all other threads serve, for longer than a data plane
    // may take to answer.
    let started = Instant::now();
    let _honest = connect("blue/a.sock");
    while started.elapsed() < Duration::from_secs(6) {
        daemon.until_state("a", "connected");
        all_is_answered(&daemon);
    }
    assert_eq!(daemon.network("blue")["restarts"], 0);
    assert_eq!(daemon.data_plane("blue"), Some(id));
    assert!(waits_for_fuse(id));

    drop((silent, hostile));
    closing.join().unwrap();
    until("the close's end", || !waits_for_fuse(id));
}

#[test]
fn a_data_plane_that_sigkill_does_not_end_costs_its_own_network_for_a_while() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let pulse = pulse(&folder.path().join("notify"));
    let mut command = vicinity();
    command.env("NOTIFY_SOCKET", folder.path().join("notify"));
    command.env("WATCHDOG_USEC", "100000");
    let daemon = Daemon::start_by(command, folder.path(), Some(TWO));
    let connect = |path| UnixStream::connect(daemon.path(path)).unwrap();
    let mut honest = connect("blue/a.sock");
    let _neighbour = connect("green/b.sock");
    daemon.until_state("a", "connected");
    daemon.until_state("b", "connected");
    let green = daemon.data_plane("green").unwrap();

    let silent = Silent::mount();
    let hostile = connect("blue/hostile.sock");
    daemon.until_state("hostile", "connected");
    let id = daemon.data_plane("blue").unwrap();
    let file = silent.open();
    hand_over(&hostile, &file);
    let closing = close(file);
    // Whatever the data plane does with the file by then, SIGSTOP makes it hang.
    std::thread::sleep(Duration::from_millis(200));
    daemon.signal_data_plane("blue", Signal::STOP);

    let started = Instant::now();
    while daemon.network("blue")["restarts"] == 0 {
        all_is_answered(&daemon);
        assert!(pulse.lock().unwrap().elapsed() < ANSWERS, "no pulse");
        assert!(started.elapsed() < Duration::from_secs(40));
    }
    assert!(
        states(id).iter().any(|state| state == "D"),
        "{:?}",
        states(id)
    );

    // The supervisor disconnects the front-ends, though the stuck process still has their sockets,
    // and the next data plane serves them.
    honest.set_read_timeout(Some(ANSWERS)).unwrap();
    assert_eq!(
        honest.read(&mut [0; 1]).unwrap(),
        0,
        "the socket is shut down"
    );
    let _honest = connect("blue/a.sock");
    daemon.until_state("a", "connected");
    all_is_answered(&daemon);
    assert_eq!(daemon.network("green")["restarts"], 0);
    assert_eq!(daemon.data_plane("green"), Some(green));

    // The daemon ends in time although such a process remains. The process ends when its wait in
    // the kernel ends.
    let started = Instant::now();
    assert_eq!(daemon.stop(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(5));
    assert!(states(id).iter().any(|state| state == "D"));
    drop(silent);
    until("its end", || states(id).iter().all(|state| state == "Z"));
    drop(hostile);
    closing.join().unwrap();
}
