//! The sockets plane: a back-end of QEMU's `vhost-user-vsock-pci` device that connects the AF_VSOCK sockets of
//! VMs with each other and with programs of the host.
//!
//! # Theory of operation
//!
//! ```text
//!   guest A                       plane::Plane, one thread                        guest B
//!  ┌──────────────┐   ┌─────────────────────────────────────────────────┐   ┌──────────────┐
//!  │ transmit ring├──▶│ transmit: packet, connection, policy            │   │              │
//!  │              │   │      │ forward                                  │   │              │
//!  │ RAM      ────┼───┼──────┴─ receive::deliver: one copy ─────────────┼──▶│ receive ring │
//!  │              │   │ no buffers? the packet stays in A's ring,       │   └──────────────┘
//!  └──────────────┘   │ or deferred                                     │
//!                     │      │ CID 2                                    │    host programs
//!                     │      └▶ host: streams with credit ──────────────┼──▶ Unix sockets
//!                     │ front_end: QEMU's messages, settings            │
//!                     └──────────────┬──────────────────────────────────┘
//!                          event::Event, to the supervisor
//! ```
//!
//! A virtio socket device (virtio 1.3, 5.10) carries packets: a [`header`] of 44 bytes, and payload. The device
//! reads a guest's packets from its transmit ring, checks each header once in private memory ([`packet`]), and
//! decides about it by the table of connections ([`connection`]) and the rules of who may begin one ([`policy`]).
//! Payload goes from the sender's memory into as many of the receiver's buffers as it takes, each with a header of
//! its own.
//!
//! **Credit** between guests is theirs: the device passes their counts on. So a sender that keeps to the rules stops by
//! itself, and a receiver that lies about its credit hurts its own connections. Between a guest and a host program
//! the device is an end itself ([`credit`]).
//!
//! **Backpressure.** A packet whose receiver has no buffers stays at the head of the sender's ring. It is copied out
//! (`deferred`) only if packets for other receivers are behind it, or if the receiver waits itself, which could
//! be a circle. When the room for such packets is used up for a second, the sender's connections to this receiver
//! are reset.
//!
//! **Ends.** A guest that is gone or reset leaves no connection: its peers get resets. When the process is killed,
//! the supervisor has the front-ends' sockets and settings ([`event`]) and the list of connections
//! ([`connection_list`]), and the next process sends the resets.
//!
//! **Failures.** A guest that breaks a rule of rings or vhost-user loses its device; one that sends an invalid packet
//! gets a reset. Nothing here waits for a guest, a program or the supervisor, and every queue has a limit
//! ([`limits`]).
//!
//! # Example
//!
//! The reset that answers a packet of a connection that does not exist:
//!
//! ```
//! use std::time::Instant;
//!
//! use vsock::connection::{Connections, Refusal, Verdict};
//! use vsock::header::{Header, Operation};
//! use vsock::packet::Packet;
//!
//! let header = Header {
//!     src_cid: 3,
//!     dst_cid: 4,
//!     src_port: 1024,
//!     dst_port: 22,
//!     kind: 1,
//!     op: Operation::CreditUpdate as u16,
//!     ..Header::default()
//! };
//! let packet = Packet::check(&header, 3, 0, true)?;
//! let verdict = Connections::default().judge(&packet, Instant::now(), |_, _| true);
//! assert_eq!(verdict, Verdict::Refuse(Refusal::NoConnection));
//! assert_eq!(packet.reset().header().dst_port, 1024);
//! # Ok::<(), vsock::packet::Invalid>(())
//! ```
#![deny(unsafe_code)]

mod backpressure;
pub mod connection;
pub mod connection_list;
pub mod credit;
mod deferred;
pub mod event;
mod event_key;
pub mod figures;
mod front_end;
pub mod guest;
pub mod header;
mod host;
pub mod limits;
pub mod packet;
pub mod plane;
pub mod policy;
mod receive;
mod report;
mod stream;
mod streams;
mod transmit;
mod wait;
