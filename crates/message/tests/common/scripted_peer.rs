//! A scripted peer: a test sends the handshake data of an endpoint that connects.

use std::path::Path;

use message::{Address, Endpoint, Peer};
use window::Window;
use window::attach::{Channel, HandshakeData, Message};

/// Kinds of records: see `message`'s `wire`.
pub const OFFER: u32 = 3;
pub const DONE: u32 = 4;
pub const PULL: u32 = 5;
pub const CHUNK: u32 = 6;
/// An offer of a message on a member's heap.
pub const MEMBER_HEAP: u32 = 7;
pub const SHARE: u32 = 8;
pub const COPIED: u32 = 9;
/// An offer of a message in the memory of a process, and a share with such memory.
pub const PROCESS_OFFER: u32 = 10;
pub const PROCESS_SHARE: u32 = 11;

/// Flags of an offer: the peer fences for the endpoint, and can copy from and to its process.
pub const FENCES: u8 = 1;
pub const PROCESS_MEMORY: u8 = 4;

/// Offers a window to an endpoint, with flags, and with or without members of the window's region; the endpoint must accept.
pub fn connect(
    board: &Path,
    victim: &mut Endpoint,
    from: Address,
    window: &Window,
    flags: u8,
    members: Option<[u32; 2]>,
) -> (Channel, Peer) {
    let to = victim.address();
    let socket = board.join(format!("endpoints/{}.sock", to.endpoint));
    let channel = Channel::connect(&socket).unwrap();
    let hello = hello(from, to, flags, members);
    channel.offer(Some(window), None, &hello).unwrap();
    loop {
        victim.progress();
        match channel.receive().unwrap() {
            None => {}
            Some(Message::Answer { accepted, .. }) => break assert!(accepted),
            Some(other) => panic!("{other:?}"),
        }
    }
    let peer = victim.connect(from, 0, None).unwrap();
    (channel, peer)
}

/// See `message`'s `handshake`.
fn hello(from: Address, to: Address, flags: u8, members: Option<[u32; 2]>) -> HandshakeData {
    let mut bytes = HandshakeData::new();
    bytes.extend(from.nic.to_le_bytes());
    bytes.extend(77u64.to_le_bytes());
    bytes.extend(from.endpoint.to_le_bytes());
    bytes.extend([0; 8]);
    bytes.extend(to.nic.to_le_bytes());
    bytes.extend(to.endpoint.to_le_bytes());
    bytes.push(flags);
    bytes.extend(members.into_iter().flatten().flat_map(u32::to_le_bytes));
    bytes
}
