//! MX over Ethernet (MXoE): messages to endpoints on other hosts, in the frames that Myricom's MX
//! speaks.
//!
//! # Theory of operation
//!
//! [`wire`] is the codec: frames to values and back; nothing is kept there. [`Node`] is a host on
//! the network as a state machine without a network or a clock: frames and the time go in, frames
//! ([`Node::transmit`]), events ([`Node::event`]) and the time when it wants to be called again
//! ([`Node::deadline`]) come out. So loss, duplication and reordering are tested without any
//! network. [`Port`] is the network: an AF_PACKET socket.
//!
//! A node knows hosts (found by their announcements, or told), each with an index in its table
//! that the host puts into what it sends. Its endpoints have partners: endpoints elsewhere.
//! Partners learn each other's session and where sequence numbers start when one connects. From
//! then on each message has a number and is kept until it is acknowledged, and sent again every
//! half second until then; the receiver puts messages in order, and drops what it has. Up to 32
//! KiB a message travels in one or several packets; a larger or synchronous one is offered, and
//! the receiver pulls it, block by block, and says when it has it.
//!
//! Matching is not done here: a message comes out as [`Event::Message`], or as [`Event::Offer`],
//! to be pulled when somebody wants it.
//!
//! Who owns what: the node owns the bytes of messages until they are through. What may fail: every
//! frame may be anything. It is decoded with every length checked, and then counts only if it is
//! from the host whose index it has, for a session and a number that are expected; else it is
//! dropped, or refused by a nack, of which there is a limit. A peer that does not answer for long is
//! given up: what was for it ends with [`Code::Unreachable`].
#![deny(unsafe_code)]

mod block;
mod connect;
mod endpoint;
mod event;
mod hear;
mod hosts;
pub mod limits;
mod node;
mod partner;
mod port;
mod pull;
mod raw;
mod seq;
mod source;
pub mod wire;

pub use event::{Address, Code, Event, Offer, SendError};
pub use node::{Config, Node};
pub use port::Port;
