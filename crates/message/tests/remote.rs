//! Endpoints of different members, joined by gateways and the broker, without any VM: the
//! broker cannot distinguish the members from processes of the host.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod common;
#[path = "common/plane.rs"]
mod plane;

use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use common::{both, pattern};
use message::limits::INCOMING;
use message::remote::{Broker, Connection, Gateway, Member, MemberResources, Resources, Transport};
use message::{Address, Board, Code, Endpoint, MessageError, Options, Pattern};
use plane::{DIRECT, HANG, MEDIATED, Plane, Running, connect, open};
use window::attach::Channel;

/// Lengths around the bounds of the protocols.
const LENGTHS: [usize; 9] = [0, 8, 48, 49, 4096, 32_768, 32_769, 100_000, 1_000_003];

#[test]
fn every_length_arrives_whole_direct_and_mediated() {
    for members in [DIRECT, MEDIATED] {
        let plane = Plane::new(&members);
        let (mut a, mut b) = (plane.open("a"), plane.open("b"));
        assert_eq!(a.address().nic, Board::nic_of("a"));
        let (to_b, to_a) = connect(&mut a, &mut b);
        for (seed, length) in LENGTHS.into_iter().enumerate() {
            for (synchronous, early, heap) in [
                (false, true, false),
                (true, false, false),
                (false, false, true),
            ] {
                let bytes = pattern(length, seed as u64);
                let early = early.then(|| b.irecv(Pattern::ANY, vec![0; length]).unwrap());
                let mut buffer = a.allocate(length).unwrap();
                buffer.copy_from_slice(&bytes);
                let sent = match (synchronous, heap) {
                    (true, _) => a.issend(to_b, 7, bytes.clone()).unwrap(),
                    (false, true) => a.isend(to_b, 7, buffer).unwrap(),
                    (false, false) => a.isend(to_b, 7, bytes.clone()).unwrap(),
                };
                let request =
                    early.unwrap_or_else(|| b.irecv(Pattern::ANY, vec![0; length]).unwrap());
                let got = both(&mut b, &mut a, request);
                assert_eq!(got.status.code, Code::Success);
                assert_eq!(got.status.peer, Some(to_a));
                assert_eq!(got.memory.bytes(), bytes, "{length} bytes, {members:?}");
                assert_eq!(both(&mut a, &mut b, sent).status.taken, length as u64);
            }
        }
    }
}

/// With threads, so that both sides sleep, and every kind of wake-up is used.
#[test]
fn sleepers_are_woken_through_gateways() {
    for members in [DIRECT, MEDIATED] {
        let plane = Plane::new(&members);
        let (mut a, mut b) = (plane.open("a"), plane.open("b"));
        let (to_b, to_a) = connect(&mut a, &mut b);
        let echo = std::thread::spawn(move || {
            for _ in 0..200 {
                let request = b.irecv(Pattern::ANY, vec![0; 100_000]).unwrap();
                let got = b.wait(request, HANG).unwrap().unwrap();
                let length = got.status.taken as usize;
                let back = got.memory.bytes()[..length].to_vec();
                let sent = b.isend(to_a, 1, back).unwrap();
                assert!(b.wait(sent, HANG).unwrap().is_some());
            }
            b
        });
        for round in 0..200 {
            // Longer than the polling time, in some rounds.
            if round % 20 == 0 {
                std::thread::sleep(Duration::from_millis(10));
            }
            let bytes = pattern([8, 5000, 100_000][round % 3], round as u64);
            let request = a.irecv(Pattern::ANY, vec![0; bytes.len()]).unwrap();
            let sent = a.isend(to_b, 1, bytes.clone()).unwrap();
            let got = a.wait(request, HANG).unwrap().unwrap();
            assert_eq!(got.memory.bytes(), bytes);
            assert!(a.wait(sent, HANG).unwrap().is_some());
        }
        drop(echo.join().unwrap());
    }
}

#[test]
fn a_connect_that_cannot_succeed_ends_with_the_reason() {
    let mut plane = Plane::new(&MEDIATED);
    let mut a = plane.open("a");
    let refused = |a: &mut Endpoint, nic, key| {
        let address = Address { nic, endpoint: 9 };
        match a.connect(address, key, HANG) {
            Err(MessageError::Connection(code)) => code,
            other => panic!("{other:?}"),
        }
    };
    let b = Board::nic_of("b");
    assert_eq!(refused(&mut a, b, 0), Code::Closed, "no such endpoint");
    assert_eq!(refused(&mut a, 5, 0), Code::Unknown, "no such member");
    let board = Board::open(&plane.board("b")).unwrap();
    let options = Options {
        endpoint: Some(9),
        key: 1,
        ..Options::default()
    };
    let mut other = Endpoint::open(&board, &options).unwrap();
    let request = a.iconnect(other.address(), 0, 0).unwrap();
    let code = both(&mut a, &mut other, request).status.code;
    assert_eq!(code, Code::BadKey);
    // A member that has not joined.
    drop(other);
    plane.gateways.remove(1);
    assert_eq!(refused(&mut a, b, 0), Code::Closed);
    // Without a gateway, there is no remote peer.
    let folder = tempfile::tempdir().unwrap();
    let mut alone = open(folder.path());
    let address = Address {
        nic: b,
        endpoint: 9,
    };
    assert!(matches!(
        alone.connect(address, 1, HANG),
        Err(MessageError::UnknownNic(_))
    ));
}

