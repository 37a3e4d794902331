//! The address of UDP in a connect: 16 bytes of an address of IPv6, or of IPv4 as RFC 4291 maps it (section 2.5.5.2), the port, and two unused bytes.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

pub(super) const BYTES: usize = 20;

/// Returns an address to which datagrams can be sent.
pub(super) fn decode(bytes: &[u8]) -> Option<SocketAddr> {
    let (ip, rest) = bytes.split_first_chunk::<16>()?;
    let port = u16::from_be_bytes(*rest.first_chunk()?);
    let ip = Ipv6Addr::from(*ip).to_canonical();
    (!ip.is_unspecified() && !ip.is_multicast() && port != 0).then(|| SocketAddr::new(ip, port))
}

pub(super) fn encode(address: SocketAddr) -> [u8; BYTES] {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; BYTES];
    let both = ip.octets().into_iter().chain(address.port().to_be_bytes());
    bytes.iter_mut().zip(both).for_each(|(to, byte)| *to = byte);
    bytes
}
