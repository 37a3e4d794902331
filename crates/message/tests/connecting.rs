//! Connecting and closing: keys, cancelled connects, and messages that a closed endpoint left.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::time::{Duration, Instant};

use common::{Pair, both};
use message::limits::{INCOMING, SIMULTANEOUS_RETRY};
use message::{Address, Board, Code, Endpoint, MessageError, Options, Pattern, Request};
use window::attach::{Channel, HandshakeData, Listener, Message};

/// No operation takes this long; a longer wait is a hang.
const HANG: Duration = Duration::from_secs(60);

/// Two unconnected endpoints with different keys.
fn unconnected_endpoints() -> (Endpoint, Endpoint, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let board = Board::open(folder.path()).unwrap();
    let open = |key| {
        let options = Options {
            key,
            ..Options::default()
        };
        Endpoint::open(&board, &options).unwrap()
    };
    (open(1), open(2), folder)
}

#[test]
fn the_key_of_the_target_endpoint_is_checked() {
    let (mut a, mut b, _folder) = unconnected_endpoints();
    // Three at the same time, before the peer answers.
    let requests = [3, 2, 4].map(|key| a.iconnect(b.address(), key, 0).unwrap());
    let codes = requests.map(|request| both(&mut a, &mut b, request).status.code);
    assert_eq!(codes, [Code::BadKey, Code::Success, Code::BadKey]);
    // Again, when they are connected.
    for (key, code) in [(2, Code::Success), (1, Code::BadKey)] {
        let request = a.iconnect(b.address(), key, 0).unwrap();
        assert_eq!(both(&mut a, &mut b, request).status.code, code);
    }
    for (key, code) in [(1, Code::Success), (2, Code::BadKey)] {
        let request = b.iconnect(a.address(), key, 0).unwrap();
        assert_eq!(both(&mut b, &mut a, request).status.code, code);
    }
}

/// As a rank that starts others with `MPI_Comm_spawn`, one after the other.
#[test]
fn the_next_endpoint_with_the_address_of_one_that_has_ended_is_connected() {
    let (mut a, mut b, folder) = unconnected_endpoints();
    let board = Board::open(folder.path()).unwrap();
    let address = b.address();
    for key in 2..5 {
        let request = a.iconnect(address, key, 0).unwrap();
        let code = both(&mut a, &mut b, request).status.code;
        assert_eq!(code, Code::Success, "{key}");
        // `a` makes no call until the next endpoint is open.
        drop(b);
        let options = Options {
            endpoint: Some(address.endpoint),
            key: key + 1,
            ..Options::default()
        };
        b = Endpoint::open(&board, &options).unwrap();
        assert_eq!(b.address(), address);
    }
}

#[test]
fn a_connect_that_was_cancelled_stays_so_when_it_is_answered() {
    let (mut a, mut b, _folder) = unconnected_endpoints();
    let request = a.iconnect(b.address(), 2, 0).unwrap();
    assert!(a.cancel(request).unwrap());
    let again = a.iconnect(b.address(), 2, 0).unwrap();
    let done = both(&mut a, &mut b, again);
    assert_eq!(done.status.code, Code::Success);
    assert_eq!(a.take(request).unwrap().status.code, Code::Cancelled);
    assert!(a.oldest(&Pattern::ANY).is_none(), "ended once");
}

/// The first request's key is wrong, so the second one's connect starts when the peer has ended.
#[test]
fn a_connect_that_was_cancelled_stays_so_when_its_turn_comes() {
    let (mut a, mut b, _folder) = unconnected_endpoints();
    let first = a.iconnect(b.address(), 3, 0).unwrap();
    let second = a.iconnect(b.address(), 2, 0).unwrap();
    assert!(a.cancel(second).unwrap());
    for _ in 0..10_000 {
        b.progress();
    }
    drop(b);
    let ended = a.wait(first, Some(HANG)).unwrap().unwrap();
    assert_eq!(ended.status.code, Code::BadKey);
    assert_eq!(a.take(second).unwrap().status.code, Code::Cancelled);
    assert!(a.oldest(&Pattern::ANY).is_none(), "ended once");
}

