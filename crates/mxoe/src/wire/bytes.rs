//! Big-endian numbers at offsets of a packet. Reads are bounds-checked; writes extend the packet.

/// Reads a packet. Offsets count from the packet's type, which is 16 bytes into the frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..at.checked_add(N)?)?.try_into().ok()
    }

    pub(super) fn u8(self, at: usize) -> Option<u8> {
        self.array(at).map(u8::from_be_bytes)
    }

    pub(super) fn u16(self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_be_bytes)
    }

    pub(super) fn u32(self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_be_bytes)
    }

    /// Returns `length` bytes, or `None` if the packet is shorter.
    pub(super) fn bytes(self, at: usize, length: usize) -> Option<&'a [u8]> {
        self.0.get(at..at.checked_add(length)?)
    }
}

/// Writes a packet. Bytes that are skipped become zero.
#[derive(Debug)]
pub(super) struct Writer<'a>(pub(super) &'a mut Vec<u8>, pub(super) usize);

impl Writer<'_> {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        let start = self.1 + at;
        if self.0.len() <= start {
            self.0.resize(start, 0);
            self.0.extend_from_slice(bytes);
            return;
        }
        let end = start + bytes.len();
        if self.0.len() < end {
            self.0.resize(end, 0);
        }
        if let Some(place) = self.0.get_mut(start..end) {
            place.copy_from_slice(bytes);
        }
    }

    pub(super) fn u8(&mut self, at: usize, value: u8) {
        self.put(at, &[value]);
    }

    pub(super) fn u16(&mut self, at: usize, value: u16) {
        self.put(at, &value.to_be_bytes());
    }

    pub(super) fn u32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_be_bytes());
    }

    pub(super) fn bytes(&mut self, at: usize, bytes: &[u8]) {
        self.put(at, bytes);
    }
}
