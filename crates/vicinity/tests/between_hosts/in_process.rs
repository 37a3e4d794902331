//! Programs that serve an interface themselves, without a daemon (`message::remote::InProcess`).

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use message::remote::InProcess;
use message::{Code, Endpoint, Options, Pattern, Peer};

use crate::common::mx::{Installed, succeed};
use crate::common::{HANG, until, vicinity};
use crate::hosts::{Hosts, LENGTHS, pattern};
use crate::processor::processor_time;

/// The endpoint and the host name of [`program`], which ends when it has lost its peer.
const ENDPOINT: u32 = 7;
const NAME: &str = "beta";

/// Match values of messages to [`program`]: it answers with the same bytes, computes without a call for longer than
/// the daemon's peer timeout, or sends [`LAST`] messages and ends at once.
const ECHO: u64 = 1;
const COMPUTE: u64 = 2;
const END: u64 = 3;
const COMPUTATION: Duration = Duration::from_secs(7);
const LAST: u64 = 200;

/// The program on the second host, which a test runs there.
#[test]
#[ignore = "a role of the other tests"]
fn program() {
    let folder = std::env::var_os("VICINITY_TEST_FOLDER").unwrap();
    let board = InProcess::open(folder.as_ref(), "mx", NAME).unwrap();
    let options = Options {
        endpoint: Some(ENDPOINT),
        ..Options::default()
    };
    let mut endpoint = Endpoint::open(&board, &options).unwrap();
    drop(board);
    eprintln!("ready");
    loop {
        let receive = endpoint.irecv(Pattern::ANY, vec![0; 2_000_000]).unwrap();
        let got = loop {
            if let Some(got) = endpoint
                .wait(receive, Some(Duration::from_secs(1)))
                .unwrap()
            {
                break got;
            }
            if endpoint.lost().is_some() {
                return;
            }
        };
        let (peer, taken) = (got.status.peer.unwrap(), got.status.taken as usize);
        match got.status.value {
            COMPUTE => std::thread::sleep(COMPUTATION),
            END => {
                for value in 0..LAST {
                    let sent = endpoint.isend(peer, value, pattern(1000, value)).unwrap();
                    endpoint.forget(sent).unwrap();
                }
                return;
            }
            _ => {}
        }
        let bytes = got.memory.bytes()[..taken].to_vec();
        let sent = endpoint.isend(peer, ECHO, bytes).unwrap();
        endpoint.wait(sent, None).unwrap();
    }
}

/// Returns the command that runs [`program`].
fn command(hosts: &Hosts) -> Command {
    let mut command = hosts.within(1, &std::env::current_exe().unwrap());
    command.args(["in_process::program", "--exact", "--ignored", "--nocapture"]);
    command.env("VICINITY_TEST_FOLDER", hosts.folder.path().join("program"));
    command.stdout(Stdio::null());
    command
}

/// Connects to [`program`].
fn connect(hosts: &Hosts, endpoint: &mut Endpoint) -> Peer {
    let address = message::Address {
        nic: hosts.board(0).find(NAME),
        endpoint: ENDPOINT,
    };
    endpoint.connect(address, 0, Some(HANG)).unwrap()
}

/// Starts [`program`], and connects an endpoint of the first host's daemon with it.
fn connected() -> (Hosts, usize, Endpoint, Peer) {
    let mut hosts = Hosts::new(false);
    hosts.serve(0);
    let mut command = command(&hosts);
    let program = hosts.start(&mut command, |line| line == "ready");
    let mut endpoint = hosts.open(0, " beta");
    let peer = connect(&hosts, &mut endpoint);
    (hosts, program, endpoint, peer)
}

fn send(endpoint: &mut Endpoint, peer: Peer, value: u64, bytes: &[u8]) {
    let sent = endpoint.isend(peer, value, bytes.to_vec()).unwrap();
    let sent = endpoint.wait(sent, Some(HANG)).unwrap().unwrap();
    assert_eq!(sent.status.code, Code::Success);
}

