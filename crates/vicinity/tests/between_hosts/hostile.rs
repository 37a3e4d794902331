//! Hostile hosts on the link between two other hosts.

use std::time::{Duration, Instant};

use message::{Code, Endpoint, Options, Pattern, Peer};

use crate::common::until;
use crate::hosts::{Hosts, LENGTHS, both, pattern};

/// The key that the two hosts need to connect, and that the hostile hosts do not have.
const KEY: u32 = 0x5ec2_e700;

/// Bytes by which an uplink's process may grow between a quarter of the time and the end: the 64 MiB of
/// frames that may wait in it, and 16 MiB for what its allocator keeps.
const GROWTH: u64 = (64 + 16) << 20;

fn open(hosts: &Hosts, place: usize, other: &str) -> Endpoint {
    until(other, || {
        hosts.knows(&hosts.runtime(place).join("message"), other)
    });
    let options = Options {
        key: KEY,
        ..Options::default()
    };
    Endpoint::open(&hosts.board(place), &options).unwrap()
}

fn connect(from: &mut Endpoint, to: &mut Endpoint) -> Peer {
    let request = from.iconnect(to.address(), KEY, 0).unwrap();
    both(from, to, request).status.peer.unwrap()
}

/// Sends a message from one endpoint to the other, and asserts that the receiver takes no message
/// of another host for it.
fn send(from: &mut Endpoint, to: &mut Endpoint, peer: Peer, value: u64) {
    let bytes = pattern(LENGTHS[value as usize % LENGTHS.len()], value);
    let receive = to.irecv(Pattern::exactly(value), vec![0; bytes.len()]);
    let sent = match value % 3 {
        0 => from.issend(peer, value, bytes.clone()),
        _ => from.isend(peer, value, bytes.clone()),
    };
    let got = both(to, from, receive.unwrap());
    assert_eq!(got.status.code, Code::Success, "message {value}");
    assert_eq!(got.memory.bytes(), bytes, "message {value}");
    assert_eq!(both(from, to, sent.unwrap()).status.code, Code::Success);
}

/// Returns the resident bytes of a process (proc_pid_statm(5)).
fn resident(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm")).unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

/// `VICINITY_SOAK_SECONDS` sets the duration.
#[test]
fn hosts_that_send_almost_valid_frames_do_not_affect_two_others_for_long() {
    let seconds = std::env::var("VICINITY_SOAK_SECONDS");
    let seconds = seconds.map_or(3, |seconds| seconds.parse().unwrap());
    let mut hosts = Hosts::new(true);
    hosts.wire("0", "0", "0");
    let daemons = [hosts.serve(0), hosts.serve(1)];
    let (mut a, mut b) = (open(&hosts, 0, " beta"), open(&hosts, 1, " alpha"));
    let (to_b, to_a) = (connect(&mut a, &mut b), connect(&mut b, &mut a));
    let before = daemons.map(|daemon| hosts.process(daemon, "message-uplink"));
    hosts.python(2, "unknown_hosts.py", &["left", "right", "7"]);
    let (begin, time) = (Instant::now(), Duration::from_secs(seconds));
    let (mut value, mut early) = (0, None);
    while begin.elapsed() < time || value < 100 {
        if begin.elapsed() >= time / 4 {
            early.get_or_insert_with(|| before.map(resident));
        }
        send(&mut a, &mut b, to_b, value);
        send(&mut b, &mut a, to_a, value + 1);
        value += 2;
    }
    let after = daemons.map(|daemon| hosts.process(daemon, "message-uplink"));
    assert_eq!(after, before, "an uplink was started again");
    let grown = [0, 1].map(|place| resident(before[place]).saturating_sub(early.unwrap()[place]));
    let strange = [0, 1].map(|place| {
        hosts.counters(place)["uplink"]["received"]
            .as_u64()
            .unwrap()
    });
    println!("{value} messages, {strange:?} frames, {grown:?} bytes more");
    assert!(grown.iter().all(|grown| *grown < GROWTH), "{grown:?}");
    assert!(strange.iter().all(|count| *count > 500), "{strange:?}");
}
