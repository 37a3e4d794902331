//! Tests of the push, with stores that accept, refuse or lose files.
#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use common::{SLOT, pattern, publish, write};
use memory_plane::push::{Credential, Dial, Keys, Pusher};
use memory_plane::{SpaceState, tls};
use space::store::ROOT;
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

/// Returns a space that pushes to a store with a token, and the store.
fn push_setup(scheme: &str) -> (Arc<SpaceState>, Store) {
    let token = Credential::Token("Bearer secret".parse().unwrap());
    push_setup_with(scheme, token, None)
}

/// As [`push_setup`], with a credential and, for https, the trusted authorities.
fn push_setup_with(
    scheme: &str,
    credential: Credential,
    trusted: Option<TlsConnector>,
) -> (Arc<SpaceState>, Store) {
    let state = SpaceState::new("test", SLOT, 16, 16).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let target = match scheme {
        "tcp" => format!("tcp://{at}"),
        _ => format!("{scheme}://localhost:{}/films/", at.port()),
    };
    let dial: Dial = Box::new(move || {
        let (asker, answer) = oneshot::channel();
        let stream = TcpStream::connect(at).map_err(|error| error.to_string());
        asker.send(stream).unwrap();
        answer
    });
    let target = target.parse().unwrap();
    let pusher = Pusher::new(&state, target, Some(credential), trusted, dial);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    std::thread::spawn(move || runtime.block_on(pusher.run()));
    let store = Store {
        listener,
        tls: None,
        stream: None,
    };
    (state, store)
}

/// Waits until no file remains to be sent.
fn wait_until_sent(state: &SpaceState) {
    while !state.push_status().contains(" 0 to send") {
        std::thread::yield_now();
    }
}

/// A store that the test controls.
struct Store {
    listener: TcpListener,
    /// The TLS configuration; `None` for plain connections.
    tls: Option<Arc<ServerConfig>>,
    stream: Option<BufReader<Box<dyn Stream>>>,
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

impl Store {
    fn stream(&mut self) -> &mut BufReader<Box<dyn Stream>> {
        self.stream.get_or_insert_with(|| {
            let (stream, _) = self.listener.accept().unwrap();
            let stream: Box<dyn Stream> = match &self.tls {
                None => Box::new(stream),
                Some(tls) => {
                    let connection = ServerConnection::new(Arc::clone(tls)).unwrap();
                    Box::new(StreamOwned::new(connection, stream))
                }
            };
            BufReader::new(stream)
        })
    }

    /// Reads lines until the text ends with `end`. Accepts a new connection when the current one ends.
    fn read_until(&mut self, end: &str) -> String {
        let mut text = String::new();
        while !text.ends_with(end) {
            if self.stream().read_line(&mut text).unwrap() == 0 {
                self.stream = None;
            }
        }
        text
    }

    /// Reads `length` bytes.
    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.stream().read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Reads a request and returns its first line and its body.
    fn request(&mut self) -> (String, Vec<u8>) {
        let head = self.read_until("\r\n\r\n");
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let body = self.bytes(length.unwrap().parse().unwrap());
        (head.lines().next().unwrap().to_owned(), body)
    }

    fn send(&mut self, text: &str) {
        self.stream().get_mut().write_all(text.as_bytes()).unwrap();
    }

