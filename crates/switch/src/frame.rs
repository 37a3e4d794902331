//! A frame while it is forwarded: its head in private memory, and a reference to the rest.

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

/// The beginning of a frame in private memory, which the guest cannot change.
#[derive(Clone, Copy, Debug, Default)]
pub struct Head {
    /// The checked network header, and the Ethernet header.
    pub start: FrameStart,
    /// Length of the frame in bytes, including the Ethernet header.
    pub length: u32,
}

/// A frame without offloads whose bytes are contiguous. Nearly every small frame is one.
#[derive(Clone, Copy, Debug)]
pub struct Simple<'m> {
    start: FrameStart,
    body: Span<'m>,
}

impl<'m> Simple<'m> {
    /// Returns the frame of this head and rest, if it is simple.
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

    /// Returns the length in a receive buffer, including the network header.
    #[inline(always)]
    #[must_use]
    pub fn bytes(&self) -> u32 {
        FrameStart::BYTES + self.body.length()
    }

    /// Copies the frame into one receive buffer; returns false when the buffer is too short.
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

/// The bytes of a frame behind its [`Head`].
#[derive(Clone, Copy, Debug)]
pub enum Rest<'a, 'm> {
    /// In the sender's memory.
    Guest(Cursor<'a, 'm>),
    /// In private memory.
    Private(&'a [u8]),
    /// First in private memory, in two parts, then in the sender's memory.
    Parts([&'a [u8]; 2], Cursor<'a, 'm>),
}

impl Head {
    /// Reads the beginning of a transmitted chain and advances the cursor behind it. Returns `Ok(None)`
    /// when the frame is too short or too long.
    ///
    /// # Errors
    /// The chain is too short for a network header, or the header is invalid: the sender's fault.
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

    /// Returns the head and the rest of a frame in private memory; `None` when the frame is too short or
    /// too long.
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

    /// Returns the network header.
    #[inline]
    #[must_use]
    pub fn header(&self) -> NetHeader {
        self.start.header()
    }

    /// Returns the bytes of the Ethernet header.
    #[must_use]
    pub fn ethernet(&self) -> [u8; FrameStart::ETHERNET] {
        let bytes = self.start.to_bytes();
        bytes.last_chunk().copied().unwrap_or_default()
    }

    /// Returns the EtherType, or the length of an IEEE 802.3 frame.
    #[inline]
    #[must_use]
    pub fn ether_type(&self) -> u16 {
        self.start.tail.swap_bytes()
    }

    /// Replaces the EtherType.
    #[inline]
    pub fn set_ether_type(&mut self, kind: u16) {
        self.start.tail = kind.swap_bytes();
    }

    /// Returns the destination address.
    #[inline]
    #[must_use]
    pub fn destination(&self) -> Mac {
        Mac::from_bits(self.start.destination())
    }

    /// Returns the source address.
    #[inline]
    #[must_use]
    pub fn source(&self) -> Mac {
        Mac::from_bits(self.start.source())
    }
}

/// Reads the start of a legacy driver's frame, whose network header has no `num_buffers` (5.1.6).
#[cold]
fn read_legacy(cursor: &mut Cursor<'_, '_>) -> Option<FrameStart> {
    let mut bytes = [0; FrameStart::SIZE];
    let (header, ethernet) = bytes.split_at_mut(NetHeader::SIZE);
    let header = header.get_mut(..NetHeader::LEGACY_SIZE)?;
    let read = cursor.read(header) + cursor.read(ethernet);
    (read == FrameStart::SIZE - 2).then(|| FrameStart::from_bytes(&bytes))
}

impl<'a, 'm> Rest<'a, 'm> {
    /// Returns the same bytes with `first` in front of them.
    #[must_use]
    pub fn behind<'t>(self, first: &'t [u8]) -> Rest<'t, 'm>
    where
        'a: 't,
    {
        match self {
            Rest::Guest(cursor) => Rest::Parts([first, &[]], cursor),
            Rest::Private(bytes) => Rest::Parts([first, bytes], Cursor::new(&[])),
            // The second part is empty here: the only parts are a tag in front of a snapshot and the
            // sender's memory, or in front of private memory, and a frame has one tag at most.
            Rest::Parts([bytes, _], cursor) => Rest::Parts([first, bytes], cursor),
        }
    }

    /// Copies up to `most` bytes to guest memory; returns the count.
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

    /// Copies bytes to private memory; returns the count.
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

/// Copies up to `most` private bytes to guest memory; returns the count.
#[inline(always)]
fn write(bytes: &mut &[u8], to: &mut Cursor<'_, '_>, most: u32) -> u32 {
    let written = to.write(bytes.get(..most as usize).unwrap_or(bytes));
    *bytes = bytes.get(written..).unwrap_or_default();
    // Never more than `most`.
    u32::try_from(written).unwrap_or(most)
}

/// Copies private bytes to `to` until it is full or the bytes end; returns the count.
fn take(bytes: &mut &[u8], to: &mut [u8]) -> usize {
    let count = bytes.len().min(to.len());
    let (now, later) = bytes.split_at(count);
    if let Some(room) = to.get_mut(..count) {
        room.copy_from_slice(now);
    }
    *bytes = later;
    count
}
