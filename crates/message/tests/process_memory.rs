//! Large messages between processes, which the kernel copies from one's memory to the other's.
//!
//! The tests start this program again in a role (`child`), which is set in the environment.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

#[path = "common/refused.rs"]
mod refused;
#[path = "common/role.rs"]
mod role;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use message::limits::{COPIED_TOGETHER, MEDIUM_WITH_CREDIT};
use message::{Code, Copies, Endpoint, Memory, Pattern, Peer, Request};
use nix::unistd::{Uid, setresuid};
use refused::{READ, WRITE, refuse};
use role::{HANG, Own, Role, connect, open};
use rustix::process::{Signal, getpid, kill_process};

/// Short messages, of which several are copied by one call, and long ones. All together have fewer bytes than the receiver waits for
/// before it tries streams.
const LENGTHS: [usize; 7] = [32_769, 40_000, 65_536, 65_537, 262_143, 262_144, 1_000_003];

/// Messages among which streams are tried. A trial in which the other process does not run for long has messages of the kernel only,
/// which began before, and the next trial comes later.
const MANY: [usize; 8] = [5_000_000; 8];

/// Returns how many messages of a length are sent before the first is waited for. Those that are copied together are at least as many as are by one
/// call; those of the other lengths are copied one by one.
fn window(length: usize) -> u64 {
    match length {
        ..=100_000 => 20,
        100_001..=262_143 => COPIED_TOGETHER as u64,
        262_144..=2_000_000 => 3,
        _ => 20,
    }
}

/// The user without rights.
const NOBODY: Uid = Uid::from_raw(65534);

/// Bytes of messages that are broken off.
const LONG: usize = 4_000_003;

/// Every child has rank 1, and the test has rank 0.
#[test]
#[ignore = "what the other tests start"]
fn child() {
    let Some(Own { role, folder, .. }) = role::own() else {
        return;
    };
    match role.as_str() {
        "unreadable" | "granting" => refuse(&[READ]),
        "closed" => refuse(&[READ, WRITE]),
        "unwritable" | "withdrawing" => refuse(&[WRITE]),
        "of-nobody" => setresuid(NOBODY, NOBODY, NOBODY).unwrap(),
        "forked" => return forked(&folder),
        _ => {}
    }
    let mut endpoint = open(&folder, 1);
    let peer = connect(&mut endpoint, 0);
    match role.as_str() {
        "echo" | "unreadable" | "unwritable" | "closed" | "of-nobody" => {
            echo(&mut endpoint, peer, &LENGTHS);
        }
        "echo-many" => echo(&mut endpoint, peer, &MANY),
        "granting" => grant(&mut endpoint),
        "stopped" => stopped(&mut endpoint, peer),
        "heap-then-plain" => send_from_heap_then_plain(&mut endpoint, peer),
        "sender" => send_without_end(&mut endpoint, peer),
        "receiver" => receive_without_end(&mut endpoint, peer),
        "withdrawing" => withdraw(&mut endpoint, peer),
        other => panic!("no role {other}"),
    }
}

/// Returns bytes of which no two pieces, and no two messages, are alike.
fn marked(length: usize, number: u64) -> Vec<u8> {
    let byte = |at: usize| ((at ^ at >> 8 ^ at >> 16) as u64 * 31 + number) as u8;
    (0..length).map(byte).collect()
}

fn wait(endpoint: &mut Endpoint, request: Request) -> (Code, Vec<u8>) {
    let ended = endpoint.wait(request, HANG).unwrap().unwrap();
    (ended.status.code, ended.memory.bytes().to_vec())
}

/// Sends back what arrives, until the test ends.
fn echo(endpoint: &mut Endpoint, peer: Peer, lengths: &[usize]) {
    for &round in lengths {
        let requests: Vec<_> = (0..window(round))
            .map(|number| {
                endpoint
                    .irecv(Pattern::exactly(number), vec![0; round])
                    .unwrap()
            })
            .collect();
        let mut sends = Vec::new();
        for (number, request) in (0..).zip(requests) {
            let (code, bytes) = wait(endpoint, request);
            assert_eq!(code, Code::Success);
            sends.push(endpoint.isend(peer, number, bytes).unwrap());
        }
        for request in sends {
            assert_eq!(wait(endpoint, request).0, Code::Success);
        }
    }
    assert!(
        endpoint
            .wait_any(Pattern::exactly(99), HANG)
            .unwrap()
            .is_none()
    );
}

