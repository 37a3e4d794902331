//! A frame on its way: what was read of it, and where the rest is.

use vhost::Span;
use vhost::copy::Cursor;
use vhost::fault::RingFault;
use vhost::features::tx_offloads_negotiated;
use vhost::frame_start::FrameStart;
use vhost::limits::MAX_FRAME;
use vhost::net_header::NetHeader;

use crate::mac::Mac;

/// Bytes of an Ethernet header without tags.
pub const ETHERNET: u32 = 14;

const _: () = assert!(ETHERNET as usize == FrameStart::ETHERNET);

/// The beginning of a frame, in private memory: nothing the guest writes later changes it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Head {
    /// Network header, checked, and Ethernet header.
    pub start: FrameStart,
    /// Length of the frame in bytes, from the Ethernet header on.
    pub length: u32,
}

/// A frame that asks for nothing and lies in one piece: nearly every small one.
#[derive(Clone, Copy, Debug)]
pub struct Simple<'m> {
    start: FrameStart,
    body: Span<'m>,
}

impl<'m> Simple<'m> {
    /// The frame of this head and rest, if it is simple.
    #[inline(always)]
    #[must_use]
    pub fn new(head: &Head, rest: &Cursor<'_, 'm>) -> Option<Self> {
        let body = rest.single()?;
        let simple = head.start.is_plain() && body.length() + ETHERNET == head.length;
        simple.then_some(Self {
            start: head.start,
            body,
        })
    }

    /// Bytes it takes in a receive buffer, network header included.
    #[inline(always)]
    #[must_use]
    pub fn bytes(&self) -> u32 {
        FrameStart::BYTES + self.body.length()
    }

    /// Copy it into one receive buffer; false when that is too short.
    #[inline(always)]
    #[must_use]
    pub fn copy_to(&self, to: &Span<'_>) -> bool {
        let header = NetHeader {
            num_buffers: 1,
            ..NetHeader::NONE
        };
        if to.length() < self.bytes() || !to.write_start(&self.start.with_header(header)) {
            return false;
        }
        self.body.copy_to(&to.skip(FrameStart::BYTES));
        true
    }
}

