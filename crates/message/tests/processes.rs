//! Real processes: all-to-all exchanges, sleepers, and peers that are killed during a transfer.
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

use std::time::Duration;

use message::{Code, Endpoint, Memory, Pattern};
use refused::{READ, refuse};
use role::{HANG, Own, Role, connect, open};
use rustix::process::{Signal, getpid, kill_process};

/// Processes of the all-to-all exchange.
const RANKS: u32 = 40;

/// What each process sends to each other: one message of every protocol.
const LENGTHS: [usize; 3] = [8, 5_000, 70_000];

/// More than the victim can stream in [`ROUNDS`]: in each at most 64 chunks of 16 KiB.
const HUGE: usize = 64 << 20;
const ROUNDS: usize = 50;

/// More messages of 20,000 bytes than the victim's limit of unexpected messages, 16 MiB.
const MANY: usize = 1_000;

#[test]
#[ignore = "what the other tests start"]
fn child() {
    let Some(Own { role, folder, rank }) = role::own() else {
        return;
    };
    let mut endpoint = open(&folder, rank);
    match role.as_str() {
        "rank" => exchange(&mut endpoint, rank),
        "victim" => victim(&mut endpoint),
        "sleeper" => sleeper(&mut endpoint),
        "giver" => giver(&mut endpoint),
        "taker" => taker(&mut endpoint),
        other => panic!("no role {other}"),
    }
}

fn bytes(from: u32, to: u32, length: usize) -> Vec<u8> {
    let seed = from * 41 + to;
    (0..length).map(|at| (at as u32 + seed) as u8).collect()
}

fn exchange(endpoint: &mut Endpoint, rank: u32) {
    let others = || (0..RANKS).filter(move |other| *other != rank);
    let peers: Vec<_> = others()
        .map(|other| (other, connect(endpoint, other)))
        .collect();
    let mut sends = Vec::new();
    for (other, peer) in &peers {
        for (kind, length) in LENGTHS.into_iter().enumerate() {
            let value = u64::from(rank) << 8 | kind as u64;
            let memory = bytes(rank, *other, length);
            sends.push(endpoint.isend(*peer, value, memory).unwrap());
        }
    }
    for (other, peer) in &peers {
        for (kind, length) in LENGTHS.into_iter().enumerate() {
            let value = u64::from(*other) << 8 | kind as u64;
            let memory = vec![0; length];
            let request = endpoint.irecv(Pattern::exactly(value), memory).unwrap();
            let got = endpoint.wait(request, HANG).unwrap().unwrap();
            assert_eq!(got.status.code, Code::Success);
            assert_eq!(got.status.peer, Some(*peer));
            assert_eq!(got.memory.bytes(), bytes(*other, rank, length));
        }
    }
    for request in sends {
        let sent = endpoint.wait(request, HANG).unwrap().unwrap();
        assert_eq!(sent.status.code, Code::Success);
    }
    assert!(endpoint.iprobe(Pattern::ANY).is_none(), "nothing twice");
}

#[test]
fn forty_processes_exchange_all_to_all_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let start = |rank| Role::start("rank", folder.path(), rank);
    let mut ranks: Vec<_> = (0..RANKS).map(start).collect();
    for (rank, role) in ranks.iter_mut().enumerate() {
        let status = role.0.wait().unwrap();
        assert!(status.success(), "rank {rank}: {status}");
    }
    let endpoints = folder.path().join("endpoints");
    let left: Vec<_> = std::fs::read_dir(endpoints).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Stops in the middle of sending and receiving a large message, after it sent small ones.
fn victim(endpoint: &mut Endpoint) {
    let peer = connect(endpoint, 0);
    for number in 0..10u8 {
        let _ = endpoint.isend(peer, 1, vec![number; 8]).unwrap();
        let _ = endpoint.isend(peer, 1, vec![number; 3000]).unwrap();
    }
    let _ = endpoint.irecv(Pattern::exactly(2), vec![0; HUGE]).unwrap();
    let _ = endpoint.isend(peer, 3, vec![3; HUGE]).unwrap();
    let heap = endpoint.allocate(HUGE).unwrap();
    let _ = endpoint.isend(peer, 4, heap).unwrap();
    for _ in 0..ROUNDS {
        endpoint.progress();
    }
    kill_process(getpid(), Signal::STOP).unwrap();
    // The signal may take effect later.
    std::thread::sleep(Duration::from_secs(120));
}

