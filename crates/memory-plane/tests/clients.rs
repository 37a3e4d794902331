//! Tests of the HTTP server with clients that write raw bytes.
#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use common::{SLOT, pattern};
use memory_plane::SpaceState;
use memory_plane::access::Access;
use memory_plane::http::{self, Service};
use space::store::ROOT;

struct Server {
    state: Arc<SpaceState>,
    at: SocketAddr,
}

fn serve(access: Access) -> Server {
    serve_slots(16, access)
}

/// Serves a space of `slots` slots.
fn serve_slots(slots: u32, access: Access) -> Server {
    let state = SpaceState::new("test", SLOT, slots, slots).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let service = Service {
        state: Arc::clone(&state),
        access: Arc::new(access),
        tls: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    std::thread::spawn(move || runtime.block_on(http::serve(service, listener)));
    Server { state, at }
}

fn loopback() -> Access {
    Access {
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        token: None,
    }
}

impl Server {
    fn write(&self, name: &str, at: u64, bytes: &[u8]) -> u64 {
        common::write(&self.state, name, at, bytes)
    }

    fn publish(&self, name: &str, bytes: &[u8]) {
        common::publish(&self.state, name, bytes);
    }

    /// Sends these bytes and returns the head and the body of the response. The server must close the connection.
    fn exchange(&self, request: &str) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(self.at).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap();
        let body = answer.split_off(end + 4);
        (String::from_utf8(answer).unwrap().to_lowercase(), body)
    }

    fn get(&self, path: &str, headers: &str) -> (String, Vec<u8>) {
        self.exchange(&format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n"
        ))
    }
}

fn field<'h>(head: &'h str, name: &str) -> &'h str {
    let line = head.lines().find(|line| line.starts_with(name));
    line.unwrap_or_else(|| panic!("no {name} in {head}"))[name.len() + 1..].trim()
}

#[test]
fn get_head_range_and_conditional_requests() {
    let server = serve(loopback());
    let bytes = pattern(200_000);
    server.publish("film.m3u8", &bytes);
    let (head, body) = server.get("/film.m3u8", "");
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert_eq!(
        field(&head, "content-type:"),
        "application/vnd.apple.mpegurl"
    );
    assert_eq!(body, bytes);
    let (head, body) = server.get("/film.m3u8", "Range: bytes=65530-131079\r\n");
    assert!(head.starts_with("http/1.1 206"), "{head}");
    assert_eq!(field(&head, "content-range:"), "bytes 65530-131079/200000");
    assert_eq!(body, bytes[65530..131_080]);
    let tag = field(&head, "etag:").to_owned();
    let time = "Sun, 09 Sep 2001 01:46:40 GMT";
    assert_eq!(field(&head, "last-modified:"), time.to_lowercase());
    for (header, status) in [
        (format!("If-None-Match: {tag}\r\n"), 304),
        (format!("If-None-Match: \"x\", {tag}\r\n"), 304),
        ("If-None-Match: \"x\"\r\n".to_owned(), 200),
        (format!("If-Modified-Since: {time}\r\n"), 304),
        ("If-Match: \"x\"\r\n".to_owned(), 412),
        (format!("If-Range: {tag}\r\nRange: bytes=0-0\r\n"), 206),
        ("If-Range: \"x\"\r\nRange: bytes=0-0\r\n".to_owned(), 200),
        ("Range: bytes=200000-\r\n".to_owned(), 416),
    ] {
        let (head, body) = server.get("/film.m3u8", &header);
        let begin = format!("http/1.1 {status}");
        assert!(head.starts_with(&begin), "{header}: {head}");
        if matches!(status, 304 | 412 | 416) {
            assert!(body.is_empty());
        }
    }
    let head = "HEAD /film.m3u8 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let (head, body) = server.exchange(head);
    assert_eq!(field(&head, "content-length:"), "200000");
    assert!(body.is_empty());
}

