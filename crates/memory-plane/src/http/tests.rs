//! How long a client may take for each stage of each protocol. Time is the runtime's, which passes when
//! nobody has anything to do.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::{Instant, sleep};
use tokio_rustls::rustls::pki_types::ServerName;

use super::*;
use crate::limits::STALL;
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
        shared: Shared::new("test", 4096, 4, 4).unwrap(),
        access: Arc::new(Access {
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            token: None,
        }),
        tls,
    }
}

/// How long a client is served, and how many were given up for what they did not say or take.
async fn served<C>(service: Service, client: impl FnOnce(DuplexStream) -> C) -> (Duration, u64)
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
    let stalled = service.shared.counts.stalled.load(Ordering::Relaxed);
    (begin.elapsed(), stalled)
}

/// Say so much, then a piece every second; take what is answered.
async fn says(stream: impl AsyncRead + AsyncWrite, begin: &[u8], then: &[u8]) {
    let (mut answers, mut asks) = tokio::io::split(stream);
    let say = async {
        asks.write_all(begin).await.unwrap();
        while !then.is_empty() {
            sleep(Duration::from_secs(1)).await;
            if asks.write_all(then).await.is_err() {
                break;
            }
        }
    };
    let take = async {
        let mut bytes = [0; 512];
        while answers.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
    };
    tokio::join!(say, take);
}

#[tokio::test(start_paused = true)]
async fn each_stage_up_to_the_first_request_ends_in_time() {
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
        let client = |stream| says(stream, begin, then);
        let (time, _) = served(service(None), client).await;
        assert!(time <= PATIENCE, "{stage}: {time:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn so_does_what_comes_after_a_request() {
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
        let (time, _) = served(service(None), |stream| says(stream, begin, then)).await;
        // The first request counts in the first stretch.
        assert!(time <= 2 * STALL, "{stage}: {time:?}");
    }
}

/// A certificate that vouches for itself, and its key.
fn certificate(folder: &Path) -> (std::path::PathBuf, std::path::PathBuf) {
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=space \
                 -addext subjectAltName=DNS:space -addext basicConstraints=critical,CA:FALSE \
                 -keyout key.pem -out cert.pem";
    let mut openssl = Command::new("openssl");
    let made = openssl.current_dir(folder).args(words.split_whitespace());
    assert!(made.output().unwrap().status.success());
    (folder.join("cert.pem"), folder.join("key.pem"))
}

#[tokio::test(start_paused = true)]
async fn tls_and_what_follows_it_end_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = certificate(folder.path());
    let acceptor = tls::acceptor(&certificate, &key).unwrap();
    // The head of a handshake's record of 512 bytes (RFC 8446, 5.1), then it byte by byte.
    let hello = [22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    for (begin, then) in [(&hello[..], &[0][..]), (&hello[..3], &[]), (&[], &[])] {
        let service = service(Some(acceptor.clone()));
        let (time, stalled) = served(service, |stream| says(stream, begin, then)).await;
        assert_eq!((time, stalled), (PATIENCE, 1));
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
            says(stream, begin, then).await;
        };
        let (time, _) = served(service(Some(acceptor.clone())), connect).await;
        assert!(time <= PATIENCE, "{time:?}");
    }
}
