//! The file in which the guest reads how pushing goes. It is not of the store: it takes no slot, nobody
//! writes it, and each reading is answered with what is so then.

use std::io::{self, Write};
use std::time::Duration;

use fuse_backend_rs::abi::fuse_abi::stat64;
use fuse_backend_rs::api::filesystem::{Entry, ZeroCopyWriter};
use space::store::ROOT;

use crate::guest::in_memory;
use crate::shared::{Shared, now};

/// It is in the outermost folder, under this name.
pub(crate) const NAME: &[u8] = b".vicinity-push";

/// No file or folder of the store comes to have this number.
pub(crate) const NUMBER: u64 = u64::MAX;

/// Whether that is what the guest looks for.
pub(crate) fn is_meant(shared: &Shared, folder: u64, name: &[u8]) -> bool {
    folder == ROOT && name == NAME && shared.outbox.is_on()
}

/// What the guest's kernel is told of it.
pub(crate) fn entry() -> Entry {
    Entry {
        inode: NUMBER,
        attr: status(),
        entry_timeout: Duration::ZERO,
        attr_timeout: Duration::ZERO,
        ..Entry::default()
    }
}

/// What `stat` says of it. Its length is not known before it is read.
pub(crate) fn status() -> stat64 {
    let mut answer = Entry::default().attr;
    answer.st_ino = NUMBER;
    answer.st_mode = libc::S_IFREG | 0o444;
    answer.st_nlink = 1;
    answer.st_mtime = i64::try_from(now().as_secs()).unwrap_or(i64::MAX);
    answer
}

/// Read it.
pub(crate) fn read(
    shared: &Shared,
    to: &mut dyn ZeroCopyWriter,
    size: u32,
    offset: u64,
) -> io::Result<usize> {
    let text = shared.pushing();
    let rest = text.as_bytes().get(in_memory(offset)..).unwrap_or_default();
    let part = rest.get(..size as usize).unwrap_or(rest);
    Write::write_all(to, part)?;
    Ok(part.len())
}
