//! Copies frames into the buffers of a guest's receive ring.

use vhost::chain::{Batch, Chain};
use vhost::copy::Cursor;
use vhost::fault::RingFault;
use vhost::features::{MRG_RXBUF, header_size};
use vhost::frame_start::FrameStart;
use vhost::limits::BATCH;
use vhost::memory::GuestMemory;
use vhost::net_header::NetHeader;
use vhost::ring::Ring;

use crate::frame::{ETHERNET, Head, Rest, Simple};
use crate::limits::BURST;

/// The result of an attempt to deliver a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The frame is in the guest's buffers, which are in the used ring but not published.
    Done,
    /// The guest has posted too few buffers for this frame so far.
    Full,
    /// The guest's buffers are too small for this frame, however many it posts.
    Small,
}

/// A receive ring during one burst.
///
/// The receiver reads buffers in batches and takes each only with the frame that fills it, so a burst
/// can end after any frame.
#[derive(Debug)]
pub struct Receiver<'a, 'm> {
    ring: &'a mut Ring,
    memory: &'m GuestMemory,
    batch: &'a mut Batch<'m>,
    /// Chains of the batch that are filled.
    filled: usize,
    header_size: u32,
    mergeable: bool,
}

impl<'a, 'm> Receiver<'a, 'm> {
    /// Begins a burst of about `frames` frames; the batch must be empty.
    ///
    /// # Errors
    /// The receiver broke a rule of its ring.
    #[inline]
    pub fn new(
        ring: &'a mut Ring,
        memory: &'m GuestMemory,
        features: u64,
        batch: &'a mut Batch<'m>,
        frames: usize,
    ) -> Result<Self, RingFault> {
        let most = u16::try_from(frames).unwrap_or(BURST).min(BURST);
        ring.collect(memory, most, batch)?;
        Ok(Self {
            ring,
            memory,
            batch,
            filled: 0,
            header_size: header_size(features),
            mergeable: features & MRG_RXBUF != 0,
        })
    }

