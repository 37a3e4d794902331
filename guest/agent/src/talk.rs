//! Exchanges addresses between agents: each sends its own periodically, to all peers on the direct device.
//!
//! A UDP datagram to a multicast group of the link:
//! ```text
//! "vicagent", version 1, Ethernet address (6), count, then for each address: 4 or 6, 16 bytes
//! ```
//! An IPv4 address is in the first four of its bytes. A datagram without addresses says that the agent ends.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use crate::error::{AgentError, io};
use crate::plan::Mac;

/// A multicast group of the link that no other program uses.
const GROUP: Ipv6Addr = Ipv6Addr::new(0xff12, 0, 0, 0, 0, 0, 0x7669, 0x6369);

const PORT: u16 = 7669;

const MAGIC: [u8; 9] = *b"vicagent\x01";

/// The most addresses that a peer can have.
const MOST: usize = 64;

/// Bytes of an address.
const ADDRESS: usize = 17;

/// What a peer sends about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announcement {
    pub(crate) mac: Mac,
    pub(crate) addresses: Vec<IpAddr>,
}

/// A socket on the direct device.
#[derive(Debug)]
pub(crate) struct Talk {
    socket: UdpSocket,
    index: u32,
}

impl Talk {
    /// Opens a socket on the device with this index.
    pub(crate) fn open(index: u32) -> Result<Self, AgentError> {
        let what = || "talk to other agents (is IPv6 switched off?)".to_owned();
        let socket = io(UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT)), what)?;
        io(socket.set_nonblocking(true), what)?;
        io(socket.set_multicast_loop_v6(false), what)?;
        io(socket.join_multicast_v6(&GROUP, index), what)?;
        Ok(Self { socket, index })
    }

    /// Sends a message to all peers.
    pub(crate) fn send(&self, message: &Announcement) {
        let group = SocketAddrV6::new(GROUP, PORT, 0, self.index);
        // The device is not ready yet; the agent sends the message again soon.
        drop(self.socket.send_to(&encode(message), group));
    }

    /// Returns the next message of a peer, if there is one.
    pub(crate) fn receive(&self) -> Option<Announcement> {
        let mut bytes = [0; 2048];
        loop {
            let (count, from) = self.socket.recv_from(&mut bytes).ok()?;
            let SocketAddr::V6(from) = from else {
                continue;
            };
            // The same port also receives from the networks of other NICs.
            if from.scope_id() != self.index || !from.ip().is_unicast_link_local() {
                continue;
            }
            let message = bytes.get(..count).and_then(decode);
            if message.is_some() {
                return message;
            }
        }
    }
}

impl AsFd for Talk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn encode(message: &Announcement) -> Vec<u8> {
    let addresses = message.addresses.iter().take(MOST);
    let mut bytes = MAGIC.to_vec();
    bytes.extend(message.mac);
    bytes.extend(u8::try_from(addresses.len()));
    for address in addresses {
        match address {
            IpAddr::V4(address) => {
                bytes.push(4);
                bytes.extend(address.octets());
                bytes.extend([0; 12]);
            }
            IpAddr::V6(address) => {
                bytes.push(6);
                bytes.extend(address.octets());
            }
        }
    }
    bytes
}

fn decode(bytes: &[u8]) -> Option<Announcement> {
    let bytes = bytes.strip_prefix(&MAGIC)?;
    let (mac, bytes) = bytes.split_first_chunk()?;
    let (count, bytes) = bytes.split_first()?;
    let count = usize::from(*count);
    if count > MOST || bytes.len() != count * ADDRESS {
        return None;
    }
    let addresses = bytes.chunks_exact(ADDRESS).map(address);
    Some(Announcement {
        mac: *mac,
        addresses: addresses.collect::<Option<_>>()?,
    })
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let (family, bytes) = bytes.split_first()?;
    match family {
        4 => {
            let octets: &[u8; 4] = bytes.first_chunk()?;
            Some(IpAddr::V4(Ipv4Addr::from(*octets)))
        }
        6 => {
            let octets: &[u8; 16] = bytes.first_chunk()?;
            Some(IpAddr::V6(Ipv6Addr::from(*octets)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message() -> impl Strategy<Value = Announcement> {
        let address = prop_oneof![
            any::<u32>().prop_map(|bits| IpAddr::V4(bits.into())),
            any::<u128>().prop_map(|bits| IpAddr::V6(bits.into())),
        ];
        let addresses = proptest::collection::vec(address, 0..=MOST);
        (any::<Mac>(), addresses).prop_map(|(mac, addresses)| Announcement { mac, addresses })
    }

    proptest! {
        #[test]
        fn what_is_said_is_heard(message in message()) {
            prop_assert_eq!(decode(&encode(&message)), Some(message));
        }

        #[test]
        fn half_of_it_is_nothing(message in message(), cut in 1usize..64) {
            let bytes = encode(&message);
            let cut = bytes.len().saturating_sub(cut);
            prop_assert_eq!(decode(&bytes[..cut]), None);
        }
    }

    /// A message with some bytes changed either does not decode, or encodes again to the same message.
    #[test]
    fn anything_is_answered() {
        use std::cell::Cell;
        let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12);
        let [heard, refused] = [Cell::new(0), Cell::new(0)];
        let mut runner = proptest::test_runner::TestRunner::default();
        let checked = runner.run(&(message(), changes), |(message, changes)| {
            let mut bytes = encode(&message);
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let count = match decode(&bytes) {
                Some(message) => {
                    prop_assert_eq!(decode(&encode(&message)), Some(message));
                    &heard
                }
                None => &refused,
            };
            count.set(count.get() + 1);
            Ok(())
        });
        checked.unwrap();
        let counts = (heard.get(), refused.get());
        assert!(counts.0 > 50 && counts.1 > 20, "{counts:?}");
    }
}
