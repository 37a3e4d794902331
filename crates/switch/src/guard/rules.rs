//! The rules of a port, as the supervisor sends them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::mac::Mac;

/// Highest VLAN number (IEEE 802.1Q, 9.6: 4095 is reserved).
pub const MAX_VLAN: u16 = 4094;

/// What a port may send and receive. The default restricts nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rules {
    /// The VLANs of the port. Without them, the switch does not inspect tags.
    pub vlan: Option<VlanRules>,
    /// The source addresses and services that the port may use. Ignored on an uplink.
    pub source: SourceRules,
    /// The port's role in private VLANs.
    pub role: Role,
    /// Rates and flood limits.
    pub limits: LimitRules,
    /// The port is a multicast router port, even if no router sends queries.
    pub multicast_router: bool,
}

/// How much a port may send and receive. The default restricts nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitRules {
    /// The send rate.
    pub send: RateRules,
    /// The receive rate.
    pub receive: RateRules,
    /// The limits of flooded frames.
    pub floods: FloodRules,
}

/// How much a port may send or receive in a second. The default restricts nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RateRules {
    /// Bytes of frames, including the Ethernet header, without tags.
    pub bytes: Option<u64>,
    /// Frames; a GSO frame counts as its segments.
    pub frames: Option<u64>,
    /// The burst: what the rates allow in this many milliseconds may pass at once.
    pub burst_ms: u32,
}

impl Default for RateRules {
    fn default() -> Self {
        Self {
            bytes: None,
            frames: None,
            burst_ms: 100,
        }
    }
}

/// How many flooded frames a port may send in a second, by the reason of flooding. The burst is the number
/// of one second. The default restricts nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FloodRules {
    /// Frames to the broadcast address.
    pub broadcast: Option<u64>,
    /// Frames to a group address, unless snooping delivers them to the group's members only.
    pub multicast: Option<u64>,
    /// Frames to an address that the FDB does not have.
    pub unknown: Option<u64>,
}

/// The source addresses and services that a port may use. The default restricts nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SourceRules {
    /// Allowed source MAC addresses; if empty, any address is allowed.
    pub macs: Vec<Mac>,
    /// Allowed source addresses in ARP, IP and neighbour discovery, in addition to link-local addresses
    /// that are derived from the MAC address. Without it, any address is allowed.
    pub ips: Option<Vec<Prefix>>,
    /// The port may send router advertisements, redirects, and group membership queries.
    pub router: bool,
    /// The port may send answers of a DHCP server.
    pub dhcp_server: bool,
}

impl Default for SourceRules {
    fn default() -> Self {
        Self {
            macs: Vec::new(),
            ips: None,
            router: true,
            dhcp_server: true,
        }
    }
}

/// An IP address, or all addresses with the same first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prefix {
    /// The address.
    pub address: IpAddr,
    /// Length of the prefix in bits: at most 32 or 128.
    pub bits: u8,
}

impl Prefix {
    pub(super) fn v4(&self) -> Option<(Ipv4Addr, u32)> {
        match self.address {
            IpAddr::V4(address) => Some((address, u32::from(self.bits).min(32))),
            IpAddr::V6(_) => None,
        }
    }

    pub(super) fn v6(&self) -> Option<(Ipv6Addr, u32)> {
        match self.address {
            IpAddr::V6(address) => Some((address, u32::from(self.bits).min(128))),
            IpAddr::V4(_) => None,
        }
    }
}

/// The role of a port in private VLANs (RFC 5517): with which ports it may exchange frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// All ports except private ones.
    #[default]
    Open,
    /// Promiscuous ports only.
    Private,
    /// All ports.
    Promiscuous,
}

impl Role {
    /// Returns whether ports of these roles may exchange frames.
    #[must_use]
    pub fn meets(self, other: Self) -> bool {
        let private = self == Self::Private || other == Self::Private;
        !private || self == Self::Promiscuous || other == Self::Promiscuous
    }
}

/// The VLANs of a port, 1 to [`MAX_VLAN`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VlanRules {
    /// The VLAN of frames without a tag: the VLAN of an access port, or the native VLAN of a trunk. Without it,
    /// such frames are dropped.
    pub untagged: Option<u16>,
    /// The VLANs whose frames have tags, as inclusive ranges.
    pub tagged: Vec<(u16, u16)>,
}

impl VlanRules {
    /// Creates the rules of an access port.
    #[must_use]
    pub fn access(vlan: u16) -> Self {
        Self {
            untagged: Some(vlan),
            tagged: Vec::new(),
        }
    }

    /// Returns every VLAN of the port.
    pub fn all(&self) -> impl Iterator<Item = u16> + '_ {
        let tagged = self.tagged.iter().flat_map(|(from, to)| *from..=*to);
        self.untagged.into_iter().chain(tagged)
    }
}
