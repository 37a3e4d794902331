//! Sizes of memory on the command line, in the form that QEMU takes.

/// Parses a size as QEMU does, and returns it in bytes.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let (number, shift) = match text.split_at_checked(text.len().saturating_sub(1)) {
        Some((number, "M")) => (number, 20),
        Some((number, "G")) => (number, 30),
        Some((number, "T")) => (number, 40),
        _ => ("", 0),
    };
    match number.parse::<u32>() {
        Ok(size) if size > 0 => Ok(u64::from(size) << shift),
        _ => Err("write a number and a unit: 512M, 4G".to_owned()),
    }
}
