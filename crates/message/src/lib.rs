//! The message plane's engine: messages between endpoints, matched by the receiver, as Myrinet
//! Express (MX) has them. Knows nothing of any C interface.
//!
//! # Theory of operation
//!
//! A [`Board`] is a folder with a NIC id; an [`Endpoint`] is an address on it, with a socket in
//! that folder. Endpoints connect ([`connect`](Endpoint::connect)) over these sockets and share a
//! window (`crates/window`) for each pair of them from then on: two lanes in each direction, one
//! for messages, one for control.
//!
//! A message is sent in one of three ways, by its length:
//!
//! - *eager*, up to 48 bytes: in the slot of the ring. The receiver polls the line that the message
//!   is in, so it costs the transfer of one cache line.
//! - *medium*, up to 32 KiB: in the data area of the lane, one copy in and one copy out. The send
//!   ends when it is copied in.
//! - *rendezvous*, above: offered in a slot. If the memory is on the sender's heap, the receiver
//!   copies it from there, once; otherwise it is streamed in chunks through the data area of the
//!   lane of control, both sides copying at the same time. Memory that is allocated for a peer
//!   ([`Endpoint::allocate_for`]) is on a heap in a region which both map ([`window::region::Heap`]): that of the
//!   link, or of the trust group that the VMs of both are in. All who map it can write there: it is copied in and
//!   out, never referred to, and who has copied looks whether the memory was still the message's. If the receiver's
//!   memory is such, too, both copy, a piece at a time.
//!
//! The receiver matches messages of one peer in the order they were sent, whichever way. What
//! nobody waits for is copied out and kept, up to a limit for each peer; a peer that goes on
//! sending is not listened to until some of it is received, and the others do not notice. Control
//! does not wait behind messages, so nothing that was begun is held up by that.
//!
//! Everything is done by the thread that calls; there is no other. A call that waits looks for
//! some microseconds, then tells its peers and sleeps.
//!
//! Who owns what: an endpoint owns its links, and each request the memory that was lent to it
//! until its result is taken. What may fail: a peer, in every way. When its process ends, however,
//! its socket ends, and every request that waits for it ends with [`Code::Closed`]; what it had
//! sent completely is still received. When it writes nonsense, it is cut off and they end with
//! [`Code::Unreachable`]. Other peers are not touched.
//!
//! # Example
//!
//! `examples/large.rs` is another, for large messages.
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
mod endpoint;
mod engine;
mod error;
mod handshake;
mod ids;
mod latency_samples;
pub mod limits;
mod matching;
mod memory;
mod peek;
mod peer;
mod peer_failure;
mod pending_connects;
pub mod perf;
mod progress;
mod raw;
mod receive;
pub mod remote;
mod remote_memory;
mod request;
mod send;
mod simultaneous_connect;
mod status;
mod token;
mod unexpected;
mod wire;

pub use address::{Address, Board};
pub use endpoint::{Endpoint, Options};
pub use engine::Copies;
pub use error::{Code, MessageError};
pub use ids::{Peer, Request};
pub use latency_samples::LatencySamples;
pub use matching::{Contexts, Pattern};
pub use memory::Memory;
pub use raw::Segments;
pub use status::{Completion, Status};
pub use unexpected::Unexpected;
pub use window::heap::Buffer;
pub use window::region::Stretch;
pub use window::waiter::Waker;
