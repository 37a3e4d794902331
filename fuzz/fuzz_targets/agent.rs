//! What `vicinity-agent` reads of others: the host's directory, and the messages of programs about their sockets.
//!
//! The first byte of an input selects which. A directory is text. Messages are pairs of bytes: what a program says, and
//! which descriptors it sends.
#![no_main]
#![allow(dead_code, reason = "the agent is a program, so its modules are compiled in here")]

use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

#[path = "../../guest/agent/src/sockets/claim.rs"]
mod claim;
#[path = "../../guest/agent/src/sockets/directory.rs"]
mod directory;

use claim::Message;
use directory::{Directory, MAX_ENTRIES, MAX_RANGES};

fuzz_target!(|data: &[u8]| {
    match data.split_first() {
        Some((0, messages)) => messages
            .chunks_exact(2)
            .for_each(|message| say(message[0], message[1])),
        Some((_, text)) => {
            if let Ok(text) = std::str::from_utf8(text) {
                read(text);
            }
        }
        None => {}
    }
});

/// A directory keeps to the limits of the table, and says what its text says.
fn read(text: &str) {
    let Some(directory) = Directory::read(text) else {
        return;
    };
    assert!(directory.entries.len() <= MAX_ENTRIES);
    assert!(
        directory
            .own()
            .all(|entry| entry.cid == directory.own_cid)
    );
    let mut again = format!("vicinity-sockets 1\nself {}\n", directory.own_cid);
    for entry in &directory.entries {
        assert!(entry.ports.len() <= MAX_RANGES);
        let first = directory.entry(entry.cid, entry.index);
        assert!(first.is_some_and(|first| (first.cid, first.index) == (entry.cid, entry.index)));
        again += &format!(
            "address {} {} {} {}",
            entry.cid, entry.index, entry.network, entry.address
        );
        for range in &entry.ports {
            again += &format!(" {}-{}", range.start(), range.end());
        }
        again.push('\n');
    }
    again += "end\n";
    assert_eq!(Directory::read(&again), Some(directory));
}

/// Sockets that a program may have.
struct Sockets {
    listener: TcpListener,
    listener_of_six: TcpListener,
    client: TcpStream,
    accepted: TcpStream,
    accepted_of_six: TcpStream,
    others: Vec<OwnedFd>,
}

static SOCKETS: LazyLock<Sockets> = LazyLock::new(|| {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a client");
    let (accepted, _) = listener.accept().expect("a connection");
    let listener_of_six = TcpListener::bind("[::]:0").expect("a listener");
    let port = listener_of_six.local_addr().expect("an address").port();
    let _client = TcpStream::connect(("127.0.0.1", port)).expect("a client");
    let (accepted_of_six, _) = listener_of_six.accept().expect("a connection");
    let file = std::fs::File::open("/dev/null").expect("a file");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let unix = UnixStream::pair().expect("a pair");
    Sockets {
        listener,
        listener_of_six,
        client,
        accepted,
        accepted_of_six,
        others: vec![file.into(), udp.into(), unix.0.into()],
    }
});

/// A message means something only with the socket that it is about.
fn say(what: u8, which: u8) {
    let all = &*SOCKETS;
    let mut sent: Vec<BorrowedFd<'_>> = vec![
        all.listener.as_fd(),
        all.listener_of_six.as_fd(),
        all.client.as_fd(),
        all.accepted.as_fd(),
        all.accepted_of_six.as_fd(),
    ];
    sent.extend(all.others.iter().map(AsFd::as_fd));
    sent.rotate_left(usize::from(which & 7));
    // None, one, or more than the agent has room for.
    sent.truncate(usize::from(which >> 3 & 3));
    let (mut program, mine) = UnixStream::pair().expect("a pair");
    if sent.is_empty() {
        program.write_all(&[what]).expect("room");
    } else {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&sent)));
        let byte = [IoSlice::new(std::slice::from_ref(&what))];
        sendmsg(&program, &byte, &mut ancillary, SendFlags::NOSIGNAL).expect("room");
    }
    let number = match sent.is_empty() {
        true => 8,
        false => usize::from(which & 7),
    };
    let port = |address: std::io::Result<SocketAddr>| address.expect("an address").port();
    match (claim::receive(&mine), what, number) {
        (Ok(Message::Listening(found)), b'L', 0) => {
            assert_eq!(found, port(all.listener.local_addr()));
        }
        (Ok(Message::Listening(found)), b'L', 1) => {
            assert_eq!(found, port(all.listener_of_six.local_addr()));
        }
        (Ok(Message::Claim((client, server))), b'C', 2..=4) => {
            let socket = [&all.client, &all.accepted, &all.accepted_of_six][number - 2];
            assert_eq!(client.port(), port(socket.peer_addr()));
            assert_eq!(server.port(), port(socket.local_addr()));
        }
        (Ok(message), ..) => panic!("{message:?} of {what}, socket {number}"),
        (Err(_), b'L', 0 | 1) | (Err(_), b'C', 2..=4) if sent.len() == 1 => {
            panic!("a message of {what}, socket {number}, is nothing");
        }
        (Err(_), ..) => {}
    }
    assert_eq!(claim::has_taken(&mine), None, "it said nothing more");
    program.write_all(b"A").expect("room");
    assert_eq!(claim::has_taken(&mine), Some(true));
}