#[test]
fn invalid_paths_and_requests_are_rejected() {
    let server = serve(loopback());
    server.publish("here", b"x");
    let unfinished = server.write("half", 0, b"y");
    for (path, status) in [
        ("/here", 200),
        ("/%68ere", 200),
        ("/nowhere", 404),
        ("/", 404),
        ("/here/", 404),
        ("//here", 404),
        ("/../here", 404),
        ("/%2e%2e/%2e%2e/etc/passwd", 404),
        ("/x%2f..%2fhere", 404),
        ("/half", 503),
    ] {
        let (head, _) = server.get(path, "");
        assert!(
            head.starts_with(&format!("http/1.1 {status}")),
            "{path}: {head}"
        );
    }
    server.state.store().close(unfinished, true);
    assert_eq!(server.get("/half", "").1, b"y");
    let (head, _) = server.exchange("PUT /here HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(head.starts_with("http/1.1 405"), "{head}");
    for garbage in ["\0\0\0\0\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n"] {
        let mut stream = TcpStream::connect(server.at).unwrap();
        stream.write_all(garbage.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // The server may answer with an error or not; it must close the connection.
        drop(stream.read_to_end(&mut answer));
        assert!(!answer.starts_with(b"HTTP/1.1 200"));
    }
    assert_eq!(server.get("/here", "").1, b"x");
}

#[test]
fn a_client_without_the_token_gets_nothing() {
    let token = Some("secret".to_owned());
    let server = serve(Access {
        allow: Vec::new(),
        token,
    });
    server.publish("here", b"x");
    let status = |headers: &str, path: &str| {
        let (head, body) = server.get(path, headers);
        (head.split(' ').nth(1).unwrap().to_owned(), body)
    };
    // The client must not learn which files exist, either.
    for path in ["/here", "/nowhere"] {
        assert_eq!(status("", path).0, "401");
        assert_eq!(status("Authorization: Bearer wrong\r\n", path).0, "403");
    }
    let right = status("Authorization: Bearer secret\r\n", "/here");
    assert_eq!(right, ("200".to_owned(), b"x".to_vec()));
    assert_eq!(server.state.figures().refused, 4);
}

/// A client that no request could authenticate is disconnected before it takes a permit or sends a byte.
#[test]
fn a_client_from_a_denied_address_is_disconnected_at_once() {
    let server = serve(Access {
        allow: vec!["192.0.2.0/24".parse().unwrap()],
        token: None,
    });
    server.publish("here", b"x");
    let mut client = TcpStream::connect(server.at).unwrap();
    let mut answer = Vec::new();
    // The client sent no request; the server closes the connection.
    client.read_to_end(&mut answer).unwrap();
    assert!(answer.is_empty());
    let figures = server.state.figures();
    assert_eq!((figures.refused, figures.clients), (1, 0));
}

/// The guest chooses a file's date. HTTP has no dates after the year 9999.
#[test]
fn rfc9110_5_6_7_a_file_of_any_date_can_be_fetched() {
    let server = serve(loopback());
    server.publish("late", b"x");
    let date = |seconds| {
        let mut store = server.state.store();
        let number = store.look_up(ROOT, b"late").unwrap();
        let modified = Duration::new(seconds, 999_999_999);
        let set = store.set_attributes(number, |attributes| attributes.modified = modified);
        set.unwrap();
    };
    for seconds in [0, 253_402_300_799, 253_402_300_800, u64::MAX] {
        date(seconds);
        for headers in [
            "",
            "Range: bytes=0-\r\nIf-Range: Fri, 31 Dec 9999 23:59:59 GMT\r\n",
        ] {
            let (head, body) = server.get("/late", headers);
            assert!(head.starts_with("http/1.1 20"), "{seconds}: {head}");
            assert_eq!(body, b"x", "{seconds}");
        }
    }
    assert!(server.get("/late", "").0.contains("31 dec 9999 23:59:59"));
}

/// A client that reads nothing keeps only the slots of its object in use. It receives the object that it requested, whatever
/// happens to the file.
#[test]
fn a_slow_client_gets_the_object_that_it_requested() {
    let server = serve(loopback());
    // More bytes than all buffers of the connection.
    let bytes = pattern(15 * SLOT as usize);
    server.publish("big", &bytes);
    let mut slow = TcpStream::connect(server.at).unwrap();
    slow.write_all(b"GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut first = [0; 1000];
    slow.read_exact(&mut first).unwrap();
    server.state.store().remove(ROOT, b"big", false).unwrap();
    let used = server.state.figures().used;
    server.publish("other", &pattern(100));
    assert_eq!(server.get("/other", "").1, pattern(100));
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest).unwrap();
    let all = [&first[..], &rest[..]].concat();
    let start = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert!(all[start..] == bytes[..]);
    assert!(used <= 15);
    // Afterwards the slots become free.
    while server.state.figures().used > 1 {
        std::thread::yield_now();
    }
}

#[test]
fn a_rate_limit_does_not_change_the_content() {
    let server = serve(loopback());
    let bytes = pattern(3 * SLOT as usize);
    server.publish("film", &bytes);
    // Rates with the smallest reservation, the largest, and one between.
    for rate in [Some(1 << 20), Some(50 << 20), Some(1 << 30), None] {
        server.state.limit(rate);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| assert!(server.get("/film", "").1 == bytes, "{rate:?}"));
            }
        });
    }
    assert_eq!(server.state.figures().stalled, 0);
}

/// The bytes that a client does not read stay in their slots; the kernel buffers few of them.
#[test]
fn little_is_sent_to_a_client_that_reads_nothing() {
    let server = serve_slots(256, loopback());
    server.publish("big", &pattern(200 * SLOT as usize));
    server.publish("small", b"x");
    let mut slow = TcpStream::connect(server.at).unwrap();
    slow.write_all(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    slow.read_exact(&mut [0]).unwrap();
    // One thread serves all connections: if others were answered and no more was sent to this one, its socket is full.
    let sent_while = |others: u64| {
        let before = server.state.figures().sent;
        (0..others).for_each(|_| drop(server.get("/small", "")));
        server.state.figures().sent - before - others
    };
    while sent_while(10) > 0 {}
    let sent = server.state.figures().sent;
    assert!(sent < 1 << 20, "{sent}");
}
