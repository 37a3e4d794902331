//! Connecting: keys, and connects that were given up.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::both;
use message::{Board, Code, Endpoint, Options, Pattern};

/// Two endpoints that know nothing of each other, of different keys.
fn strangers() -> (Endpoint, Endpoint, tempfile::TempDir) {
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
fn the_key_that_counts_is_the_one_of_the_endpoint_connected_to() {
    let (mut a, mut b, _folder) = strangers();
    // Three at the same time, before anybody answers.
    let requests = [3, 2, 4].map(|key| a.iconnect(b.address(), key, 0).unwrap());
    let codes = requests.map(|request| both(&mut a, &mut b, request).status.code);
    assert_eq!(codes, [Code::BadKey, Code::Success, Code::BadKey]);
    // And once more, connected.
    for (key, code) in [(2, Code::Success), (1, Code::BadKey)] {
        let request = a.iconnect(b.address(), key, 0).unwrap();
        assert_eq!(both(&mut a, &mut b, request).status.code, code);
    }
    for (key, code) in [(1, Code::Success), (2, Code::BadKey)] {
        let request = b.iconnect(a.address(), key, 0).unwrap();
        assert_eq!(both(&mut b, &mut a, request).status.code, code);
    }
}

#[test]
fn a_connect_that_was_cancelled_stays_so_when_it_is_answered() {
    let (mut a, mut b, _folder) = strangers();
    let request = a.iconnect(b.address(), 2, 0).unwrap();
    assert!(a.cancel(request).unwrap());
    let again = a.iconnect(b.address(), 2, 0).unwrap();
    let done = both(&mut a, &mut b, again);
    assert_eq!(done.status.code, Code::Success);
    assert_eq!(a.take(request).unwrap().status.code, Code::Cancelled);
    assert!(a.oldest(&Pattern::ANY).is_none(), "ended once");
}