/// Large messages are streamed: the filter of this thread is the victim's, too.
#[test]
fn killing_a_peer_ends_every_protocol_and_its_earlier_messages_are_received() {
    let test = std::thread::spawn(|| {
        refuse(&[READ]);
        kill_a_peer();
    });
    test.join().unwrap();
}

fn kill_a_peer() {
    let folder = tempfile::tempdir().unwrap();
    let mut endpoint = open(folder.path(), 0);
    let role = Role::start("victim", folder.path(), 1);
    let peer = connect(&mut endpoint, 1);
    let mut bystander = open(folder.path(), 2);
    let request = bystander.iconnect(endpoint.address(), 0, 0).unwrap();
    let other = loop {
        endpoint.progress();
        if let Some(done) = bystander.test(request).unwrap() {
            break done.status.peer.unwrap();
        }
    };
    let streamed_in = endpoint.irecv(Pattern::exactly(3), vec![0; HUGE]).unwrap();
    let streamed_out = endpoint.isend(peer, 2, vec![2; HUGE]).unwrap();
    let acknowledged = endpoint.issend(peer, 9, vec![9; 8]).unwrap();
    let offered = endpoint.isend(peer, 9, vec![9; 50_000]).unwrap();
    let from_heap = endpoint.allocate(50_000).unwrap();
    let on_heap = endpoint.isend(peer, 9, from_heap).unwrap();
    let queued: Vec<_> = (0..MANY)
        .map(|_| endpoint.isend(peer, 9, vec![9; 20_000]).unwrap())
        .collect();
    role.await_stop(&mut endpoint);
    let mut waiting = vec![streamed_in, streamed_out, acknowledged, offered, on_heap];
    waiting.push(queued[MANY - 1]);
    for request in &waiting {
        assert!(endpoint.test(*request).unwrap().is_none());
    }
    kill_process(role.pid(), Signal::KILL).unwrap();
    for request in waiting {
        let ended = endpoint.wait(request, HANG).unwrap().unwrap();
        assert_eq!(ended.status.code, Code::Closed);
        assert_eq!(ended.status.peer, Some(peer));
    }
    assert_eq!(endpoint.lost(), Some(peer));
    for number in 0..10u8 {
        for length in [8, 3000] {
            let request = endpoint
                .irecv(Pattern::exactly(1), vec![0; length])
                .unwrap();
            let got = endpoint.test(request).unwrap().unwrap();
            assert_eq!(got.memory.bytes(), vec![number; length]);
        }
    }
    assert!(endpoint.iprobe(Pattern::ANY).is_none());
    // The other peer is unaffected, and the name is free again.
    let sent = bystander.isend(other, 5, vec![5; 8]).unwrap();
    let request = endpoint.irecv(Pattern::exactly(5), vec![0; 8]).unwrap();
    assert!(endpoint.wait(request, HANG).unwrap().is_some());
    assert!(bystander.wait(sent, HANG).unwrap().is_some());
    // Its sockets close one after the other until it is reaped.
    drop(role);
    drop(open(folder.path(), 1));
}

/// Bytes of messages that both sides copy, and the contents of message `number`: no two pieces are
/// alike.
const SHARED: usize = 4_000_003;

fn marked(number: u64) -> Vec<u8> {
    let byte = |at: usize| ((at ^ at >> 8 ^ at >> 16) as u64 * 31 + number) as u8;
    (0..SHARED).map(byte).collect()
}

fn contents(memory: &Memory) -> Vec<u8> {
    let mut bytes = vec![0; memory.length() as usize];
    memory.get(0, &mut bytes);
    bytes
}

/// Sends messages that both sides copy, without end.
fn giver(endpoint: &mut Endpoint) {
    let peer = connect(endpoint, 0);
    for number in 0.. {
        let mut memory = endpoint.allocate_for(peer, SHARED).unwrap();
        memory.put(0, &marked(number));
        let request = endpoint.isend(peer, number, memory).unwrap();
        endpoint.wait(request, None).unwrap();
    }
}

/// Receives such messages, without end.
fn taker(endpoint: &mut Endpoint) {
    let peer = connect(endpoint, 0);
    loop {
        let memory = endpoint.allocate_for(peer, SHARED).unwrap();
        let request = endpoint.irecv(Pattern::ANY, memory).unwrap();
        endpoint.wait(request, None).unwrap();
    }
}

