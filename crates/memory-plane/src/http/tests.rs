//! Tests the timeouts of each stage of each protocol. The runtime's clock is simulated: it advances when all tasks wait.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::{Instant, sleep};
use tokio_rustls::rustls::pki_types::ServerName;

use super::*;
use crate::limits::STALL_TIMEOUT;
use crate::tls;

/// RFC 9113, 3.4.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// An empty SETTINGS frame (RFC 9113, 6.5).
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

/// A PING frame (RFC 9113, 6.7).
const PING: &[u8] = &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

/// HEADERS that end their stream: GET, http, /, and the authority "a" (RFC 7541, appendix A).
const GET: &[u8] = &[0, 0, 6, 1, 5, 0, 0, 0, 1, 0x82, 0x86, 0x84, 0x41, 1, b'a'];

fn service(tls: Option<TlsAcceptor>) -> Service {
    Service {
        state: SpaceState::new("test", 4096, 4, 4).unwrap(),
        access: Arc::new(Access {
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            token: None,
        }),
        tls,
    }
}

/// Returns how long the server serves a client, and the counter of stalled clients.
async fn serve_time<C>(service: Service, client: impl FnOnce(DuplexStream) -> C) -> (Duration, u64)
where
    C: Future<Output = ()>,
{
    let begin = Instant::now();
    let (ours, theirs) = duplex(1 << 16);
    let from = IpAddr::V4(Ipv4Addr::LOCALHOST);
    tokio::select! {
        () = serve_stream(&service, theirs, from) => {}
        () = async { client(ours).await; std::future::pending().await } => {}
    }
    let stalled = service.state.counters.stalled.load(Ordering::Relaxed);
    (begin.elapsed(), stalled)
}

/// Sends `begin`, then `then` every second, and reads all responses.
async fn send_and_read(stream: impl AsyncRead + AsyncWrite, begin: &[u8], then: &[u8]) {
    let (mut responses, mut requests) = tokio::io::split(stream);
    let send = async {
        requests.write_all(begin).await.unwrap();
        while !then.is_empty() {
            sleep(Duration::from_secs(1)).await;
            if requests.write_all(then).await.is_err() {
                break;
            }
        }
    };
    let take = async {
        let mut bytes = [0; 512];
        while responses
            .read(&mut bytes)
            .await
            .is_ok_and(|count| count > 0)
        {}
    };
    tokio::join!(send, take);
}

#[tokio::test(start_paused = true)]
async fn each_stage_up_to_the_first_request_times_out() {
    let head = b"GET /a HTTP/1.1\r\nhost: a\r\nx: ";
    let begun = [PREFACE, SETTINGS].concat();
    for (stage, begin, then) in [
        ("nothing", &b""[..], &b""[..]),
        ("an HTTP/1.1 head that never ends", head, b"a"),
        ("half an HTTP/2 preface", &PREFACE[..10], b""),
        ("HTTP/2, but no request", &begun, b""),
        ("HTTP/2, PINGs, but no request", &begun, PING),
        ("HTTP/2, half of a frame", &begun, &[0]),
    ] {
        let client = |stream| send_and_read(stream, begin, then);
        let (time, _) = serve_time(service(None), client).await;
        assert!(time <= REQUEST_TIMEOUT, "{stage}: {time:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_stage_after_a_request_times_out() {
    let get = b"GET /a HTTP/1.1\r\nhost: a\r\n\r\n";
    let more = [&get[..], b"GET /a HTTP/1.1\r\nhost: a\r\nx: "].concat();
    let body = b"GET /a HTTP/1.1\r\nhost: a\r\ncontent-length: 9999\r\n\r\n";
    let h2 = [PREFACE, SETTINGS, GET].concat();
    for (stage, begin, then) in [
        ("HTTP/1.1, no second request", &get[..], &b""[..]),
        ("HTTP/1.1, half a second request", &more, b""),
        ("HTTP/1.1, a head that never ends", &more, b"a"),
        ("HTTP/1.1, a body that never ends", body, b"a"),
        ("HTTP/2, no second request", &h2, b""),
        ("HTTP/2, PINGs alone", &h2, PING),
    ] {
        let (time, _) =
            serve_time(service(None), |stream| send_and_read(stream, begin, then)).await;
        // The first request counts as progress of the first period.
        assert!(time <= 2 * STALL_TIMEOUT, "{stage}: {time:?}");
    }
}

/// Creates a self-signed certificate and its key, and returns their paths.
fn certificate(directory: &Path) -> (std::path::PathBuf, std::path::PathBuf) {
    let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=space \
                 -addext subjectAltName=DNS:space -addext basicConstraints=critical,CA:FALSE \
                 -keyout key.pem -out cert.pem";
    let mut openssl = Command::new("openssl");
    let made = openssl
        .current_dir(directory)
        .args(arguments.split_whitespace());
    assert!(made.output().unwrap().status.success());
    (directory.join("cert.pem"), directory.join("key.pem"))
}

#[tokio::test(start_paused = true)]
async fn tls_and_the_first_request_share_one_timeout() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = certificate(directory.path());
    let acceptor = tls::acceptor(&certificate, &key).unwrap();
    // The header of a handshake record of 512 bytes (RFC 8446, 5.1), then one byte per second.
    let hello = [22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    for (begin, then) in [(&hello[..], &[0][..]), (&hello[..3], &[]), (&[], &[])] {
        let service = service(Some(acceptor.clone()));
        let (time, stalled) =
            serve_time(service, |stream| send_and_read(stream, begin, then)).await;
        assert_eq!((time, stalled), (REQUEST_TIMEOUT, 1));
    }
    let connector = tls::connector(&certificate).unwrap();
    let half = [PREFACE, SETTINGS].concat();
    for (begin, then) in [
        (&b""[..], &b""[..]),
        (&half, PING),
        (b"GET / HTTP/1.1\r\nx: ", b"a"),
    ] {
        let name = ServerName::try_from("space").unwrap();
        let connect = async |stream| {
            let stream = connector.connect(name, stream).await.unwrap();
            send_and_read(stream, begin, then).await;
        };
        let (time, _) = serve_time(service(Some(acceptor.clone())), connect).await;
        assert!(time <= REQUEST_TIMEOUT, "{time:?}");
    }
}
