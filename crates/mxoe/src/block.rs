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
            length: (BLOCK - first).min(total.saturating_sub(start)),
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

    /// It lies within the message, whose length is such a number too.
    pub(crate) fn end(&self) -> u32 {
        self.start.saturating_add(self.length)
    }

    /// Of the page that it begins in: bytes up to its end.
    fn span(&self) -> u32 {
        self.first.saturating_add(self.length)
    }

    pub(crate) fn frames(&self) -> u32 {
        self.span().div_ceil(FRAME)
    }

    /// Where its frame of this number begins in the message, and its bytes; `None` when it has
    /// none of this number.
    pub(crate) fn piece(&self, number: u32) -> Option<(u32, u32)> {
        let begin = number.checked_mul(FRAME)?;
        let from = begin.max(self.first);
        let to = begin.checked_add(FRAME)?.min(self.span());
        let length = to.checked_sub(from).filter(|length| *length > 0)?;
        // In this order: the end of a block may be the last byte that a number can name.
        let start = self.start.checked_add(from.checked_sub(self.first)?)?;
        Some((start, length))
    }

    /// The number of its frame that has exactly these bytes. Both come from the wire.
    pub(crate) fn number(&self, start: u32, length: u32) -> Option<u32> {
        let inside = start.checked_sub(self.start)?;
        let number = inside.checked_add(self.first)? / FRAME;
        (self.piece(number) == Some((start, length))).then_some(number)
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
                    let (start, length) = block.piece(number).unwrap();
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
    }

    /// What is put in place of a word, or added to it.
    fn word() -> impl Strategy<Value = u32> {
        prop_oneof![
            any::<u32>(),
            0..3u32,
            (0..3u32).prop_map(|less| u32::MAX - less),
            (0..40u32, 0..3u32).prop_map(|(frames, more)| frames * FRAME + more),
        ]
    }

    /// A message's length, often near the greatest that there is.
    fn total() -> impl Strategy<Value = u32> {
        prop_oneof![
            1..300_000u32,
            (0..300_000u32).prop_map(|less| u32::MAX - less)
        ]
    }

    /// Where one of its blocks begins, as this side would ask for it.
    fn start_of_block(total: u32, offset: u16, at: u32) -> u32 {
        let first = Block::at(0, total, offset).end();
        match at % total.div_ceil(BLOCK) {
            0 => 0,
            number => first.saturating_add((number - 1).saturating_mul(BLOCK)),
        }
    }

    /// The body of a property that says how often it came to what it is about.
    fn run<S: Strategy>(
        values: S,
        least: u32,
        check: impl Fn(S::Value) -> Result<bool, TestCaseError>,
    ) {
        let reached = std::cell::Cell::new(0);
        let mut runner = proptest::test_runner::TestRunner::default();
        let done = runner.run(&values, |value| {
            reached.set(reached.get() + u32::from(check(value)?));
            Ok(())
        });
        done.unwrap_or_else(|error| panic!("{error}"));
        let reached = reached.get();
        assert!(reached >= least, "reached its subject {reached} times only");
    }

    /// A request that this side would send, with up to three of its words changed.
    #[test]
    fn mxoe_7_any_request_is_checked() {
        let change = proptest::collection::vec((0..5usize, word()), 0..3);
        let values = (total(), any::<u16>(), any::<u32>(), change);
        run(values, 32, |(total, offset, at, changes)| {
            let block = Block::at(start_of_block(total, offset, at), total, offset);
            let mut words = [block.frame, block.first, block.length, total, offset.into()];
            for (at, word) in changes {
                words[at] = word;
            }
            let [frame, first, length, total, offset] = words;
            let short = |word: u32| (word & 0xffff) as u16;
            let asked = Block::asked(frame, short(first), short(length), total, short(offset));
            let Some(block) = asked else {
                return Ok(false);
            };
            prop_assert!(block.end() <= total && block.frames() <= REPLIES);
            let mut at = block.start;
            for number in 0..block.frames() {
                let (start, length) = block.piece(number).unwrap();
                prop_assert_eq!(start, at);
                prop_assert_eq!(block.number(start, length), Some(number));
                at += length;
            }
            prop_assert_eq!(at, block.end());
            prop_assert_eq!(block.piece(block.frames()), None);
            Ok(true)
        });
    }

    /// A reply to a block that was asked for, with its offset, its length or both changed.
    #[test]
    fn mxoe_7_any_reply_belongs_to_a_frame_or_to_none() {
        let changes = (proptest::option::of(word()), proptest::option::of(word()));
        let values = (total(), any::<u16>(), any::<u32>(), 0..REPLIES, changes);
        run(
            values,
            16,
            |(total, offset, at, number, (other_start, other_length))| {
                let block = Block::at(start_of_block(total, offset, at), total, offset);
                let Some((start, length)) = block.piece(number) else {
                    return Ok(false);
                };
                let (start, length) =
                    (other_start.unwrap_or(start), other_length.unwrap_or(length));
                let Some(found) = block.number(start, length) else {
                    return Ok(false);
                };
                prop_assert_eq!(block.piece(found), Some((start, length)));
                prop_assert!(
                    start >= block.start
                        && u64::from(start) + u64::from(length) <= u64::from(block.end())
                );
                Ok(true)
            },
        );
    }

    /// The two frames that ended the process before.
    #[test]
    fn mxoe_7_replies_and_requests_at_the_greatest_offsets_are_answered() {
        let block = Block::at(0, 100_000, 100);
        assert_eq!(block.number(u32::MAX, 4096), None);
        let last = Block::asked(0xf_ffff, 0, 4095, u32::MAX, 0).unwrap();
        assert_eq!(last.piece(0), Some((0xffff_f000, 4095)));
        assert_eq!(last.piece(u32::MAX), None);
        assert_eq!(last.end(), u32::MAX);
    }
}
