//! Runs hostile clients of ten kinds beside a well-behaved client that fetches files and a VM that publishes and removes
//! files. Every fetched file must be correct, and memory and descriptors must not grow.
//!
//! `VICINITY_SOAK_SECONDS` sets the duration.
#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{SLOT, pattern};
use memory_plane::SpaceState;
use memory_plane::access::Access;
use memory_plane::http::{self, Service};
use socket2::{Domain, SockRef, Socket, Type};
use space::store::ROOT;

/// Largest growth of the resident memory between a quarter of the time and the end, in bytes.
const GROWTH: u64 = 64 << 20;

/// The preface of HTTP/2 (RFC 9113, 3.4) and an empty SETTINGS frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The bytes that a hostile client sends, and how often.
type Attack = (Vec<u8>, usize);

/// Returns an HTTP/2 frame (RFC 9113, 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Returns the bytes of a random attack. Each kind of attack has brought down a real server.
fn attack_bytes(rng: &mut fastrand::Rng) -> Attack {
    let get = b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n";
    // GET, http, "/large", the authority "a" (RFC 7541, appendix A).
    let request = b"\x82\x86\x04\x06/large\x41\x01a";
    match rng.u8(0..10) {
        0 => ((0..rng.usize(1..4000)).map(|_| rng.u8(..)).collect(), 1),
        // Half of a request head, and a head that never ends.
        1 => (get[..20].to_vec(), 1),
        2 => ([&get[..27], &vec![b'a'; 200_000][..]].concat(), 1),
        // Pipelined requests whose responses are not read.
        3 => (get.repeat(1000), 1),
        4 => {
            let ranges = "0-0,".repeat(2000);
            let text =
                format!("GET /large HTTP/1.1\r\nHost: x\r\nRange: bytes={ranges}1-1\r\n\r\n");
            (text.into_bytes(), 3)
        }
        // Streams that are reset as soon as they are opened (CVE-2023-44487).
        5 => {
            let reset = |number: u32| {
                let stream = 2 * number + 1;
                [
                    frame(1, 5, stream, request),
                    frame(3, 0, stream, &[0, 0, 0, 8]),
                ]
                .concat()
            };
            (
                [PREFACE.to_vec(), (0..2000).flat_map(reset).collect()].concat(),
                1,
            )
        }
        // A head that continues in frame after frame (CVE-2024-27316).
        6 => {
            let more = frame(9, 0, 1, &vec![0x82; 4000]);
            (
                [PREFACE.to_vec(), frame(1, 1, 1, request), more.repeat(200)].concat(),
                1,
            )
        }
        // PINGs and SETTINGS whose acknowledgements are not read (CVE-2019-9512, CVE-2019-9515).
        7 => (
            [PREFACE.to_vec(), frame(6, 0, 0, &[7; 8]).repeat(5000)].concat(),
            1,
        ),
        8 => (
            [PREFACE.to_vec(), frame(4, 0, 0, &[]).repeat(5000)].concat(),
            1,
        ),
        // A flow-control window of 0, and many requests (CVE-2019-9517).
        _ => {
            let closed = frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
            let request = |number: u32| frame(1, 5, 2 * number + 1, request);
            let requests: Vec<u8> = (0..32).flat_map(request).collect();
            ([PREFACE.to_vec(), closed, requests].concat(), 1)
        }
    }
}

/// Runs one attack on a new connection, from a random loopback address.
fn attack(to: SocketAddr, rng: &mut fastrand::Rng) -> std::io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    let from = Ipv4Addr::new(127, 0, 1, rng.u8(1..20));
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect(&to.into())?;
    let mut stream = TcpStream::from(socket);
    stream.set_write_timeout(Some(Duration::from_millis(50)))?;
    stream.set_read_timeout(Some(Duration::from_millis(50)))?;
    let (text, times) = attack_bytes(rng);
    for _ in 0..times {
        stream.write_all(&text)?;
    }
    if rng.bool() {
        stream.read_exact(&mut [0; 64])?;
    }
    if rng.bool() {
        SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
    }
    Ok(())
}

/// Fetches a file as a well-behaved client does.
fn fetch(at: SocketAddr, name: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    write!(
        stream,
        "GET /{name} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let mut ends = answer.windows(4);
    let end = ends.position(|four| four == b"\r\n\r\n").unwrap();
    Ok(answer.split_off(end + 4))
}

/// Returns the resident bytes of this process (proc_pid_statm(5)).
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn hostile_clients_do_not_harm_a_well_behaved_client() {
    let seconds = std::env::var("VICINITY_SOAK_SECONDS");
    let seconds = seconds.map_or(3, |seconds| seconds.parse().unwrap());
    let (begin, time) = (Instant::now(), Duration::from_secs(seconds));
    let state = SpaceState::new("test", SLOT, 64, 64).unwrap();
    let large = pattern(1 << 20);
    common::publish(&state, "large", &large);
    let used = state.store().slots().used();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let service = Service {
        state: Arc::clone(&state),
        access: Arc::new(Access {
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            token: None,
        }),
        tls: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    std::thread::spawn(move || runtime.block_on(http::serve(service, listener)));
    fetch(at, "large").unwrap();
    let before = descriptors();

    let (stop, attacks) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut fetched, mut early, mut slowest) = (0_u64, None, Duration::ZERO);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (stop, attacks) = (&stop, &attacks);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                while !stop.load(Ordering::Relaxed) {
                    // The server may close the connection before the client has sent all.
                    drop(attack(at, &mut rng));
                    attacks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while begin.elapsed() < time || fetched < 50 {
            if begin.elapsed() >= time / 4 {
                early.get_or_insert_with(resident);
            }
            let (name, bytes) = (format!("f{fetched}"), pattern(fetched as usize % 150_000));
            common::publish(&state, &name, &bytes);
            let began = Instant::now();
            assert!(fetch(at, &name).unwrap() == bytes, "file {fetched}");
            if fetched % 16 == 0 {
                assert!(fetch(at, "large").unwrap() == large);
            }
            slowest = slowest.max(began.elapsed());
            state.store().remove(ROOT, name.as_bytes(), false).unwrap();
            fetched += 1;
        }
        stop.store(true, Ordering::Relaxed);
    });
    let grown = resident().saturating_sub(early.unwrap());
    let attacks = attacks.into_inner();
    println!("{fetched} files, the slowest in {slowest:?}, {attacks} attacks, {grown} bytes more");
    assert!(attacks > 50, "only {attacks} attacks");
    assert!(grown < GROWTH, "{grown} bytes more");
    // All connections end, at the latest when their timeouts expire.
    let end = Instant::now() + Duration::from_secs(90);
    while descriptors() > before || state.store().slots().used() > used {
        assert!(
            Instant::now() < end,
            "{} descriptors, {before} before",
            descriptors()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}
