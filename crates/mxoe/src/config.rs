//! The configuration of a node.

use std::net::SocketAddr;
use std::time::Duration;

use crate::limits::PEER_TIMEOUT;
use crate::wire::Mac;

/// The configuration of a node.
#[derive(Clone, Debug)]
pub struct Config {
    /// The node's MAC address, which is the source of every frame that it sends.
    pub mac: Mac,
    /// The name in replies to queries of other hosts.
    pub name: String,
    /// A number that differs each time the node starts.
    pub serial: u32,
    /// How long a peer may be silent before the node gives it up.
    pub peer_timeout: Duration,
    /// Other nodes, in other processes, have the same address. Each receives all frames of discovery and those
    /// for its own endpoints. Only the node that is [announced](crate::Node::announce) answers for the host, and receives the frames for
    /// endpoints that no node has.
    pub shared: bool,
    /// Where other nodes can send replies to this node's pulls in datagrams of UDP, and where those that this node sends come from
    /// ([`Datagrams::address`](crate::Datagrams::address)).
    pub udp: Option<SocketAddr>,
    /// All frames travel in datagrams, also those of connects and short messages, for a program that may not use the interface. `udp` is its
    /// address. There is no network of frames then: the node announces nothing, and knows those partners that
    /// [`Node::add_partner`](crate::Node::add_partner) tells it.
    pub only_datagrams: bool,
    /// Bytes of the receive buffer of the socket ([`Datagrams::receive_buffer`](crate::Datagrams::receive_buffer)), if all frames travel in
    /// datagrams and the blocks of pulls in flight shall fit into it.
    pub receive_buffer: Option<usize>,
}

impl Config {
    /// A configuration with the dialect's timeout of 500 s.
    #[must_use]
    pub fn new(mac: Mac, name: &str, serial: u32) -> Self {
        Self {
            mac,
            name: name.to_owned(),
            serial,
            peer_timeout: PEER_TIMEOUT,
            shared: false,
            udp: None,
            only_datagrams: false,
            receive_buffer: None,
        }
    }
}
