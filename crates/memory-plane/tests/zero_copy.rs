//! Slots that are lent to the kernel: between two network namespaces on a wire that copies what it is given, so
//! that the sender's pages are sent. Needs root, `ip` and `python3`; without root it is not run.
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
use memory_plane::Shared;
use memory_plane::access::Access;
use memory_plane::http::{self, Service};
use socket2::{Domain, Socket, Type};
use space::store::ROOT;
use wire::{SERVER_ADDRESS, Wire, enter, within};

/// The namespace in which this program, started again by a test, is to serve.
const NAMESPACE: &str = "VICINITY_TEST_NAMESPACE";

/// What a connection copies before it lends, and more.
const LARGE: usize = 2 << 20;

/// As many bytes as the kernel takes of an answer though nobody acknowledges them.
const SMALL: usize = 3 * SLOT as usize - 1000;

/// Serve a space's files in a namespace: `much`, and `little`.
fn serve(namespace: &str) -> (Arc<Shared>, SocketAddr) {
    let slots = 40;
    let shared = Shared::new("test", SLOT, slots, slots).unwrap();
    publish(&shared, "much", &pattern(LARGE));
    publish(&shared, "little", &pattern(SMALL));
    let service = Service {
        shared: Arc::clone(&shared),
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
    (shared, receiver.recv().unwrap())
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn new(namespace: &str, at: SocketAddr) -> Self {
        let stream = within(namespace, || TcpStream::connect(at).unwrap());
        Self(BufReader::new(stream))
    }

    /// One that has little room for what it has not asked its kernel for.
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

    /// The body that comes next.
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

fn wait_until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        std::thread::yield_now();
    }
}

fn remove(shared: &Shared, name: &str) {
    let removed = shared.store().remove(ROOT, name.as_bytes(), false);
    removed.unwrap();
}

/// Wait until the kernel has an answer of so many bytes.
fn wait_until_sent(shared: &Shared, wire: &Wire, at: SocketAddr, sent: u64) {
    wait_until(|| shared.figures().sent >= sent);
    // One thread serves all, in turns: it was written when others are answered.
    let mut other = Client::new(&wire.server, at);
    for _ in 0..3 {
        other.get("/nowhere");
    }
}

#[test]
fn slots_stay_in_use_until_the_client_has_acknowledged_their_bytes() {
    let Some(mut wire) = Wire::new() else { return };
    let (shared, at) = serve(&wire.server);
    let mut client = Client::new(&wire.client, at);
    assert!(client.get("/much") == pattern(LARGE));
    remove(&shared, "much");
    wait_until(|| shared.figures().used == 3);

    wire.set_pass(false);
    client.send_get("/little");
    wait_until_sent(&shared, &wire, at, (LARGE + SMALL) as u64);
    remove(&shared, "little");
    // Nobody sends it any more, but the kernel.
    assert_eq!(shared.figures().used, 3);
    // Nor does anybody else get its slots.
    let other = vec![0xff; 10 * SLOT as usize];
    publish(&shared, "other", &other);
    wire.set_pass(true);
    assert!(client.read_body() == pattern(SMALL));
    wait_until(|| shared.figures().used == 10);
    assert!(client.get("/other") == other);
}

/// Started by the next test.
#[test]
fn child() {
    let Ok(namespace) = std::env::var(NAMESPACE) else {
        return;
    };
    let (shared, at) = serve(&namespace);
    println!("at {at}");
    wait_until(|| shared.figures().sent >= (LARGE + SMALL) as u64);
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
    let mut said = |word: &str| {
        lines.find_map(|line| {
            let line = line.unwrap();
            line.split_once(word)
                .map(|(_, rest)| rest.trim().to_owned())
        })
    };
    let at: SocketAddr = said("at ").unwrap().parse().unwrap();
    let mut client = Client::small(&wire.client, at);
    assert!(client.get("/much") == pattern(LARGE));
    client.send_get("/little");
    said("sent").unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let mut taken = Vec::new();
    let error = client.0.read_to_end(&mut taken).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(taken.len() < SMALL, "{}", taken.len());
}
