//! The header of shared memory: an eight-byte magic number, the version of the layout, and sizes,
//! all little endian.

/// A header that this side does not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The magic number is another: the memory is no window.
    #[error("its magic number is not that of a window or region")]
    Magic,
    /// The layout has another version.
    #[error(
        "it has layout version {0}, which this release does not support; use the same release on both sides"
    )]
    Version(u32),
    /// A ring's size is out of bounds.
    #[error("a ring has {0} slots, but the number must be a power of two from 8 to 4096")]
    Slots(u32),
    /// A data area's size is out of bounds.
    #[error("a data area has {0} bytes, but the size must be a power of two from 4 KiB to 16 MiB")]
    Data(u32),
    /// A region's number of members is out of bounds.
    #[error("a region has {0} members, but it may have 1 to 64")]
    Members(u32),
    /// A region's number of links is out of bounds.
    #[error("a region has {0} links, but it may have 1 to 4096")]
    Links(u32),
    /// A heap's number of units is out of bounds.
    #[error("a heap has {0} units, but it may have up to 1024")]
    Units(u32),
}

/// Encodes a header. Bytes behind the last size are zero.
pub(crate) fn encode<const N: usize>(
    magic: u64,
    version: u32,
    sizes: impl IntoIterator<Item = u32>,
) -> [u8; N] {
    let words = std::iter::once(version).chain(sizes);
    let words = words.flat_map(u32::to_le_bytes);
    let mut bytes = [0; N];
    for (target, byte) in bytes
        .iter_mut()
        .zip(magic.to_le_bytes().into_iter().chain(words))
    {
        *target = byte;
    }
    bytes
}

/// Checks magic and version, and returns a reader of the sizes in order. Behind the last size it
/// returns zeros.
///
/// # Errors
/// The magic number or the version is another.
pub(crate) fn decode(
    bytes: &[u8],
    magic: u64,
    version: u32,
) -> Result<impl FnMut() -> u32, LayoutError> {
    let (start, rest) = bytes.split_first_chunk::<8>().ok_or(LayoutError::Magic)?;
    if *start != magic.to_le_bytes() {
        return Err(LayoutError::Magic);
    }
    let mut words = rest.chunks_exact(4).map(|bytes| {
        let bytes = bytes.first_chunk::<4>();
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    });
    let mut word = move || words.next().unwrap_or(0);
    match word() {
        found if found == version => Ok(word),
        other => Err(LayoutError::Version(other)),
    }
}