/// Exchanges messages of all lengths with a child of this role; returns how they came.
fn exchange(role: &str, lengths: &[usize]) -> Copies {
    exchange_until(role, lengths, |_| false)
}

/// The same, until `enough` messages of these lengths have come.
fn exchange_until(role: &str, lengths: &[usize], enough: impl Fn(Copies) -> bool) -> Copies {
    let folder = tempfile::tempdir().unwrap();
    let mut endpoint = open(folder.path(), 0);
    let endpoints = folder.path().join("endpoints");
    for path in [folder.path(), &endpoints, &endpoints.join("0.sock")] {
        std::fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
    }
    let _child = Role::start(role, folder.path(), 1);
    let peer = connect(&mut endpoint, 1);
    for &length in lengths {
        let sent: Vec<_> = (0..window(length))
            .map(|number| marked(length, number))
            .collect();
        let receives: Vec<_> = (0..window(length))
            .map(|number| {
                endpoint
                    .irecv(Pattern::exactly(number), vec![0; length])
                    .unwrap()
            })
            .collect();
        let sends: Vec<_> = (0..)
            .zip(&sent)
            .map(|(number, bytes)| endpoint.isend(peer, number, bytes.clone()).unwrap())
            .collect();
        for (request, sent) in receives.into_iter().zip(&sent) {
            let (code, bytes) = wait(&mut endpoint, request);
            assert!(code == Code::Success && bytes == *sent, "{length} bytes");
        }
        for (request, sent) in sends.into_iter().zip(&sent) {
            let (code, bytes) = wait(&mut endpoint, request);
            assert!(code == Code::Success && bytes == *sent, "{length} bytes");
        }
        if enough(endpoint.copies()) {
            break;
        }
    }
    endpoint.copies()
}

/// Messages of all lengths.
fn count() -> u64 {
    LENGTHS.iter().map(|length| window(*length)).sum()
}

#[test]
fn large_messages_are_copied_once() {
    let copies = exchange("echo", &LENGTHS);
    println!("{copies:?}");
    assert_eq!((copies.once, copies.streamed), (count(), 0));
}

#[test]
fn messages_are_whole_while_streams_are_tried() {
    let copies = exchange_until("echo-many", &MANY, |copies| copies.streamed > 0);
    println!("{copies:?}");
    assert!(copies.once >= 8 && copies.streamed > 0, "{copies:?}");
}

/// Messages on a heap, and others: in all, more bytes than the receiver waits for before it tries streams.
const ON_HEAP: u64 = 47;
const PLAIN: u64 = 2;
const BIG: usize = 1_000_000;

fn send_from_heap_then_plain(endpoint: &mut Endpoint, peer: Peer) {
    let mut memory: Memory = endpoint.allocate(BIG).unwrap().into();
    for number in 0..ON_HEAP + PLAIN {
        if number == ON_HEAP {
            memory = marked(BIG, number).into();
        }
        let sent = endpoint.isend(peer, number, memory).unwrap();
        memory = endpoint.wait(sent, HANG).unwrap().unwrap().memory;
    }
    // The peer's process may still read.
    let _none = endpoint.wait_any(Pattern::exactly(99), HANG).unwrap();
}

/// The kernel does not copy what is on a heap, so these messages say nothing about it.
#[test]
fn messages_on_a_heap_do_not_count_for_the_choice_of_copies() {
    let folder = tempfile::tempdir().unwrap();
    let mut endpoint = open(folder.path(), 0);
    let _child = Role::start("heap-then-plain", folder.path(), 1);
    connect(&mut endpoint, 1);
    for number in 0..ON_HEAP + PLAIN {
        let receive = endpoint.irecv(Pattern::exactly(number), vec![0; BIG]);
        assert_eq!(wait(&mut endpoint, receive.unwrap()).0, Code::Success);
    }
    let copies = endpoint.copies();
    assert_eq!((copies.once, copies.streamed), (ON_HEAP + PLAIN, 0));
}

