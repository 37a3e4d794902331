//! A layer-2 switch between the virtual machines of a host. The crate does not know how the switch is
//! configured: it receives orders from a supervisor and reports events ([`control`]).
//!
//! # Theory of operation
//!
//! ```text
//!  supervisor                  front-ends (QEMU)
//!      | orders, events            | vhost-user messages
//!      v                           v
//!  control --> manager (first worker; network locked for writing)
//!                 | attaches, detaches, applies rules
//!                 v
//!  +- switch::Switch: one network ------------------------------------------------------------+
//!  | port::Port: a VM's NIC (vhost back-end) or an uplink (tap, packet socket, AF_XDP)        |
//!  | fdb: (VLAN, MAC) -> port      guard: rules      capture, mirror: copies of frames        |
//!  +------------------------------------------------------------------------------------------+
//!                 ^ network locked for reading, one round at a time
//!  worker 0 .. n: transmit ring -> frame -> guard -> fdb -> guard -> receiver (one copy) -> receive ring
//!                     |                                       |
//!                     '-- backpressure, deferred <-- no room -'
//! ```
//!
//! One or more workers (threads) serve a network ([`workers`], [`mod@worker`]). Each VM's NIC is a [`port`]
//! with a vhost-user device. An [`uplink`] is a port with a tap or another interface of the host. A worker
//! reads frames in the sender's transmit ring, looks their destination up in the [`fdb`], and copies each
//! frame once, from the sender's memory into buffers that the receiver has posted ([`receiver`]).
//! [`switch`] describes the whole path.
//!
//! The switch is lossless between VMs. A frame whose receiver has no room waits in the sender's ring, or in
//! private memory if it blocks other frames ([`backpressure`]). Limits keep one slow VM from stopping the
//! others. Flooded frames and frames from an uplink are dropped and counted when there is no room. The
//! switch always returns the chains of a ring in order, so another process can resume the ring after this
//! one was killed.
//!
//! Rules restrict what a port may send and receive ([`guard`]). Frames of a port can be copied to captures
//! ([`capture`]) and to mirror ports (`mirror`).
//!
//! A frame with offloads (a partial checksum, or GSO) is delivered unchanged to a receiver that has
//! negotiated them. For other receivers, the switch executes the offloads in software ([`translate`],
//! [`offload`]).
//!
//! A port has up to sixteen queue pairs. A frame of a sender's pair goes to the receive ring with the same
//! number, modulo the number of running receive rings ([`port::Guest::receiving_pair`]). So a flow that
//! keeps to its queue keeps its order.
//!
//! **Ownership.** The workers share the network (`shared`), and each has its own [`context`]. Only one
//! worker reads each transmit ring ([`steering`]), so frames of one sender stay in order. Any worker may
//! fill a receive ring, under the ring's lock. Other shared data has locks too ([`switch`] has the list).
//!
//! The first worker attaches and detaches ports, starts and stops rings, and maps and unmaps memory, with
//! the network locked for writing (`manager`; `model` checks this with loom). The other workers lock it for
//! reading while they forward, one round at a time, and not while they sleep. The borrow checker therefore
//! excludes use after unmapping: code that can unmap memory has the only reference to the network.
//!
//! **Failures.** A VM can fail at any point and in any way. The switch ends its port and reports the
//! reason; other ports are unaffected. Forwarding a frame allocates no memory, unless the frame is
//! deferred, and every table has a limit ([`limits`]).
//!
//! # Example
//!
//! A data plane with two workers on a thread, and the supervisor's side that attaches a VM's NIC, pins its
//! MAC address, and then stops the data plane:
//!
//! ```
//! use std::os::fd::AsFd;
//! use std::os::unix::net::UnixStream;
//!
//! use switch::control::{ControlSocket, Event, Order, PortId, Reason};
//! use switch::mac::Mac;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (supervisor, control) = ControlSocket::pair()?;
//! let data_plane = std::thread::spawn(|| switch::run(control, 2));
//!
//! // QEMU would have the other end of this vhost-user socket.
//! let (_front_end, socket) = UnixStream::pair()?;
//! let port = PortId(1);
//! let name = "vm1".to_owned();
//! supervisor.send(&Order::Attach { port, name }, Some(socket.as_fd()))?;
//! let mac: Mac = "52:54:00:12:34:56".parse()?;
//! supervisor.send(&Order::SetFdbEntry { mac, vlan: 0, port }, None)?;
//!
//! supervisor.send(&Order::Stop, None)?;
//! data_plane.join().expect("no panic")?;
//! let Some((Event::Detached { reason, .. }, _)) = supervisor.receive()? else {
//!     panic!("another event");
//! };
//! assert_eq!(reason, Reason::Ordered);
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

mod attach;
pub mod backpressure;
mod batch_entry;
pub mod capture;
mod capture_budget;
mod clock;
mod contention;
pub mod context;
pub mod control;
mod deferred;
mod deliver;
mod deliver_deferred;
mod duplicates;
mod event_key;
pub mod fdb;
pub mod frame;
mod front_end;
pub mod guard;
pub mod histogram;
pub mod limits;
pub mod mac;
mod manager;
mod migrated;
mod mirror;
#[cfg(all(loom, test))]
mod model;
mod moderation;
mod multicast;
mod observe;
pub mod offload;
mod orders;
mod outbox;
mod packet;
mod peers;
pub mod port;
mod rarp;
mod raw;
pub mod receiver;
mod remote_peer_report;
mod remote_peers;
mod resolve;
pub mod ring_state;
mod sender;
mod serve_uplink;
mod shared;
mod sleep;
mod spin;
pub mod steering;
pub mod switch;
mod sync;
pub mod translate;
mod transmit;
pub mod uplink;
mod worker;
pub mod workers;
mod xdp;

/// Serves one network with `workers` workers until the supervisor sends [`control::Order::Stop`]. Blocks,
/// so it needs a thread or process of its own.
///
/// # Errors
/// The data plane cannot start, or the kernel refuses to wait for events. A VM can never cause an error here.
pub fn run(control: control::ControlSocket, workers: usize) -> std::io::Result<()> {
    workers::Workers::new(control, workers)?.run(|| {})
}