#[test]
fn silent_connections_do_not_block_a_gateway() {
    let plane = Plane::new(&MEDIATED);
    let (mut a, mut b) = (plane.open("a"), plane.open("b"));
    let socket = plane.board("a").join("gateway.sock");
    let silent = || Channel::connect(&socket).unwrap();
    let _silent: Vec<_> = (0..3 * INCOMING).map(|_| silent()).collect();
    connect(&mut a, &mut b);
}

#[test]
fn a_close_is_seen_after_the_messages_and_the_window_is_reused() {
    for members in [DIRECT, MEDIATED] {
        let plane = Plane::new(&members);
        let mut a = plane.open("a");
        // More rounds than there are windows.
        for round in 0..60u64 {
            let mut b = plane.open("b");
            let (to_b, to_a) = connect(&mut a, &mut b);
            let sent = b.isend(to_a, round, pattern(3000, round)).unwrap();
            assert!(b.test(sent).unwrap().is_some());
            drop(b);
            let request = a.irecv(Pattern::exactly(round), vec![0; 3000]).unwrap();
            let got = a.wait(request, HANG).unwrap().unwrap();
            assert_eq!(got.memory.bytes(), pattern(3000, round), "{members:?}");
            let late = a.issend(to_b, 0, vec![1; 8]).unwrap();
            let ended = a.wait(late, HANG).unwrap().unwrap();
            assert_eq!(ended.status.code, Code::Closed);
        }
    }
}

#[test]
fn the_end_of_a_member_is_detected_and_it_can_join_again() {
    for members in [DIRECT, MEDIATED] {
        let mut plane = Plane::new(&members);
        let (mut a, mut b) = (plane.open("a"), plane.open("b"));
        let (to_b, _) = connect(&mut a, &mut b);
        let pending = a.issend(to_b, 1, vec![1; 100_000]).unwrap();
        let waiting = a.irecv(Pattern::exactly(3), vec![0; 8]).unwrap();
        // Its gateway ends, and with it the socket, as when QEMU ends.
        plane.gateways.remove(1);
        let ended = a.wait(pending, HANG).unwrap().unwrap();
        assert_eq!(ended.status.code, Code::Closed, "{members:?}");
        assert!(a.test(waiting).unwrap().is_none());
        drop(b);
        plane.gateways.push(plane.gateway("b"));
        let mut b = plane.open("b");
        let (_, to_a) = connect(&mut a, &mut b);
        let sent = b.isend(to_a, 3, vec![3; 8]).unwrap();
        assert_eq!(both(&mut a, &mut b, waiting).memory.bytes(), [3; 8]);
        assert!(b.test(sent).unwrap().is_some());
    }
}

/// More messages of 20,000 bytes than the limit of unexpected messages, 16 MiB, and fewer than fit
/// into the windows as well.
const KEPT: usize = 852;

#[test]
fn an_endpoint_can_reconnect_while_the_other_end_takes_no_messages() {
    for a_connects in [true, false] {
        let plane = Plane::new(&MEDIATED);
        let (mut a, mut b) = (plane.open("a"), plane.open("b"));
        let to_b = match a_connects {
            true => connect(&mut a, &mut b).0,
            false => connect(&mut b, &mut a).1,
        };
        let mut send = || a.isend(to_b, 1, vec![1; 20_000]).unwrap();
        let last = (0..KEPT).map(|_| send()).last().unwrap();
        assert_eq!(both(&mut a, &mut b, last).status.code, Code::Success);
        // Some of the messages are in windows, and stay there.
        a.disconnect(to_b).unwrap();
        let request = a.iconnect(b.address(), 0, 0).unwrap();
        let code = both(&mut a, &mut b, request).status.code;
        assert_eq!(code, Code::Success, "a connected first: {a_connects}");
    }
}