#[test]
fn a_receiver_copies_all_if_the_sender_may_not() {
    let copies = exchange("unwritable", &LENGTHS);
    // The sender has to be refused once, with the first messages that are copied together.
    assert_eq!(copies.once + copies.streamed, count());
    assert!(copies.streamed <= COPIED_TOGETHER as u64, "{copies:?}");
    assert_eq!(copies.shared, 0);
}

/// Exchanges messages with a child of this role, while the kernel refuses these calls to the test, too.
fn exchange_without(calls: &'static [libc::c_long], role: &'static str) -> Copies {
    // A thread of its own: the filter stays for as long as the thread.
    let test = std::thread::spawn(move || {
        refuse(calls);
        exchange(role, &LENGTHS)
    });
    test.join().unwrap()
}

#[test]
fn messages_are_streamed_if_neither_side_may_copy() {
    let copies = exchange_without(&[READ, WRITE], "closed");
    assert_eq!((copies.once, copies.streamed), (0, count()));
}

/// The receiver finds out with the first piece that it claims. If it loses its processor before, the sender claims all pieces, and copies
/// these messages alone.
#[test]
fn a_receiver_that_may_not_read_the_sender_copies_nothing() {
    let copies = exchange_without(&[READ], "unreadable");
    println!("{copies:?}");
    assert_eq!(copies.once + copies.streamed, count());
    assert_eq!(copies.once, copies.shared, "copied by the sender alone");
}

/// Messages that are offered until the sender has credits, and those that it sends with them while nothing receives them.
const OFFERED: u64 = 2;
const WITH_CREDITS: u64 = 3;

/// Receives the offered messages, and the others when the sender has sent them.
fn grant(endpoint: &mut Endpoint) {
    let mut receive = |number, length| {
        let pattern = Pattern::exactly(number);
        let request = endpoint.irecv(pattern, vec![0; length]).unwrap();
        let (code, bytes) = wait(endpoint, request);
        assert!(code == Code::Success && bytes == marked(length, number));
    };
    let with_credits = OFFERED + WITH_CREDITS;
    (0..OFFERED).for_each(|number| receive(number, LONGEST));
    receive(99, 8);
    (OFFERED..with_credits).for_each(|number| receive(number, LONGEST));
    receive(with_credits, LONGEST + 1);
}

const LONGEST: usize = MEDIUM_WITH_CREDIT as usize;

/// A receiver that cannot read the sender's memory grants credits with the second message.
#[test]
fn a_message_with_a_credit_needs_no_receive() {
    let folder = tempfile::tempdir().unwrap();
    let mut endpoint = open(folder.path(), 0);
    let _child = Role::start("granting", folder.path(), 1);
    let peer = connect(&mut endpoint, 1);
    let send = |endpoint: &mut Endpoint, number, length| {
        let bytes = marked(length, number);
        endpoint.isend(peer, number, bytes).unwrap()
    };
    for number in 0..OFFERED {
        let sent = send(&mut endpoint, number, LONGEST);
        assert_eq!(wait(&mut endpoint, sent).0, Code::Success);
    }
    let with_credits = OFFERED + WITH_CREDITS;
    for number in OFFERED..with_credits {
        let sent = send(&mut endpoint, number, LONGEST);
        assert!(endpoint.is_ended(sent).unwrap(), "{number}");
    }
    let offered = send(&mut endpoint, with_credits, LONGEST + 1);
    assert!(!endpoint.is_ended(offered).unwrap());
    send(&mut endpoint, 99, 8);
    assert_eq!(wait(&mut endpoint, offered).0, Code::Success);
}

/// This process has the right to trace that of another user, which has not the same right.
#[test]
fn messages_of_another_users_process_are_streamed() {
    let copies = exchange("of-nobody", &LENGTHS);
    assert_eq!((copies.once, copies.streamed), (0, count()));
}

