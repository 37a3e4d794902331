//! The attach protocol: descriptors, versions, and peers that send invalid messages.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use window::attach::{AttachError, Channel, HandshakeData, Listener, Message};
use window::lane::Record;
use window::layout::{LaneSize, Layout, LayoutError};
use window::{Side, Window, WindowError};

fn layout() -> Layout {
    let lane = LaneSize {
        slots: 8,
        data: 4096,
    };
    Layout::new([lane, lane]).unwrap()
}

fn handshake_data(text: &str) -> HandshakeData {
    text.bytes().collect()
}

#[test]
fn a_window_is_offered_and_answered_and_carries_records() {
    let (creator, guest) = Channel::pair().unwrap();
    let window = Window::create(layout()).unwrap();
    creator
        .offer(Some(&window), None, &handshake_data("hello"))
        .unwrap();
    let Some(Message::Offer {
        window: Some(place),
        heap,
        handshake_data: said,
    }) = guest.receive().unwrap()
    else {
        panic!("no offer");
    };
    assert!(heap.is_none());
    assert_eq!(&said[..], b"hello");
    let theirs = Window::attach(place.file, place.offset).unwrap();
    assert_eq!(theirs.layout(), layout());
    guest
        .answer(true, None, None, &handshake_data("welcome"))
        .unwrap();
    assert!(matches!(
        creator.receive().unwrap(),
        Some(Message::Answer { accepted: true, window: None, heap: None, handshake_data }) if &handshake_data[..] == b"welcome"
    ));

    let mut here = window.ends(Side::Creator).unwrap();
    let mut there = theirs.ends(Side::Attacher).unwrap();
    let record = Record {
        tag: 9,
        body: [1, 2, 3, 4, 5, 6, 7],
    };
    for lane in 0..2 {
        assert!(here.producers[lane].has_room().unwrap());
        here.producers[lane].push(&record);
        assert_eq!(there.consumers[lane].pop(), Some(record));
        there.producers[lane].push(&record);
        assert_eq!(here.consumers[lane].pop(), Some(record));
    }
}

#[test]
fn wake_ups_never_block_and_the_end_is_detected() {
    let (one, other) = Channel::pair().unwrap();
    assert!(other.receive().unwrap().is_none());
    for _ in 0..100_000 {
        one.ring();
    }
    assert!(matches!(other.receive().unwrap(), Some(Message::Wake)));
    drop(one);
    let end = std::iter::from_fn(|| Some(other.receive())).find(Result::is_err);
    assert_eq!(end.unwrap().unwrap_err(), AttachError::Disconnected);
    other.ring();
}

#[test]
fn invalid_messages_are_refused() {
    let cases: [(&[u8], AttachError); 6] = [
        (b"x", AttachError::Malformed),
        (b"vicattch\x01\x01\x01\x00", AttachError::Malformed),
        (
            b"vicattch\x01\x02\x09\x00\0\0\0\0\0\0\0\0",
            AttachError::Version { first: 2, last: 9 },
        ),
        (
            b"vicattch\x02\x01\x02\x00\0\0\0\0\0\0\0\0",
            AttachError::Malformed,
        ),
        // The flags say that a window is attached, and none is.
        (
            b"vicattch\x01\x01\x01\x01\0\0\0\0\0\0\0\0",
            AttachError::Malformed,
        ),
        (&[0; 400], AttachError::Malformed),
    ];
    for (bytes, expected) in cases {
        let (raw, fresh) = sockets();
        rustix::net::send(&raw, bytes, rustix::net::SendFlags::NOSIGNAL).unwrap();
        assert_eq!(fresh.receive().unwrap_err(), expected, "{bytes:?}");
    }
}

/// A bare socket, and the channel that it is connected to.
fn sockets() -> (OwnedFd, Channel) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("raw");
    let listener = Listener::bind(&path).unwrap();
    let raw = rustix::net::socket(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        None,
    )
    .unwrap();
    rustix::net::connect(&raw, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
    (raw, listener.accept().unwrap().unwrap())
}

#[test]
fn memory_that_could_shrink_is_too_short_or_is_no_window_is_refused() {
    let make = |length, header: &[u8], seals| {
        let file = rustix::fs::memfd_create("peer", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, length).unwrap();
        rustix::io::pwrite(&file, header, 0).unwrap();
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        Window::attach(file, 0).map(|_| ()).unwrap_err()
    };
    let fixed = SealFlags::SHRINK | SealFlags::GROW;
    let header = layout().header();
    let length = layout().length();
    assert_eq!(
        make(length, &header, SealFlags::SHRINK),
        WindowError::Unsealed
    );
    let short = length - 4096;
    assert_eq!(
        make(short, &header, fixed),
        WindowError::Length {
            got: short,
            expected: length
        }
    );
    let none = WindowError::Layout(LayoutError::Magic);
    assert_eq!(make(length, b"", fixed), none);
    assert_eq!(make(5, b"", fixed), none);
    let (pipe, _other) = rustix::pipe::pipe().unwrap();
    assert_eq!(
        Window::attach(pipe, 0).map(|_| ()).unwrap_err(),
        WindowError::Unsealed
    );
}

#[test]
fn a_path_has_one_listener_and_a_stale_socket_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("name");
    // A killed process leaves a file without a listener; dropping Rust's own listener does not
    // remove it either.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let listener = Listener::bind(&path).unwrap();
    assert_eq!(Listener::bind(&path).unwrap_err(), Errno::ADDRINUSE);
    drop(listener);
    assert!(!path.exists());
}

#[test]
fn a_symbolic_link_leads_to_no_listener_if_it_must_not() {
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (folder.path().join("7.sock"), folder.path().join("8.sock"));
    let listener = Listener::bind(&path).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert_eq!(Channel::connect_directly(&link).unwrap_err(), Errno::LOOP);
    assert!(listener.accept().unwrap().is_none());
    Channel::connect_directly(&path).unwrap();
    assert!(listener.accept().unwrap().is_some());
    let refused = Channel::connect_directly(&folder.path().join("9.sock"));
    assert_eq!(refused.unwrap_err(), Errno::NOENT);
    std::fs::write(folder.path().join("9.sock"), "").unwrap();
    let refused = Channel::connect_directly(&folder.path().join("9.sock"));
    assert_eq!(refused.unwrap_err(), Errno::CONNREFUSED);
}

#[test]
fn a_process_that_keeps_the_folder_locked_does_not_stop_a_listener_for_long() {
    let folder = tempfile::tempdir().unwrap();
    let locked = std::fs::File::open(folder.path()).unwrap();
    rustix::fs::flock(&locked, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let refused = Listener::bind(&folder.path().join("7.sock"));
    assert_eq!(refused.unwrap_err(), Errno::BUSY);
    drop(locked);
    Listener::bind(&folder.path().join("7.sock")).unwrap();
}
