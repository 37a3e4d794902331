//! Unpacks a kernel, once for all boots of emulated guests.
//!
//! A `vmlinuz` file is a small program that unpacks the kernel proper, an ELF file. QEMU boots that file, too, by the entry
//! point for virtual machines that Debian's kernels have (`CONFIG_PVH`). An emulated guest then has no need to unpack it,
//! which took a seventh of its boot. Such a kernel is at the address that it was linked for (no KASLR).
//!
//! Formats: the kernel's `Documentation/arch/x86/boot.rst`; LZ4's `doc/lz4_Frame_format.md`, "Legacy frame".

/// Where the file has the number of 512-byte sectors of its first part, minus one.
const SETUP_SECTORS: usize = 0x1f1;

/// Where the file has "HdrS", and then the version of its header.
const MAGIC: usize = 0x202;

/// The first version of the header with the place and the length of the packed kernel.
const VERSION: u16 = 0x208;

/// Where the file has the place of the packed kernel, after its first part, and then the length.
const PAYLOAD: usize = 0x248;

/// The first bytes of the old LZ4 format.
const LZ4: [u8; 4] = 0x184c_2102_u32.to_le_bytes();

/// The most bytes that a block of this format unpacks to.
const BLOCK: usize = 8 << 20;

/// Returns the kernel in a `vmlinuz` file; `None` if the file is not such a file or is packed by another method than LZ4.
/// Of Debian's cloud kernels, 6.1 is packed by LZ4, 6.12 by Zstandard.
pub(super) fn unpack(vmlinuz: &[u8]) -> Option<Vec<u8>> {
    if at(vmlinuz, MAGIC)? != *b"HdrS" {
        return None;
    }
    let [low, high, ..] = at(vmlinuz, MAGIC + 4)?;
    if u16::from_le_bytes([low, high]) < VERSION {
        return None;
    }
    let sectors = usize::from(*vmlinuz.get(SETUP_SECTORS)?) + 1;
    let start = sectors * 512 + size(vmlinuz, PAYLOAD)?;
    let end = start.checked_add(size(vmlinuz, PAYLOAD + 4)?)?;
    // The last four bytes are the kernel's length.
    let (packed, length) = vmlinuz.get(start..end)?.split_last_chunk()?;
    let mut blocks = packed.strip_prefix(&LZ4)?;
    let mut kernel = Vec::new();
    while let Some((length, rest)) = blocks.split_first_chunk() {
        let (block, rest) =
            rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
        kernel.extend(lz4_flex::block::decompress(block, BLOCK).ok()?);
        blocks = rest;
    }
    let whole = kernel.len() == usize::try_from(u32::from_le_bytes(*length)).ok()?;
    (whole && kernel.starts_with(b"\x7fELF")).then_some(kernel)
}

/// Returns the four bytes at this place.
fn at(bytes: &[u8], place: usize) -> Option<[u8; 4]> {
    bytes.get(place..)?.first_chunk().copied()
}

/// Returns the number of 32 bits at this place.
fn size(bytes: &[u8], place: usize) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(at(bytes, place)?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a file with one sector before the packed kernel, which is packed in blocks of this many bytes.
    fn packed(kernel: &[u8], block: usize) -> Vec<u8> {
        let mut payload = LZ4.to_vec();
        for part in kernel.chunks(block) {
            let part = lz4_flex::block::compress(part);
            payload.extend(u32::try_from(part.len()).unwrap().to_le_bytes());
            payload.extend(part);
        }
        payload.extend(u32::try_from(kernel.len()).unwrap().to_le_bytes());
        let mut file = vec![0; 1024];
        file[SETUP_SECTORS] = 0;
        file[MAGIC..MAGIC + 6].copy_from_slice(b"HdrS\x0f\x02");
        file[PAYLOAD..PAYLOAD + 4].copy_from_slice(&512_u32.to_le_bytes());
        let length = u32::try_from(payload.len()).unwrap();
        file[PAYLOAD + 4..PAYLOAD + 8].copy_from_slice(&length.to_le_bytes());
        [file, payload, b"signature".to_vec()].concat()
    }

    #[test]
    fn a_packed_kernel_is_unpacked() {
        let kernel = [
            b"\x7fELF".to_vec(),
            (0..=255).collect::<Vec<u8>>().repeat(400),
        ]
        .concat();
        assert_eq!(unpack(&packed(&kernel, 30_000)), Some(kernel));
    }

    #[test]
    fn other_files_are_left_as_they_are() {
        assert_eq!(unpack(b""), None);
        assert_eq!(unpack(b"\x7fELF"), None);
        assert_eq!(unpack(&packed(b"no ELF file", 5)), None);
        let file = packed(b"\x7fELF and more", 5);
        let with = |place: usize, byte| {
            let mut file = file.clone();
            file[place] = byte;
            unpack(&file)
        };
        assert!(with(0, 0).is_some());
        // An old header, another method, and a length beyond the end.
        for (place, byte) in [(MAGIC + 4, 7), (1024, 0), (PAYLOAD + 7, 0xff)] {
            assert_eq!(with(place, byte), None);
        }
        assert_eq!(unpack(&file[..file.len() - 10]), None);
    }
}
