//! A writer of the kernel's initramfs format ("newc" cpio). The same tree yields
//! the same bytes: names are sorted, times are zero, inode numbers count up.
//!
//! Format: the kernel's `Documentation/driver-api/early-userspace/buffer-format.rst`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns the file type bits of a regular file with the given permissions.
pub(crate) const fn file(permissions: u32) -> u32 {
    0o100_000 | permissions
}

/// Returns the file type bits of a folder with the given permissions.
pub(crate) const fn folder(permissions: u32) -> u32 {
    0o040_000 | permissions
}

/// File type bits of a symbolic link.
pub(crate) const LINK: u32 = 0o120_777;

/// Writes entries in the order they are given.
#[derive(Debug)]
pub(crate) struct Writer<W> {
    out: W,
    next: u32,
}

impl<W: Write> Writer<W> {
    pub(crate) const fn new(out: W) -> Self {
        Self { out, next: 1 }
    }

    /// Adds an entry whose content is in memory.
    pub(crate) fn entry(&mut self, name: &[u8], mode: u32, content: &[u8]) -> io::Result<()> {
        let size = narrow(content.len())?;
        self.header(name, mode, (0, 0), size)?;
        self.out.write_all(content)?;
        self.pad(size)
    }

    /// Adds a file, folder or link of the host's file system, with its mode and owner. Anything
    /// else (devices, sockets) is left out.
    pub(crate) fn copy(&mut self, name: &[u8], path: &Path) -> io::Result<()> {
        let meta = fs::symlink_metadata(path)?;
        let owner = (meta.uid(), meta.gid());
        if meta.is_symlink() {
            let target = fs::read_link(path)?;
            let target = target.as_os_str().as_bytes();
            let size = narrow(target.len())?;
            self.header(name, LINK, owner, size)?;
            self.out.write_all(target)?;
            self.pad(size)
        } else if meta.is_dir() {
            self.header(name, meta.mode(), owner, 0)
        } else if meta.is_file() {
            let size = narrow(meta.size())?;
            self.header(name, meta.mode(), owner, size)?;
            let copied = io::copy(&mut File::open(path)?, &mut self.out)?;
            if copied != u64::from(size) {
                return Err(io::Error::other("the file changed while it was read"));
            }
            self.pad(size)
        } else {
            Ok(())
        }
    }

    /// Writes the trailer and returns the output.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.next = 0;
        self.header(b"TRAILER!!!", 0, (0, 0), 0)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn header(&mut self, name: &[u8], mode: u32, owner: (u32, u32), size: u32) -> io::Result<()> {
        let links = if mode & 0o170_000 == 0o040_000 { 2 } else { 1 };
        let name_size = narrow(name.len() + 1)?;
        let fields = [
            self.next, mode, owner.0, owner.1, links, 0, size, 0, 0, 0, 0, name_size, 0,
        ];
        self.out.write_all(b"070701")?;
        for field in fields {
            write!(self.out, "{field:08x}")?;
        }
        self.out.write_all(name)?;
        self.out.write_all(&[0])?;
        self.next += 1;
        self.pad(110 + name_size)
    }

    /// Pads to a multiple of four bytes, at which headers and contents end.
    fn pad(&mut self, length: u32) -> io::Result<()> {
        for _ in 0..length.wrapping_neg() % 4 {
            self.out.write_all(&[0])?;
        }
        Ok(())
    }
}

/// Sizes in the format have 32 bits.
fn narrow(size: impl TryInto<u32>) -> io::Result<u32> {
    size.try_into()
        .map_err(|_| io::Error::other("too large for an initramfs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_the_layout_the_kernel_reads() {
        let mut writer = Writer::new(Vec::new());
        writer.entry(b"a", file(0o755), b"hello").unwrap();
        let bytes = writer.finish().unwrap();
        let head = "070701 00000001 000081ed 00000000 00000000 00000001 00000000 00000005 \
                    00000000 00000000 00000000 00000000 00000002 00000000";
        assert_eq!(&bytes[..110], head.replace(' ', "").as_bytes());
        assert_eq!(&bytes[110..112], b"a\0");
        assert_eq!(&bytes[112..120], b"hello\0\0\0");
        assert_eq!(&bytes[120 + 110..120 + 120], b"TRAILER!!!");
        assert_eq!(bytes.len() % 4, 0);
    }
}
