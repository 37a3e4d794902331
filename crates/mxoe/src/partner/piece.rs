//! The contents of packets that have a sequence number.

/// What came with a number.
#[derive(Debug)]
pub(crate) enum Arrived {
    Message {
        value: u64,
        data: Vec<u8>,
    },
    /// A message of which fragments are missing: a bit for each.
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
    /// A notification, which was heeded when it came.
    Heeded,
}

/// A notification: the partner pulled so much of a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notified {
    pub(crate) total: u32,
    pub(crate) region: u8,
    pub(crate) generation: u8,
}

/// What a packet with a number brings.
#[derive(Debug)]
pub(crate) enum Piece<'a> {
    Whole(Arrived),
    Notify(Notified),
    Fragment {
        value: u64,
        total: u16,
        offset: u16,
        bytes: &'a [u8],
    },
}

impl Arrived {
    /// Bytes that are kept of it.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Message { data, .. } | Self::Partial { data, .. } => data.len(),
            Self::Offer { .. } | Self::Heeded => 0,
        }
    }
}
