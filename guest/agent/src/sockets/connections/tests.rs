//! Connections whose sockets are the tests' own, without AF_VSOCK.

use std::io::{Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};

use rustix::event::Timespec;
use socket2::{Domain, Type};

use super::super::claim::program;
use super::*;

const LONG: Duration = Duration::from_secs(20);

/// A server with a TCP connection of the agent, and the client's end of the AF_VSOCK connection.
struct Rig {
    connections: Connections,
    listener: TcpListener,
    accepted: TcpStream,
    pair: Pair,
    client: Socket,
    now: Instant,
}

fn v4(address: io::Result<SocketAddr>) -> SocketAddrV4 {
    match address.unwrap() {
        SocketAddr::V4(address) => address,
        SocketAddr::V6(_) => panic!(),
    }
}

/// `claims` says whether servers of the port claim connections.
fn rig(claims: bool) -> Rig {
    let poll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).unwrap());
    let mut connections = Connections::new(poll);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    tcp.set_nonblocking(true).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let pair = (v4(tcp.local_addr()), v4(tcp.peer_addr()));
    if claims {
        connections.claims_come(pair.1.port());
    }
    let (client, vsock) = Socket::pair(Domain::UNIX, Type::STREAM, None).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    vsock.set_nonblocking(true).unwrap();
    let now = Instant::now();
    connections.add(3, pair, [vsock, tcp.into()], now);
    let mut byte = [0];
    (&client).read_exact(&mut byte).unwrap();
    assert_eq!(byte, [ACCEPTED]);
    Rig {
        connections,
        listener,
        accepted,
        pair,
        client,
        now,
    }
}

impl Rig {
    fn claim(&mut self) -> UnixStream {
        let (program, mine) = UnixStream::pair().unwrap();
        self.connections.claim(self.pair, mine, self.now);
        program
    }

