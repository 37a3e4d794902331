//! The link plane: a layer-2 switch between virtual machines' rings. Knows nothing of how it is
//! configured or asked: orders come in, events go out ([`control`]).
//!
//! # Theory of operation
//!
//! One or more workers, threads, serve a network ([`workers`], [`mod@worker`]). Each VM's NIC is a
//! [`port`] with a vhost-user device behind it; an [`uplink`] is a port with a tap, or another interface of the host, behind it. A frame is looked at in the sender's
//! ring, its destination looked up in the [`fdb`] table, and its bytes copied once, from the
//! sender's RAM into buffers the receiver has posted ([`receiver`]). [`switch`] has the whole path.
//!
//! Between neighbours nothing is lost: a frame whose receiver has no room waits in the sender's
//! ring, or in private memory if others are behind it ([`backpressure`]), within limits that keep one slow
//! VM from stopping the others. Floods, and frames from an uplink, are dropped where there is no
//! room, and counted. A ring's chains are handed back in the order they came, always: that is what
//! lets another process go on where one was killed.
//!
//! What a port may send and receive is up to its rules, if it has any ([`guard`]). What it does send and
//! receive can be shown to somebody who watches ([`capture`]), and copied to another port (`mirror`).
//!
//! Frames the sender left unfinished (partial checksum, to be cut) go untouched to a receiver that
//! negotiated such; for another one they are finished in software ([`translate`], [`offload`]).
//!
//! A port has up to sixteen queue pairs. A frame that came by a sender's pair goes to the receive
//! ring of the same number, wrapped round to those that run ([`port::Guest::receiving_pair`]): so a
//! flow that keeps to its queue keeps its order.
//!
//! Who owns what: the workers share the network (`shared`), and each has a [`context`] of its own.
//! Every transmit ring is read by one worker only ([`steering`]), so what a sender sends in order
//! stays in order. A receive ring takes frames from any of them, in turn, behind its own lock; so
//! does every other thing that several need ([`switch`] has the list).
//!
//! Ports come and go, rings start and stop, memory is mapped and unmapped with the network locked
//! for writing, by the first worker (`manager`; `model` has loom check it). The others hold it for reading while they forward,
//! a round at a time, and not while they sleep. So memory that vanishes while somebody looks at it
//! cannot be written down: whoever can unmap it has the only reference to the network.
//!
//! What may fail: a VM, at any point, in any way. Its port is ended and reported with the
//! reason; the others never notice. Nothing is allocated for a frame, unless it is set aside; every
//! table has a limit ([`limits`]).
#![deny(unsafe_code)]

mod attach;
pub mod backpressure;
mod batch_entry;
pub mod capture;
mod capture_budget;
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
pub mod offload;
mod orders;
mod outbox;
mod packet;
mod peers;
pub mod port;
mod rarp;
mod raw;
pub mod receiver;
mod resolve;
pub mod ring_state;
mod sender;
mod serve_uplink;
mod shared;
mod show;
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

/// Serve one network with so many workers until told to stop. Blocks; meant for a thread or process
/// of its own.
///
/// # Errors
/// The data plane cannot start, or the kernel refuses to wait for events. A VM's doing is never
/// an error here.
pub fn run(control: control::ControlSocket, workers: usize) -> std::io::Result<()> {
    workers::Workers::new(control, workers)?.run(|| {})
}