/// Offers a large message, and is stopped.
fn stopped(endpoint: &mut Endpoint, peer: Peer) {
    let _ = endpoint.isend(peer, 1, marked(LONG, 1)).unwrap();
    kill_process(getpid(), Signal::STOP).unwrap();
    // The signal may take effect later.
    std::thread::sleep(Duration::from_secs(120));
}

#[test]
fn a_receiver_does_not_wait_for_a_sender_that_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let mut endpoint = open(folder.path(), 0);
    let child = Role::start("stopped", folder.path(), 1);
    connect(&mut endpoint, 1);
    child.await_stop(&mut endpoint);
    let request = endpoint.irecv(Pattern::ANY, vec![0; LONG]).unwrap();
    let (code, bytes) = wait(&mut endpoint, request);
    assert!(code == Code::Success && bytes == marked(LONG, 1));
}

fn send_without_end(endpoint: &mut Endpoint, peer: Peer) {
    for number in 0.. {
        let request = endpoint.isend(peer, number, marked(LONG, number)).unwrap();
        wait(endpoint, request);
    }
}

fn receive_without_end(endpoint: &mut Endpoint, _peer: Peer) {
    loop {
        let request = endpoint.irecv(Pattern::ANY, vec![0; LONG]).unwrap();
        wait(endpoint, request);
    }
}

#[test]
fn a_sender_that_is_killed_spoils_no_received_message() {
    let mut received = 0;
    for round in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let mut endpoint = open(folder.path(), 0);
        let child = Role::start("sender", folder.path(), 1);
        connect(&mut endpoint, 1);
        let mut is_lost = false;
        for number in 0.. {
            let request = endpoint
                .irecv(Pattern::exactly(number), vec![0; LONG])
                .unwrap();
            // The kill falls anywhere into the copy.
            let killer = (number == 3).then(|| child.kill_after(Duration::from_micros(round * 40)));
            let (code, bytes) = wait_or_cancel(&mut endpoint, request, &mut is_lost);
            drop(killer);
            match code {
                Code::Success => assert!(bytes == marked(LONG, number), "{round}"),
                code => assert!([Code::Closed, Code::Cancelled].contains(&code), "{code:?}"),
            }
            if code != Code::Success {
                break;
            }
            received += 1;
        }
    }
    assert!(received >= 60, "{received}");
}

/// Waits for a receive; cancels it if the peer is lost before. The receive that ends with the peer may have succeeded.
fn wait_or_cancel(
    endpoint: &mut Endpoint,
    request: Request,
    is_lost: &mut bool,
) -> (Code, Vec<u8>) {
    loop {
        if let Some(ended) = endpoint.test(request).unwrap() {
            return (ended.status.code, ended.memory.bytes().to_vec());
        }
        *is_lost |= endpoint.lost().is_some();
        if *is_lost {
            let _late = endpoint.cancel(request).unwrap();
        }
    }
}

#[test]
fn a_receiver_that_is_killed_leaves_the_sender_its_memory() {
    for round in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let mut endpoint = open(folder.path(), 0);
        let child = Role::start("receiver", folder.path(), 1);
        let peer = connect(&mut endpoint, 1);
        for number in 0.. {
            let request = endpoint.isend(peer, number, marked(LONG, number)).unwrap();
            let killer = (number == 3).then(|| child.kill_after(Duration::from_micros(round * 40)));
            let (code, bytes) = wait(&mut endpoint, request);
            drop(killer);
            assert!(bytes == marked(LONG, number), "{round}");
            if code == Code::Closed {
                break;
            }
            assert_eq!(code, Code::Success);
        }
    }
}

/// Sends messages without end, and disconnects at another time of each copy. The memory is changed then.
fn withdraw(endpoint: &mut Endpoint, mut peer: Peer) {
    for number in 0.. {
        let request = endpoint.isend(peer, number, marked(LONG, number)).unwrap();
        // It makes no calls meanwhile, and could not copy for the receiver in the last one. The time is up to 10 ms.
        let pause = Duration::from_micros((number % 100).pow(2));
        let start = Instant::now();
        while start.elapsed() < pause {}
        endpoint.disconnect(peer).unwrap();
        let mut bytes = wait(endpoint, request).1;
        bytes.fill(0xee);
        std::hint::black_box(&bytes);
        peer = connect(endpoint, 0);
    }
}

