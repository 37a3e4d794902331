//! Replies to the front-end's messages.

use arrayvec::ArrayVec;

use crate::channel::Channel;
use crate::fault::Fault;
use crate::limits::MAX_CONFIG;
use crate::offer::Offer;

/// Largest reply with a part of the configuration space, in bytes.
const CONFIG_REPLY: usize = 12 + MAX_CONFIG;

/// The reply to a message.
#[allow(
    clippy::large_enum_variant,
    reason = "messages are rare and are stored on the stack"
)]
pub(super) enum Reply {
    /// A number.
    Number(u64),
    /// A ring's state: its number and its base.
    State(usize, u16),
    /// A part of the configuration space, with its offset, size and flags.
    Config(ArrayVec<u8, CONFIG_REPLY>),
    /// An acknowledgement, sent only if the front-end requested one; 0 is success.
    Acknowledge(u64),
}

impl Reply {
    /// Returns a part of the configuration space of a device that makes this offer. The reply without bytes reports an
    /// error.
    pub(super) fn config(offer: &Offer, [offset, size, flags]: [u32; 3]) -> Self {
        let part = offer.config_at(offset, size).unwrap_or_default();
        let size = u32::try_from(part.len()).unwrap_or(0);
        let mut payload = ArrayVec::new();
        let head = [offset, size, flags].into_iter().flat_map(u32::to_ne_bytes);
        payload.extend(head.chain(part.iter().copied()).take(CONFIG_REPLY));
        Self::Config(payload)
    }

    /// Sends the reply to a request of this number. `acknowledges` says whether the front-end waits for an
    /// acknowledgement.
    pub(super) fn send(
        self,
        channel: &Channel,
        request: u32,
        acknowledges: bool,
    ) -> Result<(), Fault> {
        match self {
            Self::Number(number) => channel.reply(request, &number.to_ne_bytes()),
            Self::State(ring, value) => {
                let mut payload = [0; 8];
                let (index, number) = payload.split_at_mut(4);
                index.copy_from_slice(&u32::try_from(ring).unwrap_or(0).to_ne_bytes());
                number.copy_from_slice(&u32::from(value).to_ne_bytes());
                channel.reply(request, &payload)
            }
            Self::Config(payload) => channel.reply(request, &payload),
            Self::Acknowledge(code) if acknowledges => channel.reply(request, &code.to_ne_bytes()),
            Self::Acknowledge(_) => Ok(()),
        }
    }
}
