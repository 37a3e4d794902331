//! The payloads of numbered packets.

/// The content of a received sequence number.
#[derive(Debug)]
pub(crate) enum Received {
    Message {
        value: u64,
        data: Vec<u8>,
    },
    /// A message with missing fragments, of which `missing` has one bit for each 4 KiB.
    Partial {
        value: u64,
        data: Vec<u8>,
        missing: u8,
    },
    Offer {
        value: u64,
        length: u32,
        region: u8,
        generation: u8,
        offset: u16,
    },
    /// A notification, which the endpoint handled when it arrived.
    NotificationHandled,
}

/// A notification: the partner pulled `total` bytes of a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notification {
    pub(crate) total: u32,
    pub(crate) region: u8,
    pub(crate) generation: u8,
}

/// The payload of a numbered packet.
#[derive(Debug)]
pub(crate) enum Payload<'a> {
    Whole(Received),
    Notify(Notification),
    Fragment {
        value: u64,
        total: u16,
        offset: u16,
        bytes: &'a [u8],
    },
}

impl Received {
    /// Bytes that the queue holds for it.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Message { data, .. } | Self::Partial { data, .. } => data.len(),
            Self::Offer { .. } | Self::NotificationHandled => 0,
        }
    }
}
