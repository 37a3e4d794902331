//! Delivering frames into a guest's receive ring.

use vhost::chain::{Batch, Chain};
use vhost::copy::Cursor;
use vhost::fault::RingFault;
use vhost::features::{MRG_RXBUF, header_size};
use vhost::limits::BATCH;
use vhost::memory::GuestMemory;
use vhost::net_header::NetHeader;
use vhost::ring::Ring;

use crate::frame::{ETHERNET, Head, Rest};
use crate::limits::BURST;

/// What came of an attempt to deliver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The frame is in the guest's buffers; they are handed back but not published.
    Done,
    /// The guest has posted too few buffers for this frame, for now.
    Full,
    /// The guest's buffers can never hold this frame.
    Small,
}

/// A receive ring during one burst.
///
/// Buffers are looked at in batches and taken only with the frame that fills them, so a burst can
/// end anywhere.
#[derive(Debug)]
pub struct Receiver<'a, 'm> {
    ring: &'a mut Ring,
    memory: &'m GuestMemory,
    batch: &'a mut Batch<'m>,
    /// Chains of the batch already filled.
    filled: usize,
    header_size: usize,
    mergeable: bool,
}

impl<'a, 'm> Receiver<'a, 'm> {
    /// Begin a burst of about `frames` frames; the batch must be empty.
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

    /// Deliver one frame the receiver accepts as it is.
    ///
    /// # Errors
    /// The receiver broke a rule of its ring.
    #[inline]
    pub fn deliver(&mut self, head: &Head, rest: &mut Rest<'_, '_>) -> Result<Delivery, RingFault> {
        let wanted = head.length + self.header_size as u32;
        let mut count = self.chains_for(wanted);
        if count.is_none() && self.look_further()? {
            count = self.chains_for(wanted);
        }
        match count {
            Some(count) => self.fill(count, head, rest).map(|()| Delivery::Done),
            None => self.why_not(),
        }
    }

    /// Chains the driver has posted and that are not filled yet.
    ///
    /// # Errors
    /// The receiver broke a rule of its ring.
    pub fn available(&self) -> Result<u16, RingFault> {
        self.ring.available()
    }

    /// Chains looked at and not filled yet.
    #[inline]
    fn chains(&self) -> &[Chain] {
        self.batch.chains().get(self.filled..).unwrap_or_default()
    }

    /// How many of the chains at hand it takes to hold `wanted` bytes, if they can.
    #[inline]
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

    /// Look at more chains, if the driver has posted more than are at hand.
    fn look_further(&mut self) -> Result<bool, RingFault> {
        let known = self.chains().len();
        if usize::from(self.ring.available()?) <= known || known >= BATCH {
            return Ok(false);
        }
        self.batch.clear();
        self.filled = 0;
        self.ring.collect(self.memory, BATCH as u16, self.batch)?;
        Ok(self.chains().len() > known)
    }

    fn why_not(&self) -> Result<Delivery, RingFault> {
        let known = self.chains().len();
        let can_never = if self.mergeable {
            // All that fits a batch, or all the ring has, is too little.
            known >= BATCH || u32::from(self.ring.available()?) >= self.ring.size()
        } else {
            known > 0
        };
        Ok(if can_never {
            Delivery::Small
        } else {
            Delivery::Full
        })
    }

    /// Copy the frame into the next `count` chains and hand them back.
    #[inline]
    fn fill(
        &mut self,
        count: usize,
        head: &Head,
        rest: &mut Rest<'_, '_>,
    ) -> Result<(), RingFault> {
        // A frame takes at most BATCH chains.
        let num_buffers = count as u16;
        let header = NetHeader {
            num_buffers,
            ..head.header
        };
        let mut prefix = [0; NetHeader::SIZE + ETHERNET];
        let mut prefix = join(
            &mut prefix,
            &header.to_bytes(),
            self.header_size,
            &head.ethernet,
        );
        let mut left = head.length - ETHERNET as u32;

        let end = self.filled + count;
        for chain in self
            .batch
            .chains()
            .get(self.filled..end)
            .unwrap_or_default()
        {
            let mut to = Cursor::new(self.batch.spans(chain));
            let written = to.write(prefix);
            prefix = prefix.get(written..).unwrap_or_default();
            let mut filled = written as u32;
            if prefix.is_empty() {
                let copied = rest.copy_to(&mut to, left);
                left -= copied;
                filled += copied;
            }
            self.ring.put_used(chain.head, filled);
        }
        self.ring.consume(num_buffers);
        self.filled = end;
        Ok(())
    }
}

/// The network header as this receiver knows it, and the Ethernet header behind it.
#[inline]
fn join<'a>(
    room: &'a mut [u8; NetHeader::SIZE + ETHERNET],
    header: &[u8; NetHeader::SIZE],
    header_size: usize,
    ethernet: &[u8; ETHERNET],
) -> &'a [u8] {
    let (front, back) = room.split_at_mut(header_size.min(NetHeader::SIZE));
    front.copy_from_slice(header.get(..front.len()).unwrap_or_default());
    if let Some(place) = back.get_mut(..ETHERNET) {
        place.copy_from_slice(ethernet);
    }
    room.get(..header_size + ETHERNET).unwrap_or_default()
}