fn receive(endpoint: &mut Endpoint, value: u64, length: usize) -> Vec<u8> {
    let request = endpoint.irecv(Pattern::exactly(value), vec![0; length]);
    let got = endpoint
        .wait(request.unwrap(), Some(HANG))
        .unwrap()
        .unwrap();
    assert_eq!(got.status.code, Code::Success);
    assert_eq!(got.status.taken as usize, length);
    got.memory.bytes().to_vec()
}

#[test]
fn a_program_without_a_daemon_exchanges_every_length_with_a_host_that_has_one() {
    let (_hosts, _, mut endpoint, peer) = connected();
    for (seed, length) in (0..).zip(LENGTHS) {
        let bytes = pattern(length, seed);
        send(&mut endpoint, peer, ECHO, &bytes);
        assert_eq!(receive(&mut endpoint, ECHO, length), bytes);
    }
}

/// A host that does not answer for 5 s is given up. The plane's own thread answers for the program.
#[test]
fn a_program_that_computes_is_not_given_up() {
    let (_hosts, _, mut endpoint, peer) = connected();
    send(&mut endpoint, peer, COMPUTE, b"compute");
    // Large: the program has to pull it.
    let waits = endpoint.issend(peer, ECHO, pattern(100_000, 5)).unwrap();
    assert_eq!(receive(&mut endpoint, ECHO, 7), b"compute");
    let sent = endpoint.wait(waits, Some(HANG)).unwrap().unwrap();
    assert_eq!(sent.status.code, Code::Success);
    assert_eq!(receive(&mut endpoint, ECHO, 100_000), pattern(100_000, 5));
}

/// The receiver takes nothing until the sender has closed its endpoint.
#[test]
fn messages_sent_before_the_end_of_the_program_arrive() {
    let (mut hosts, program, mut endpoint, peer) = connected();
    send(&mut endpoint, peer, END, b"");
    for value in 0..LAST {
        assert_eq!(receive(&mut endpoint, value, 1000), pattern(1000, value));
    }
    assert!(hosts.children[program].wait().unwrap().success());
}

#[test]
fn a_program_that_is_killed_ends_the_requests_of_its_peers() {
    let (mut hosts, program, mut endpoint, peer) = connected();
    let waits = endpoint.issend(peer, COMPUTE, pattern(100_000, 1)).unwrap();
    hosts.children[program].kill().unwrap();
    let ended = endpoint.wait(waits, Some(HANG)).unwrap().unwrap();
    assert_eq!(ended.status.code, Code::Unreachable);
}

#[test]
fn a_program_that_waits_uses_no_processor_time() {
    const TIME: Duration = Duration::from_secs(1);
    let (hosts, program, mut endpoint, peer) = connected();
    send(&mut endpoint, peer, ECHO, b"hello");
    assert_eq!(receive(&mut endpoint, ECHO, 5), b"hello");
    let process = hosts.children[program].id();
    let used = || -> Duration {
        let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let name = |thread: std::fs::DirEntry| thread.file_name().into_string().unwrap();
        let names = threads.map(|thread| name(thread.unwrap()));
        names
            .map(|thread| processor_time(&format!("{process}/task/{thread}")))
            .sum()
    };
    std::thread::sleep(TIME / 10);
    let before = used();
    std::thread::sleep(TIME);
    let used = used() - before;
    assert!(used < TIME / 20, "{used:?}");
}

#[test]
fn a_program_notices_that_its_interface_goes_down() {
    let (mut hosts, program, mut endpoint, peer) = connected();
    send(&mut endpoint, peer, ECHO, b"hello");
    assert_eq!(receive(&mut endpoint, ECHO, 5), b"hello");
    hosts.set_interface(1, "down");
    assert!(hosts.children[program].wait().unwrap().success());
}

