//! The layout of a window.
//!
//! ```text
//! 0      header (one page): magic, version, sizes; written once, before the window is shared
//! 4096   direction 0: creator to guest of the window
//!          one page, written by the consumer: doorbell @0, released of lane 0 @128, of lane 1 @256;
//!          claims @384, written by both
//!          ring of lane 0, ring of lane 1      slots * 64 bytes each
//!          data of lane 0, data of lane 1
//! ...    direction 1: the other way, the same
//! ```
//! All numbers are little endian. The words that the two sides write are 128 bytes apart, because
//! processors prefetch cache lines in pairs.

use crate::header;
use crate::limits;

pub use crate::header::LayoutError;

/// Version of the layout. A side that supports only other versions must not touch the rest of the
/// window.
pub const VERSION: u32 = 4;

/// The first eight bytes of a window.
pub const MAGIC: u64 = u64::from_le_bytes(*b"vicinity");

/// Bytes of a slot: a cache line.
pub const SLOT: u32 = 64;

/// Lanes in each direction.
pub const LANES: usize = 2;

/// Bytes of a header or control page.
const PAGE: u64 = 4096;

/// Bytes of the header that are used; the rest of its page is zero.
pub(crate) const HEADER: usize = 32;

/// The sizes of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneSize {
    /// Slots of its ring; a power of two within [`limits::SLOTS`].
    pub slots: u32,
    /// Bytes of its data area; a power of two within [`limits::DATA`].
    pub data: u32,
}

/// The sizes of a window, checked. All offsets follow from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    lanes: [LaneSize; LANES],
}

impl Layout {
    /// Creates a layout from the sizes of both lanes.
    ///
    /// # Errors
    /// A size is out of bounds.
    pub fn new(lanes: [LaneSize; LANES]) -> Result<Self, LayoutError> {
        for LaneSize { slots, data } in lanes {
            if !slots.is_power_of_two() || !limits::SLOTS.contains(&slots) {
                return Err(LayoutError::Slots(slots));
            }
            if !data.is_power_of_two() || !limits::DATA.contains(&data) {
                return Err(LayoutError::Data(data));
            }
        }
        Ok(Self { lanes })
    }

    /// Returns the header that describes the layout.
    #[must_use]
    pub fn header(&self) -> [u8; HEADER] {
        let sizes = self.lanes.iter();
        let sizes = sizes.flat_map(|lane| [lane.slots, lane.data]);
        header::encode(MAGIC, VERSION, sizes)
    }

    /// Reads a layout from a header, and checks it.
    ///
    /// # Errors
    /// See [`LayoutError`].
    pub fn from_header(bytes: &[u8; HEADER]) -> Result<Self, LayoutError> {
        let mut word = header::decode(bytes, MAGIC, VERSION)?;
        let mut lane = || LaneSize {
            slots: word(),
            data: word(),
        };
        Self::new([lane(), lane()])
    }

    /// Returns the sizes of both lanes.
    #[must_use]
    pub fn lanes(&self) -> [LaneSize; LANES] {
        self.lanes
    }

    /// Returns the length of the whole window in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        PAGE + 2 * self.direction_length()
    }

    /// Returns the range of a direction's control page and rings: all that must be zero in an
    /// unused window. Data areas need not be.
    pub(crate) fn control_and_rings(&self, direction: u64) -> std::ops::Range<u64> {
        let start = self.doorbell_offset(direction);
        let [first, second] = self.lanes;
        start..start + PAGE + ring_bytes(first) + ring_bytes(second)
    }

    fn direction_length(&self) -> u64 {
        let bytes = |lane: &LaneSize| ring_bytes(*lane) + u64::from(lane.data);
        let sum: u64 = self.lanes.iter().map(bytes).sum();
        PAGE + sum.next_multiple_of(PAGE)
    }

    /// Returns the offset of a direction's doorbell word, which the consumer writes.
    pub(crate) fn doorbell_offset(&self, direction: u64) -> u64 {
        PAGE + direction * self.direction_length()
    }

    /// Returns the offset of the [claims](crate::chunk_claim) word of a direction.
    pub(crate) fn claims_offset(&self, direction: u64) -> u64 {
        self.doorbell_offset(direction) + 384
    }

    /// Returns the offsets of the parts of each lane of a direction.
    pub(crate) fn lane_offsets(&self, direction: u64) -> [LaneOffsets; LANES] {
        let control = self.doorbell_offset(direction);
        let [first, second] = self.lanes;
        let rings = control + PAGE;
        let data = rings + ring_bytes(first) + ring_bytes(second);
        [
            LaneOffsets {
                size: first,
                released: control + 128,
                ring: rings,
                data,
            },
            LaneOffsets {
                size: second,
                released: control + 256,
                ring: rings + ring_bytes(first),
                data: data + u64::from(first.data),
            },
        ]
    }
}