/// Bytes of a frame behind its [`Head`].
#[derive(Clone, Copy, Debug)]
pub enum Rest<'a, 'm> {
    /// In the sender's memory.
    Guest(Cursor<'a, 'm>),
    /// In ours.
    Private(&'a [u8]),
    /// First in ours, in two parts, then in the sender's.
    Parts([&'a [u8]; 2], Cursor<'a, 'm>),
}

impl Head {
    /// Read the beginning of a transmitted chain; the cursor is left behind it. `Ok(None)` when
    /// the frame's length is none a frame can have.
    ///
    /// # Errors
    /// The chain is too short for a header, or the header is wrong: the sender's fault.
    #[inline(always)]
    pub fn read(
        cursor: &mut Cursor<'_, '_>,
        bytes: u32,
        header_size: u32,
        features: u64,
    ) -> Result<Option<Self>, RingFault> {
        let no_header = RingFault::NoHeader(bytes);
        let length = bytes.checked_sub(header_size).ok_or(no_header)?;
        if !(ETHERNET..=MAX_FRAME).contains(&length) {
            return Ok(None);
        }
        let start = if header_size as usize != NetHeader::SIZE {
            read_legacy(cursor)
        } else if tx_offloads_negotiated(features) {
            cursor.read_start()
        } else {
            cursor.read_ethernet()
        };
        let start = start.ok_or(no_header)?;
        let header = if start.is_plain() || !tx_offloads_negotiated(features) {
            NetHeader::NONE
        } else {
            start.header().checked(length, features)?
        };
        Ok(Some(Self {
            start: start.with_header(header),
            length,
        }))
    }

    /// The beginning of a frame that lies in private memory; `None` when its length is none a
    /// frame can have.
    #[must_use]
    pub fn of_private(header: NetHeader, frame: &[u8]) -> Option<(Self, &[u8])> {
        let (ethernet, rest) = frame.split_first_chunk::<{ FrameStart::ETHERNET }>()?;
        let length = u32::try_from(frame.len())
            .ok()
            .filter(|length| *length <= MAX_FRAME)?;
        let mut bytes = [0; FrameStart::SIZE];
        bytes
            .last_chunk_mut::<{ FrameStart::ETHERNET }>()?
            .copy_from_slice(ethernet);
        let start = FrameStart::from_bytes(&bytes).with_header(header);
        Some((Self { start, length }, rest))
    }

    /// The network header.
    #[inline]
    #[must_use]
    pub fn header(&self) -> NetHeader {
        self.start.header()
    }

    /// The Ethernet header's bytes.
    #[must_use]
    pub fn ethernet(&self) -> [u8; FrameStart::ETHERNET] {
        let bytes = self.start.to_bytes();
        bytes.last_chunk().copied().unwrap_or_default()
    }

    /// The EtherType, or the length of an IEEE 802.3 frame.
    #[inline]
    #[must_use]
    pub fn ether_type(&self) -> u16 {
        self.start.tail.swap_bytes()
    }

    /// Replace the EtherType.
    #[inline]
    pub fn set_ether_type(&mut self, kind: u16) {
        self.start.tail = kind.swap_bytes();
    }

    /// Where the frame goes.
    #[inline]
    #[must_use]
    pub fn destination(&self) -> Mac {
        Mac::from_bits(self.start.destination())
    }

    /// Where the frame comes from.
    #[inline]
    #[must_use]
    pub fn source(&self) -> Mac {
        Mac::from_bits(self.start.source())
    }
}

/// The start of a legacy driver's frame, whose header has no `num_buffers` (5.1.6).
#[cold]
fn read_legacy(cursor: &mut Cursor<'_, '_>) -> Option<FrameStart> {
    let mut bytes = [0; FrameStart::SIZE];
    let (header, ethernet) = bytes.split_at_mut(NetHeader::SIZE);
    let header = header.get_mut(..NetHeader::LEGACY_SIZE)?;
    let read = cursor.read(header) + cursor.read(ethernet);
    (read == FrameStart::SIZE - 2).then(|| FrameStart::from_bytes(&bytes))
}

impl<'a, 'm> Rest<'a, 'm> {
    /// The same behind these bytes.
    #[must_use]
    pub fn behind<'t>(self, first: &'t [u8]) -> Rest<'t, 'm>
    where
        'a: 't,
    {
        match self {
            Rest::Guest(cursor) => Rest::Parts([first, &[]], cursor),
            Rest::Private(bytes) => Rest::Parts([first, bytes], Cursor::new(&[])),
            // The second part is empty: behind a tag come a snapshot and the sender's memory, or
            // private memory, and nothing has two tags.
            Rest::Parts([bytes, _], cursor) => Rest::Parts([first, bytes], cursor),
        }
    }

    /// Copy up to `most` bytes to a place in guest memory; returns how many.
    #[inline(always)]
    pub fn copy_to(&mut self, to: &mut Cursor<'_, '_>, most: u32) -> u32 {
        match self {
            Rest::Guest(cursor) => cursor.copy_to(to, most),
            Rest::Private(bytes) => write(bytes, to, most),
            Rest::Parts([first, second], cursor) => {
                let mut done = write(first, to, most);
                if first.is_empty() {
                    done += write(second, to, most - done);
                    if second.is_empty() {
                        done += cursor.copy_to(to, most - done);
                    }
                }
                done
            }
        }
    }

    /// Copy bytes to private memory; returns how many.
    pub fn read(&mut self, to: &mut [u8]) -> usize {
        match self {
            Rest::Guest(cursor) => cursor.read(to),
            Rest::Private(bytes) => take(bytes, to),
            Rest::Parts([first, second], cursor) => {
                let mut done = take(first, to);
                done += take(second, to.get_mut(done..).unwrap_or_default());
                done + cursor.read(to.get_mut(done..).unwrap_or_default())
            }
        }
    }
}

/// Copy up to `most` private bytes to a place in guest memory; returns how many.
#[inline(always)]
fn write(bytes: &mut &[u8], to: &mut Cursor<'_, '_>, most: u32) -> u32 {
    let written = to.write(bytes.get(..most as usize).unwrap_or(bytes));
    *bytes = bytes.get(written..).unwrap_or_default();
    // Never more than `most`.
    u32::try_from(written).unwrap_or(most)
}

/// Copy private bytes out until `to` is full or they end; returns how many.
fn take(bytes: &mut &[u8], to: &mut [u8]) -> usize {
    let count = bytes.len().min(to.len());
    let (now, later) = bytes.split_at(count);
    if let Some(room) = to.get_mut(..count) {
        room.copy_from_slice(now);
    }
    *bytes = later;
    count
}