    /// Delivers simple frames into one buffer each, up to the first frame or buffer that is not
    /// simple; returns the number delivered.
    ///
    /// This is a separate loop so that each frame needs few stores. While the receiver's cache lines
    /// are in transfer from another core, stores wait in the store queue in order, and the length of
    /// the store queue limits how far the processor executes ahead. The fewer stores a frame needs,
    /// the more lines are in transfer at once. Delivers nothing while writes are logged.
    pub fn deliver_simple<'f>(
        &mut self,
        frames: impl Iterator<Item = Option<Simple<'f>>> + Clone,
    ) -> usize {
        if self.header_size as usize != NetHeader::SIZE || self.memory.log().is_some() {
            return 0;
        }
        let chains = self.batch.chains().get(self.filled..).unwrap_or_default();
        let mut count = 0;
        for (frame, chain) in frames.clone().zip(chains) {
            let (Some(frame), [to]) = (frame, self.batch.spans(chain)) else {
                break;
            };
            if !frame.copy_to(to) {
                break;
            }
            count += 1;
        }
        for (frame, chain) in frames.flatten().zip(chains).take(count) {
            self.ring.put_used(chain.head, frame.bytes());
        }
        // At most BATCH.
        self.ring.consume(u16::try_from(count).unwrap_or(u16::MAX));
        self.filled += count;
        count
    }

    /// Delivers one frame that needs no translation for this receiver.
    ///
    /// # Errors
    /// The receiver broke a rule of its ring.
    #[inline(always)]
    pub fn deliver(&mut self, head: &Head, rest: &mut Rest<'_, '_>) -> Result<Delivery, RingFault> {
        let wanted = head.length + self.header_size;
        let next = self.batch.chains().get(self.filled);
        if next.is_some_and(|chain| chain.bytes >= wanted) {
            self.fill(1, head, rest)?;
            return Ok(Delivery::Done);
        }
        self.deliver_in_many(wanted, head, rest)
    }

    /// Delivers one frame that does not fit into the next buffer of the batch.
    #[inline(never)]
    fn deliver_in_many(
        &mut self,
        wanted: u32,
        head: &Head,
        rest: &mut Rest<'_, '_>,
    ) -> Result<Delivery, RingFault> {
        let mut count = self.chains_for(wanted);
        if count.is_none() && self.refill()? {
            count = self.chains_for(wanted);
        }
        match count {
            Some(count) => self.fill(count, head, rest).map(|()| Delivery::Done),
            None => Ok(self.missing_buffers()),
        }
    }

    /// Returns the number of chains known to be posted and not filled yet. After [`Delivery::Full`],
    /// that many chains were too few.
    #[must_use]
    pub fn seen(&self) -> u16 {
        self.ring.seen()
    }

    /// Returns the chains of the batch that are not filled yet.
    #[inline]
    fn chains(&self) -> &[Chain] {
        self.batch.chains().get(self.filled..).unwrap_or_default()
    }

    /// Returns how many chains of the batch are needed for `wanted` bytes, if they suffice.
    fn chains_for(&self, wanted: u32) -> Option<usize> {
        let chains = self.chains();
        let most = if self.mergeable { chains.len() } else { 1 };
        let mut room: u32 = 0;
        for (index, chain) in chains.iter().take(most).enumerate() {
            room = room.saturating_add(chain.bytes);
            if room >= wanted {
                return Some(index + 1);
            }
        }
        None
    }

    /// Refills the batch, if the driver has posted more chains than the batch has; returns whether
    /// the batch has more chains now.
    fn refill(&mut self) -> Result<bool, RingFault> {
        let known = self.chains().len();
        if usize::from(self.ring.refresh()?) <= known || known >= BATCH {
            return Ok(false);
        }
        self.batch.clear();
        self.filled = 0;
        self.ring.collect(self.memory, u16::MAX, self.batch)?;
        Ok(self.chains().len() > known)
    }

    fn missing_buffers(&self) -> Delivery {
        let known = self.chains().len();
        let can_never = if self.mergeable {
            // A full batch, or all buffers of the ring, are too few.
            known >= BATCH || u32::from(self.ring.seen()) >= self.ring.size()
        } else {
            known > 0
        };
        if can_never {
            Delivery::Small
        } else {
            Delivery::Full
        }
    }

    /// Copies the frame into the next `count` chains and adds them to the used ring.
    #[inline(always)]
    fn fill(
        &mut self,
        count: usize,
        head: &Head,
        rest: &mut Rest<'_, '_>,
    ) -> Result<(), RingFault> {
        // A frame takes at most BATCH chains.
        let num_buffers = u16::try_from(count).unwrap_or(u16::MAX);
        let start = head.start.with_header(NetHeader {
            num_buffers,
            ..head.header()
        });
        let mut left = Some(start);
        let mut body = head.length - ETHERNET;

        let end = self.filled + count;
        for chain in self
            .batch
            .chains()
            .get(self.filled..end)
            .unwrap_or_default()
        {
            let mut to = Cursor::new(self.batch.spans(chain));
            let mut written = 0;
            if let Some(start) = left.take() {
                written = self.write_start(&mut to, &start)?;
            }
            let copied = rest.copy_to(&mut to, body);
            body -= copied;
            if self.memory.log().is_some() {
                self.memory.mark(self.batch.spans(chain), written + copied);
            }
            self.ring.put_used(chain.head, written + copied);
        }
        self.ring.consume(num_buffers);
        self.filled = end;
        Ok(())
    }

    /// Writes both headers into the first buffer; returns their length in bytes.
    #[inline(always)]
    fn write_start(&self, to: &mut Cursor<'_, '_>, start: &FrameStart) -> Result<u32, RingFault> {
        if self.header_size as usize == NetHeader::SIZE && to.write_start(start) {
            return Ok(FrameStart::BYTES);
        }
        self.write_start_in_pieces(to, start)
    }

    /// Writes both headers for a legacy driver, or into a buffer that consists of small pieces.
    #[cold]
    fn write_start_in_pieces(
        &self,
        to: &mut Cursor<'_, '_>,
        start: &FrameStart,
    ) -> Result<u32, RingFault> {
        let bytes = start.to_bytes();
        let (header, ethernet) = bytes.split_at(NetHeader::SIZE);
        // A legacy header lacks the last two bytes, `num_buffers`.
        let header = header.get(..self.header_size as usize).unwrap_or(header);
        let written = to.write(header) + to.write(ethernet);
        if written < header.len() + ethernet.len() {
            // 5.1.6.3.1: every buffer must have room for the network header. This switch also requires
            // room for the Ethernet header.
            return Err(RingFault::NoHeader(u32::try_from(written).unwrap_or(0)));
        }
        Ok(self.header_size + ETHERNET)
    }
}
