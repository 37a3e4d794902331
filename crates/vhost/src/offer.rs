//! What a kind of device offers to its front-end.

use crate::features::{self, protocol};
use crate::limits::{MAX_CONFIG, MAX_VRINGS};

/// The features, rings and configuration space of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The number of rings, in pairs of a ring that receives and one that transmits.
    pub vrings: usize,
    /// The virtio features, and those of vhost-user.
    pub features: u64,
    /// The protocol features.
    pub protocol_features: u64,
    /// The device's configuration space, which `GET_CONFIG` reads; at most [`MAX_CONFIG`] bytes.
    pub config: Vec<u8>,
}

impl Offer {
    /// Returns the offer of a network card with up to `queue_pairs` queue pairs.
    #[must_use]
    pub fn network_card(queue_pairs: usize) -> Self {
        let vrings = (2 * queue_pairs).clamp(2, MAX_VRINGS);
        Self {
            vrings,
            features: match vrings {
                2 => features::OFFERED & !features::MQ,
                _ => features::OFFERED,
            },
            protocol_features: protocol::OFFERED,
            config: Vec::new(),
        }
    }

    /// Returns the part of the configuration space that a front-end asks for, if it is inside.
    pub(crate) fn config_at(&self, offset: u32, size: u32) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(size).ok()?)?;
        self.config.get(start..end)
    }
}

const _: () = assert!(MAX_CONFIG <= 256);
