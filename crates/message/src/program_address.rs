//! The address at which a program takes datagrams, as daemons tell it to programs of other hosts.
//!
//! It is an address of IPv4, or a link-local one of IPv6: those that the program can reach without a gateway of IP. It comes from other hosts
//! and VMs, so it may be any of these.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The address of a program, which is not one of this host's loopback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProgramAddress(SocketAddr);

/// The address in numbers: its kind and its port, and its bits that the kind does not determine.
pub(crate) type Numbers = (u16, u16, u64);

const IPV4: u16 = 1;
const IPV6_LINK_LOCAL: u16 = 2;

impl ProgramAddress {
    /// Returns `None` for an address to which programs of other hosts send nothing.
    pub(crate) fn new(address: SocketAddr) -> Option<Self> {
        let usable = match address.ip() {
            IpAddr::V4(ip) => {
                !(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || ip.is_broadcast())
            }
            // The prefix of RFC 4291, section 2.5.6.
            IpAddr::V6(ip) => ip.octets().starts_with(&[0xfe, 0x80, 0, 0, 0, 0, 0, 0]),
        };
        // Without the link, which only this host knows by its number.
        let address = SocketAddr::new(address.ip(), address.port());
        (usable && address.port() != 0).then_some(Self(address))
    }

    pub(crate) fn socket_address(self) -> SocketAddr {
        self.0
    }

    /// Returns whether a program at this address can send datagrams to the other one.
    pub(crate) fn reaches(self, other: Self) -> bool {
        self.0.is_ipv4() == other.0.is_ipv4()
    }

    pub(crate) fn numbers(self) -> Numbers {
        let port = self.0.port();
        match self.0.ip() {
            IpAddr::V4(ip) => (IPV4, port, ip.to_bits().into()),
            IpAddr::V6(ip) => {
                let [.., a, b, c, d, e, f, g, h] = ip.octets();
                let interface = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
                (IPV6_LINK_LOCAL, port, interface)
            }
        }
    }

    /// Returns `None` for numbers that are no such address.
    pub(crate) fn from_numbers((kind, port, bits): Numbers) -> Option<Self> {
        let ip = match kind {
            IPV4 => Ipv4Addr::from_bits(u32::try_from(bits).ok()?).into(),
            IPV6_LINK_LOCAL => Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(bits)).into(),
            _ => return None,
        };
        Self::new(SocketAddr::new(ip, port))
    }

    /// Encodes an address, or nothing, in the bytes of handshake data.
    pub(crate) fn encode(address: Option<Self>) -> impl Iterator<Item = u8> {
        address.into_iter().flat_map(|address| {
            let (kind, port, bits) = address.numbers();
            let words = [kind, port].map(u16::to_le_bytes);
            words.into_iter().flatten().chain(bits.to_le_bytes())
        })
    }

    /// Decodes an address at the beginning of handshake data, and returns the rest.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (kind, bytes) = bytes.split_first_chunk()?;
        let (port, bytes) = bytes.split_first_chunk()?;
        let (address, rest) = bytes.split_first_chunk()?;
        let numbers = (
            u16::from_le_bytes(*kind),
            u16::from_le_bytes(*port),
            u64::from_le_bytes(*address),
        );
        Some((Self::from_numbers(numbers)?, rest))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Any address that programs may have.
    pub(crate) fn program_address() -> impl Strategy<Value = ProgramAddress> {
        let v4 = any::<[u8; 4]>().prop_map(IpAddr::from);
        let v6 = any::<u64>()
            .prop_map(|bits| Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(bits)).into());
        (prop_oneof![v4, v6], any::<u16>()).prop_filter_map("usable", |(ip, port)| {
            ProgramAddress::new(SocketAddr::new(ip, port))
        })
    }

    proptest! {
        #[test]
        fn an_address_is_decoded_as_it_was_encoded(address in program_address(), rest in 0..=u8::MAX) {
            let mut bytes: Vec<u8> = ProgramAddress::encode(Some(address)).collect();
            bytes.push(rest);
            prop_assert_eq!(ProgramAddress::decode(&bytes), Some((address, &[rest][..])));
            prop_assert_eq!(ProgramAddress::from_numbers(address.numbers()), Some(address));
        }
    }

    #[test]
    fn an_address_that_no_other_host_can_have_is_refused() {
        let refused = [
            "0.0.0.0:1",
            "127.0.0.1:1",
            "224.0.0.1:1",
            "255.255.255.255:1",
            "10.0.0.1:0",
            "[::1]:1",
            "[fd00::1]:1",
            "[ff02::1]:1",
            "[fe80:0:0:1::1]:1",
            "[fe80::1]:0",
        ];
        for address in refused {
            assert_eq!(
                ProgramAddress::new(address.parse().unwrap()),
                None,
                "{address}"
            );
        }
        for (kind, bits) in [(0, 1), (3, 1), (IPV4, 1 << 32), (IPV4, 0x7f00_0001)] {
            assert_eq!(ProgramAddress::from_numbers((kind, 1, bits)), None);
        }
        assert!(ProgramAddress::new("10.0.0.1:1".parse().unwrap()).is_some());
        assert!(ProgramAddress::new("[fe80::1]:1".parse().unwrap()).is_some());
    }
}
