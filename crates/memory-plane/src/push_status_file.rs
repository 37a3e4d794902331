//! The file in which the guest reads how pushing goes. It is not of the store: it takes no slot, nobody
//! writes it, and each reading is answered with what is so then.

use std::io::{self, Write};
use std::time::Duration;

use fuse_backend_rs::abi::fuse_abi::stat64;
use fuse_backend_rs::api::filesystem::{Entry, ZeroCopyWriter};
use space::store::ROOT;

use crate::fuse_types::to_usize;
use crate::shared::{Shared, now};

/// It is in the outermost folder, under this name.
pub(crate) const NAME: &[u8] = b".vicinity-push";

/// No file or folder of the store comes to have this number.
pub(crate) const INODE: u64 = u64::MAX;

/// Whether that is what the guest looks for.
pub(crate) fn is_looked_up(shared: &Shared, directory: u64, name: &[u8]) -> bool {
    directory == ROOT && name == NAME && shared.outbox.is_enabled()
}

/// What the guest's kernel is told of it.
pub(crate) fn entry() -> Entry {
    Entry {
        inode: INODE,
        attr: stat(),
        entry_timeout: Duration::ZERO,
        attr_timeout: Duration::ZERO,
        ..Entry::default()
    }
}

/// What `stat` says of it. Its length is not known before it is read.
pub(crate) fn stat() -> stat64 {
    let mut stat = Entry::default().attr;
    stat.st_ino = INODE;
    stat.st_mode = libc::S_IFREG | 0o444;
    stat.st_nlink = 1;
    stat.st_mtime = i64::try_from(now().as_secs()).unwrap_or(i64::MAX);
    stat
}

/// Read it.
pub(crate) fn read(
    shared: &Shared,
    to: &mut dyn ZeroCopyWriter,
    size: u32,
    offset: u64,
) -> io::Result<usize> {
    let text = shared.push_status();
    let rest = text.as_bytes().get(to_usize(offset)..).unwrap_or_default();
    let part = rest.get(..size as usize).unwrap_or(rest);
    Write::write_all(to, part)?;
    Ok(part.len())
}
