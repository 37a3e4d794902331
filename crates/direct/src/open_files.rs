//! Lists the memory files that a QEMU process has open: its own VM's RAM, and the RAM of other VMs that
//! it received as views.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::{DirectError, io};

/// The identity of a memory file (memfd). It is the same in each process that has the file open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

/// A memory file that a process has open.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) path: PathBuf,
    pub(crate) id: FileId,
    pub(crate) size: u64,
    /// Whether the file is open for writing. A view of a peer's memory is open for reading only.
    pub(crate) writable: bool,
}

impl FileId {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

/// Returns the memory files (memfd) that a process has open.
pub(crate) fn memfds(process: i32) -> Result<Vec<OpenFile>, DirectError> {
    let folder = format!("/proc/{process}/fd");
    let entries = io(fs::read_dir(&folder), || format!("read {folder}"))?;
    let held = entries.flatten().filter_map(|entry| {
        let path = entry.path();
        let link = fs::read_link(&path).ok()?;
        link.to_string_lossy()
            .starts_with("/memfd:")
            .then_some(())?;
        // QEMU may close the descriptor between the two calls.
        let metadata = fs::metadata(&path).ok()?;
        let number = entry.file_name();
        let info = format!("/proc/{process}/fdinfo/{}", number.to_str()?);
        Some(OpenFile {
            id: FileId::of(&metadata),
            size: metadata.len(),
            writable: is_writable(&fs::read_to_string(info).ok()?),
            path,
        })
    });
    Ok(held.collect())
}

/// Returns whether a descriptor is open for writing. `fdinfo` lists the open flags in octal; an access
/// mode of 0 means reading only.
fn is_writable(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & 3 != 0)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_file_is_known_however_it_was_opened() {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let memory = rustix::fs::memfd_create("x", flags).unwrap();
        rustix::fs::ftruncate(&memory, 8192).unwrap();
        let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
        let view = File::open(path).unwrap();
        let id = FileId::of(&view.metadata().unwrap());
        let me = i32::try_from(std::process::id()).unwrap();
        let held = memfds(me).unwrap();
        let mut of_it: Vec<_> = held.iter().filter(|held| held.id == id).collect();
        of_it.sort_by_key(|held| held.writable);
        let seen: Vec<_> = of_it
            .iter()
            .map(|held| (held.size, held.writable))
            .collect();
        assert_eq!(seen, [(8192, false), (8192, true)]);
    }
}
