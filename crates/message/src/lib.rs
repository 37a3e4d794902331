//! The message plane's engine: messages between endpoints, matched by the receiver, with the
//! semantics of Myrinet Express (MX). This crate contains no C interface.
//!
//! # Theory of operation
//!
//! A [`Board`] is a directory with a NIC id; an [`Endpoint`] is an address on it, with a socket in
//! `endpoints` of that directory. Endpoints connect ([`connect`](Endpoint::connect)) over these sockets. From then
//! on each pair of them shares a window (`crates/window`) with two lanes in each direction, one for
//! messages and one for control.
//!
//! ```text
//!                      isend, irecv, wait, test, ...
//!  +-----------------------------------------------------------------+
//!  | Endpoint    progress: polls the links, then sleeps on sockets   |
//!  |  +-------------------------+   +------------------------------+ |
//!  |  | Engine                  |   | Peers, each with its Link    | |
//!  |  |  Requests               |<->|  messages_in   messages_out  |====> window
//!  |  |  posted receives        |   |  control_in    control_out   | |   with a peer
//!  |  |  unexpected messages    |   |  sleeper       ringer        | |
//!  |  +-------------------------+   +------------------------------+ |
//!  |  Handshakes: connects that are not answered yet                 |---> sockets
//!  +-----------------------------------------------------------------+
//! ```
//!
//! The length of a message determines its protocol:
//!
//! - *eager*, up to 48 bytes: the message is in the slot of the ring. The receiver polls the cache
//!   line that holds it, so it costs the transfer of one cache line.
//! - *medium*, up to 32 KiB: the message is in the data area of the lane. It is copied in once and
//!   out once. The send completes when the message is copied in. Messages of up to 64 KiB are sent so, too,
//!   for which the receiver has granted a credit (`credits`).
//! - *rendezvous*, above: the sender offers the message in a slot. If the message is on the
//!   sender's heap, the receiver copies it from there, once. If it is in other memory, and both
//!   are processes of one host that may read each other's memory, both have the kernel copy
//!   parts of it at the same time (`process_fetch`, `process_join`), unless streams turn out to be
//!   faster (`copy_choice`). Otherwise the sender streams it in chunks through the data area of the control lane, and both sides copy at the
//!   same time. Memory that is allocated for a peer ([`Endpoint::allocate_for`]) is on a heap
//!   in a region which both sides map ([`window::region::Heap`]): the region of the link, or
//!   that of the trust group of both VMs. All programs that map the region can write it, so
//!   messages there are copied in and out and never referred to, and the receiver checks after
//!   the copy that the memory still belonged to the message. If the receiver's memory is of
//!   this kind, too, both sides copy, a piece at a time.
//!
//! The receiver matches the messages of one peer in the order they were sent, whatever the protocol.
//! A message without a matching receive is copied out and queued as unexpected, up to a limit for
//! each peer. The receiver takes no more messages from a peer above the limit until some of its
//! messages are received; other peers are unaffected. Control records do not wait behind messages,
//! so this limit delays no transfer that has begun.
//!
//! The calling thread does all the work; there is no other thread. A call that waits polls for some
//! microseconds, then announces its sleep to its peers and sleeps.
//!
//! An endpoint owns its links. A request owns the memory that was passed to it until its result is
//! taken. A peer may fail in every way. When its process ends, however it ends, its socket closes,
//! and every request that waits for it ends with [`Code::Closed`]; messages that it had sent
//! completely are still received. When it violates the protocol, the endpoint disconnects it, and
//! the requests end with [`Code::Unreachable`]. Other peers are unaffected.
//!
//! [`remote`] extends this to endpoints in other VMs and on other hosts.
//!
//! # Example
//!
//! Two endpoints of one board. `examples/large.rs` shows large messages.
//!
//! ```
//! use message::{Board, Code, Endpoint, Options, Pattern};
//!
//! # let folder = tempfile::tempdir()?;
//! let board = Board::open(folder.path())?;
//! let mut here = Endpoint::open(&board, &Options::default())?;
//! let address = here.address();
//!
//! let other = std::thread::spawn(move || {
//!     let mut there = Endpoint::open(&board, &Options::default())?;
//!     let peer = there.connect(address, 0, None)?;
//!     let sent = there.isend(peer, 7, b"hello".to_vec())?;
//!     there.wait(sent, None)
//! });
//!
//! let request = here.irecv(Pattern::exactly(7), vec![0; 100])?;
//! let got = here.wait(request, None)?.ok_or("woken")?;
//! assert_eq!(got.status.code, Code::Success);
//! assert_eq!(&got.memory.bytes()[..got.status.taken as usize], b"hello");
//! # other.join().map_err(|_| "panic")??;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

mod address;
mod connect;
mod cooperative_copy;
mod copy_choice;
mod credits;
mod endpoint;
mod engine;
mod error;
mod handshake;
mod ids;
mod in_place;
mod incoming_offers;
mod inject;
mod introductions;
mod latency_samples;
pub mod limits;
mod locality;
mod long_sends;
mod matching;
mod memory;
mod one_sided;
mod peek;
mod peer;
mod peer_failure;
mod pending_connects;
pub mod perf;
mod plane;
mod poll_sleeps;
mod polling;
mod process_fetch;
mod process_join;
mod process_memory;
mod process_messages;
mod program_address;
mod progress;
mod published;
mod raw;
mod reading;
mod receive;
pub mod remote;
mod remote_memory;
mod request;
mod send;
mod simultaneous_connect;
mod status;
mod token;
mod unexpected;
mod unix_group;
mod wait_policy;
mod wire;

pub use address::{Address, Board};
pub use endpoint::{Endpoint, Options};
pub use engine::Copies;
pub use error::{Code, MessageError};
pub use ids::{Peer, Request};
pub use inject::Short;
pub use latency_samples::LatencySamples;
pub use matching::{Contexts, Pattern};
pub use memory::Memory;
pub use raw::Segments;
pub use reading::{InPlace, Reading, Unexpected};
pub use status::{Completion, Status};
pub use window::heap::Buffer;
pub use window::region::{AccessError, Atomic, Heap, HeapAddress, SharedBuffer, Width};
pub use window::waiter::Waker;