    /// Handles events until none comes for a while.
    fn serve(&mut self) {
        for number in self.connections.take_undecided() {
            self.connections.decide(number, self.now);
        }
        loop {
            let mut events: Vec<epoll::Event> = Vec::with_capacity(8);
            let limit = Timespec::try_from(Duration::from_millis(50)).unwrap();
            let buffer = rustix::buffer::spare_capacity(&mut events);
            if epoll::wait(&self.connections.poll, buffer, Some(&limit)).unwrap() == 0 {
                return;
            }
            for event in events {
                match Key::of(event.data) {
                    Some(Key::Taker(number) | Key::Tcp(number) | Key::Vsock(number)) => {
                        self.connections.step(number, self.now);
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// Returns whether the agent waits for the claim of another connection to the server.
    fn next_is_waited_for(&mut self) -> bool {
        let tcp = TcpStream::connect(self.pair.1).unwrap();
        tcp.set_nonblocking(true).unwrap();
        let pair = (v4(tcp.local_addr()), self.pair.1);
        let (_client, vsock) = Socket::pair(Domain::UNIX, Type::STREAM, None).unwrap();
        self.connections.add(3, pair, [vsock, tcp.into()], self.now);
        self.serve();
        self.connections.have_limits()
    }

    fn is_forwarded(&mut self) -> bool {
        (&self.client).write_all(b"hello").unwrap();
        self.serve();
        self.accepted.set_nonblocking(true).unwrap();
        let mut bytes = [0; 5];
        (&self.accepted).read(&mut bytes).is_ok() && &bytes == b"hello"
    }
}

#[test]
fn a_server_that_claims_its_connection_has_it() {
    let mut rig = rig(true);
    rig.serve();
    assert_eq!(rig.connections.all.len(), 1, "it waits for the claim");
    let server = rig.claim();
    let again = rig.claim();
    assert_eq!((&again).read(&mut [0]).unwrap(), 0, "a claim is kept");
    let vsock = program::takes(&server);
    rig.serve();
    assert!(rig.connections.all.is_empty() && rig.connections.of_vm.is_empty());
    (&vsock).write_all(b"mine").unwrap();
    let mut got = [0; 4];
    (&rig.client).read_exact(&mut got).unwrap();
    assert_eq!(&got, b"mine");
}

#[test]
fn a_server_that_does_not_say_that_it_has_it_leaves_it_to_the_agent() {
    let mut rig = rig(true);
    // It has no descriptor left, or ends before it says so; and it keeps a duplicate.
    let server = rig.claim();
    let duplicate = server.try_clone().unwrap();
    drop(server);
    drop(duplicate);
    rig.serve();
    assert!(rig.is_forwarded());
    // Both ends.
    drop(rig.client.shutdown(std::net::Shutdown::Both));
    drop(rig.accepted.shutdown(std::net::Shutdown::Both));
    rig.serve();
    assert!(rig.connections.all.is_empty());
}

#[test]
fn servers_that_never_claim_are_not_waited_for() {
    let mut rig = rig(false);
    assert!(rig.is_forwarded());
    let server = rig.claim();
    assert_eq!((&server).read(&mut [0]).unwrap(), 0, "a late claim");
    assert!(!rig.connections.have_limits());
}

#[test]
fn a_claim_that_is_there_first_needs_no_announcement() {
    let mut rig = rig(false);
    let server = rig.claim();
    program::takes(&server);
    rig.serve();
    assert!(rig.connections.all.is_empty());
    assert!(rig.next_is_waited_for(), "it announced its server");
}

#[test]
fn a_late_claim_announces_its_server() {
    let mut rig = rig(false);
    assert!(rig.is_forwarded());
    rig.claim();
    assert!(rig.next_is_waited_for());
}

/// The claim comes in time, and the program has not answered yet when the other events of that moment are handled.
#[test]
fn a_passed_connection_stays_with_its_server_whatever_happens_first() {
    for claims in [false, true] {
        let mut rig = rig(claims);
        let server = rig.claim();
        let number = rig.connections.last;
        rig.connections.step(number, rig.now);
        rig.connections.decide(number, rig.now);
        (&rig.client).write_all(b"hello").unwrap();
        rig.serve();
        let mut bytes = [0; 5];
        (&program::takes(&server)).read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"hello", "the agent has read nothing");
        rig.serve();
        assert!(rig.connections.all.is_empty());
    }
}

#[test]
fn a_server_that_stops_claiming_is_waited_for_once() {
    let mut rig = rig(true);
    rig.connections
        .expire(rig.now + CLAIM_TIMEOUT - Duration::from_millis(1));
    assert!(rig.connections.have_limits());
    rig.connections.expire(rig.now + CLAIM_TIMEOUT);
    assert!(!rig.connections.have_limits());
    assert!(rig.connections.claiming.is_empty());
    assert!(rig.is_forwarded());
    let _open = &rig.listener;
}

#[test]
fn a_connection_that_is_not_claimed_in_time_costs_no_other_one_its_time() {
    let mut rig = rig(true);
    let begun = rig.now;
    rig.now += CLAIM_TIMEOUT / 2;
    assert!(rig.next_is_waited_for());
    let second = rig.connections.last;
    rig.connections.expire(begun + CLAIM_TIMEOUT);
    assert!(rig.connections.claiming.is_empty());
    assert_eq!(rig.connections.limited, BTreeSet::from([second]));
    rig.connections.expire(rig.now + CLAIM_TIMEOUT);
    assert!(!rig.connections.have_limits());
}

#[test]
fn each_vm_has_a_bounded_number_of_connections() {
    let mut rig = rig(true);
    let vsock = || Socket::pair(Domain::UNIX, Type::STREAM, None).unwrap().0;
    let same = rig.connections.begin(3, rig.pair, vsock(), rig.now);
    assert!(same.is_err(), "two connections between the same addresses");
    rig.connections.of_vm.insert(5, MAX_OF_VM);
    let client = SocketAddrV4::new([127, 0, 0, 1].into(), 0);
    let many = rig
        .connections
        .begin(5, (client, rig.pair.1), vsock(), rig.now);
    assert!(many.is_err());
    assert_eq!(rig.connections.all.len(), 1);
}

#[test]
fn a_duplicate_of_an_ended_connection_reports_nothing() {
    let mut rig = rig(false);
    assert!(rig.is_forwarded());
    let number = rig.connections.last;
    let duplicate = rig.connections.all[&number].vsock.try_clone().unwrap();
    rig.connections.remove(number);
    (&rig.client).write_all(b"more").unwrap();
    // An event of it would be one of no connection, forever.
    let mut events: Vec<epoll::Event> = Vec::with_capacity(8);
    let buffer = rustix::buffer::spare_capacity(&mut events);
    let count = epoll::wait(&rig.connections.poll, buffer, Some(&Timespec::default()));
    assert_eq!(count.unwrap(), 0);
    drop(duplicate);
}
