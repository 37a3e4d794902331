//! The Internet checksum (RFC 1071).

use super::Untranslatable;
use super::wire::{ETHERNET, UDP_CHECKSUM, put};

/// Completes a partial checksum in place: sums the frame from `start` to its end and writes the complement
/// at `start + offset`, where the sender has stored the sum of the pseudo header. `start` and `offset` are
/// the network header's `csum_start` and `csum_offset`, in bytes (virtio 1.2, 5.1.6.2).
///
/// # Errors
/// [`Untranslatable::ChecksumOutside`] or [`Untranslatable::ChecksumInEthernet`]; the frame is
/// then unchanged.
pub fn fill_checksum(frame: &mut [u8], start: u16, offset: u16) -> Result<(), Untranslatable> {
    let (start, offset) = (usize::from(start), usize::from(offset));
    if start < ETHERNET {
        return Err(Untranslatable::ChecksumInEthernet);
    }
    let covered = frame
        .get_mut(start..)
        .ok_or(Untranslatable::ChecksumOutside)?;
    let complement = Sum::default().bytes(covered).complement();
    let value = if offset == UDP_CHECKSUM {
        never_zero(complement)
    } else {
        complement
    };
    put(covered, offset, value).ok_or(Untranslatable::ChecksumOutside)
}

/// Returns a UDP checksum as it is sent: a computed 0 is sent as all ones, because 0 means "no checksum"
/// (RFC 768; forbidden in IPv6, RFC 8200, 8.1). Both are the same number in one's complement.
pub(super) fn never_zero(checksum: [u8; 2]) -> [u8; 2] {
    if checksum == [0, 0] {
        [0xff, 0xff]
    } else {
        checksum
    }
}

/// A one's complement sum in progress.
///
/// The words are added in the machine's byte order without conversion: RFC 1071, section 2 (B) shows that
/// the bytes of the sum have the order in which the words were read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum(u64);

impl Sum {
    /// Adds the 16-bit words of `bytes`; an odd byte at the end counts as if a zero followed.
    /// Only the last piece of a sum may have an odd length.
    pub(super) fn bytes(self, bytes: &[u8]) -> Self {
        // 64 bits suffice for the 32-bit halves of 16 GB, so no carry needs handling, and the compiler
        // vectorises the loop.
        let mut lanes = [0_u64; 8];
        let mut blocks = bytes.chunks_exact(64);
        for block in &mut blocks {
            for (lane, word) in lanes.iter_mut().zip(block.chunks_exact(8)) {
                *lane = lane.wrapping_add(halves(word));
            }
        }
        let mut total = lanes
            .iter()
            .fold(self.0, |sum, lane| sum.wrapping_add(*lane));
        let mut words = blocks.remainder().chunks_exact(8);
        for word in &mut words {
            total = total.wrapping_add(halves(word));
        }
        let rest = words.remainder();
        let mut last = [0; 8];
        if let Some(start) = last.get_mut(..rest.len()) {
            start.copy_from_slice(rest);
        }
        Self(total.wrapping_add(halves(&last)))
    }

    /// Adds one word, given as a number.
    pub(super) fn word(self, word: u16) -> Self {
        Self(
            self.0
                .wrapping_add(u64::from(u16::from_ne_bytes(word.to_be_bytes()))),
        )
    }

    /// Returns the sum as bytes of the frame, which is the value of a partial checksum field.
    pub(super) fn folded(self) -> [u8; 2] {
        let mut sum = self.0;
        while let carry @ 1.. = sum >> 16 {
            sum = (sum & 0xffff).wrapping_add(carry);
        }
        let [.., high, low] = sum.to_be_bytes();
        u16::from_be_bytes([high, low]).to_ne_bytes()
    }

    /// Returns the complement of the sum as bytes of the frame, which is a full checksum.
    pub(super) fn complement(self) -> [u8; 2] {
        self.folded().map(|byte| !byte)
    }
}

