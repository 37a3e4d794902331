//! MX over Ethernet (MXoE): messages to endpoints on other hosts, in the frames of Myricom's MX.
//!
//! # Theory of operation
//!
//! ```text
//!   program: open, connect, send, take, pull            events (Event)
//!                      │                                      ▲
//!                      ▼                                      │
//!  ┌─ Node ───────────────────────────────────────────────────┴───────┐
//!  │ table of hosts (hosts)          by index: MAC address, name      │
//!  │ endpoints (endpoint)            by number: key, session          │
//!  │   partners (partner)            sequence numbers, both queues    │
//!  │   regions (region, pull_source) large messages that it offers    │
//!  │   pulls (pulls, pull_sink)      large messages that it fetches   │
//!  └───▲──────────────────────────────────────────────┬───────────────┘
//!      │ receive (wire: decode)                       │ transmit (wire: encode)
//!  ┌─ Port ───────────────────────────────────────────▼───────────────┐
//!  │ AF_PACKET socket: receive ring, sendmmsg(2)                      │
//!  ├─ Datagrams ──────────────────────────────────────────────────────┤
//!  │ UDP socket: UDP_GRO, UDP_SEGMENT                                 │
//!  └──────────────────────────────────────────────────────────────────┘
//! ```
//!
//! [`wire`] is the codec, which keeps no state. [`Node`] is one host as a state machine without a
//! network and without a clock: its input is frames and the time; its output is frames
//! ([`Node::transmit`]), events ([`Node::event`]) and the time of the next call
//! ([`Node::deadline`]). So tests of loss, duplication and reordering need no network. [`Port`] is
//! the network: an AF_PACKET socket with a receive ring that the kernel fills.
//!
//! A node finds other hosts by their announcements, or the program names them. Each host has an
//! index in the node's table and puts that index into its frames. An endpoint has partners, which
//! are remote endpoints. When one endpoint connects to another, both learn each other's session and
//! first sequence number. From then on each message has a number. The sender keeps a message until
//! the receiver acknowledges it, and retransmits it meanwhile: soon at first ([`retransmit`]), later
//! every half second. The receiver orders messages and drops duplicates. A message of up to 32 KiB
//! travels in one packet or several fragments. A larger or synchronous message is offered
//! (rendezvous): the receiver pulls it block by block, and notifies the sender at the end.
//!
//! The replies to pulls are most of the bytes. Between two nodes that take [`Datagrams`] of UDP ([`Config::udp`]), they travel so, because the
//! kernel carries many of them at a time. A node tells its address in its connects, and sends no data to a partner's address before the partner has
//! answered a probe that was sent there. Everything else travels in frames.
//!
//! A program that may not use the interface can have a node whose frames all travel in datagrams ([`Config::only_datagrams`]). It knows partners only by
//! [`Node::add_partner`]: the nodes that carry frames for such programs introduce them to each other ([`Node::introduce`]), and the program takes
//! nothing from any other address than the one that it was told for the sending endpoint.
//!
//! Several processes can each have a node and a port with one address ([`Config::shared`]), and each has endpoints of its own: a
//! filter in each port ([`Port::filter`]) lets frames of discovery and those for its endpoints pass. One of these nodes answers for
//! the host.
//!
//! This crate does not match messages to receives. The program takes them one by one
//! ([`Node::next_message`]), either whole or as an [`Offer`], which it pulls ([`Node::pull`]) and takes
//! piece by piece.
//!
//! **Flow control.** Each stage holds back the one before it. A message that the program has not
//! taken is not acknowledged; a pull requests further blocks only as the program takes pieces; and
//! a large message is read from its program ([`Node::send_buffer`]) only as far as the receiver pulls it.
//! So the memory for each partner is limited, and an acknowledged message has reached the receiving
//! program. Notifications do not wait behind messages, because the program may wait for the end of
//! a send before it takes any message.
//!
//! **Ownership.** The node owns the bytes of a message until its send or pull ends.
//!
//! **Failures.** A frame may contain anything. The decoder checks every length. The node then
//! accepts the frame only from the host whose index it carries, for the current session and an
//! expected number. Other frames are dropped, or refused by a limited number of nacks. If a partner
//! is silent while an acknowledgement, a pull or a reply is outstanding, the node probes it, and
//! gives it up after [`Config::peer_timeout`]: its sends and pulls end with [`Code::Unreachable`], and
//! the connection with [`Event::Disconnected`]. The probe is a connect, because every dialect of MXoE
//! answers those.
//!
//! # Example
//!
//! Two nodes, with a loop in place of the network:
//!
//! ```
//! use mxoe::wire::Mac;
//! use mxoe::{Address, Config, Message, Node, SendError};
//! use std::time::Duration;
//!
//! const NOW: Duration = Duration::ZERO;
//!
//! fn pass_frames(a: &mut Node, b: &mut Node) {
//!     for _ in 0..10 {
//!         while let Some(frame) = a.transmit() {
//!             b.receive(NOW, &frame);
//!         }
//!         while let Some(frame) = b.transmit() {
//!             a.receive(NOW, &frame);
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), SendError> {
//! let (host_a, host_b) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
//! let mut a = Node::new(Config::new(host_a, "a", 1));
//! let mut b = Node::new(Config::new(host_b, "b", 1));
//! let (endpoint, key) = (3, 77);
//! assert!(a.open(NOW, endpoint, key, 1001) && b.open(NOW, endpoint, key, 1002));
//!
//! let to = Address { host: host_b, endpoint };
//! a.connect(NOW, endpoint, to, key, 0)?;
//! pass_frames(&mut a, &mut b);
//!
//! a.send(NOW, endpoint, to, (5, b"hello".to_vec()), false, 0)?;
//! pass_frames(&mut a, &mut b);
//! let from = Address { host: host_a, endpoint };
//! let data = b"hello".to_vec();
//! assert_eq!(b.next_message(NOW, endpoint, from), Some(Message::Whole { value: 5, data }));
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

mod block;
mod buffers;
mod config;
mod confirmation;
mod connect;
mod connected_socket;
mod connected_sockets;
mod connecting;
mod context;
mod counters;
mod datagram_socket;
mod datagrams;
mod endpoint;
mod endpoints;
mod event;
mod filter;
mod hosts;
pub mod limits;
mod node;
mod node_connects;
mod node_datagrams;
mod outgoing_datagram;
mod output;
mod partner;
mod port;
mod programs;
mod pull_shares;
mod pull_sink;
mod pull_source;
mod pulls;
mod raw;
mod receive;
mod refused_datagrams;
mod region;
mod retransmit;
mod seq;
pub mod wire;

pub use config::Config;
pub use counters::Counters;
pub use datagrams::Datagrams;
pub use endpoints::Endpoints;
pub use event::{Address, Code, Event, Message, Offer, Pull, SendError, StreamedSend};
pub use filter::Filter;
pub use node::Node;
pub use port::{Port, address};