#[test]
fn a_sender_that_disconnects_spoils_no_received_message() {
    let folder = tempfile::tempdir().unwrap();
    let mut endpoint = open(folder.path(), 0);
    let _child = Role::start("withdrawing", folder.path(), 1);
    let (mut whole, mut withdrawn) = (0, 0);
    while whole < 5 || withdrawn < 5 {
        let Some(found) = endpoint.iprobe(Pattern::ANY) else {
            continue;
        };
        let pattern = Pattern::exactly(found.value);
        let request = endpoint.irecv(pattern, vec![0; LONG]).unwrap();
        let (code, bytes) = wait(&mut endpoint, request);
        match code {
            Code::Success => {
                assert!(bytes == marked(LONG, found.value), "{}", found.value);
                whole += 1;
            }
            code => {
                assert_eq!(code, Code::Closed);
                withdrawn += 1;
            }
        }
    }
}

#[test]
fn a_receiver_that_disconnects_is_not_written_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let mut endpoint = open(folder.path(), 0);
    for round in 0..50 {
        let child = Role::start("sender", folder.path(), 1);
        let peer = connect(&mut endpoint, 1);
        while endpoint.iprobe(Pattern::ANY).is_none() {}
        // This side copies its pieces in this call. The sender may still copy one afterwards.
        let request = endpoint.irecv(Pattern::ANY, vec![0; LONG]).unwrap();
        endpoint.disconnect(peer).unwrap();
        let ended = endpoint.wait(request, HANG).unwrap().unwrap();
        let mut memory = ended.memory;
        memory.put(0, &vec![0xee; LONG]);
        std::thread::sleep(Duration::from_millis(1));
        assert!(memory.bytes().iter().all(|byte| *byte == 0xee), "{round}");
        drop(child);
    }
}

/// Opens an endpoint, and uses it in a child of this process: peers know this process's id.
fn forked(folder: &std::path::Path) {
    let mut endpoint = open(folder, 1);
    let peer = connect(&mut endpoint, 0);
    // SAFETY: the child uses only what this thread owns.
    #[allow(unsafe_code, reason = "a fork cannot be made otherwise")]
    let child = unsafe { libc::fork() };
    if child != 0 {
        // The addresses of the child are wrong in this process.
        std::thread::sleep(Duration::from_secs(120));
        return;
    }
    for length in LENGTHS {
        let sent = endpoint.isend(peer, 1, marked(length, 1)).unwrap();
        let received = endpoint
            .irecv(Pattern::exactly(2), vec![0; length])
            .unwrap();
        assert_eq!(wait(&mut endpoint, sent).0, Code::Success);
        let (code, bytes) = wait(&mut endpoint, received);
        assert!(code == Code::Success && bytes == marked(length, 2));
    }
    let done = endpoint.isend(peer, 3, vec![]).unwrap();
    wait(&mut endpoint, done);
    std::process::exit(0);
}

#[test]
fn a_child_of_the_process_that_opened_the_endpoint_sends_and_receives() {
    let folder = tempfile::tempdir().unwrap();
    let mut endpoint = open(folder.path(), 0);
    let _child = Role::start("forked", folder.path(), 1);
    let peer = connect(&mut endpoint, 1);
    for length in LENGTHS {
        let received = endpoint
            .irecv(Pattern::exactly(1), vec![0; length])
            .unwrap();
        let (code, bytes) = wait(&mut endpoint, received);
        assert!(code == Code::Success && bytes == marked(length, 1));
        let sent = endpoint.isend(peer, 2, marked(length, 2)).unwrap();
        assert_eq!(wait(&mut endpoint, sent).0, Code::Success);
    }
    let done = endpoint.irecv(Pattern::exactly(3), vec![]).unwrap();
    assert_eq!(wait(&mut endpoint, done).0, Code::Success);
}
