//! The read-only file from which the guest reads the state of the push. It is not in the store and takes no slot. Each
//! read returns the current state.

use std::io::{self, Write};
use std::time::Duration;

use fuse_backend_rs::abi::fuse_abi::stat64;
use fuse_backend_rs::api::filesystem::{Entry, ZeroCopyWriter};
use space::store::ROOT;

use crate::fuse_types::to_usize;
use crate::space_state::{SpaceState, now};

/// The name of the file, in the root directory.
pub(crate) const NAME: &[u8] = b".vicinity-push";

/// Its inode number. The store never assigns it to a file or directory.
pub(crate) const INODE: u64 = u64::MAX;

/// Returns whether the guest looks up this file.
pub(crate) fn is_looked_up(state: &SpaceState, directory: u64, name: &[u8]) -> bool {
    directory == ROOT && name == NAME && state.outbox.is_enabled()
}

/// Returns the FUSE entry of the file.
pub(crate) fn entry() -> Entry {
    Entry {
        inode: INODE,
        attr: stat(),
        entry_timeout: Duration::ZERO,
        attr_timeout: Duration::ZERO,
        ..Entry::default()
    }
}

/// Returns the `stat` of the file. The size is 0, because the length is not known before the file is read.
pub(crate) fn stat() -> stat64 {
    let mut stat = Entry::default().attr;
    stat.st_ino = INODE;
    stat.st_mode = libc::S_IFREG | 0o444;
    stat.st_nlink = 1;
    stat.st_mtime = i64::try_from(now().as_secs()).unwrap_or(i64::MAX);
    stat
}

/// Answers a read of the file.
pub(crate) fn read(
    state: &SpaceState,
    to: &mut dyn ZeroCopyWriter,
    size: u32,
    offset: u64,
) -> io::Result<usize> {
    let text = state.push_status();
    let rest = text.as_bytes().get(to_usize(offset)..).unwrap_or_default();
    let part = rest.get(..size as usize).unwrap_or(rest);
    Write::write_all(to, part)?;
    Ok(part.len())
}
