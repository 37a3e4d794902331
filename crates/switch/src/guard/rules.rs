//! The rules of a port, as the supervisor gives them.

use serde::{Deserialize, Serialize};

/// Highest VLAN number (IEEE 802.1Q, 9.6: 4095 is reserved).
pub const MAX_VLAN: u16 = 4094;

/// What a port may send and receive. The default asks for nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rules {
    /// The VLANs it is in; without it, tags are no concern of the switch.
    pub vlan: Option<VlanRules>,
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
