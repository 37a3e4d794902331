//! A block of a pull: which frames it consists of, and which bytes of the message they carry.
//!
//! Frames are counted from the start of the page in which the data begins. So the first frame may
//! lack bytes at its front, and only the last frame may lack bytes at its end.

use std::ops::Range;

use crate::limits::{PIPELINE, PULL_BLOCK, REPLIES_PER_REQUEST};

/// Bytes of a frame.
const FRAME: u32 = 1 << PIPELINE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The number of the first frame.
    pub(crate) frame: u32,
    /// Bytes at the front of the first frame that precede the message.
    pub(crate) first: u32,
    /// Offset of the block in the message.
    pub(crate) start: u32,
    pub(crate) length: u32,
}

impl Block {
    /// Returns the block that begins at `start` of a message of `total` bytes whose first byte lies
    /// at `offset` in its page.
    pub(crate) fn at(start: u32, total: u32, offset: u16) -> Self {
        let offset = u32::from(offset) % FRAME;
        let (frame, first) = match start {
            0 => (0, offset),
            // Every block but the first begins with a full frame.
            _ => (start.saturating_add(offset) / FRAME, 0),
        };
        Self {
            frame,
            first,
            start,
            length: (PULL_BLOCK - first).min(total.saturating_sub(start)),
        }
    }

    /// Returns the block that a request asks for, or `None` if the block does not lie within
    /// `total` bytes.
    pub(crate) fn requested(
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
        let valid = first < FRAME
            && length > 0
            && first + length <= REPLIES_PER_REQUEST * FRAME
            && start.checked_add(length)? <= total;
        valid.then_some(Self {
            frame,
            first,
            start,
            length,
        })
    }

    /// Cannot overflow for a valid block: the block lies within the message, whose length is a
    /// `u32` too.
    pub(crate) fn end(&self) -> u32 {
        self.start.saturating_add(self.length)
    }

    /// Bytes from the start of the first frame's page to the end of the block.
    fn span(&self) -> u32 {
        self.first.saturating_add(self.length)
    }

    pub(crate) fn frames(&self) -> u32 {
        self.span().div_ceil(FRAME)
    }

    /// Returns offset and length, in the message, of the frame with this number, or `None` if the
    /// block has no such frame.
    pub(crate) fn frame_range(&self, frame_number: u32) -> Option<(u32, u32)> {
        let begin = frame_number.checked_mul(FRAME)?;
        let from = begin.max(self.first);
        let to = begin.checked_add(FRAME)?.min(self.span());
        let length = to.checked_sub(from).filter(|length| *length > 0)?;
        // The subtraction comes first: the end of a block may be the largest `u32`.
        let start = self.start.checked_add(from.checked_sub(self.first)?)?;
        Some((start, length))
    }

