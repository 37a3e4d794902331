//! The address of UDP in a connect: 16 bytes of an address of IPv6, or of IPv4 as RFC 4291 maps it (section 2.5.5.2), the port, a byte that
//! tells whose address it is, and an unused byte. Nodes of earlier releases send 0 there, and do not look at it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::packet::Connect;

pub(super) const BYTES: usize = 20;

/// The value of the byte behind the port, for an address of the node and for one of the program.
const OF_NODE: u8 = 0;
const OF_PROGRAM: u8 = 1;

/// Returns the addresses that a connect may have, of which there is at most one: that of the node, and that of the program.
pub(super) fn decode(bytes: &[u8]) -> (Option<SocketAddr>, Option<SocketAddr>) {
    match bytes.get(18) {
        Some(&OF_NODE) => (address(bytes), None),
        Some(&OF_PROGRAM) => (None, address(bytes)),
        _ => (None, None),
    }
}

/// Returns an address to which datagrams can be sent.
fn address(bytes: &[u8]) -> Option<SocketAddr> {
    let (ip, rest) = bytes.split_first_chunk::<16>()?;
    let port = u16::from_be_bytes(*rest.first_chunk()?);
    let ip = Ipv6Addr::from(*ip).to_canonical();
    (!ip.is_unspecified() && !ip.is_multicast() && port != 0).then(|| SocketAddr::new(ip, port))
}

/// Returns the bytes of the address that a connect has, if it has one.
pub(super) fn encode(connect: &Connect) -> Option<[u8; BYTES]> {
    let of_program = connect.program.map(|address| (address, OF_PROGRAM));
    let of_node = connect.udp.map(|address| (address, OF_NODE));
    let (address, whose) = of_program.or(of_node)?;
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; BYTES];
    let port = address.port().to_be_bytes();
    let all = ip.octets().into_iter().chain(port).chain([whose]);
    bytes.iter_mut().zip(all).for_each(|(to, byte)| *to = byte);
    Some(bytes)
}