#[test]
fn connecting_needs_an_open_endpoint_the_right_key_and_this_host() {
    let folder = tempfile::tempdir().unwrap();
    let board = Board::open(folder.path()).unwrap();
    let options = Options {
        key: 5,
        ..Options::default()
    };
    let mut a = Endpoint::open(&board, &options).unwrap();
    let mut b = Endpoint::open(&board, &options).unwrap();
    let mut away = a.address();
    away.endpoint = 99;
    assert!(matches!(
        a.connect(away, 5, None),
        Err(MessageError::Connection(Code::Closed))
    ));
    away.nic += 1;
    assert!(matches!(
        a.connect(away, 5, None),
        Err(MessageError::UnknownNic(_))
    ));
    let request = a.iconnect(b.address(), 6, 77).unwrap();
    let refused = both(&mut a, &mut b, request).status;
    assert_eq!((refused.code, refused.value), (Code::BadKey, 77));
    // The other endpoint makes no progress.
    let limit = Some(Duration::from_millis(5));
    assert!(matches!(
        a.connect(b.address(), 5, limit),
        Err(MessageError::Timeout)
    ));
    let busy = Options {
        endpoint: Some(b.address().endpoint),
        ..options
    };
    assert!(matches!(
        Endpoint::open(&board, &busy),
        Err(MessageError::Busy)
    ));
}

#[test]
fn the_largest_endpoint_id_is_one_like_others() {
    let folder = tempfile::tempdir().unwrap();
    let board = Board::open(folder.path()).unwrap();
    let options = Options {
        endpoint: Some(u32::MAX),
        ..Options::default()
    };
    let largest = Endpoint::open(&board, &options).unwrap();
    assert_eq!(largest.address().endpoint, u32::MAX);
}

#[test]
fn two_that_connect_to_each_other_at_once_have_one_link() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let board = Board::open(folder.path()).unwrap();
        let open = || Endpoint::open(&board, &Options::default()).unwrap();
        let (mut a, mut b) = (open(), open());
        let (from_a, from_b) = (a.address(), b.address());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let peer = a.connect(from_b, 0, None).unwrap();
                let sent = a.issend(peer, 1, vec![1; 8]).unwrap();
                let sent = a.wait(sent, None).unwrap().unwrap();
                assert_eq!(sent.status.code, Code::Success);
            });
            let peer = b.connect(from_a, 0, None).unwrap();
            let request = b.irecv(Pattern::ANY, vec![0; 8]).unwrap();
            let got = b.wait(request, None).unwrap().unwrap();
            assert_eq!(got.status.peer, Some(peer));
        });
    }
}

/// A scripted peer with a lower address than the endpoint that connects to it, so its own offer has
/// precedence.
struct Lower {
    listener: Listener,
    endpoint: Endpoint,
    request: Request,
    folder: tempfile::TempDir,
}

impl Lower {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let board = Board::open(folder.path()).unwrap();
        let listener = Listener::bind(&folder.path().join("endpoints/0.sock")).unwrap();
        let options = Options {
            endpoint: Some(1),
            ..Options::default()
        };
        let mut endpoint = Endpoint::open(&board, &options).unwrap();
        let address = Address {
            endpoint: 0,
            ..endpoint.address()
        };
        let request = endpoint.iconnect(address, 0, 0).unwrap();
        Self {
            listener,
            endpoint,
            request,
            folder,
        }
    }

    /// Answers the next offer.
    fn answer(&mut self, verdict: u32) -> Channel {
        let start = Instant::now();
        let channel = loop {
            if let Some(channel) = self.listener.accept().unwrap() {
                break channel;
            }
            assert!(self.endpoint.test(self.request).unwrap().is_none());
            assert!(start.elapsed() < HANG, "the endpoint sends no offer");
        };
        let offer = channel.receive().unwrap();
        assert!(matches!(offer, Some(Message::Offer { .. })));
        let mut welcome = HandshakeData::new();
        welcome.extend(5u64.to_le_bytes());
        welcome.extend(verdict.to_le_bytes());
        welcome.push(0);
        channel
            .answer(verdict == ACCEPTED, None, None, &welcome)
            .unwrap();
        channel
    }

    fn code(mut self) -> Code {
        let ended = self.endpoint.wait(self.request, Some(HANG)).unwrap();
        drop(self.folder);
        ended.unwrap().status.code
    }
}

