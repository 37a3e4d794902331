//! A block of a pull: which frames it has, and where they belong.
//!
//! Frames are counted from the beginning of the page that the data begins in, so the first may be
//! short at its front; all others are full but the last of all.

use crate::limits::{BLOCK, PIPELINE, REPLIES};

/// Bytes of a frame.
const FRAME: u32 = 1 << PIPELINE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Its first frame.
    pub(crate) frame: u32,
    /// Bytes at the front of that which do not belong to the message.
    pub(crate) first: u32,
    /// Where it begins in the message.
    pub(crate) start: u32,
    pub(crate) length: u32,
}

impl Block {
    /// The block that begins at `start` of `total` bytes, which begin at `offset` of a page.
    pub(crate) fn at(start: u32, total: u32, offset: u16) -> Self {
        let offset = u32::from(offset) % FRAME;
        let (frame, first) = match start {
            0 => (0, offset),
            // Blocks behind the first one begin with a full frame.
            _ => (start.saturating_add(offset) / FRAME, 0),
        };
        Self {
            frame,
            first,
            start,
            length: (BLOCK - first).min(total - start.min(total)),
        }
    }

    /// What a request means; `None` if it does not lie within `total` bytes.
    pub(crate) fn asked(
        frame: u32,
        first: u16,
        length: u16,
        total: u32,
        offset: u16,
    ) -> Option<Self> {
        let (first, length) = (u32::from(first), u32::from(length));
        let offset = u32::from(offset) % FRAME;
        let start = frame
            .checked_mul(FRAME)?
            .checked_add(first)?
            .checked_sub(offset)?;
        let sane = first < FRAME
            && length > 0
            && first + length <= REPLIES * FRAME
            && start.checked_add(length)? <= total;
        sane.then_some(Self {
            frame,
            first,
            start,
            length,
        })
    }

    pub(crate) fn end(&self) -> u32 {
        self.start + self.length
    }

    pub(crate) fn frames(&self) -> u32 {
        (self.first + self.length).div_ceil(FRAME)
    }

    /// Where its frame of this number begins in the message, and its bytes.
    pub(crate) fn piece(&self, number: u32) -> (u32, u32) {
        let from = (number * FRAME).max(self.first);
        let to = ((number + 1) * FRAME).min(self.first + self.length);
        (self.start + from - self.first, to.saturating_sub(from))
    }

    /// The number of its frame that has exactly these bytes.
    pub(crate) fn number(&self, start: u32, length: u32) -> Option<u32> {
        let inside = start.checked_sub(self.start)?;
        let number = (inside + self.first) / FRAME;
        (number < self.frames() && self.piece(number) == (start, length)).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn mxoe_5_3_blocks_and_frames_cover_the_message_once(total in 1..300_000u32, offset: u16) {
            let (mut at, mut frame) = (0, 0);
            while at < total {
                let block = Block::at(at, total, offset);
                prop_assert_eq!(block.start, at);
                prop_assert_eq!(block.frame, frame);
                prop_assert!(block.length > 0 && block.frames() <= REPLIES);
                let first = u16::try_from(block.first).unwrap();
                let length = u16::try_from(block.length).unwrap();
                prop_assert_eq!(Block::asked(frame, first, length, total, offset), Some(block));
                prop_assert_eq!(Block::asked(frame, first, length, block.end() - 1, offset), None);
                for number in 0..block.frames() {
                    let (start, length) = block.piece(number);
                    prop_assert_eq!(start, at);
                    prop_assert!(length > 0 && length <= 4096);
                    prop_assert_eq!(block.number(start, length), Some(number));
                    prop_assert_eq!(block.number(start + 1, length), None);
                    at += length;
                }
                frame += block.frames();
            }
            prop_assert_eq!(at, total);
        }

        #[test]
        fn mxoe_7_any_request_is_checked(frame: u32, first: u16, length: u16, total: u32, offset: u16) {
            if let Some(block) = Block::asked(frame, first, length, total, offset) {
                prop_assert!(block.end() <= total && block.frames() <= REPLIES);
            }
        }
    }
}
