//! The table of connections: who may send what to whom.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use vsock::connection::{Connections, Ends, Refusal, Verdict};
use vsock::header::{HOST_CID, Operation, SocketType};
use vsock::limits::{MAX_INITIATED, REQUEST_TIMEOUT};
use vsock::packet::{Address, Packet};

const CLIENT: Address = Address { cid: 3, port: 1000 };
const SERVER: Address = Address { cid: 4, port: 22 };

fn packet(operation: Operation, source: Address, destination: Address) -> Packet {
    Packet::control(operation, SocketType::Stream, source, destination)
}

fn all(_: Address, _: Address) -> bool {
    true
}

struct Judge {
    connections: Connections,
    now: Instant,
}

impl Judge {
    fn new() -> Self {
        Self {
            connections: Connections::default(),
            now: Instant::now(),
        }
    }

    fn judge(&mut self, operation: Operation, source: Address, destination: Address) -> Verdict {
        let packet = packet(operation, source, destination);
        let verdict = self.connections.judge(&packet, self.now, all);
        if verdict == Verdict::End {
            self.connections
                .remove(Ends::of(source, destination))
                .unwrap();
        }
        verdict
    }
}

const REFUSED: Verdict = Verdict::Refuse(Refusal::NoConnection);

#[test]
fn section_5_10_6_5_a_connection_begins_carries_data_and_ends() {
    use Operation::{CreditUpdate, ReadWrite, Request, Reset, Response, Shutdown};
    let mut judge = Judge::new();
    assert_eq!(judge.judge(ReadWrite, CLIENT, SERVER), REFUSED);
    assert_eq!(judge.judge(Request, CLIENT, SERVER), Verdict::Begin);
    assert_eq!(
        judge.judge(Request, CLIENT, SERVER),
        Verdict::Forward,
        "a retry"
    );
    assert_eq!(judge.judge(ReadWrite, CLIENT, SERVER), REFUSED, "too early");
    assert_eq!(
        judge.judge(Response, CLIENT, SERVER),
        REFUSED,
        "the wrong side"
    );
    assert_eq!(judge.judge(Request, SERVER, CLIENT), REFUSED, "in use");
    assert_eq!(judge.judge(Response, SERVER, CLIENT), Verdict::Forward);
    assert_eq!(judge.judge(Response, SERVER, CLIENT), REFUSED, "twice");
    assert_eq!(judge.judge(Request, CLIENT, SERVER), REFUSED, "established");
    for operation in [ReadWrite, CreditUpdate, Shutdown] {
        assert_eq!(judge.judge(operation, CLIENT, SERVER), Verdict::Forward);
        assert_eq!(judge.judge(operation, SERVER, CLIENT), Verdict::Forward);
    }
    assert_eq!(judge.judge(Reset, SERVER, CLIENT), Verdict::End);
    assert_eq!(judge.judge(Reset, CLIENT, SERVER), Verdict::Ignore);
    assert_eq!(judge.judge(ReadWrite, CLIENT, SERVER), REFUSED);
    assert!(judge.connections.is_empty());
}

#[test]
fn section_5_10_6_a_connection_has_one_type() {
    let mut judge = Judge::new();
    judge.judge(Operation::Request, CLIENT, SERVER);
    judge.judge(Operation::Response, SERVER, CLIENT);
    let mut other = packet(Operation::ReadWrite, CLIENT, SERVER);
    other.kind = SocketType::SeqPacket;
    let verdict = judge.connections.judge(&other, judge.now, all);
    assert_eq!(verdict, REFUSED);
}

#[test]
fn without_the_policy_nothing_passes_whatever_the_operation() {
    let mut connections = Connections::default();
    let now = Instant::now();
    let nobody = |_, _| false;
    for number in 1..=7 {
        let operation = Operation::from_number(number).unwrap();
        for (source, destination) in [(CLIENT, SERVER), (SERVER, CLIENT)] {
            let verdict = connections.judge(&packet(operation, source, destination), now, nobody);
            assert!(
                matches!(verdict, Verdict::Refuse(_) | Verdict::Ignore),
                "{operation:?}"
            );
        }
    }
    // Connections with the host are always allowed.
    let host = Address {
        cid: HOST_CID,
        port: 5,
    };
    let request = packet(Operation::Request, CLIENT, host);
    assert_eq!(connections.judge(&request, now, nobody), Verdict::Begin);
}