/// Verdicts, see `message`'s `handshake`.
const ACCEPTED: u32 = 0;
const SIMULTANEOUS: u32 = 2;

#[test]
fn a_simultaneous_connect_is_retried_if_the_peers_offer_never_arrives() {
    let mut lower = Lower::new();
    for _ in 0..3 {
        drop(lower.answer(SIMULTANEOUS));
    }
    let _link = lower.answer(ACCEPTED);
    assert_eq!(lower.code(), Code::Success);
}

#[test]
fn a_simultaneous_connect_ends_if_the_peer_has_closed() {
    let mut lower = Lower::new();
    drop(lower.answer(SIMULTANEOUS));
    lower.listener = Listener::bind(&lower.folder.path().join("endpoints/other.sock")).unwrap();
    assert_eq!(lower.code(), Code::Closed);
}

#[test]
fn a_cancelled_simultaneous_connect_is_not_retried() {
    let mut lower = Lower::new();
    drop(lower.answer(SIMULTANEOUS));
    assert!(lower.endpoint.cancel(lower.request).unwrap());
    let until = Instant::now() + 3 * SIMULTANEOUS_RETRY;
    while Instant::now() < until {
        lower.endpoint.progress();
    }
    assert!(lower.listener.accept().unwrap().is_none());
    assert_eq!(lower.code(), Code::Cancelled);
}

#[test]
fn silent_connections_do_not_block_an_endpoint() {
    let (mut a, mut b, folder) = unconnected_endpoints();
    let socket = folder.path().join("endpoints/1.sock");
    let silent = || Channel::connect(&socket).unwrap();
    let _silent: Vec<_> = (0..3 * INCOMING).map(|_| silent()).collect();
    let request = a.iconnect(b.address(), 2, 0).unwrap();
    let code = both(&mut a, &mut b, request).status.code;
    assert_eq!(code, Code::Success);
}

#[test]
fn a_close_ends_pending_requests_and_earlier_messages_are_received() {
    let Pair {
        mut a,
        b,
        to_b,
        to_a,
        ..
    } = Pair::new();
    let mut b = b;
    let posted = a.irecv(Pattern::exactly(1), vec![0; 8]).unwrap();
    let large = a.isend(to_b, 2, vec![1; 100_000]).unwrap();
    let acknowledged = a.issend(to_b, 3, vec![1; 8]).unwrap();
    let session = a.session_of(to_b).unwrap();
    let _ = b.isend(to_a, 1, vec![5; 8]).unwrap();
    let _ = b.isend(to_a, 4, vec![6; 100_000]).unwrap();
    drop(b);
    for request in [large, acknowledged] {
        let ended = a.wait(request, None).unwrap().unwrap();
        assert_eq!(ended.status.code, Code::Closed);
        assert_eq!(ended.status.peer, Some(to_b));
    }
    let got = a.wait(posted, None).unwrap().unwrap();
    assert_eq!(got.memory.bytes(), [5; 8]);
    assert_eq!(a.lost(), Some(to_b));
    assert_eq!(a.lost(), None);
    assert!(
        a.iprobe(Pattern::ANY).is_none(),
        "the offer ended with the peer"
    );
    let late = a.isend(to_b, 1, vec![1]).unwrap();
    assert_eq!(a.test(late).unwrap().unwrap().status.code, Code::Closed);
    assert_eq!(a.session_of(to_b), Some(session));
}
