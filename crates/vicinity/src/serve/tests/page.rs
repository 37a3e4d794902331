//! The page's sockets: what a foreign page, a reader and many listeners get.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;

use super::*;
use crate::client::ClientError;
use crate::runtime_paths::VIEW_SOCKET;

const LAN: &str = "[[network]]\nname = \"lan\"\n[[network.port]]\nvm = \"a\"\n";

/// Sends a request as it is, and returns the answer's head and the reader of its body.
fn ask(socket: &Path, head: &str) -> (String, BufReader<UnixStream>) {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    write!(stream, "{head}\r\n\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    let mut answer = String::new();
    while !answer.ends_with("\r\n\r\n") {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).unwrap() > 0, "{answer}");
        answer += &line;
    }
    (answer, reader)
}

fn code(socket: &Path, head: &str) -> u16 {
    let (answer, _) = ask(socket, head);
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_foreign_page_reads_and_changes_nothing_on_any_socket() {
    let daemon = Daemon::start(LAN);
    let control = daemon.run().join(CONTROL_SOCKET);
    let view = daemon.run().join(VIEW_SOCKET);
    const BROWSER: &str = "User-Agent: Mozilla/5.0";
    for socket in [&control, &view] {
        for (expected, head) in [
            (200, "GET /v1/ports HTTP/1.1\r\nHost: localhost:8080"),
            (
                200,
                "GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nSec-Fetch-Site: none",
            ),
            (200, "GET /v1/ports HTTP/1.0"),
            (403, "GET /v1/ports HTTP/1.1\r\nHost: attacker.example"),
            (
                403,
                "GET /v1/ports HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site",
            ),
            (
                403,
                "GET /v1/live HTTP/1.1\r\nHost: localhost\r\nOrigin: https://attacker.example",
            ),
            (
                403,
                "GET / HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors",
            ),
            (404, "GET /../etc/passwd HTTP/1.1\r\nHost: localhost"),
            (
                404,
                "GET /page.css/..%2f..%2fetc/passwd HTTP/1.1\r\nHost: localhost",
            ),
            (405, "TRACE /v1/ports HTTP/1.1\r\nHost: localhost"),
        ] {
            assert_eq!(code(socket, head), expected, "{head}");
        }
        let head = format!("GET /v1/ports HTTP/1.1\r\nHost: vicinity\r\n{BROWSER}");
        assert_eq!(code(socket, &head), 403);
    }
    const POST: &str = "POST /v1/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0";
    for (expected, more) in [
        (403, "Sec-Fetch-Site: cross-site"),
        (403, "Sec-Fetch-Site: same-site"),
        (403, "Origin: null"),
        (415, "Content-Type: text/plain"),
        (200, "Content-Type: application/json"),
        (200, "X-Nothing: 1"),
    ] {
        assert_eq!(
            code(&control, &format!("{POST}\r\n{more}")),
            expected,
            "{more}"
        );
    }
    daemon.stop();
}

#[test]
fn the_read_only_socket_changes_nothing_and_has_no_configuration_and_no_frames() {
    let daemon = Daemon::start(&format!("[web]\ngroup = \"4711\"\n{LAN}"));
    let view = daemon.run().join(VIEW_SOCKET);
    let (there, folder) = (
        std::fs::metadata(&view).unwrap(),
        std::fs::metadata(daemon.run()).unwrap(),
    );
    if rustix::process::geteuid().is_root() {
        assert_eq!((there.mode() & 0o777, there.gid()), (0o660, 4711));
        assert_eq!(folder.mode() & 0o777, 0o751);
    }
    const HOST: &str = "HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0";
    for (expected, request) in [
        (200, "GET /v1/networks"),
        (200, "GET /v1/networks/lan/fdb"),
        (200, "GET /metrics"),
        (200, "GET /page.js"),
        (404, "GET /v1/config"),
        (404, "GET /v1/capture?ports=a"),
        (404, "POST /v1/reload"),
        (404, "POST /v1/direct/a/leave"),
        (405, "POST /v1/networks"),
        (405, "PUT /"),
        (404, "DELETE /v1/networks/lan"),
    ] {
        assert_eq!(
            code(&view, &format!("{request} {HOST}")),
            expected,
            "{request}"
        );
    }
    daemon.stop();
}

#[test]
fn without_a_group_only_the_daemons_user_has_the_read_only_socket() {
    let daemon = Daemon::start(LAN);
    let mode = std::fs::metadata(daemon.run().join(VIEW_SOCKET))
        .unwrap()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    daemon.stop();
}

/// Whether one of these entries is of this VM. The daemon also shows VMs of the host that are none of its ports.
fn names(entries: &serde_json::Value, vm: &str) -> bool {
    entries
        .as_array()
        .is_some_and(|entries| entries.iter().any(|entry| entry["vm"] == vm))
}

#[test]
fn sixteen_clients_listen_and_the_next_is_told_to_wait() {
    let daemon = Daemon::start(LAN);
    let socket = daemon.run().join(CONTROL_SOCKET);
    const LIVE: &str = "GET /v1/live HTTP/1.1\r\nHost: localhost";
    let mut listeners: Vec<_> = (0..16).map(|_| ask(&socket, LIVE)).collect();
    let (head, _) = ask(&socket, LIVE);
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    for (head, reader) in &mut listeners {
        assert!(head.contains("application/x-ndjson"), "{head}");
        // The length of the chunk, then the line.
        let mut line = String::new();
        while !line.starts_with('{') {
            line.clear();
            assert!(reader.read_line(&mut line).unwrap() > 0);
        }
        let live: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(live["version"], 1);
        assert!(names(&live["ports"], "a"), "{live}");
        assert!(live["host"]["cpus"].as_u64() > Some(0));
    }
    drop(listeners);
    until("room for a listener", || code(&socket, LIVE) == 200);
    let (head, mut reader) = ask(&socket, &format!("{LIVE}\r\nAccept: text/event-stream"));
    assert!(head.contains("text/event-stream"), "{head}");
    let mut line = String::new();
    while !line.starts_with("data: ") {
        line.clear();
        reader.read_line(&mut line).unwrap();
    }
    // The history has what was sampled.
    let history: serde_json::Value = client::get(&daemon.run(), "/v1/history").unwrap();
    assert!(names(&history, "a"), "{history}");
    daemon.stop();
}

#[test]
fn a_listener_that_reads_a_byte_a_second_delays_no_other() {
    let daemon = Daemon::start(LAN);
    let socket = daemon.run().join(CONTROL_SOCKET);
    const LIVE: &str = "GET /v1/live HTTP/1.1\r\nHost: localhost";
    let mut slow = UnixStream::connect(&socket).unwrap();
    write!(slow, "{LIVE}\r\n\r\n").unwrap();
    let (_, mut other) = ask(&socket, LIVE);
    let mut lines = 0;
    while lines < 4 {
        let mut line = String::new();
        assert!(other.read_line(&mut line).unwrap() > 0);
        if line.starts_with('{') {
            lines += 1;
            slow.read_exact(&mut [0]).unwrap();
        }
    }
    drop(slow);
    daemon.stop();
}

#[test]
fn a_change_of_the_page_needs_a_restart() {
    let daemon = Daemon::start(LAN);
    std::fs::write(
        daemon.folder.path().join("test.toml"),
        format!("[web]\ngroup = \"1\"\n{LAN}"),
    )
    .unwrap();
    let request = client::ApiRequest::without_body(client::Method::POST, "/v1/reload");
    let refused = client::text(&daemon.run(), request).unwrap_err();
    assert!(
        matches!(&refused, ClientError::Refused { reason, .. } if reason.contains("`web`")),
        "{refused}"
    );
    daemon.stop();
}
