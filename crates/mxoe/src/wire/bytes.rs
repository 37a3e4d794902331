//! Big-endian numbers at offsets of a packet. Reads are bounds-checked; writes extend the packet where it has no place for them yet.

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

/// Writes a packet, from an offset on in a frame whose bytes are zero. Bytes that are skipped stay, or become, zero.
#[derive(Debug)]
pub(super) struct Writer<'a>(pub(super) &'a mut Vec<u8>, pub(super) usize);

impl Writer<'_> {
    /// Writes a field into its place, which nearly always exists: a frame has [`MIN_FRAME`](crate::limits::MIN_FRAME) bytes.
    #[inline(always)]
    pub(super) fn array<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        let start = self.1 + at;
        match self.0.get_mut(start..start + N) {
            Some(place) => place.copy_from_slice(&bytes),
            None => self.end_with(start, &bytes),
        }
    }

    /// Ends the frame with these bytes. What the frame has from there on is zero.
    fn end_with(&mut self, start: usize, bytes: &[u8]) {
        self.0.resize(start, 0);
        self.0.extend_from_slice(bytes);
    }

    #[inline(always)]
    pub(super) fn u8(&mut self, at: usize, value: u8) {
        self.array(at, [value]);
    }

    #[inline(always)]
    pub(super) fn u16(&mut self, at: usize, value: u16) {
        self.array(at, value.to_be_bytes());
    }

    #[inline(always)]
    pub(super) fn u32(&mut self, at: usize, value: u32) {
        self.array(at, value.to_be_bytes());
    }

    /// Writes bytes behind all fields. The frame ends with them.
    pub(super) fn bytes(&mut self, at: usize, bytes: &[u8]) {
        self.end_with(self.1 + at, bytes);
    }
}