/// Programs may not notice for long that their gateway was killed.
#[test]
fn messages_over_a_link_of_a_killed_gateway_are_not_received() {
    for members in [DIRECT, MEDIATED] {
        let mut plane = Plane::new(&members);
        let (mut a, mut b) = (plane.open("a"), plane.open("b"));
        let (to_b, _) = connect(&mut a, &mut b);
        plane.gateways.remove(0);
        while b.lost().is_none() {
            b.progress();
        }
        plane.gateways.push(plane.gateway("a"));
        let (mut next, mut other) = (plane.open("a"), plane.open("b"));
        let (to_other, _) = connect(&mut next, &mut other);
        a.isend(to_b, 1, vec![1; 8]).unwrap();
        for _ in 0..200_000 {
            assert_eq!(other.iprobe(Pattern::ANY), None, "{members:?}");
        }
        let wanted = other.irecv(Pattern::exactly(2), vec![0; 8]).unwrap();
        next.isend(to_other, 2, vec![2; 8]).unwrap();
        assert_eq!(both(&mut other, &mut next, wanted).memory.bytes(), [2; 8]);
    }
}

#[test]
fn the_end_of_the_host_is_detected() {
    let mut plane = Plane::new(&DIRECT);
    let (mut a, mut b) = (plane.open("a"), plane.open("b"));
    let (to_b, _) = connect(&mut a, &mut b);
    let pending = a.issend(to_b, 1, vec![1; 8]).unwrap();
    plane.broker = None;
    let ended = a.wait(pending, HANG).unwrap().unwrap();
    assert_eq!(ended.status.code, Code::Closed);
}

/// Duplicates the resources, for another broker.
fn adopt_again(parts: &Resources, connections: &mut [Option<Connection>]) -> Resources {
    let same = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().unwrap();
    let members = parts.member_resources().iter().zip(connections);
    let members = members.map(|(resources, connection)| {
        MemberResources::adopt(resources.member().clone(), connection.take())
    });
    let regions = parts.regions().map(same).collect();
    Resources::adopt(regions, members.collect()).unwrap()
}

/// What a supervisor keeps of a VM.
fn duplicate(connection: &Connection<BorrowedFd<'_>>) -> Connection {
    let same = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().unwrap();
    Connection {
        socket: same(connection.socket),
        interrupt: same(connection.interrupt),
        doorbell: same(connection.doorbell),
    }
}

#[test]
fn another_broker_takes_over_and_its_members_join_again() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let members = MEDIATED.map(|(name, _)| Member {
        name: name.to_owned(),
        ..Member::default()
    });
    std::fs::create_dir(at("host")).unwrap();
    let listen = |member: &Member| {
        let path = at("host").join(format!("{}.sock", member.name));
        let listener = UnixListener::bind(path).unwrap();
        listener.set_nonblocking(true).unwrap();
        listener
    };
    let listeners = Arc::new(members.each_ref().map(listen));
    let parts = Resources::create(members.into()).unwrap();
    let (tell, told) = mpsc::channel();
    let serve = |parts: Resources| {
        let mut broker = Broker::from_resources(parts).unwrap();
        let (tell, listeners) = (tell.clone(), listeners.clone());
        Running::start(move |go_on| {
            let served = broker.serve(|broker| {
                // As the supervisor does.
                for (number, listener) in listeners.iter().enumerate() {
                    if let Ok((socket, _)) = listener.accept() {
                        socket.set_nonblocking(true).unwrap();
                        assert!(broker.admit(number, socket.into()));
                    }
                }
                broker.report_accepted(|member, connection| {
                    tell.send((member, duplicate(connection))).unwrap();
                    true
                });
                go_on()
            });
            served.unwrap();
        })
    };
    let join = |name: &str| {
        let way = Transport::Socket(at("host").join(format!("{name}.sock")));
        Gateway::join(&at(name), &way).unwrap()
    };
    let mut connections = [None, None];
    let first = serve(adopt_again(&parts, &mut connections));
    let mut gateways = ["a", "b"].map(join);
    for _ in 0..2 {
        let (member, connection) = told.recv().unwrap();
        connections[member] = Some(connection);
    }
    drop(first);
    let second = serve(adopt_again(&parts, &mut connections));
    for gateway in &mut gateways {
        let ended = gateway.run(|| true).unwrap_err();
        assert!(ended.to_string().contains("ended this gateway"), "{ended}");
    }
    drop(gateways);
    let gateways = ["a", "b"]
        .map(join)
        .map(|mut gateway| Running::start(move |go_on| drop(gateway.run(go_on))));
    let [mut a, mut b] = ["a", "b"].map(|name| open(&at(name)));
    let (to_b, _) = connect(&mut a, &mut b);
    let sent = a.isend(to_b, 1, pattern(100_000, 1)).unwrap();
    let wanted = b.irecv(Pattern::ANY, vec![0; 100_000]).unwrap();
    let got = both(&mut b, &mut a, wanted);
    assert_eq!(got.memory.bytes(), pattern(100_000, 1));
    assert_eq!(both(&mut a, &mut b, sent).status.code, Code::Success);
    drop((gateways, second));
}