    /// Returns the numbers of the frames that carry exactly these bytes together. Both arguments come from the network.
    pub(crate) fn frame_numbers(&self, start: u32, length: u32) -> Option<Range<u32>> {
        let number = |inside: u32| Some(inside.checked_add(self.first)? / FRAME);
        let inside = start.checked_sub(self.start)?;
        let first = number(inside)?;
        let last = number(inside.checked_add(length.checked_sub(1)?)?)?;
        let (begin, _) = self.frame_range(first)?;
        let (last_start, last_length) = self.frame_range(last)?;
        let whole =
            begin == start && last_start.checked_add(last_length)? == start.checked_add(length)?;
        whole.then_some(first..last + 1)
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
                prop_assert!(block.length > 0 && block.frames() <= REPLIES_PER_REQUEST);
                let first = u16::try_from(block.first).unwrap();
                let length = u16::try_from(block.length).unwrap();
                prop_assert_eq!(Block::requested(frame, first, length, total, offset), Some(block));
                prop_assert_eq!(Block::requested(frame, first, length, block.end() - 1, offset), None);
                for frame_number in 0..block.frames() {
                    let (start, length) = block.frame_range(frame_number).unwrap();
                    prop_assert_eq!(start, at);
                    prop_assert!(length > 0 && length <= 4096);
                    prop_assert_eq!(block.frame_numbers(start, length), Some(frame_number..frame_number + 1));
                    prop_assert_eq!(block.frame_numbers(start + 1, length), None);
                    at += length;
                }
                frame += block.frames();
            }
            prop_assert_eq!(at, total);
        }
    }

    /// A value that replaces a word of a request or reply.
    fn word() -> impl Strategy<Value = u32> {
        prop_oneof![
            any::<u32>(),
            0..3u32,
            (0..3u32).prop_map(|less| u32::MAX - less),
            (0..40u32, 0..3u32).prop_map(|(frames, more)| frames * FRAME + more),
        ]
    }

    /// The length of a message, often close to the largest `u32`.
    fn total() -> impl Strategy<Value = u32> {
        prop_oneof![
            1..300_000u32,
            (0..300_000u32).prop_map(|less| u32::MAX - less)
        ]
    }

    /// The start of one of the blocks that this crate would request.
    fn start_of_block(total: u32, offset: u16, at: u32) -> u32 {
        let first = Block::at(0, total, offset).end();
        match at % total.div_ceil(PULL_BLOCK) {
            0 => 0,
            frame_number => first.saturating_add((frame_number - 1).saturating_mul(PULL_BLOCK)),
        }
    }

    /// Runs a property that returns whether it reached its subject, and checks that it did so at
    /// least `least` times.
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

    /// A request as this crate would send it, with up to three words changed.
    #[test]
    fn mxoe_7_changed_requests_are_checked() {
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
            let requested =
                Block::requested(frame, short(first), short(length), total, short(offset));
            let Some(block) = requested else {
                return Ok(false);
            };
            prop_assert!(block.end() <= total && block.frames() <= REPLIES_PER_REQUEST);
            let mut at = block.start;
            for frame_number in 0..block.frames() {
                let (start, length) = block.frame_range(frame_number).unwrap();
                prop_assert_eq!(start, at);
                prop_assert_eq!(
                    block.frame_numbers(start, length),
                    Some(frame_number..frame_number + 1)
                );
                at += length;
            }
            prop_assert_eq!(at, block.end());
            prop_assert_eq!(block.frame_range(block.frames()), None);
            Ok(true)
        });
    }

    /// A reply to a requested block, with its offset, its length or both changed.
    #[test]
    fn mxoe_7_changed_replies_match_one_frame_or_none() {
        let changes = (proptest::option::of(word()), proptest::option::of(word()));
        let values = (
            total(),
            any::<u16>(),
            any::<u32>(),
            0..REPLIES_PER_REQUEST,
            changes,
        );
        run(
            values,
            16,
            |(total, offset, at, frame_number, (other_start, other_length))| {
                let block = Block::at(start_of_block(total, offset, at), total, offset);
                let Some((start, length)) = block.frame_range(frame_number) else {
                    return Ok(false);
                };
                let (start, length) =
                    (other_start.unwrap_or(start), other_length.unwrap_or(length));
                let Some(found) = block.frame_numbers(start, length) else {
                    return Ok(false);
                };
                let (first, _) = block.frame_range(found.start).unwrap();
                let (last, rest) = block.frame_range(found.end - 1).unwrap();
                prop_assert_eq!((first, last + rest), (start, start + length));
                prop_assert!(
                    start >= block.start
                        && u64::from(start) + u64::from(length) <= u64::from(block.end())
                );
                Ok(true)
            },
        );
    }

    /// A large reply carries two frames, and the first or last frame of a message may be short.
    #[test]
    fn a_reply_carries_whole_frames() {
        let block = Block::at(0, 20_000, 100);
        assert_eq!(block.frame_numbers(0, 3996 + 4096), Some(0..2));
        assert_eq!(block.frame_numbers(3996, 8192), Some(1..3));
        assert_eq!(block.frame_numbers(3996 + 3 * 4096, 3716), Some(4..5));
        assert_eq!(block.frame_numbers(3996, 8191), None, "a part of a frame");
        assert_eq!(block.frame_numbers(3996, 0), None);
        assert_eq!(
            block.frame_numbers(3996 + 3 * 4096, 8192),
            None,
            "over its end"
        );
    }

    /// Two frames that made an earlier version panic.
    #[test]
    fn mxoe_7_replies_and_requests_at_the_largest_offsets() {
        let block = Block::at(0, 100_000, 100);
        assert_eq!(block.frame_numbers(u32::MAX, 4096), None);
        let last = Block::requested(0xf_ffff, 0, 4095, u32::MAX, 0).unwrap();
        assert_eq!(last.frame_range(0), Some((0xffff_f000, 4095)));
        assert_eq!(last.frame_range(u32::MAX), None);
        assert_eq!(last.end(), u32::MAX);
    }
}