#[test]
fn half_open_connections_exhaust_their_initiator_alone() {
    let mut judge = Judge::new();
    let from = |port| Address { cid: 3, port };
    for port in 0..100_000 {
        let verdict = judge.judge(Operation::Request, from(port), SERVER);
        match (port as usize) < MAX_INITIATED {
            true => assert_eq!(verdict, Verdict::Begin),
            false => assert_eq!(verdict, Verdict::Refuse(Refusal::TooMany)),
        }
    }
    assert_eq!(judge.connections.len(), MAX_INITIATED);
    let other = Address { cid: 5, port: 1 };
    assert_eq!(
        judge.judge(Operation::Request, other, SERVER),
        Verdict::Begin
    );
    assert_eq!(judge.judge(Operation::Request, SERVER, other), REFUSED);
    let third = Address { cid: 4, port: 9 };
    assert_eq!(
        judge.judge(Operation::Request, third, from(7)),
        Verdict::Begin
    );
    // Those without a response make room in the end; those with one stay.
    judge.judge(Operation::Response, SERVER, from(0));
    judge.now += REQUEST_TIMEOUT + Duration::from_secs(2);
    assert_eq!(
        judge.judge(Operation::Request, from(200_000), SERVER),
        Verdict::Begin
    );
    assert!(judge.connections.get(Ends::of(from(0), SERVER)).is_some());
    assert_eq!(
        judge.connections.count_of(3),
        3,
        "the answered, the third's, and the new one"
    );
}

#[derive(Clone, Debug)]
struct Move {
    operation: Operation,
    reversed: bool,
    client: u32,
    server: u32,
    ports: (u32, u32),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let operation = prop_oneof![
        3 => Just(1_u16),
        3 => Just(2_u16),
        1 => 3..8_u16,
    ];
    let one = (
        operation,
        any::<bool>(),
        2..5_u32,
        2..5_u32,
        (0..2_u32, 0..2_u32),
    )
        .prop_map(|(operation, reversed, client, server, ports)| Move {
            operation: Operation::from_number(operation).unwrap(),
            reversed,
            client,
            server,
            ports,
        });
    prop::collection::vec(one, 1..300)
}

/// A connection as the model has it: who began it, and whether it is established.
type Model = HashMap<[Address; 2], (Address, bool)>;

/// How often the property below began and answered a connection.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static ANSWERED: AtomicU64 = AtomicU64::new(0);

#[test]
fn the_table_agrees_with_a_model() {
    agrees_with_a_model();
    let reached = [&BEGUN, &ANSWERED].map(|count| count.load(Ordering::Relaxed));
    assert!(reached.iter().all(|count| *count > 500), "{reached:?}");
}

proptest! {
    /// Guests 3 and 4 and the host; guest 3 may connect to guest 4, and not the other way round.
    fn agrees_with_a_model(moves in moves()) {
        let allows = |from: Address, to: Address| (from.cid, to.cid) == (3, 4);
        let (mut connections, mut model) = (Connections::default(), Model::new());
        let now = Instant::now();
        for step in moves {
            let one = Address { cid: step.client, port: step.ports.0 };
            let other = Address { cid: step.server, port: step.ports.1 };
            if one.cid == other.cid {
                continue;
            }
            let (from, to) = if step.reversed { (other, one) } else { (one, other) };
            let key = Ends::of(from, to).both();
            let known = model.get(&key).copied();
            let verdict = connections.judge(&packet(step.operation, from, to), now, allows);
            use Operation::{Request, Reset, Response, Shutdown};
            match (step.operation, known) {
                (Request, None) => {
                    let may = [from.cid, to.cid].contains(&HOST_CID) || allows(from, to);
                    prop_assert_eq!(verdict == Verdict::Begin, may);
                    if may {
                        model.insert(key, (from, false));
                        BEGUN.fetch_add(1, Ordering::Relaxed);
                    }
                }
                (Request, Some((initiator, false))) if initiator == from => {
                    prop_assert_eq!(verdict, Verdict::Forward);
                }
                (Reset, None) => prop_assert_eq!(verdict, Verdict::Ignore),
                (Reset, Some(_)) => {
                    prop_assert_eq!(verdict, Verdict::End);
                    prop_assert!(connections.remove(Ends::of(from, to)).is_some());
                    model.remove(&key);
                }
                (Response, Some((initiator, false))) if initiator == to => {
                    prop_assert_eq!(verdict, Verdict::Forward);
                    model.insert(key, (initiator, true));
                    ANSWERED.fetch_add(1, Ordering::Relaxed);
                }
                (Shutdown, Some((initiator, false))) if initiator == from => {
                    prop_assert_eq!(verdict, Verdict::Forward);
                }
                (Request | Response, _) | (_, None | Some((_, false))) => {
                    prop_assert_eq!(verdict, REFUSED);
                }
                (_, Some((_, true))) => prop_assert_eq!(verdict, Verdict::Forward),
            }
            prop_assert_eq!(connections.len(), model.len());
            for cid in 2..5 {
                let of = model.keys().filter(|ends| ends.iter().any(|end| end.cid == cid));
                prop_assert_eq!(connections.count_of(cid), of.count());
            }
        }
    }
}
