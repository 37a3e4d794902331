//! Members that lose their CPU: their process is stopped for 90 of each 100 ms, as by a CPU quota, and
//! then for longer than the host waits for a heartbeat, as when a VM is paused.
//!
//! The test starts this program again in a role (`child`), which is set in the environment.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use message::remote::{Broker, Gateway, Member, Transport};
use message::{Address, Board, Code, Endpoint, MessageError, Options, Pattern};
use rustix::process::{Pid, Signal, kill_process};

/// No operation takes this long; a longer wait is a hang.
const HANG: Option<Duration> = Some(Duration::from_secs(60));

const FOLDER: &str = "VICINITY_TEST_FOLDER";

/// Longer than a heartbeat may be missing.
const PAUSE: Duration = Duration::from_secs(12);

/// The endpoint of the process that is stopped.
const ECHO: u32 = 7;

struct Role(Child);

impl Role {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.0.id() as i32).unwrap(), signal).unwrap();
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn gateway(folder: &Path, name: &str) -> Gateway {
    let socket = folder.join("host").join(format!("{name}.sock"));
    Gateway::join(&folder.join(name), &Transport::Socket(socket)).unwrap()
}

fn open(folder: &Path, name: &str) -> Endpoint {
    let options = Options {
        endpoint: Some(ECHO),
        ..Options::default()
    };
    Endpoint::open(&Board::open(&folder.join(name)).unwrap(), &options).unwrap()
}

/// The member that is stopped: its gateway, and a program that sends everything back.
#[test]
#[ignore = "what the other test starts"]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let mut gateway = gateway(&folder, "b");
    std::thread::spawn(move || gateway.run(|| true).unwrap());
    let mut endpoint = open(&folder, "b");
    loop {
        let request = endpoint.irecv(Pattern::ANY, vec![0; 10_000]).unwrap();
        let got = endpoint.wait(request, HANG).unwrap().unwrap();
        let bytes = got.memory.bytes()[..got.status.taken as usize].to_vec();
        let peer = got.status.peer.unwrap();
        let sent = endpoint.isend(peer, got.status.value, bytes).unwrap();
        endpoint.wait(sent, HANG).unwrap().unwrap();
    }
}

#[test]
fn members_that_lose_their_cpu_lose_no_message_and_no_link() {
    let members = [
        ["a", "b"].map(|name| (name, Some("group"))),
        ["a", "b"].map(|name| (name, None)),
    ];
    std::thread::scope(|scope| {
        for members in members {
            scope.spawn(move || stop_and_continue(&members));
        }
    });
}

fn stop_and_continue(members: &[(&str, Option<&str>)]) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let list = members.iter().map(|(name, group)| Member {
        name: (*name).to_owned(),
        group: group.map(str::to_owned),
        ..Member::default()
    });
    let list: Vec<_> = list.collect();
    let mut broker = Broker::new(&folder.join("host"), &list).unwrap();
    let (stop, silent) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let served = broker.serve(|board| {
                silent.store(
                    board.report().iter().any(|one| one.silent),
                    Ordering::Relaxed,
                );
                !stop.load(Ordering::Relaxed)
            });
            served.unwrap();
        });
        let mut gateway = gateway(folder, "a");
        let go_on = || !stop.load(Ordering::Relaxed);
        scope.spawn(move || gateway.run(go_on));
        let ended = std::panic::catch_unwind(|| exchange(folder, &silent));
        stop.store(true, Ordering::Relaxed);
        ended.unwrap();
    });
}

fn exchange(folder: &Path, silent: &AtomicBool) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["child", "--exact", "--ignored", "--nocapture"]);
    command.env(FOLDER, folder).stdout(Stdio::null());
    let role = Role(command.spawn().unwrap());
    let mut endpoint = open(folder, "a");
    let address = Address {
        nic: Board::nic_of("b"),
        endpoint: ECHO,
    };
    let peer = loop {
        match endpoint.connect(address, 0, HANG) {
            Ok(peer) => break peer,
            Err(MessageError::Connection(_)) => std::thread::sleep(Duration::from_millis(10)),
            Err(error) => panic!("{error}"),
        }
    };
    let message = |number: u64| {
        let length = [8, 1_000, 10_000][number as usize % 3];
        vec![number as u8; length]
    };
    let (mut sent, mut taken) = (0, 0);
    // Sends messages, and checks their echoes, until `end`.
    let mut turn = |endpoint: &mut Endpoint, sends: bool, end: Instant| {
        while Instant::now() < end && (sends || taken < sent) {
            while sends && sent < taken + 20 {
                endpoint.isend(peer, sent, message(sent)).unwrap();
                sent += 1;
            }
            let request = endpoint
                .irecv(Pattern::exactly(taken), vec![0; 10_000])
                .unwrap();
            let limit = end.saturating_duration_since(Instant::now());
            let Some(got) = endpoint.wait(request, Some(limit)).unwrap() else {
                endpoint.cancel(request).unwrap();
                break;
            };
            assert_eq!(got.status.code, Code::Success, "message {taken}");
            let length = got.status.taken as usize;
            assert_eq!(
                got.memory.bytes()[..length],
                message(taken),
                "message {taken}"
            );
            taken += 1;
        }
        assert_eq!(endpoint.lost(), None, "after {taken} messages");
        (sent, taken)
    };
    for _ in 0..20 {
        role.signal(Signal::STOP);
        turn(
            &mut endpoint,
            true,
            Instant::now() + Duration::from_millis(90),
        );
        role.signal(Signal::CONT);
        turn(
            &mut endpoint,
            true,
            Instant::now() + Duration::from_millis(10),
        );
    }
    assert!(!silent.load(Ordering::Relaxed));
    role.signal(Signal::STOP);
    turn(&mut endpoint, true, Instant::now() + PAUSE);
    assert!(silent.load(Ordering::Relaxed), "it is reported");
    // No new link to a member that cannot answer.
    let options = Options::default();
    let board = Board::open(&folder.join("a")).unwrap();
    let mut other = Endpoint::open(&board, &options).unwrap();
    let refused = other.connect(address, 0, HANG).unwrap_err();
    assert!(
        matches!(refused, MessageError::Connection(Code::Closed)),
        "{refused}"
    );
    role.signal(Signal::CONT);
    let (sent, taken) = turn(
        &mut endpoint,
        false,
        Instant::now() + Duration::from_secs(60),
    );
    assert_eq!(taken, sent, "nothing is lost");
    assert!(taken > 40, "{taken} messages");
}
