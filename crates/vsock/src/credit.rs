//! Credit of a connection of which this device is an end (virtio 1.3, 5.10.6.3). Between two guests the
//! guests themselves do this, and the device passes their counts on unchanged.
//!
//! All counts are modulo 2³², so only differences mean something.

/// A peer broke the rules of credit. Its connection is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreditFault {
    /// The peer says to have taken out fewer bytes than before, or more than it was sent.
    #[error("its forward count is not between its last one and the bytes that were sent")]
    ForwardCount,
    /// The peer sent more than the receive space that it was told of.
    #[error("it sent more than the receive space")]
    Overrun,
}

/// The counts of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    peer_buf_alloc: u32,
    peer_fwd_cnt: u32,
    /// Bytes sent.
    tx_cnt: u32,
    buf_alloc: u32,
    /// Bytes received.
    rx_cnt: u32,
    /// Bytes taken out of the receive space.
    fwd_cnt: u32,
    /// `fwd_cnt` as the peer knows it.
    told: u32,
}

impl Credit {
    /// Returns the counts of a new connection with a receive space of `buf_alloc` bytes.
    #[must_use]
    pub fn new(buf_alloc: u32) -> Self {
        Self {
            peer_buf_alloc: 0,
            peer_fwd_cnt: 0,
            tx_cnt: 0,
            buf_alloc,
            rx_cnt: 0,
            fwd_cnt: 0,
            told: 0,
        }
    }

    /// Notes the counts in a packet of the peer.
    ///
    /// # Errors
    /// The forward count runs backwards, or is ahead of what was sent.
    pub fn update(&mut self, buf_alloc: u32, fwd_cnt: u32) -> Result<(), CreditFault> {
        let taken = fwd_cnt.wrapping_sub(self.peer_fwd_cnt);
        if taken > self.tx_cnt.wrapping_sub(self.peer_fwd_cnt) {
            return Err(CreditFault::ForwardCount);
        }
        (self.peer_buf_alloc, self.peer_fwd_cnt) = (buf_alloc, fwd_cnt);
        Ok(())
    }

    /// Returns the bytes that may be sent now. A peer may make its space smaller than what is under way.
    #[must_use]
    pub fn available(&self) -> u32 {
        let under_way = self.tx_cnt.wrapping_sub(self.peer_fwd_cnt);
        self.peer_buf_alloc.saturating_sub(under_way)
    }

    /// Notes that `count` bytes were sent, at most [`available`](Self::available).
    pub fn sent(&mut self, count: u32) {
        self.tx_cnt = self.tx_cnt.wrapping_add(count);
    }

    /// Notes that `count` bytes arrived.
    ///
    /// # Errors
    /// They do not fit into the receive space.
    pub fn received(&mut self, count: u32) -> Result<(), CreditFault> {
        let used = self.rx_cnt.wrapping_sub(self.fwd_cnt);
        match used.checked_add(count) {
            Some(sum) if sum <= self.buf_alloc => {
                self.rx_cnt = self.rx_cnt.wrapping_add(count);
                Ok(())
            }
            _ => Err(CreditFault::Overrun),
        }
    }

    /// Notes that `count` received bytes left the receive space.
    pub fn taken(&mut self, count: u32) {
        self.fwd_cnt = self.fwd_cnt.wrapping_add(count);
    }

    /// Returns whether the peer should learn of free space: it knows of less than half of it.
    #[must_use]
    pub fn is_update_due(&self) -> bool {
        self.fwd_cnt.wrapping_sub(self.told) > self.buf_alloc / 2
    }

    /// Returns `buf_alloc` and `fwd_cnt` for a packet to the peer, and notes that the peer knows them.
    pub fn tell(&mut self) -> (u32, u32) {
        self.told = self.fwd_cnt;
        (self.buf_alloc, self.fwd_cnt)
    }
}