/// Returns the sum of the two 32-bit halves of an 8-byte word. Sums of halves and of 16-bit words are equal
/// modulo 0xffff, because 2^32 and 2^16 are both 1 modulo 0xffff.
fn halves(word: &[u8]) -> u64 {
    let word = word.first_chunk().map_or(0, |w| u64::from_ne_bytes(*w));
    (word & 0xffff_ffff).wrapping_add(word >> 32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Computes the sum word by word, as RFC 1071 defines it.
    fn rfc1071_sum(bytes: &[u8]) -> u16 {
        let mut sum = 0_u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        u16::try_from(sum).unwrap()
    }

    #[test]
    fn rfc1071_3_numerical_example() {
        let sum = Sum::default().bytes(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.folded(), [0xdd, 0xf2]);
        assert_eq!(sum.complement(), [0x22, 0x0d]);
    }

    #[test]
    fn rfc1071_2_carries_of_all_ones_are_kept() {
        for len in [2, 63, 64, 65, 4096, 65_550] {
            let bytes = vec![0xff; len];
            let expected = rfc1071_sum(&bytes).to_be_bytes();
            assert_eq!(Sum::default().bytes(&bytes).folded(), expected, "{len}");
        }
    }

    #[test]
    fn rfc768_a_computed_zero_is_sent_as_all_ones_for_udp_only() {
        // The covered words sum to 0xffff, so the complement is 0.
        let mut frame = [0; 36];
        frame[14..16].copy_from_slice(&[0xff, 0xff]);
        let mut udp = frame;
        fill_checksum(&mut udp, 14, 6).unwrap();
        assert_eq!(udp[20..22], [0xff, 0xff]);
        let mut tcp = frame;
        fill_checksum(&mut tcp, 14, 16).unwrap();
        assert_eq!(tcp[30..32], [0, 0]);
    }

    #[test]
    fn virtio_5_1_6_2_a_checksum_outside_the_frame_is_refused() {
        let mut frame = [7; 60];
        for (start, offset) in [
            (60, 0),
            (61, 0),
            (59, 0),
            (34, 25),
            (20, u16::MAX),
            (u16::MAX, 0),
        ] {
            let refused = fill_checksum(&mut frame, start, offset);
            assert_eq!(refused, Err(Untranslatable::ChecksumOutside));
        }
        assert_eq!(frame, [7; 60]);
        assert_eq!(fill_checksum(&mut frame, 34, 24), Ok(()));
    }

    #[test]
    fn a_checksum_cannot_be_written_over_the_addresses() {
        let mut frame = [7; 60];
        for (start, offset) in [(0, 0), (0, 6), (13, 20)] {
            let refused = fill_checksum(&mut frame, start, offset);
            assert_eq!(refused, Err(Untranslatable::ChecksumInEthernet));
        }
        assert_eq!(frame, [7; 60]);
    }

    proptest! {
        #[test]
        fn rfc1071_the_sum_equals_the_reference(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let expected = rfc1071_sum(&bytes);
            prop_assert_eq!(Sum::default().bytes(&bytes).folded(), expected.to_be_bytes());
            let even = bytes.len() / 4 * 2;
            let pieces = Sum::default().bytes(&bytes[..even]).bytes(&bytes[even..]);
            prop_assert_eq!(pieces.folded(), expected.to_be_bytes());
        }

        #[test]
        fn rfc1071_a_word_adds_like_its_bytes(bytes in prop::collection::vec(any::<u8>(), 0..9), word: u16) {
            let sum = Sum::default().word(word).bytes(&bytes);
            let same = Sum::default().bytes(&word.to_be_bytes()).bytes(&bytes);
            prop_assert_eq!(sum.folded(), same.folded());
        }

        #[test]
        fn rfc1071_a_filled_frame_verifies_with_its_pseudo_header(
            mut frame in prop::collection::vec(any::<u8>(), 40..2000), start in 14_u16..20, udp: bool,
        ) {
            let offset = if udp { 6 } else { 16 };
            let from = usize::from(start);
            let pseudo = rfc1071_sum(&frame[from + offset..from + offset + 2]);
            fill_checksum(&mut frame, start, u16::try_from(offset).unwrap()).unwrap();
            let verified = Sum::default().word(pseudo).bytes(&frame[from..]);
            prop_assert_eq!(verified.folded(), [0xff, 0xff]);
        }
    }
}