/// The offsets of the parts of a lane, in bytes from the start of the window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneOffsets {
    pub(crate) size: LaneSize,
    pub(crate) released: u64,
    pub(crate) ring: u64,
    pub(crate) data: u64,
}

fn ring_bytes(lane: LaneSize) -> u64 {
    u64::from(lane.slots) * u64::from(SLOT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lane() -> impl Strategy<Value = LaneSize> {
        (3u32..=12, 12u32..=24).prop_map(|(slots, data)| LaneSize {
            slots: 1 << slots,
            data: 1 << data,
        })
    }

    /// Kept inputs with another version would never pass the header.
    #[test]
    fn the_kept_inputs_of_the_fuzz_target_have_this_version() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/window");
        let mut count = 0;
        for file in std::fs::read_dir(folder).unwrap() {
            let file = file.unwrap();
            let bytes = std::fs::read(file.path()).unwrap();
            let layout = Layout::from_header(bytes.first_chunk().unwrap());
            match file.file_name() == "version" {
                true => assert_eq!(layout, Err(LayoutError::Version(2))),
                false => assert!(layout.is_ok(), "{file:?}"),
            }
            count += 1;
        }
        assert!(count > 4);
    }

    proptest! {
        #[test]
        fn a_header_is_read_as_it_was_written(first in lane(), second in lane()) {
            let layout = Layout::new([first, second]).unwrap();
            prop_assert_eq!(Layout::from_header(&layout.header()), Ok(layout));
        }

        #[test]
        fn parts_lie_inside_and_apart(first in lane(), second in lane()) {
            let layout = Layout::new([first, second]).unwrap();
            let mut parts = vec![(0, PAGE)];
            for direction in 0..2 {
                parts.push((layout.doorbell_offset(direction), 4));
                parts.push((layout.claims_offset(direction), 8));
                for place in layout.lane_offsets(direction) {
                    parts.push((place.released, 4));
                    parts.push((place.ring, ring_bytes(place.size)));
                    parts.push((place.data, u64::from(place.size.data)));
                }
            }
            parts.sort_unstable();
            for pair in parts.windows(2) {
                prop_assert!(pair[0].0 + pair[0].1 <= pair[1].0);
            }
            let (start, length) = parts.pop().unwrap();
            prop_assert!(start + length <= layout.length());
        }
    }

    /// A valid header with up to three bytes changed is refused, or decodes to a layout that
    /// encodes to the same header.
    #[test]
    fn any_header_is_decoded_or_refused() {
        use std::cell::Cell;
        let changes = prop::collection::vec((0..HEADER, prop_oneof![0..25u8, any::<u8>()]), 0..4);
        let [read, refused] = [Cell::new(0), Cell::new(0)];
        let mut runner = proptest::test_runner::TestRunner::default();
        let checked = runner.run(&(lane(), lane(), changes), |(first, second, changes)| {
            let mut header = Layout::new([first, second]).unwrap().header();
            for (at, byte) in changes {
                header[at] = byte;
            }
            let count = match Layout::from_header(&header) {
                Ok(layout) => {
                    prop_assert_eq!(Layout::from_header(&layout.header()), Ok(layout));
                    &read
                }
                Err(_) => &refused,
            };
            count.set(count.get() + 1);
            Ok(())
        });
        checked.unwrap();
        let counts = (read.get(), refused.get());
        assert!(counts.0 > 20 && counts.1 > 20, "{counts:?}");
    }

    #[test]
    fn sizes_out_of_bounds_are_refused() {
        let good = LaneSize {
            slots: 64,
            data: 4096,
        };
        let with = |slots, data| Layout::new([good, LaneSize { slots, data }]);
        assert_eq!(with(63, 4096), Err(LayoutError::Slots(63)));
        assert_eq!(with(8192, 4096), Err(LayoutError::Slots(8192)));
        assert_eq!(with(64, 0), Err(LayoutError::Data(0)));
        assert_eq!(with(64, 1 << 25), Err(LayoutError::Data(1 << 25)));
        let mut header = with(64, 4096).unwrap().header();
        header[8] = 77;
        assert_eq!(Layout::from_header(&header), Err(LayoutError::Version(77)));
        header[0] = 0;
        assert_eq!(Layout::from_header(&header), Err(LayoutError::Magic));
    }
}
