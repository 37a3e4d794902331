//! The header of shared memory: an eight-byte magic number, the version of the layout, and sizes,
//! all little endian.

use crate::layout::LayoutError;

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
