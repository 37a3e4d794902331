//! The frames that the benchmark's own generator sends.

use front_end::frame;

use super::driver::Kind;

/// Bytes before a TCP payload.
pub(crate) const HEADERS: usize = 14 + 20 + 20;

/// The frames of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frames {
    /// Length of a frame, Ethernet header included.
    pub(crate) length: usize,
    /// Bytes of a segment, if the frame needs segmentation (TSO); otherwise 0.
    pub(crate) segment: u16,
}

impl Frames {
    /// Features that a driver needs for these frames.
    fn features(self) -> u64 {
        use front_end::features::{CSUM, GUEST_CSUM, GUEST_TSO4, HOST_TSO4};
        if self.segment == 0 {
            0
        } else {
            CSUM | GUEST_CSUM | HOST_TSO4 | GUEST_TSO4
        }
    }

    /// Returns the properties of a NIC that sends and receives these frames.
    pub(crate) fn kind(self) -> Kind {
        Kind {
            features: self.features(),
            longest: self.length,
        }
    }

    /// Returns the network header (virtio 1.3, 5.1.6).
    pub(crate) fn header(self) -> [u8; 12] {
        let [low, high] = self.segment.to_le_bytes();
        if self.segment == 0 {
            [0; 12]
        } else {
            // The header says that the frame needs a checksum, contains TCP over IPv4, has headers of 54 bytes, and
            // has the checksum at 34 + 16.
            [1, 1, 54, 0, low, high, 34, 0, 16, 0, 0, 0]
        }
    }
}

/// Address of the NIC with this number.
pub(crate) fn mac(number: usize) -> [u8; 6] {
    frame::mac(u16::try_from(number + 1).unwrap_or(u16::MAX))
}

/// The shortest frame.
pub(crate) const SHORT: Frames = Frames {
    length: 64,
    segment: 0,
};

/// A long frame as Linux sends it: 45 segments of 1,448 bytes. DPDK has no room for longer ones.
pub(crate) const LONG: Frames = Frames {
    length: HEADERS + 45 * 1448,
    segment: 1448,
};

const _: () = assert!(SHORT.length >= HEADERS);
