//! The rules of a port, as the supervisor gives them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::mac::Mac;

/// Highest VLAN number (IEEE 802.1Q, 9.6: 4095 is reserved).
pub const MAX_VLAN: u16 = 4094;

/// What a port may send and receive. The default asks for nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rules {
    /// The VLANs it is in; without it, tags are no concern of the switch.
    pub vlan: Option<VlanRules>,
    /// Whom it may speak as. Not looked at on an uplink.
    pub source: SourceRules,
    /// Whom it may talk to.
    pub role: Role,
    /// How much it may send and receive.
    pub limits: LimitRules,
    /// A multicast router is behind it, even if none is heard.
    pub multicast_router: bool,
}

/// How much a port may send and receive. The default asks for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitRules {
    /// What it sends.
    pub send: RateRules,
    /// What it receives.
    pub receive: RateRules,
    /// What of it goes to everybody.
    pub floods: FloodRules,
}

/// How much a port may send or receive in a second. The default asks for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RateRules {
    /// Bytes of frames, from the Ethernet header on, without tags.
    pub bytes: Option<u64>,
    /// Frames; one to be cut counts as what it is cut into.
    pub frames: Option<u64>,
    /// What the rates allow in so many milliseconds may pass at once.
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

/// How many frames a second a port may have delivered to everybody, by what makes them so. As many
/// may come at once. The default asks for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FloodRules {
    /// To the broadcast address.
    pub broadcast: Option<u64>,
    /// To a group address, unless it is delivered to the group's members alone.
    pub multicast: Option<u64>,
    /// To an address that nobody has been heard with.
    pub unknown: Option<u64>,
}

/// Whom a port may speak as. The default is anybody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SourceRules {
    /// Source addresses of its frames; any if there are none.
    pub macs: Vec<Mac>,
    /// Addresses it may speak as in ARP, IP and neighbour discovery, beside the link-local ones
    /// made from its MAC address. Without it, any.
    pub ips: Option<Vec<Prefix>>,
    /// It may send router advertisements, redirects, and questions about multicast groups.
    pub router: bool,
    /// It may answer as a DHCP server.
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

/// An IP address, or all with the same first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prefix {
    /// The address.
    pub address: IpAddr,
    /// How many bits count: at most 32 or 128.
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

/// Whom a port may talk to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// All but private ports.
    #[default]
    Open,
    /// Promiscuous ports alone.
    Private,
    /// All.
    Promiscuous,
}

impl Role {
    /// Whether frames may go between ports of these roles.
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
    /// The VLAN of frames without a tag: of all frames of an access port, the native one of a
    /// trunk. Without it, such frames are lost.
    pub untagged: Option<u16>,
    /// The VLANs whose frames have tags, as ranges with both ends.
    pub tagged: Vec<(u16, u16)>,
}

impl VlanRules {
    /// An access port.
    #[must_use]
    pub fn access(vlan: u16) -> Self {
        Self {
            untagged: Some(vlan),
            tagged: Vec::new(),
        }
    }

    /// Every VLAN of the port.
    pub fn all(&self) -> impl Iterator<Item = u16> + '_ {
        let tagged = self.tagged.iter().flat_map(|(from, to)| *from..=*to);
        self.untagged.into_iter().chain(tagged)
    }
}