#[test]
fn programs_of_two_hosts_without_daemons_are_pinged_also_after_a_kill() {
    let mut hosts = Hosts::new(false);
    let program = vicinity().get_program().to_owned();
    let run = |place: usize, words: &[&str]| {
        let mut command = hosts.within(place, program.as_ref());
        command.arg("--runtime-dir").arg(hosts.runtime(place));
        command.arg("message").args(words);
        command.args(["--interface", "mx", "--host-name", ["alpha", "beta"][place]]);
        command
    };
    let mut answer = run(1, &["answer", "--endpoint", "7"]);
    let ping = |words: &[&str]| {
        let mut ping = run(0, &["ping", "beta:7", "--count", "10"]);
        ping.args(words);
        ping
    };
    let mut pings = [ping(&[]), ping(&["--poll"]), ping(&["--length", "524288"])];
    let mut measured = run(0, &["perf", "beta:7"]);
    measured.stdout(Stdio::null()).stderr(Stdio::null());
    hosts.start(&mut answer, |line| line.contains("answering"));
    // The answering host still has a connection with a program that was killed, and probes the next one.
    let mut killed = measured.spawn().unwrap();
    std::thread::sleep(Duration::from_secs(3));
    killed.kill().unwrap();
    killed.wait().unwrap();
    for ping in &mut pings {
        let text = succeed(ping);
        assert!(text.contains("10 round trips of"), "{text}");
    }
}

#[test]
fn c_programs_of_two_hosts_talk_without_daemons() {
    let hosts = Hosts::new(false);
    let installed = Installed::new(hosts.folder.path().join("mx"));
    let program = hosts.folder.path().join("program");
    installed.compile("tests/c/members.c", &program);
    let run = |place: usize, words: [&str; 5]| {
        let mut command = hosts.within(place, "unshare".as_ref());
        command.args(["--uts", "sh", "-c", "hostname $1; exec $0 $@"]);
        command.arg(&program).args(words);
        command.env("LD_LIBRARY_PATH", installed.libraries());
        command.env("VICINITY_RUNTIME_DIR", hosts.runtime(place));
        command.env("VICINITY_INTERFACE", "mx");
        succeed(&mut command);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| run(0, ["alpha", "beta", "1", "2", "other-host"]));
        run(1, ["beta", "alpha", "2", "1", "other-host"]);
    });
}

/// Returns whether an epoll descriptor of this process has a packet socket.
fn frames_wake_a_thread() -> bool {
    let text = std::fs::read_to_string("/proc/self/net/packet").unwrap();
    let inodes = text
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().last());
    let sockets: Vec<_> = inodes.map(|inode| format!("socket:[{inode}]")).collect();
    let files = std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
    // A file may be closed meanwhile.
    let texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
    texts.into_iter().any(|text| {
        let watched = text.lines().filter_map(|line| line.strip_prefix("tfd:"));
        let mut watched = watched.filter_map(|rest| rest.split_whitespace().next());
        watched.any(|fd| {
            std::fs::read_link(format!("/proc/self/fd/{fd}"))
                .is_ok_and(|file| sockets.iter().any(|socket| file == Path::new(socket)))
        })
    })
}

/// A program one of whose threads sleeps, which a test runs on the second host.
#[test]
#[ignore = "a role of the other tests"]
fn sleeper() {
    let folder = std::env::var_os("VICINITY_TEST_FOLDER").unwrap();
    let board = InProcess::open(folder.as_ref(), "mx", NAME).unwrap();
    let mut endpoint = Endpoint::open(&board, &Options::default()).unwrap();
    endpoint.progress();
    assert!(!frames_wake_a_thread(), "no thread sleeps");
    let thread = std::thread::spawn(move || {
        let receive = endpoint.irecv(Pattern::ANY, vec![0; 8]).unwrap();
        let limit = Some(Duration::from_secs(2));
        assert!(endpoint.wait(receive, limit).unwrap().is_none());
        endpoint
    });
    until("a sleep", frames_wake_a_thread);
    let _endpoint = thread.join().unwrap();
    assert!(!frames_wake_a_thread(), "no thread sleeps any more");
}

/// The sender of a frame carries out what wakes a thread, so a program that polls is not to be woken.
#[test]
fn frames_wake_a_program_only_while_one_of_its_threads_sleeps() {
    let hosts = Hosts::new(false);
    let mut command = hosts.within(1, &std::env::current_exe().unwrap());
    command.args(["in_process::sleeper", "--exact", "--ignored", "--nocapture"]);
    command.env("VICINITY_TEST_FOLDER", hosts.folder.path().join("program"));
    succeed(&mut command);
}