#[test]
fn killing_a_sender_during_a_cooperative_copy_spoils_no_received_message() {
    let folder = tempfile::tempdir().unwrap();
    let mut endpoint = open(folder.path(), 0);
    for rank in 1..=10 {
        let role = Role::start("giver", folder.path(), rank);
        let peer = connect(&mut endpoint, rank);
        let before = endpoint.copies().shared;
        for number in 0.. {
            let memory = endpoint.allocate_for(peer, SHARED).unwrap();
            let request = endpoint.irecv(Pattern::exactly(number), memory).unwrap();
            // Perhaps during a copy.
            let last = endpoint.copies().shared > before + 2;
            if last {
                kill_process(role.pid(), Signal::KILL).unwrap();
                while endpoint.lost().is_none() {
                    endpoint.progress();
                }
                // The receive has matched no message.
                let _ = endpoint.cancel(request).unwrap();
            }
            let got = endpoint.wait(request, HANG).unwrap().unwrap();
            match got.status.code {
                Code::Success => assert!(contents(&got.memory) == marked(number)),
                Code::Closed => assert!([0, SHARED as u64].contains(&got.memory.length())),
                code => assert_eq!(code, Code::Cancelled),
            }
            if last {
                break;
            }
            assert_eq!(got.status.code, Code::Success);
        }
    }
}

#[test]
fn killing_a_receiver_during_a_cooperative_copy_leaves_the_sender_its_memory() {
    let folder = tempfile::tempdir().unwrap();
    let mut endpoint = open(folder.path(), 0);
    for rank in 1..=10 {
        let role = Role::start("taker", folder.path(), rank);
        let peer = connect(&mut endpoint, rank);
        for number in 0.. {
            let mut memory = endpoint.allocate_for(peer, SHARED).unwrap();
            memory.put(0, &marked(number));
            let request = endpoint.isend(peer, number, memory).unwrap();
            if number > 5 {
                kill_process(role.pid(), Signal::KILL).unwrap();
            }
            let sent = endpoint.wait(request, HANG).unwrap().unwrap();
            assert!(contents(&sent.memory) == marked(number));
            if sent.status.code == Code::Closed {
                break;
            }
            assert_eq!(sent.status.code, Code::Success);
        }
    }
}

/// Waits for a message and echoes it, without end.
fn sleeper(endpoint: &mut Endpoint) {
    let peer = connect(endpoint, 0);
    loop {
        let request = endpoint.irecv(Pattern::ANY, vec![0; 8]).unwrap();
        let got = endpoint.wait(request, None).unwrap().unwrap();
        let _ = endpoint.isend(peer, got.status.value, got.memory).unwrap();
    }
}

#[test]
fn a_waiter_sleeps_and_is_woken_every_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut endpoint = open(folder.path(), 0);
    let role = Role::start("sleeper", folder.path(), 1);
    let peer = connect(&mut endpoint, 1);
    for round in 0..20u64 {
        while state(&role) != 'S' {
            endpoint.progress();
            std::thread::sleep(Duration::from_millis(1));
        }
        // In the last round it sleeps long: it must use no processor time.
        if round == 19 {
            let before = cpu_ticks(&role);
            std::thread::sleep(Duration::from_millis(500));
            assert_eq!(cpu_ticks(&role), before);
        }
        let request = endpoint.irecv(Pattern::exactly(round), vec![0; 8]).unwrap();
        let _ = endpoint.isend(peer, round, vec![1; 8]).unwrap();
        assert!(endpoint.wait(request, HANG).unwrap().is_some());
    }
}

/// The fields of /proc/PID/stat behind the name: state first, user and system time 11 and 12
/// further.
fn stat(role: &Role) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", role.0.id())).unwrap();
    let (_, fields) = text.rsplit_once(") ").unwrap();
    fields.split(' ').map(str::to_owned).collect()
}

/// Returns whether all its threads sleep; the test's thread is not the first.
fn state(role: &Role) -> char {
    let folder = format!("/proc/{}/task", role.0.id());
    let mut states = std::fs::read_dir(folder).unwrap().map(|task| {
        let text = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
        let (_, fields) = text.rsplit_once(") ").unwrap_or(("", "S"));
        fields.chars().next().unwrap()
    });
    if states.all(|state| state == 'S') {
        'S'
    } else {
        'R'
    }
}

/// Returns its processor time, in the kernel's ticks of 10 ms.
fn cpu_ticks(role: &Role) -> (String, String) {
    let fields = stat(role);
    (fields[11].clone(), fields[12].clone())
}
