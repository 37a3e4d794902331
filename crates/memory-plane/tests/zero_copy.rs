//! Tests of zero-copy sends between two network namespaces. The receiving end of the veth pair copies the frames, so the
//! kernel sends the pages of the slots. The tests need root, `ip` and `python3`; without root they are skipped.
#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "common/wire.rs"]
mod wire;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc;

use common::{SLOT, pattern, publish};
use memory_plane::SpaceState;
use memory_plane::access::Access;
use memory_plane::http::{self, Service};
use socket2::{Domain, Socket, Type};
use space::store::ROOT;
use wire::{SERVER_ADDRESS, Wire, enter, within};

/// Environment variable with the namespace in which this program serves when a test starts it again.
const NAMESPACE: &str = "VICINITY_TEST_NAMESPACE";

/// More bytes than a connection copies before it uses zero-copy sends.
const LARGE: usize = 2 << 20;

/// Bytes of a response that the kernel accepts although the client acknowledges none.
const SMALL: usize = 3 * SLOT as usize - 1000;

/// Serves a space in a namespace with two files: `much` and `little`.
fn serve(namespace: &str) -> (Arc<SpaceState>, SocketAddr) {
    let slots = 40;
    let state = SpaceState::new("test", SLOT, slots, slots).unwrap();
    publish(&state, "much", &pattern(LARGE));
    publish(&state, "little", &pattern(SMALL));
    let service = Service {
        state: Arc::clone(&state),
        access: Arc::new(Access {
            allow: vec!["0.0.0.0/0".parse().unwrap()],
            token: None,
        }),
        tls: None,
    };
    let (sender, receiver) = mpsc::channel();
    let namespace = namespace.to_owned();
    std::thread::spawn(move || {
        enter(&namespace);
        let listener = TcpListener::bind((SERVER_ADDRESS, 0)).unwrap();
        sender.send(listener.local_addr().unwrap()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(http::serve(service, listener))
    });
    (state, receiver.recv().unwrap())
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn new(namespace: &str, at: SocketAddr) -> Self {
        let stream = within(namespace, || TcpStream::connect(at).unwrap());
        Self(BufReader::new(stream))
    }

    /// Connects with a small receive buffer.
    fn small(namespace: &str, at: SocketAddr) -> Self {
        let socket = within(namespace, || Socket::new(Domain::IPV4, Type::STREAM, None));
        let socket = socket.unwrap();
        socket.set_recv_buffer_size(SLOT as usize / 2).unwrap();
        socket.connect(&at.into()).unwrap();
        Self(BufReader::new(socket.into()))
    }

    fn send_get(&mut self, path: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
    }

    /// Reads the next response and returns its body.
    fn read_body(&mut self) -> Vec<u8> {
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            let line = line.trim().to_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        body
    }

    fn get(&mut self, path: &str) -> Vec<u8> {
        self.send_get(path);
        self.read_body()
    }
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        std::thread::yield_now();
    }
}

fn remove(state: &SpaceState, name: &str) {
    let removed = state.store().remove(ROOT, name.as_bytes(), false);
    removed.unwrap();
}

/// Waits until the kernel has accepted responses of `sent` bytes.
fn wait_until_sent(state: &SpaceState, wire: &Wire, at: SocketAddr, sent: u64) {
    wait_until(|| state.figures().sent >= sent);
    // One thread serves all connections in turn, so the response was written when others were answered.
    let mut other = Client::new(&wire.server, at);
    for _ in 0..3 {
        other.get("/nowhere");
    }
}

#[test]
fn slots_stay_in_use_until_the_client_has_acknowledged_their_bytes() {
    let Some(mut wire) = Wire::new() else { return };
    let (state, at) = serve(&wire.server);
    let mut client = Client::new(&wire.client, at);
    assert!(client.get("/much") == pattern(LARGE));
    remove(&state, "much");
    wait_until(|| state.figures().used == 3);

    wire.set_pass(false);
    client.send_get("/little");
    wait_until_sent(&state, &wire, at, (LARGE + SMALL) as u64);
    remove(&state, "little");
    // Only the kernel still sends the file.
    assert_eq!(state.figures().used, 3);
    // No other file gets its slots.
    let other = vec![0xff; 10 * SLOT as usize];
    publish(&state, "other", &other);
    wire.set_pass(true);
    assert!(client.read_body() == pattern(SMALL));
    wait_until(|| state.figures().used == 10);
    assert!(client.get("/other") == other);
}

/// The server process of the next test.
#[test]
fn child() {
    let Ok(namespace) = std::env::var(NAMESPACE) else {
        return;
    };
    let (state, at) = serve(&namespace);
    println!("at {at}");
    wait_until(|| state.figures().sent >= (LARGE + SMALL) as u64);
    println!("sent");
    loop {
        std::thread::park();
    }
}

#[test]
fn the_death_of_the_process_resets_a_zero_copy_connection() {
    let Some(wire) = Wire::new() else { return };
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(NAMESPACE, &wire.server)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let mut value_after = |word: &str| {
        lines.find_map(|line| {
            let line = line.unwrap();
            line.split_once(word)
                .map(|(_, rest)| rest.trim().to_owned())
        })
    };
    let at: SocketAddr = value_after("at ").unwrap().parse().unwrap();
    let mut client = Client::small(&wire.client, at);
    assert!(client.get("/much") == pattern(LARGE));
    client.send_get("/little");
    value_after("sent").unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let mut received = Vec::new();
    let error = client.0.read_to_end(&mut received).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(received.len() < SMALL, "{}", received.len());
}
