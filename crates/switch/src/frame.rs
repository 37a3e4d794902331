//! A frame on its way: what was read of it, and where the rest is.

use vhost::copy::Cursor;
use vhost::fault::RingFault;
use vhost::limits::MAX_FRAME;
use vhost::net_header::NetHeader;

use crate::mac::Mac;

/// Bytes of an Ethernet header without tags.
pub const ETHERNET: usize = 14;

/// The beginning of a frame, in private memory: nothing the guest writes later changes it.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// The checked virtio-net header.
    pub header: NetHeader,
    /// The Ethernet header.
    pub ethernet: [u8; ETHERNET],
    /// Length of the whole frame in bytes, Ethernet header included.
    pub length: u32,
}

/// Bytes of a frame behind its [`Head`].
#[derive(Clone, Copy, Debug)]
pub enum Rest<'a, 'm> {
    /// In the sender's memory.
    Guest(Cursor<'a, 'm>),
    /// In ours.
    Private(&'a [u8]),
}

impl Head {
    /// The head of a frame that is none.
    pub const NONE: Self = Self {
        header: NetHeader::NONE,
        ethernet: [0; ETHERNET],
        length: 0,
    };

    /// Read the beginning of a transmitted chain; the cursor is left behind it. `Ok(None)` when
    /// the frame's length is none a frame can have.
    ///
    /// # Errors
    /// The chain is too short for a header, or the header is wrong: the sender's fault.
    #[inline]
    pub fn read(
        cursor: &mut Cursor<'_, '_>,
        bytes: u32,
        header_size: usize,
        features: u64,
    ) -> Result<Option<Self>, RingFault> {
        let size = header_size as u32;
        let length = bytes.checked_sub(size).ok_or(RingFault::NoHeader(bytes))?;
        let mut raw = [0; NetHeader::SIZE];
        cursor.read(raw.get_mut(..header_size).unwrap_or_default());
        if !(ETHERNET as u32..=MAX_FRAME).contains(&length) {
            return Ok(None);
        }
        let header = NetHeader::from_bytes(raw).checked(length, features)?;
        let mut ethernet = [0; ETHERNET];
        cursor.read(&mut ethernet);
        Ok(Some(Self {
            header,
            ethernet,
            length,
        }))
    }

    /// The beginning of a frame that lies in private memory; `None` when its length is none a
    /// frame can have.
    #[must_use]
    pub fn of_private(header: NetHeader, frame: &[u8]) -> Option<(Self, &[u8])> {
        let (ethernet, rest) = frame.split_first_chunk::<ETHERNET>()?;
        let length = u32::try_from(frame.len())
            .ok()
            .filter(|length| *length <= MAX_FRAME)?;
        Some((
            Self {
                header,
                ethernet: *ethernet,
                length,
            },
            rest,
        ))
    }

    /// Where the frame goes.
    #[inline]
    #[must_use]
    pub fn destination(&self) -> Mac {
        let [a, b, c, d, e, f, ..] = self.ethernet;
        Mac::from_octets([a, b, c, d, e, f])
    }

    /// Where it comes from.
    #[inline]
    #[must_use]
    pub fn source(&self) -> Mac {
        let [_, _, _, _, _, _, a, b, c, d, e, f, ..] = self.ethernet;
        Mac::from_octets([a, b, c, d, e, f])
    }
}

impl Rest<'_, '_> {
    /// Copy up to `most` bytes to a place in guest memory; returns how many.
    #[inline]
    pub fn copy_to(&mut self, to: &mut Cursor<'_, '_>, most: u32) -> u32 {
        match self {
            Rest::Guest(cursor) => cursor.copy_to(to, most),
            Rest::Private(bytes) => {
                let part = bytes.get(..most as usize).unwrap_or(bytes);
                let written = to.write(part);
                *bytes = bytes.get(written..).unwrap_or_default();
                // Never more than `most`.
                u32::try_from(written).unwrap_or(most)
            }
        }
    }

    /// Copy bytes to private memory; returns how many.
    pub fn read(&mut self, to: &mut [u8]) -> usize {
        match self {
            Rest::Guest(cursor) => cursor.read(to),
            Rest::Private(bytes) => {
                let count = bytes.len().min(to.len());
                let (now, later) = bytes.split_at(count);
                if let Some(room) = to.get_mut(..count) {
                    room.copy_from_slice(now);
                }
                *bytes = later;
                count
            }
        }
    }
}