    fn answer(&mut self, status: &str) {
        self.send(&format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n"));
    }
}

#[test]
fn a_file_is_removed_when_the_store_acknowledges_it() {
    let (state, mut store) = push_setup("http");
    let bytes = pattern(200_000);
    publish(&state, "a film.m3u8", &bytes);
    let head = store.read_until("\r\n\r\n");
    for line in [
        "PUT /films/a%20film.m3u8 HTTP/1.1",
        "authorization: Bearer secret",
        "content-type: application/vnd.apple.mpegurl",
        "content-length: 200000",
    ] {
        assert!(head.lines().any(|sent| sent == line), "{line}: {head}");
    }
    assert!(store.bytes(200_000) == bytes);
    // The file remains until the store acknowledges it, and the guest can read the state of the push.
    let text = state.push_status();
    assert!(text.contains("0 sent, 1 to send"), "{text}");
    let expected = "/a%20film.m3u8 sending, 200000 bytes so far";
    assert!(text.contains(expected), "{text}");
    assert_eq!(state.figures().used, 4);
    store.answer("201 Created");
    wait_until_sent(&state);
    let figures = state.figures();
    let figures = (figures.pushed, figures.push_failures, figures.published);
    assert_eq!(figures, (1, 0, 0));
    while state.figures().used > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_refused_or_unacknowledged_file_is_sent_again() {
    let (state, mut store) = push_setup("http");
    publish(&state, "first", b"1");
    let (mut line, _) = store.request();
    publish(&state, "second", b"2");
    let mut refused = 0;
    // A refusal of one file does not delay the other file.
    while line.starts_with("PUT /films/first ") {
        store.send("HTTP/1.1 507 Insufficient Storage\r\ncontent-length: 5\r\n\r\nfull\x07");
        refused += 1;
        assert!(refused < 100, "nothing else is sent");
        line = store.request().0;
    }
    assert_eq!(line, "PUT /films/second HTTP/1.1");
    let text = state.push_status();
    let expected = format!("/first failed {refused} times, again in ");
    assert!(text.contains(&expected), "{text}");
    let expected = ": the store answered 507 Insufficient Storage full\\u{7}\n";
    assert!(text.contains(expected), "{text}");
    assert!(state.figures().push_error.is_some());
    store.answer("204 No Content");
    // The connection ends without a response.
    assert_eq!(store.request().1, b"1");
    store.stream = None;
    assert_eq!(store.request().1, b"1");
    store.answer("200 OK");
    wait_until_sent(&state);
    let figures = state.figures();
    assert_eq!((figures.pushed, figures.push_failures), (2, refused + 1));
    assert_eq!((figures.push_error, figures.published), (None, 0));
}

#[test]
fn a_file_changed_during_its_push_is_pushed_again() {
    let (state, mut store) = push_setup("http");
    // More bytes than all buffers of the connection.
    let bytes = pattern(10 * SLOT as usize);
    publish(&state, "film", &bytes);
    store.read_until("\r\n\r\n");
    let number = write(&state, "film", 0, b"new");
    assert!(store.bytes(bytes.len()) == bytes);
    store.answer("200 OK");
    while state.figures().pushed == 0 {
        std::thread::yield_now();
    }
    // The file is open for writing again, and is sent after it is closed.
    assert_eq!(state.figures().unfinished, 1);
    state.store().close(number, true);
    state.note_change();
    let (_, body) = store.request();
    assert!(body[..3] == *b"new" && body[3..] == bytes[3..]);
    // A renamed file is pushed under its new name.
    let (film, movie) = ((ROOT, &b"film"[..]), (ROOT, &b"movie"[..]));
    state.store().rename(film, movie, false).unwrap();
    // The new file under the old name has not been sent.
    write(&state, "film", 0, b"half");
    store.answer("200 OK");
    assert_eq!(store.request().0, "PUT /films/movie HTTP/1.1");
    store.answer("200 OK");
    wait_until_sent(&state);
    assert_eq!(state.figures().published, 0);
    assert!(state.store().look_up(ROOT, b"film").is_ok());
}

#[test]
fn files_with_temporary_names_are_not_pushed() {
    let (state, mut store) = push_setup("http");
    for name in [".film", "list.m3u8.tmp", "film.part"] {
        publish(&state, name, b"half");
    }
    publish(&state, "film", b"whole");
    assert_eq!(store.request().0, "PUT /films/film HTTP/1.1");
    store.answer("200 OK");
    wait_until_sent(&state);
    assert_eq!(state.push_status(), "1 sent, 0 to send, 3 set aside\n");
    let (part, whole) = ((ROOT, &b"list.m3u8.tmp"[..]), (ROOT, &b"list.m3u8"[..]));
    state.store().rename(part, whole, false).unwrap();
    state.note_change();
    assert_eq!(store.request().0, "PUT /films/list.m3u8 HTTP/1.1");
}

#[test]
fn raw_tcp_sends_one_file_after_the_other() {
    let (state, mut receiver) = push_setup("tcp");
    let bytes = pattern(3 * SLOT as usize + 1);
    publish(&state, "a film", &bytes);
    let film = format!("PUT {} /a%20film\n", bytes.len());
    let mut line = receiver.read_until("\n");
    publish(&state, "empty", b"");
    let mut refused = 0;
    while line == film {
        assert!(receiver.bytes(bytes.len()) == bytes);
        receiver.send("no room\n");
        refused += 1;
        assert!(refused < 100, "nothing else is sent");
        line = receiver.read_until("\n");
    }
    assert_eq!(line, "PUT 0 /empty\n");
    assert_eq!(
        state.figures().push_error.unwrap(),
        "the store answered no room"
    );
    receiver.send("OK\n");
    // The connection ends after a part of the bytes and without a response: the file is sent again from its beginning.
    assert_eq!(receiver.read_until("\n"), film);
    receiver.bytes(1000);
    receiver.stream = None;
    assert_eq!(receiver.read_until("\n"), film);
    assert!(receiver.bytes(bytes.len()) == bytes);
    receiver.send("OK\r\n");
    wait_until_sent(&state);
    let figures = state.figures();
    assert_eq!((figures.pushed, figures.push_failures), (2, refused + 1));
}

/// Creates a certificate authority in this directory, and its certificate for `localhost`.
fn authority(directory: &Path) {
    let openssl = |arguments: &str, name: &str| {
        let mut openssl = Command::new("openssl");
        openssl.current_dir(directory).args(arguments.split(' '));
        let output = openssl.args(["-subj", name]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    openssl(
        &format!("{new} -keyout ca.key -out ca.pem"),
        "/CN=an authority",
    );
    let signed = "-CA ca.pem -CAkey ca.key -addext subjectAltName=DNS:localhost";
    let leaf = "-addext basicConstraints=critical,CA:FALSE";
    openssl(
        &format!("{new} {signed} {leaf} -keyout key.pem -out cert.pem"),
        "/CN=localhost",
    );
}

/// Returns access keys, read from a file in this directory.
fn keys(directory: &Path) -> Credential {
    let file = directory.join("keys");
    let text = "[default]\naws_access_key_id = AKID\naws_secret_access_key = secret\n";
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    Credential::Keys(Keys::read(&file, "eu-north-1").unwrap())
}

#[test]
fn https_requires_a_certificate_of_a_trusted_authority() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for directory in &directories {
        authority(directory.path());
    }
    let [ours, other] = &directories;
    let file = |name: &str| ours.path().join(name);
    let acceptor = tls::acceptor(&file("cert.pem"), &file("key.pem")).unwrap();
    for (trusted, is_trusted) in [(other, false), (ours, true)] {
        let trusted = tls::connector(&trusted.path().join("ca.pem")).unwrap();
        let (state, mut store) = push_setup_with("https", keys(ours.path()), Some(trusted));
        store.tls = Some(Arc::clone(acceptor.config()));
        let bytes = pattern(3 * SLOT as usize);
        publish(&state, "film", &bytes);
        if !is_trusted {
            let refused = store.stream().read_line(&mut String::new());
            assert!(refused.is_err(), "{refused:?}");
            while state.figures().push_error.is_none() {
                std::thread::yield_now();
            }
            let error = state.figures().push_error.unwrap();
            assert!(error.contains("invalid peer certificate"), "{error}");
            assert_eq!((state.figures().pushed, state.figures().published), (0, 1));
            continue;
        }
        let head = store.read_until("\r\n\r\n");
        let signed = head.lines().any(|line| {
            let scope =
                "/eu-north-1/s3/aws4_request, SignedHeaders=host;x-amz-content-sha256;x-amz-date";
            line.starts_with("authorization: AWS4-HMAC-SHA256 Credential=AKID/2")
                && line.contains(scope)
        });
        assert!(
            signed && head.starts_with("PUT /films/film HTTP/1.1\r\n"),
            "{head}"
        );
        assert!(!head.contains("secret"));
        assert!(store.bytes(bytes.len()) == bytes);
        store.answer("200 OK");
        wait_until_sent(&state);
        assert_eq!(state.figures().pushed, 1);
    }
}
