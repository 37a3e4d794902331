//! MX over Ethernet (MXoE): messages to endpoints on other hosts, in the frames that Myricom's MX
//! speaks.
//!
//! # Theory of operation
//!
//! [`wire`] is the codec: frames to values and back; nothing is kept there. [`Node`] is a host on
//! the network as a state machine without a network or a clock: frames and the time go in, frames
//! ([`Node::transmit`]), events ([`Node::event`]) and the time when it wants to be called again
//! ([`Node::deadline`]) come out. So loss, duplication and reordering are tested without any
//! network. [`Port`] is the network: an AF_PACKET socket, whose frames come in a ring that the kernel
//! fills.
//!
//! A node knows hosts (found by their announcements, or told), each with an index in its table
//! that the host puts into what it sends. Its endpoints have partners: endpoints elsewhere.
//! Partners learn each other's session and where sequence numbers start when one connects. From
//! then on each message has a number and is kept until it is acknowledged, and sent again until
//! then, soon at first ([`retransmit`]) and then every half second; the receiver puts messages in order, and drops what it has. Up to 32
//! KiB a message travels in one or several packets; a larger or synchronous one is offered, and
//! the receiver pulls it, block by block, and says when it has it.
//!
//! Matching is not done here: messages are taken one by one ([`Node::take`]), whole or as an
//! [`Offer`], which is pulled ([`Node::pull`]) and taken piece by piece when somebody wants it.
//!
//! Whoever is slow holds back the one before: what is not taken is not acknowledged, no more
//! blocks are asked for than pieces are taken, and a large message is fed ([`Node::space`]) only as
//! far as it is pulled. So what a node keeps for a partner is limited, and a message that is
//! acknowledged is in the hands of whoever took it. A notification does not wait behind messages:
//! it ends a send that the program may be waiting for before it takes any.
//!
//! Who owns what: the node owns the bytes of messages until they are through. What may fail: every
//! frame may be anything. It is decoded with every length checked, and then counts only if it is
//! from the host whose index it has, for a session and a number that are expected; else it is
//! dropped, or refused by a nack, of which there is a limit. A partner that owes something (an
//! acknowledgement, a pull, a piece) and is silent is asked again and again, and given up after
//! [`Config::patience`]: what was for it ends with [`Code::Unreachable`], and [`Event::Lost`] says
//! so. The question is a connect, which every dialect answers.
#![deny(unsafe_code)]

mod block;
mod connect;
mod connecting;
mod counters;
mod endpoint;
mod event;
mod hosts;
pub mod limits;
mod node;
mod partner;
mod port;
mod pull_sink;
mod pull_source;
mod pulls;
mod raw;
mod receive;
mod region;
mod retransmit;
mod seq;
pub mod wire;

pub use counters::Counters;
pub use event::{Address, Code, Event, Message, Offer, Pull, SendError, Source};
pub use node::{Config, Node};
pub use port::{Port, address};
